//! CPU and memory of a container, as a kubelet since 1.33 tells them: what it was
//! promised, and what it runs with.

use std::collections::BTreeMap;

use bulkhead_api::v1::InstanceResources;
use pod::core::{Container, ContainerStatus, ResourceRequirements};
use pod::quantity::Format;
use pod::resources::{CPU, MEMORY, MIN_CPU_LIMIT_MILLIS, MIN_CPU_REQUEST_MILLIS};
use pod::{ApiQuantity, Quantity};

/// What the container was promised of the node.
#[derive(Clone, Copy)]
pub(super) enum Promised<'a> {
    /// What it asks for.
    AsWanted,
    /// A resize waits: what was told of it last, as far as that is known.
    AsTold(Option<&'a ContainerStatus>),
}

/// Of an instance of which it is known what it runs with.
pub(super) fn tell(
    container: &Container,
    actual: &InstanceResources,
    promised: Promised<'_>,
    status: &mut ContainerStatus,
) {
    let mut wanted = container.resources.clone().unwrap_or_default();
    if let Promised::AsTold(before) = promised {
        wanted.requests = before.and_then(|before| before.allocated_resources.clone());
    }
    status.allocated_resources.clone_from(&wanted.requests);
    let is_running = status.state.as_ref().is_some_and(|it| it.running.is_some());
    status.resources = Some(match is_running {
        true => as_it_runs(wanted, actual),
        false => wanted,
    });
}

/// What is wanted, but for amounts that differ from those that it runs with: by so much
/// that the kernel makes a difference.
fn as_it_runs(wanted: ResourceRequirements, actual: &InstanceResources) -> ResourceRequirements {
    let mut told = ResourceRequirements {
        claims: None,
        ..wanted
    };
    if let Some(limits) = &mut told.limits {
        let millis = actual.cpu_limit_millis;
        correct(limits, CPU, millis, MIN_CPU_LIMIT_MILLIS);
        correct(limits, MEMORY, actual.memory_limit_bytes, 0);
    }
    if let Some(requests) = &mut told.requests {
        let millis = actual.cpu_request_millis;
        correct(requests, CPU, millis, MIN_CPU_REQUEST_MILLIS);
    }
    told
}

/// Puts what it runs with in the place of what is wanted, where they differ. `least` is
/// the least that makes a difference; an instance without a limit has 0.
fn correct(amounts: &mut BTreeMap<String, ApiQuantity>, name: &str, actual: i64, least: i64) {
    let wanted = amounts.get(name).map(Quantity::from_api);
    let Some(Ok(wanted)) = wanted else { return };
    let (wanted, actual_amount) = match name {
        CPU => (wanted.milli_value(), Quantity::from_millis(actual)),
        _ => (
            wanted.value(),
            Quantity::from_whole(actual, Format::BinarySi),
        ),
    };
    if wanted == actual || (wanted != 0 && wanted.max(least) == actual) {
        return;
    }
    match actual {
        0 => amounts.remove(name),
        _ => amounts.insert(name.to_owned(), actual_amount.to_api()),
    };
}

#[cfg(test)]
mod tests {
    use pod::core::{ContainerState, ContainerStateRunning};
    use serde_json::{Value, json};

    use super::*;

    /// The resources in the status of a container that wants these, and runs with those.
    fn told(wanted: &Value, actual: (i64, i64, i64), is_running: bool) -> (Value, Value) {
        let container = json!({"name": "c", "resources": wanted});
        let container: Container = serde_json::from_value(container).unwrap();
        let actual = InstanceResources {
            cpu_request_millis: actual.0,
            cpu_limit_millis: actual.1,
            memory_limit_bytes: actual.2,
        };
        let mut status = ContainerStatus {
            state: Some(ContainerState {
                running: is_running.then(ContainerStateRunning::default),
                ..ContainerState::default()
            }),
            ..ContainerStatus::default()
        };
        tell(&container, &actual, Promised::AsWanted, &mut status);
        let told = serde_json::to_value(status).unwrap();
        (
            told["resources"].clone(),
            told["allocatedResources"].clone(),
        )
    }

    #[test]
    fn a_container_is_told_with_what_it_runs_with() {
        let wanted = json!({
            "requests": {"cpu": "0.2", "memory": "64Mi"}, "limits": {"cpu": "0.5", "memory": "128Mi"},
        });
        let mib = 1 << 20;
        let same = told(&wanted, (200, 500, 128 * mib), true);
        assert_eq!(same, (wanted.clone(), wanted["requests"].clone()));
        let (resources, allocated) = told(&wanted, (100, 300, 96 * mib), true);
        let expected = json!({
            "requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"cpu": "300m", "memory": "96Mi"},
        });
        assert_eq!(resources, expected);
        assert_eq!(allocated, wanted["requests"]);
        // It does not have the limits yet.
        let (resources, _) = told(&wanted, (200, 0, 0), true);
        assert_eq!(resources["limits"], json!({}));
        let (resources, _) = told(&wanted, (100, 300, 96 * mib), false);
        assert_eq!(resources, wanted);
    }

    #[test]
    fn what_makes_no_difference_to_the_kernel_is_told_as_it_is_wanted() {
        let wanted = json!({"requests": {"cpu": "1m"}, "limits": {"cpu": "5m"}});
        assert_eq!(told(&wanted, (2, 10, 0), true).0, wanted);
        let none = told(&json!({}), (2, 0, 0), true);
        assert_eq!(none, (json!({}), json!(null)));
    }
}
