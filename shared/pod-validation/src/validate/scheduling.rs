//! What a scheduler and controllers that evict are told: which node a pod may be on, by
//! selectors, affinity, tolerations and spreading, with which others, and who is asked
//! before it is evicted.

use std::collections::HashSet;

use pod::core::{
    Affinity, EvictionResponder, NodeAffinity, NodeSelector, NodeSelectorRequirement,
    NodeSelectorTerm, PodAffinityTerm, PodSchedulingGroup, PodSpec, Toleration,
    TopologySpreadConstraint, WeightedPodAffinityTerm,
};
use pod::meta::LabelSelector;

use super::metadata;
use crate::field::{Errors, Path};
use crate::formats;
use crate::optional::{list, text};

/// The one field of a node that can be selected by.
const NODE_NAME_FIELD: &str = "metadata.name";
const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

/// Most responders to an eviction, and their priorities (`EvictionResponder` of the API
/// of 1.37).
const MAX_EVICTION_RESPONDERS: usize = 10;
const RESPONDER_PRIORITIES: std::ops::RangeInclusive<i32> = 0..=100_000;

pub(super) fn validate(spec: &PodSpec, path: Path<'_>, errors: &mut Errors) {
    metadata::labels(
        spec.node_selector.as_ref(),
        path.child("nodeSelector"),
        errors,
    );
    if let Some(found) = &spec.affinity {
        affinity(found, path.child("affinity"), errors);
    }
    let tolerations = path.child("tolerations");
    for (index, found) in list(&spec.tolerations).iter().enumerate() {
        toleration(found, tolerations.index(index), errors);
    }
    let constraints = list(&spec.topology_spread_constraints);
    let constraints_path = path.child("topologySpreadConstraints");
    let repeated = repeated_later(constraints);
    for (index, constraint) in constraints.iter().enumerate() {
        let path = constraints_path.index(index);
        spread_constraint(constraint, repeated[index], path, errors);
    }
    scheduling_group(spec, path, errors);
    eviction_responders(spec, path, errors);
}

fn scheduling_group(spec: &PodSpec, path: Path<'_>, errors: &mut Errors) {
    let Some(group) = &spec.scheduling_group else {
        return;
    };
    let PodSchedulingGroup { pod_group_name } = group;
    let path = path.child("schedulingGroup");
    let field = path.child("podGroupName");
    match text(pod_group_name) {
        "" => errors.required(field, "exactly one group is named"),
        name => errors.invalid_if(field, name, formats::dns1123_subdomain(name)),
    }
}

fn eviction_responders(spec: &PodSpec, path: Path<'_>, errors: &mut Errors) {
    let responders = list(&spec.eviction_responders);
    let responders_path = path.child("evictionResponders");
    if responders.len() > MAX_EVICTION_RESPONDERS {
        let detail = format!("at most {MAX_EVICTION_RESPONDERS} are allowed");
        errors.invalid(responders_path, responders.len(), detail);
    }
    if !responders.is_empty() && spec.scheduling_group.is_some() {
        errors.forbidden(responders_path, "cannot be set beside schedulingGroup");
    }
    let mut names = HashSet::new();
    for (index, EvictionResponder { name, priority }) in responders.iter().enumerate() {
        let path = responders_path.index(index);
        let field = path.child("name");
        if name.is_empty() {
            errors.required(field, "");
        } else if !name.contains('/') {
            errors.invalid(field, name, "must be a domain-prefixed key, as acme.io/foo");
        } else {
            errors.invalid_if(field, name, formats::qualified_name(name));
        }
        if !names.insert(name) {
            errors.duplicate(field, name);
        }
        if !RESPONDER_PRIORITIES.contains(priority) {
            errors.invalid(path.child("priority"), priority, "must be 0 to 100000");
        }
    }
}

fn toleration(toleration: &Toleration, path: Path<'_>, errors: &mut Errors) {
    let key = text(&toleration.key);
    let operator = text(&toleration.operator);
    let value = text(&toleration.value);
    let effect = text(&toleration.effect);
    if !key.is_empty() {
        errors.invalid_if(path.child("key"), key, formats::qualified_name(key));
    }
    let operator_path = path.child("operator");
    if key.is_empty() && operator != "Exists" {
        errors.invalid(
            operator_path,
            operator,
            "must be Exists when there is no key",
        );
    }
    match operator {
        "Equal" | "" => errors.invalid_if(operator_path, value, formats::label_value(value)),
        "Exists" if value.is_empty() => {}
        "Exists" => errors.invalid(operator_path, value, "Exists takes no value"),
        other => errors.not_supported(operator_path, other, &["Equal", "Exists"]),
    }
    let effect_path = path.child("effect");
    if toleration.toleration_seconds.is_some() && effect != "NoExecute" {
        errors.invalid(
            effect_path,
            effect,
            "must be NoExecute with tolerationSeconds",
        );
    }
    if !effect.is_empty() {
        errors.one_of(
            effect_path,
            effect,
            &["NoSchedule", "PreferNoSchedule", "NoExecute"],
        );
    }
}

