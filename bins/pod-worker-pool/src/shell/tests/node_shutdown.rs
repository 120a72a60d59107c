//! A shutdown of the node, as the whole process carries it out.

use super::*;

#[tokio::test(start_paused = true)]
async fn pods_end_with_the_node_though_the_state_disk_hangs() {
    let mut pool = Pool::start();
    pool.shutdown = vec![ShutdownGroup {
        priority: 0,
        grace: Duration::from_secs(20),
    }];
    pool.restart();
    pool.run(&pod_running("a", "u1", &["run"])).await;
    eventually("a shutdown waits", || pool.logind.is_delayed()).await;

    blocking::stay_on_this_thread(|| Box::pin(std::future::pending()));
    pool.logind.shut_down(true);
    eventually("the pod has ended", || {
        let containers = pool.runtime.containers();
        containers.iter().all(|container| !container.running)
    })
    .await;
    eventually("the node goes down", || !pool.logind.is_delayed()).await;
}

#[tokio::test(start_paused = true)]
async fn pods_start_after_a_shutdown_that_was_cancelled_while_the_bus_was_away() {
    let mut pool = Pool::start();
    pool.shutdown = vec![ShutdownGroup {
        priority: 0,
        grace: Duration::from_secs(20),
    }];
    pool.restart();
    pool.run(&pod_running("a", "u1", &["run"])).await;
    eventually("a shutdown waits", || pool.logind.is_delayed()).await;
    pool.logind.shut_down(true);
    eventually("the node goes down", || !pool.logind.is_delayed()).await;

    // Nobody hears that it is cancelled.
    pool.logind.restart_bus();
    pool.logind.shut_down(false);
    eventually("the next one waits", || pool.logind.is_delayed()).await;
    pool.run(&pod_running("b", "u2", &["run"])).await;
}
