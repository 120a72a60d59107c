//! A shutdown of the node, as the whole process carries it out.

use futures_util::FutureExt as _;

use super::*;

/// A pool for which a shutdown waits, 20 s for all pods together.
async fn guarded() -> Pool {
    let mut pool = Pool::start();
    pool.shutdown = vec![ShutdownGroup {
        priority: 0,
        grace: Duration::from_secs(20),
    }];
    pool.restart();
    eventually("a shutdown waits", || pool.logind.is_delayed()).await;
    pool
}

/// Has the node shut down, until it waits for nobody.
async fn goes_down(pool: &Pool) {
    pool.logind.shut_down(true);
    eventually("the node goes down", || !pool.logind.is_delayed()).await;
}

#[tokio::test(start_paused = true)]
async fn pods_end_with_the_node_though_the_state_disk_hangs() {
    let pool = guarded().await;
    pool.run(&pod_running("a", "u1", &["run"])).await;

    blocking::stay_on_this_thread(|| Box::pin(std::future::pending()));
    let begun = tokio::time::Instant::now();
    pool.logind.shut_down(true);
    eventually("the pod has ended", || {
        let containers = pool.runtime.containers();
        containers.iter().all(|container| !container.running)
    })
    .await;
    eventually("the node goes down", || !pool.logind.is_delayed()).await;
    // Before the time of its pods is over.
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(15), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn pods_start_after_a_shutdown_that_was_cancelled_while_the_bus_was_away() {
    let pool = guarded().await;
    pool.run(&pod_running("a", "u1", &["run"])).await;
    goes_down(&pool).await;

    // Nobody hears that it is cancelled.
    pool.logind.restart_bus();
    pool.logind.shut_down(false);
    eventually("the next one waits", || pool.logind.is_delayed()).await;
    pool.run(&pod_running("b", "u2", &["run"])).await;
}

#[tokio::test(start_paused = true)]
async fn the_lock_is_kept_for_the_next_run_where_this_one_is_stopped_while_pods_end() {
    let mut pool = guarded().await;
    pool.run(&pod_running("a", "u1", &["slow-term", "8000"]))
        .await;
    pool.logind.shut_down(true);
    eventually("the pod is asked to end", || {
        let history = pool.runtime.history();
        let mut history = history.iter();
        history.any(|entry| entry.happening == Happening::Terminated)
    })
    .await;
    // While somebody watches, the process takes its time to stop.
    let mut client = ObservationsClient::new(pool.channel(Process::StatusSyncer));
    let watch = client.watch_observations(v1::WatchObservationsRequest {});
    let _watch = watch.await.unwrap();
    pool.stop.cancel();
    pool.process.take().unwrap().await.unwrap();
    assert!(pool.logind.is_delayed());
}

#[tokio::test(start_paused = true)]
async fn pods_start_after_a_shutdown_of_which_logind_knows_nothing_after_its_own_restart() {
    let pool = guarded().await;
    pool.run(&pod_running("a", "u1", &["run"])).await;
    let shuts_down = async || {
        let mut workers = pool.workers();
        let capacity = workers.get_node_capacity(v1::GetNodeCapacityRequest {});
        capacity.await.unwrap().into_inner().shuts_down
    };
    assert!(!shuts_down().await);
    goes_down(&pool).await;
    assert!(shuts_down().await);
    pool.logind.restart();
    eventually("the next one waits", || pool.logind.is_delayed()).await;
    pool.run(&pod_running("b", "u2", &["run"])).await;
}

#[tokio::test(start_paused = true)]
async fn no_pod_starts_in_a_shutdown_of_which_logind_once_tells_nothing() {
    let pool = guarded().await;
    pool.run(&pod_running("a", "u1", &["run"])).await;
    goes_down(&pool).await;

    pool.logind.leave_a_question_unanswered();
    pool.logind.shut_down(true);
    let new = pod_running("b", "u2", &["run"]);
    pool.source.put(&new);
    let _ = pool.workers().update_pod(update(&new)).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let containers = pool.runtime.containers();
    assert!(
        containers.iter().all(|it| it.pod_uid != "u2"),
        "{containers:?}"
    );
}

/// The run that logind told of the shutdown died before it could note that.
#[tokio::test(start_paused = true)]
async fn no_pod_starts_in_a_shutdown_that_an_earlier_run_did_not_note() {
    let mut pool = guarded().await;
    pool.run(&pod_running("a", "u1", &["run"])).await;
    // Pods come before the new run knows of it.
    pool.logind.answer_after(Duration::from_secs(3));
    pool.logind.shut_down(true);
    pool.restart();
    for pod in [
        pod_running("a", "u1", &["run"]),
        pod_running("b", "u2", &["run"]),
    ] {
        pool.source.put(&pod);
        pool.workers().update_pod(update(&pod)).await.unwrap();
    }
    eventually("all pods have ended", || {
        let containers = pool.runtime.containers();
        containers.iter().all(|container| !container.running)
    })
    .await;
    let sandboxes = pool.runtime.sandboxes();
    assert!(
        sandboxes.iter().all(|it| it.pod_uid == "u1"),
        "{sandboxes:?}"
    );
}

/// What waits for the disk has no order among itself.
#[tokio::test(start_paused = true)]
async fn a_shutdown_has_all_its_time_after_one_that_was_cancelled_while_the_state_disk_hung() {
    let pool = guarded().await;

    let hangs = tokio::sync::watch::Sender::new(true);
    let (disk, waiting) = (hangs.subscribe(), std::cell::Cell::new(0));
    blocking::stay_on_this_thread(move || {
        let (mut disk, before) = (disk.clone(), waiting.get());
        waiting.set(before + 1);
        let reached = async move {
            if *disk.borrow() {
                disk.wait_for(|hangs| !hangs).await.unwrap();
                // Who came last is done first.
                tokio::time::sleep(Duration::from_millis(100 - before)).await;
            }
        };
        Box::pin(reached.map(|()| Box::pin(std::future::ready(())) as blocking::After))
    });
    goes_down(&pool).await;
    pool.logind.shut_down(false);
    eventually("the next one waits", || pool.logind.is_delayed()).await;
    hangs.send_replace(false);

    pool.run(&pod_running("a", "u1", &["slow-term", "8000"]))
        .await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let begun = tokio::time::Instant::now();
    goes_down(&pool).await;
    assert!(begun.elapsed() >= Duration::from_secs(8), "it was killed");
}