fn affinity(affinity: &Affinity, path: Path<'_>, errors: &mut Errors) {
    if let Some(found) = &affinity.node_affinity {
        node_affinity(found, path.child("nodeAffinity"), errors);
    }
    let to_pods = affinity.pod_affinity.as_ref().map(|found| {
        (
            "podAffinity",
            list(&found.required_during_scheduling_ignored_during_execution),
            list(&found.preferred_during_scheduling_ignored_during_execution),
        )
    });
    let against_pods = affinity.pod_anti_affinity.as_ref().map(|found| {
        (
            "podAntiAffinity",
            list(&found.required_during_scheduling_ignored_during_execution),
            list(&found.preferred_during_scheduling_ignored_during_execution),
        )
    });
    for (name, required, preferred) in to_pods.into_iter().chain(against_pods) {
        pod_affinity(required, preferred, path.child(name), errors);
    }
}

fn node_affinity(affinity: &NodeAffinity, path: Path<'_>, errors: &mut Errors) {
    if let Some(selector) = &affinity.required_during_scheduling_ignored_during_execution {
        node_selector(selector, path.child(REQUIRED), errors);
    }
    let preferred = list(&affinity.preferred_during_scheduling_ignored_during_execution);
    let preferred_path = path.child(PREFERRED);
    for (index, term) in preferred.iter().enumerate() {
        let path = preferred_path.index(index);
        weight(term.weight, path, errors);
        node_term(&term.preference, path.child("preference"), errors);
    }
}

fn weight(weight: i32, path: Path<'_>, errors: &mut Errors) {
    if !(1..=100).contains(&weight) {
        errors.invalid(path.child("weight"), weight, "must be between 1 and 100");
    }
}

fn node_selector(selector: &NodeSelector, path: Path<'_>, errors: &mut Errors) {
    let terms = path.child("nodeSelectorTerms");
    if selector.node_selector_terms.is_empty() {
        errors.required(terms, "must have at least one term");
    }
    for (index, term) in selector.node_selector_terms.iter().enumerate() {
        node_term(term, terms.index(index), errors);
    }
}

fn node_term(term: &NodeSelectorTerm, path: Path<'_>, errors: &mut Errors) {
    let expressions = path.child("matchExpressions");
    for (index, requirement) in list(&term.match_expressions).iter().enumerate() {
        node_labels(requirement, expressions.index(index), errors);
    }
    let fields = path.child("matchFields");
    for (index, requirement) in list(&term.match_fields).iter().enumerate() {
        node_fields(requirement, fields.index(index), errors);
    }
}

fn node_labels(requirement: &NodeSelectorRequirement, path: Path<'_>, errors: &mut Errors) {
    let values = list(&requirement.values);
    let values_path = path.child("values");
    match requirement.operator.as_str() {
        "In" | "NotIn" if values.is_empty() => {
            errors.required(values_path, "In and NotIn need values");
        }
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            errors.forbidden(values_path, "Exists and DoesNotExist take no values");
        }
        "Gt" | "Lt" if values.len() != 1 => {
            errors.required(values_path, "Gt and Lt need one value");
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt" => {}
        other => errors.invalid(path.child("operator"), other, "is no operator"),
    }
    let key = &requirement.key;
    errors.invalid_if(path.child("key"), key, formats::qualified_name(key));
}

fn node_fields(requirement: &NodeSelectorRequirement, path: Path<'_>, errors: &mut Errors) {
    let values = list(&requirement.values);
    let values_path = path.child("values");
    match requirement.operator.as_str() {
        "In" | "NotIn" if values.len() == 1 => {}
        "In" | "NotIn" => errors.required(values_path, "needs exactly one value"),
        other => errors.invalid(path.child("operator"), other, "is no operator for fields"),
    }
    if requirement.key == NODE_NAME_FIELD {
        for (index, value) in values.iter().enumerate() {
            let problem = formats::dns1123_subdomain(value);
            errors.invalid_if(values_path.index(index), value, problem);
        }
    } else {
        errors.invalid(path.child("key"), &requirement.key, "must be metadata.name");
    }
}

fn pod_affinity(
    required: &[PodAffinityTerm],
    preferred: &[WeightedPodAffinityTerm],
    path: Path<'_>,
    errors: &mut Errors,
) {
    let required_path = path.child(REQUIRED);
    for (index, term) in required.iter().enumerate() {
        pod_term(term, required_path.index(index), errors);
    }
    let preferred_path = path.child(PREFERRED);
    for (index, term) in preferred.iter().enumerate() {
        let path = preferred_path.index(index);
        weight(term.weight, path, errors);
        pod_term(
            &term.pod_affinity_term,
            path.child("podAffinityTerm"),
            errors,
        );
    }
}

