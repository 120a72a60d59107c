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
    assert_eq!(told.runtime_error, "the runtime does not answer");
    assert_eq!(told.cpu_millis, 4000);
    let waited = begin.elapsed().as_millis();
    assert!((3_000..3_100).contains(&waited), "{waited} ms");
}
