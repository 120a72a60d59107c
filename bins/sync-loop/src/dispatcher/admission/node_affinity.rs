//! Which nodes a pod asks for: node name, node selector, required affinity.

use pod::core::{NodeSelectorRequirement, NodeSelectorTerm};

use super::node::NodeDescription;
use super::rejection::Rejection;
use crate::dispatcher::pod_facts::PodFacts;

/// The only field that a term may match.
const NAME_FIELD: &str = "metadata.name";

/// Refuses a pod that asks for another node.
pub(super) fn check(pod: &PodFacts, node: &NodeDescription) -> Result<(), Rejection> {
    if !matches_selector(pod, node) || !matches_affinity(pod, node) {
        return Err(Rejection::predicate(
            "NodeAffinity",
            "node(s) didn't match Pod's node affinity/selector",
        ));
    }
    if pod
        .node_name
        .as_deref()
        .is_some_and(|name| name != node.name)
    {
        return Err(Rejection::predicate(
            "NodeName",
            "node(s) didn't match the requested node name",
        ));
    }
    Ok(())
}

fn matches_selector(pod: &PodFacts, node: &NodeDescription) -> bool {
    pod.node_selector
        .iter()
        .all(|(key, value)| node.labels.get(key) == Some(value))
}

/// Terms are alternatives; a pod that has the field but no term matches nothing.
fn matches_affinity(pod: &PodFacts, node: &NodeDescription) -> bool {
    let Some(selector) = &pod.required_affinity else {
        return true;
    };
    selector
        .node_selector_terms
        .iter()
        .any(|term| matches_term(term, node))
}

/// Every requirement must hold; a term without any matches nothing.
fn matches_term(term: &NodeSelectorTerm, node: &NodeDescription) -> bool {
    let expressions = term.match_expressions.as_deref().unwrap_or_default();
    let fields = term.match_fields.as_deref().unwrap_or_default();
    if expressions.is_empty() && fields.is_empty() {
        return false;
    }
    let label = |requirement: &NodeSelectorRequirement| {
        let value = node.labels.get(&requirement.key).map(String::as_str);
        matches_requirement(requirement, value)
    };
    let field = |requirement: &NodeSelectorRequirement| {
        let known = requirement.key == NAME_FIELD;
        // Only equality means something for a name, as the API server has it.
        let defined = matches!(requirement.operator.as_str(), "In" | "NotIn");
        known && defined && matches_requirement(requirement, Some(&node.name))
    };
    expressions.iter().all(label) && fields.iter().all(field)
}

fn matches_requirement(requirement: &NodeSelectorRequirement, value: Option<&str>) -> bool {
    let values = requirement.values.as_deref().unwrap_or_default();
    let listed = |value: &str| values.iter().any(|listed| listed == value);
    match requirement.operator.as_str() {
        "In" => value.is_some_and(listed),
        "NotIn" => !value.is_some_and(listed),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => compare(value, values).is_some_and(|(value, bound)| value > bound),
        "Lt" => compare(value, values).is_some_and(|(value, bound)| value < bound),
        // Validation refuses other words; an unknown condition cannot hold.
        _ => false,
    }
}

fn compare(value: Option<&str>, values: &[String]) -> Option<(i64, i64)> {
    let [bound] = values else { return None };
    Some((value?.parse().ok()?, bound.parse().ok()?))
}
