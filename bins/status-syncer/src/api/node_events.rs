//! The events of the Node (`pkg/kubelet/kubelet_node_status.go` of Kubernetes, whose reasons and
//! words these are). Pure.

use bulkhead_api::v1::{Event, EventType};
use node_config::NodeConfig;
use serde_json::Value;

/// A condition of the Node, and the reasons of its events without and with it. Of some a first
/// status makes an event too.
struct ConditionEvents {
    condition: &'static str,
    when_false: &'static str,
    when_true: &'static str,
    at_first: bool,
}

const CONDITION_EVENTS: [ConditionEvents; 4] = [
    ConditionEvents {
        condition: "MemoryPressure",
        when_false: "NodeHasSufficientMemory",
        when_true: "NodeHasInsufficientMemory",
        at_first: true,
    },
    ConditionEvents {
        condition: "DiskPressure",
        when_false: "NodeHasNoDiskPressure",
        when_true: "NodeHasDiskPressure",
        at_first: true,
    },
    ConditionEvents {
        condition: "PIDPressure",
        when_false: "NodeHasSufficientPID",
        when_true: "NodeHasInsufficientPID",
        at_first: true,
    },
    ConditionEvents {
        condition: "Ready",
        when_false: "NodeNotReady",
        when_true: "NodeReady",
        at_first: false,
    },
];

/// What happens when the node agent starts.
pub(crate) fn at_start(config: &NodeConfig) -> Vec<Event> {
    let starting = event(
        EventType::Normal,
        "Starting",
        "Starting kubelet.".to_owned(),
    );
    let enforced = config.enforce_allocatable.then(|| {
        let message = "Updated Node Allocatable limit across pods".to_owned();
        event(EventType::Normal, "NodeAllocatableEnforced", message)
    });
    [starting].into_iter().chain(enforced).collect()
}

/// What a new status of the Node says that the one before did not.
pub(crate) fn of_change(name: &str, before: &Value, status: &Value) -> Vec<Event> {
    let boot = |status: &Value| status["nodeInfo"]["bootID"].as_str().map(str::to_owned);
    let rebooted = boot(before)
        .zip(boot(status))
        .filter(|(old, new)| old != new);
    let rebooted = rebooted.map(|(_, boot)| {
        let message = format!("Node {name} has been rebooted, boot id: {boot}");
        event(EventType::Warning, "Rebooted", message)
    });
    let conditions = CONDITION_EVENTS.iter().filter_map(|events| {
        let now = condition(status, events.condition)?;
        match condition(before, events.condition) {
            None if !events.at_first => return None,
            Some(before) if before == now => return None,
            _ => {}
        }
        let reason = match now {
            "True" => events.when_true,
            _ => events.when_false,
        };
        Some(is_now(name, reason))
    });
    rebooted.into_iter().chain(conditions).collect()
}

/// What it means that somebody cordons the Node, or takes that back.
pub(crate) fn of_cordon(name: &str, is_cordoned: bool) -> Event {
    let reason = match is_cordoned {
        true => "NodeNotSchedulable",
        false => "NodeSchedulable",
    };
    is_now(name, reason)
}

fn is_now(name: &str, reason: &str) -> Event {
    let message = format!("Node {name} status is now: {reason}");
    event(EventType::Normal, reason, message)
}

fn event(kind: EventType, reason: &str, message: String) -> Event {
    let mut event = Event {
        reason: reason.to_owned(),
        message,
        reporter: topology::Process::StatusSyncer.name().to_owned(),
        ..Event::default()
    };
    event.set_type(kind);
    event
}

fn condition<'a>(status: &'a Value, kind: &str) -> Option<&'a str> {
    let mut all = status["conditions"].as_array()?.iter();
    all.find(|it| it["type"] == kind)?["status"].as_str()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn status(ready: &str, disk: &str, boot: &str) -> Value {
        json!({
            "conditions": [
                {"type": "DiskPressure", "status": disk},
                {"type": "Ready", "status": ready},
            ],
            "nodeInfo": {"bootID": boot},
        })
    }

    #[test]
    fn each_change_of_the_node_is_one_event() {
        let calm = status("True", "False", "1");
        for (before, now, expected) in [
            (json!({}), calm.clone(), &["NodeHasNoDiskPressure"][..]),
            (calm.clone(), calm.clone(), &[]),
            (
                calm.clone(),
                status("False", "False", "1"),
                &["NodeNotReady"],
            ),
            (
                status("False", "True", "1"),
                calm.clone(),
                &["NodeHasNoDiskPressure", "NodeReady"],
            ),
            (
                calm.clone(),
                status("True", "True", "2"),
                &["Rebooted", "NodeHasDiskPressure"],
            ),
        ] {
            let events = of_change("n", &before, &now);
            let reasons: Vec<_> = events.iter().map(|it| &*it.reason).collect();
            assert_eq!(reasons, expected, "{before} {now}");
        }
        let ready = &of_change("n", &status("False", "False", "1"), &calm)[0];
        assert_eq!(ready.message, "Node n status is now: NodeReady");
    }
}
