//! What the node has, and whether its runtime answers.

use tokio::time::Instant;

use super::*;

async fn capacity(pool: &Pool) -> v1::NodeCapacity {
    let request = v1::GetNodeCapacityRequest {};
    let answer = pool.workers().get_node_capacity(request).await;
    answer.unwrap().into_inner()
}

#[tokio::test(start_paused = true)]
async fn the_capacity_comes_with_whether_the_runtime_answers() {
    let pool = Pool::start();
    let told = capacity(&pool).await;
    assert_eq!(told.cpu_millis, 4000);
    assert_eq!(told.runtime_error, "");
    pool.runtime.set_faults(Faults {
        unavailable: true,
        ..Faults::NONE
    });
    let told = capacity(&pool).await;
    assert!(told.runtime_error.contains("connection refused"));
}

/// Who asks gives up after 5 s, and would take the pool for what hangs.
#[tokio::test(start_paused = true)]
async fn a_runtime_that_hangs_is_told_of_after_three_seconds() {
    let pool = Pool::start();
    assert_eq!(capacity(&pool).await.runtime_error, "");
    pool.runtime.set_faults(Faults {
        slowness: 1e6,
        ..Faults::NONE
    });
    let begin = Instant::now();
    let told = capacity(&pool).await;
    assert_eq!(
        told.runtime_error,
        "container runtime is down: the runtime does not answer"
    );
    assert_eq!(told.cpu_millis, 4000);
    let waited = begin.elapsed().as_millis();
    assert!((3_000..3_100).contains(&waited), "{waited} ms");
}

#[tokio::test(start_paused = true)]
async fn what_the_node_is_says_which_of_the_runtime_and_its_network_is_not_ready() {
    let pool = Pool::start();
    let facts = async || {
        let request = v1::GetNodeFactsRequest {};
        let answer = pool.observations().get_node_facts(request).await;
        answer.unwrap().into_inner()
    };
    let told = facts().await;
    assert_eq!((&*told.network_error, told.images.len()), ("", 1));
    pool.runtime.add_image("localhost/another:1", true);
    pool.runtime.set_faults(Faults {
        network_down: true,
        ..Faults::NONE
    });
    let told = facts().await;
    let capacity = told.capacity.unwrap();
    assert_eq!(capacity.runtime_error, "");
    let expected = "container runtime network not ready: NetworkReady=false reason:";
    assert!(
        told.network_error.starts_with(expected),
        "{}",
        told.network_error
    );
    assert_eq!(told.images.len(), 1);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(facts().await.images.len(), 2);
    pool.runtime.set_faults(Faults {
        unavailable: true,
        ..Faults::NONE
    });
    let told = facts().await;
    let error = told.capacity.unwrap().runtime_error;
    assert!(error.starts_with("container runtime is down: "), "{error}");
    assert_eq!((&*told.network_error, told.images.len()), ("", 2));
}
