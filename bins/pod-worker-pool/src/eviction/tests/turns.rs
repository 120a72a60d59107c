//! Whose files are measured first.

use super::*;

/// The pod goes whose files could not be measured in its turn, not one whose layers are known.
#[tokio::test(start_paused = true)]
async fn pods_whose_turn_did_not_come_are_measured_first_the_next_time() {
    let node = TestNode::new();
    // A minute is long enough for the turns of four.
    let large = ["a1", "a2", "a3", "a4"];
    let all = [&large[..], &["z1", "z2", "z3", "z4"]].concat();
    for uid in large {
        node.runtime.set_layer_use(uid, GIB);
    }
    run_hanging(&node, &all).await;
    let has_gone = || evicted(&node, &all);
    eventually("one of the first turns goes", || !has_gone().is_empty()).await;
    assert_eq!(has_gone(), ["a1"]);
    eventually("one of the others goes", || has_gone().len() == 2).await;
    assert_eq!(has_gone(), ["a1", "z1"]);
}
