//! Taints of the node that keep pods from running on it.

use pod::core::{Taint, Toleration};

use super::node::NodeDescription;
use super::rejection::Rejection;
use crate::dispatcher::pod_facts::PodFacts;

/// The only effect that counts on a node: the others are the scheduler's.
const NO_EXECUTE: &str = "NoExecute";

/// Refuses a pod that does not tolerate the node. Static pods are the node's own.
pub(super) fn check(pod: &PodFacts, node: &NodeDescription) -> Result<(), Rejection> {
    let is_tolerated = |taint: &Taint| pod.tolerations.iter().any(|it| tolerates(it, taint));
    let mut taints = node.taints.iter().filter(|it| it.effect == NO_EXECUTE);
    if pod.is_static || taints.all(is_tolerated) {
        return Ok(());
    }
    Err(Rejection::predicate(
        "TaintToleration",
        "node(s) had taints that the pod didn't tolerate",
    ))
}

/// An effect or a key that is not named stands for all.
fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let text = |field: &Option<String>| field.clone().unwrap_or_default();
    let is_named = |field: &Option<String>, word: &str| {
        let named = text(field);
        named.is_empty() || named == word
    };
    is_named(&toleration.effect, &taint.effect)
        && is_named(&toleration.key, &taint.key)
        && match text(&toleration.operator).as_str() {
            "" | "Equal" => text(&toleration.value) == text(&taint.value),
            operator => operator == "Exists",
        }
}
