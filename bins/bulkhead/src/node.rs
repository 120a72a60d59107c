//! `node`: the Node as the API server has it, as api-gateway tells.

use std::collections::BTreeMap;
use std::process::ExitCode;

use bulkhead_api::v1;
use bulkhead_api::v1::api_connection_client::ApiConnectionClient;
use clock::{UnixNanos, WallClock};
use pod::ApiQuantity;
use pod::core::{Node, NodeCondition, NodeStatus, Taint};
use serde_json::Value;
use topology::Process;

use crate::arguments::{NodeOptions, TableOrJson};
use crate::connection::Connection;
use crate::escape::plain;
use crate::failure::Failure;
use crate::output::Output;
use crate::table::{self, Cell, Tone};
use crate::text::Text;
use crate::words::{age_since, nanos, timestamp};

/// Prints the Node.
pub(crate) async fn node(
    connection: &Connection,
    options: &NodeOptions,
    output: Output,
) -> Result<ExitCode, Failure> {
    let json = ask(connection).await?;
    let unreadable = |_| Failure::NotFound("what the API server has is no Node".to_owned());
    match options.output {
        TableOrJson::Table => {
            let node: Node = serde_json::from_slice(&json).map_err(unreadable)?;
            output.text(&as_text(&node, WallClock::system().now(), output.colours))?;
        }
        TableOrJson::Json => {
            let node: Value = serde_json::from_slice(&json).map_err(unreadable)?;
            output.json(&node)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn ask(connection: &Connection) -> Result<Vec<u8>, Failure> {
    // Under systemd a connection would start it.
    if !connection.runs(Process::ApiGateway) {
        let why = "no agent of a cluster's node runs here: it has no --kubeconfig";
        return Err(Failure::NotFound(why.to_owned()));
    }
    let client = ApiConnectionClient::new(connection.channel(Process::ApiGateway)?)
        .max_decoding_message_size(ipc::limits::MAX_POD_MESSAGE_BYTES);
    let answer = connection
        .call(Process::ApiGateway, || {
            let mut client = client.clone();
            async move { client.get_api_node(v1::GetApiNodeRequest {}).await }
        })
        .await?;
    Ok(answer.json)
}

fn as_text(node: &Node, now: UnixNanos, colours: bool) -> String {
    let metadata = &node.metadata;
    let spec = node.spec.clone().unwrap_or_default();
    let status = node.status.clone().unwrap_or_default();
    let mut text = Text::default();
    text.optional(0, "Name", metadata.name.as_deref());
    text.optional(0, "UID", metadata.uid.as_deref());
    text.optional(0, "Provider ID", spec.provider_id.as_deref());
    let created = metadata.creation_timestamp.as_ref().map(|time| {
        let ago = age_since(time, now);
        format!("{} ({ago} ago)", timestamp(nanos(time)))
    });
    text.optional(0, "Created", created);
    text.values(0, "Labels", &pairs(metadata.labels.as_ref()));
    text.values(0, "Annotations", &pairs(metadata.annotations.as_ref()));
    let taints = spec.taints.iter().flatten().map(taint);
    text.values(0, "Taints", &taints.collect::<Vec<_>>());
    let cordoned = spec.unschedulable == Some(true);
    text.optional(0, "Unschedulable", cordoned.then_some("yes (cordoned)"));
    text.values(0, "Pod CIDRs", &spec.pod_cidrs.unwrap_or_default());
    let addresses = status.addresses.iter().flatten();
    let addresses = addresses.map(|it| format!("{} {}", it.type_, it.address));
    text.values(0, "Addresses", &addresses.collect::<Vec<_>>());
    versions(&mut text, &status);
    conditions(&mut text, &status, now, colours);
    resources(&mut text, &status);
    text.into_string()
}

fn pairs(map: Option<&BTreeMap<String, String>>) -> Vec<String> {
    let pairs = map.into_iter().flatten();
    pairs.map(|(key, value)| format!("{key}={value}")).collect()
}

/// As kubectl writes it.
fn taint(taint: &Taint) -> String {
    match taint.value.as_deref() {
        None | Some("") => format!("{}:{}", taint.key, taint.effect),
        Some(value) => format!("{}={value}:{}", taint.key, taint.effect),
    }
}

fn versions(text: &mut Text, status: &NodeStatus) {
    let Some(info) = &status.node_info else {
        return;
    };
    for (key, value) in [
        ("Kubelet", &info.kubelet_version),
        ("Runtime", &info.container_runtime_version),
        ("System", &info.os_image),
        ("Kernel", &info.kernel_version),
    ] {
        text.optional(0, key, Some(value));
    }
}

fn conditions(text: &mut Text, status: &NodeStatus, now: UnixNanos, colours: bool) {
    let row = |condition: &NodeCondition| -> Vec<Cell> {
        let since = |time: Option<&pod::meta::Time>| -> Cell {
            time.map_or_else(|| "-".to_owned(), |time| age_since(time, now))
                .into()
        };
        let words = |text: &Option<String>| plain(text.as_deref().unwrap_or_default());
        // All but Ready tell of something bad.
        let is_good = (condition.type_ == "Ready") == (condition.status == "True");
        let tone = match is_good {
            true => Tone::Good,
            false => Tone::Bad,
        };
        vec![
            plain(&condition.type_).into(),
            Cell::toned(plain(&condition.status), tone),
            since(condition.last_transition_time.as_ref()),
            since(condition.last_heartbeat_time.as_ref()),
            words(&condition.reason).into(),
            words(&condition.message).into(),
        ]
    };
    let rows: Vec<_> = status.conditions.iter().flatten().map(row).collect();
    if !rows.is_empty() {
        text.heading("Conditions");
        let headings = ["TYPE", "STATUS", "SINCE", "HEARTBEAT", "REASON", "MESSAGE"];
        text.block(&table::render(&headings, &rows, colours));
    }
}

fn resources(text: &mut Text, status: &NodeStatus) {
    let of = |map: &Option<BTreeMap<String, ApiQuantity>>, name: &str| -> Cell {
        let quantity = map.as_ref().and_then(|map| map.get(name));
        quantity
            .map_or_else(|| "-".to_owned(), |quantity| plain(&quantity.0))
            .into()
    };
    let row = |name: &String| -> Vec<Cell> {
        vec![
            plain(name).into(),
            of(&status.capacity, name),
            of(&status.allocatable, name),
        ]
    };
    let names = status.capacity.iter().flat_map(BTreeMap::keys);
    let rows: Vec<_> = names.map(row).collect();
    if !rows.is_empty() {
        text.heading("Resources");
        let headings = ["RESOURCE", "CAPACITY", "ALLOCATABLE"];
        text.block(&table::render(&headings, &rows, false));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_node_is_told_with_its_conditions_addresses_resources_taints_and_labels() {
        let node = serde_json::from_value(json!({
            "metadata": {"name": "n1", "labels": {"zone": "a\u{1b}[2J", "kubernetes.io/os": "linux"}},
            "spec": {
                "unschedulable": true,
                "podCIDRs": ["10.1.0.0/24"],
                "taints": [
                    {"key": "a", "value": "b", "effect": "NoExecute"},
                    {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"},
                ],
            },
            "status": {
                "addresses": [
                    {"type": "InternalIP", "address": "10.0.0.7"},
                    {"type": "Hostname", "address": "n1"},
                ],
                "capacity": {"cpu": "2", "memory": "4Gi"},
                "allocatable": {"cpu": "1900m"},
                "conditions": [
                    {"type": "Ready", "status": "False", "reason": "KubeletNotReady",
                     "message": "no network", "lastTransitionTime": "1970-01-01T00:00:10Z",
                     "lastHeartbeatTime": "1970-01-01T00:01:00Z"},
                    {"type": "DiskPressure", "status": "False"},
                ],
            },
        }));
        let now = UnixNanos(70_000_000_000);
        let text = as_text(&node.unwrap(), now, false);
        assert_eq!(
            text,
            "\
Name:               n1
Labels:             kubernetes.io/os=linux
                    zone=a^[[2J
Taints:             a=b:NoExecute
                    node.kubernetes.io/not-ready:NoSchedule
Unschedulable:      yes (cordoned)
Pod CIDRs:          10.1.0.0/24
Addresses:          InternalIP 10.0.0.7
                    Hostname n1
Conditions:
  TYPE           STATUS   SINCE   HEARTBEAT   REASON            MESSAGE
  Ready          False    60s     10s         KubeletNotReady   no network
  DiskPressure   False    -       -
Resources:
  RESOURCE   CAPACITY   ALLOCATABLE
  cpu        2          1900m
  memory     4Gi        -
"
        );
    }

    #[test]
    fn a_condition_is_good_or_bad_by_its_kind() {
        let painted = |kind: &str, status: &str| {
            let condition = json!({"type": kind, "status": status});
            let node = json!({"metadata": {}, "status": {"conditions": [condition]}});
            let node = serde_json::from_value(node).unwrap();
            as_text(&node, UnixNanos(0), true)
        };
        for (kind, status, colour) in [
            ("Ready", "True", 32),
            ("Ready", "Unknown", 31),
            ("MemoryPressure", "False", 32),
            ("MemoryPressure", "True", 31),
        ] {
            let text = painted(kind, status);
            let expected = format!("\x1b[{colour}m{status}\x1b[0m");
            assert!(text.contains(&expected), "{text}");
        }
    }
}
