//! How many logs are read at once.

use super::*;

#[tokio::test(start_paused = true)]
async fn the_33rd_log_at_once_is_refused_until_another_is_let_go() {
    const AT_ONCE: usize = 32;
    let pool = Pool::start();
    pool.run(&pod_running("a", "u1", &["run"])).await;
    let client = ContainerLogsClient::new(
        pool.hub
            .network_of_operator()
            .channel(Process::PodWorkerPool),
    );
    // The node in memory has no log files: who follows one waits for it.
    let followed = async || {
        let request = v1::ReadLogsRequest {
            pod_uid: "u1".into(),
            container_name: "c".into(),
            follow: true,
            ..v1::ReadLogsRequest::default()
        };
        client.clone().read_logs(request).await
    };
    let mut streams = Vec::new();
    for _ in 0..AT_ONCE {
        streams.push(followed().await.unwrap());
    }
    for _ in 0..2 {
        let refused = followed().await.unwrap_err();
        assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
    }
    streams.pop();
    let within = Duration::from_secs(60);
    let read = tokio::time::timeout(within, async {
        while followed().await.is_err() {
            // The clock is paused: it costs nothing, and the time has an end.
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
    read.await.unwrap();
}