fn pod_term(term: &PodAffinityTerm, path: Path<'_>, errors: &mut Errors) {
    label_selector(
        term.label_selector.as_ref(),
        path.child("labelSelector"),
        errors,
    );
    label_selector(
        term.namespace_selector.as_ref(),
        path.child("namespaceSelector"),
        errors,
    );
    for namespace in list(&term.namespaces) {
        let problem = formats::dns1123_label(namespace);
        errors.invalid_if(path.child("namespace"), namespace, problem);
    }
    topology_key(&term.topology_key, path, errors);
}

fn topology_key(key: &str, path: Path<'_>, errors: &mut Errors) {
    let field = path.child("topologyKey");
    if key.is_empty() {
        errors.required(field, "");
    } else {
        errors.invalid_if(field, key, formats::qualified_name(key));
    }
}

fn label_selector(selector: Option<&LabelSelector>, path: Path<'_>, errors: &mut Errors) {
    let Some(selector) = selector else { return };
    metadata::labels(
        selector.match_labels.as_ref(),
        path.child("matchLabels"),
        errors,
    );
    let expressions = path.child("matchExpressions");
    for (index, requirement) in list(&selector.match_expressions).iter().enumerate() {
        let path = expressions.index(index);
        let values = list(&requirement.values);
        let values_path = path.child("values");
        match requirement.operator.as_str() {
            "In" | "NotIn" if values.is_empty() => {
                errors.required(values_path, "In and NotIn need values");
            }
            "Exists" | "DoesNotExist" if !values.is_empty() => {
                errors.forbidden(values_path, "Exists and DoesNotExist take no values");
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            other => errors.invalid(path.child("operator"), other, "is no operator"),
        }
        let key = &requirement.key;
        errors.invalid_if(path.child("key"), key, formats::qualified_name(key));
        for (index, value) in values.iter().enumerate() {
            errors.invalid_if(values_path.index(index), value, formats::label_value(value));
        }
    }
}

/// For each constraint, whether a later one is about the same.
fn repeated_later(constraints: &[TopologySpreadConstraint]) -> Vec<bool> {
    let mut later = HashSet::new();
    let mut repeated: Vec<bool> = constraints
        .iter()
        .rev()
        .map(|each| !later.insert((&each.topology_key, &each.when_unsatisfiable)))
        .collect();
    repeated.reverse();
    repeated
}

fn spread_constraint(
    constraint: &TopologySpreadConstraint,
    repeated: bool,
    path: Path<'_>,
    errors: &mut Errors,
) {
    if constraint.max_skew <= 0 {
        errors.invalid(
            path.child("maxSkew"),
            constraint.max_skew,
            "must be greater than 0",
        );
    }
    topology_key(&constraint.topology_key, path, errors);
    let action = constraint.when_unsatisfiable.as_str();
    let actions = &["DoNotSchedule", "ScheduleAnyway"];
    if !actions.contains(&action) {
        errors.not_supported(path.child("whenUnsatisfiable"), action, actions);
    }
    if repeated {
        let value = format!("{{{}, {action}}}", constraint.topology_key);
        errors.duplicate(path.child("{topologyKey, whenUnsatisfiable}"), value);
    }
    if let Some(domains) = constraint.min_domains {
        let field = path.child("minDomains");
        if domains <= 0 {
            errors.invalid(field, domains, "must be greater than 0");
        }
        if action != "DoNotSchedule" {
            errors.invalid(field, domains, "needs whenUnsatisfiable DoNotSchedule");
        }
    }
    for (name, policy) in [
        ("nodeAffinityPolicy", &constraint.node_affinity_policy),
        ("nodeTaintsPolicy", &constraint.node_taints_policy),
    ] {
        let policies = &["Honor", "Ignore"];
        if let Some(policy) = policy
            .as_deref()
            .filter(|policy| !policies.contains(policy))
        {
            errors.not_supported(path.child(name), policy, policies);
        }
    }
    label_selector(
        constraint.label_selector.as_ref(),
        path.child("labelSelector"),
        errors,
    );
    match_label_keys(constraint, path.child("matchLabelKeys"), errors);
}

fn match_label_keys(constraint: &TopologySpreadConstraint, path: Path<'_>, errors: &mut Errors) {
    let keys = list(&constraint.match_label_keys);
    if keys.is_empty() {
        return;
    }
    let Some(selector) = &constraint.label_selector else {
        return errors.forbidden(path, "needs a labelSelector");
    };
    let labels = selector.match_labels.iter().flatten().map(|(key, _)| key);
    let expressions = list(&selector.match_expressions).iter();
    let selected: HashSet<&String> = labels.chain(expressions.map(|each| &each.key)).collect();
    for (index, key) in keys.iter().enumerate() {
        let path = path.index(index);
        errors.invalid_if(path, key, formats::qualified_name(key));
        if selected.contains(key) {
            errors.invalid(path, key, "is in the labelSelector as well");
        }
    }
}
