//! The pods of the node: their statuses, the desired pods that have none yet,
//! and the one that a person means.

use std::collections::BTreeMap;
use std::time::Duration;

use bulkhead_api::v1;
use bulkhead_api::v1::list_pod_statuses_response::Message;
use bulkhead_api::v1::statuses_client::StatusesClient;
use bulkhead_api::v1::sync_loop_client::SyncLoopClient;
use pod::{Pod, PodExt as _};
use serde_json::{Value, json};
use topology::Process;

use crate::connection::{Connection, DEADLINE, EXTRA_DEADLINE};
use crate::failure::Failure;
use crate::output::note;

/// Names that an error lists; more would hide what it says.
const MAX_NAMES_IN_ERROR: usize = 10;

/// A pod with its status, decoded and as it came.
#[derive(Clone, Debug)]
pub(crate) struct ListedPod {
    pub(crate) pod: Pod,
    pub(crate) json: Value,
    /// What its worker last did and why, or empty.
    pub(crate) last_plan: String,
    /// Error of its last sync, or empty.
    pub(crate) sync_error: String,
}

impl ListedPod {
    fn decode(json: &[u8]) -> Option<ListedPod> {
        let json: Value = serde_json::from_slice(json).ok()?;
        ListedPod::new(json)
    }

    /// A pod from its JSON.
    pub(crate) fn new(json: Value) -> Option<ListedPod> {
        let pod = serde_json::from_value(json.clone()).ok()?;
        Some(ListedPod {
            pod,
            json,
            last_plan: String::new(),
            sync_error: String::new(),
        })
    }

    /// `namespace/name`.
    pub(crate) fn full_name(&self) -> String {
        format!("{}/{}", self.pod.namespace(), self.pod.name())
    }

    /// Its name without the node's, as a static pod's manifest has it.
    fn manifest_name(&self) -> Option<&str> {
        let node_name = self.pod.spec.as_ref()?.node_name.as_deref()?;
        let is_static = self.pod.is_static();
        self.pod
            .name()
            .strip_suffix(node_name)?
            .strip_suffix('-')
            .filter(|_| is_static)
    }
}

/// All pods by namespace and name.
pub(crate) async fn all(connection: &Connection) -> Result<Vec<ListedPod>, Failure> {
    let (statuses, desired) =
        tokio::join!(statuses(connection), desired(connection, EXTRA_DEADLINE));
    let statuses = statuses?;
    let desired = desired.unwrap_or_else(|failure| {
        note(&format!(
            "pods without a status are not shown: {}",
            telemetry::chain(&failure)
        ));
        Vec::new()
    });
    Ok(merge(statuses, desired))
}

/// Pods with a status.
async fn statuses(connection: &Connection) -> Result<Vec<ListedPod>, Failure> {
    let process = Process::StatusSyncer;
    let client = StatusesClient::new(connection.channel(process)?)
        .max_decoding_message_size(ipc::limits::MAX_OBSERVATION_BYTES);
    let messages = connection
        .list(process, DEADLINE, || {
            let mut client = client.clone();
            let request = v1::ListPodStatusesRequest { watch: false };
            async move { client.list_pod_statuses(request).await }
        })
        .await?;
    let pod = |response: v1::ListPodStatusesResponse| match response.message? {
        Message::Entry(entry) => Some(ListedPod {
            last_plan: entry.last_plan,
            sync_error: entry.sync_error,
            ..ListedPod::decode(&entry.pod?.json)?
        }),
        Message::SnapshotComplete(_) | Message::RemovedPodUid(_) => None,
    };
    Ok(messages.into_iter().filter_map(pod).collect())
}

/// Desired pods, with what was decided about each.
pub(crate) async fn desired(
    connection: &Connection,
    deadline: Duration,
) -> Result<Vec<v1::DesiredPod>, Failure> {
    let process = Process::SyncLoop;
    let client = SyncLoopClient::new(connection.channel(process)?)
        .max_decoding_message_size(ipc::limits::MAX_OBSERVATION_BYTES);
    connection
        .list(process, deadline, || {
            let mut client = client.clone();
            async move {
                client
                    .list_desired_pods(v1::ListDesiredPodsRequest::default())
                    .await
            }
        })
        .await
}

/// Adds the desired pods that have no status yet, as pending ones.
fn merge(statuses: Vec<ListedPod>, desired: Vec<v1::DesiredPod>) -> Vec<ListedPod> {
    let mut pods: BTreeMap<String, ListedPod> = statuses
        .into_iter()
        .map(|listed| (listed.pod.uid().to_owned(), listed))
        .collect();
    for message in desired.into_iter().filter_map(|desired| desired.pod) {
        let Some(listed) = ListedPod::decode(&message.json) else {
            continue;
        };
        pods.entry(listed.pod.uid().to_owned())
            .or_insert_with(|| pending(listed));
    }
    let mut pods: Vec<ListedPod> = pods.into_values().collect();
    pods.sort_by_cached_key(ListedPod::full_name);
    pods
}

fn pending(mut listed: ListedPod) -> ListedPod {
    if listed.pod.status.is_none() {
        listed.json["status"] = json!({"phase": "Pending"});
    }
    ListedPod::new(listed.json.clone()).unwrap_or(listed)
}

/// The pod that `wanted` names: a name, namespace/name, UID, or the name in a
/// static pod's manifest.
pub(crate) fn pick(pods: &[ListedPod], wanted: &str) -> Result<ListedPod, Failure> {
    let (namespace, name) = match wanted.split_once('/') {
        Some((namespace, name)) => (Some(namespace), name),
        None => (None, wanted),
    };
    let in_namespace =
        |listed: &&ListedPod| namespace.is_none_or(|wanted| wanted == listed.pod.namespace());
    let exact = |listed: &&ListedPod| {
        listed.pod.name() == name || (namespace.is_none() && listed.pod.uid() == name)
    };
    let mut meant: Vec<&ListedPod> = pods.iter().filter(in_namespace).filter(exact).collect();
    if meant.is_empty() {
        let by_manifest = |listed: &&ListedPod| listed.manifest_name() == Some(name);
        meant = pods
            .iter()
            .filter(in_namespace)
            .filter(by_manifest)
            .collect();
    }
    match meant.as_slice() {
        [only] => Ok((*only).clone()),
        [] => Err(Failure::NotFound(format!(
            "no pod is called {wanted}; there are: {}",
            names(pods.iter())
        ))),
        several => Err(Failure::Ambiguous(format!(
            "{} pods are called {wanted}; give NAMESPACE/NAME or the UID of one: {}",
            several.len(),
            names(several.iter().copied())
        ))),
    }
}

fn names<'a>(pods: impl ExactSizeIterator<Item = &'a ListedPod>) -> String {
    let more = pods.len().saturating_sub(MAX_NAMES_IN_ERROR);
    let shown = pods.take(MAX_NAMES_IN_ERROR);
    let name = |listed: &ListedPod| format!("{} ({})", listed.full_name(), listed.pod.uid());
    let mut names: Vec<String> = shown.map(name).collect();
    if names.is_empty() {
        names.push("none".to_owned());
    }
    if more > 0 {
        names.push(format!("and {more} more"));
    }
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(namespace: &str, name: &str, uid: &str) -> ListedPod {
        let json = json!({
            "metadata": {
                "namespace": namespace, "name": name, "uid": uid,
                "annotations": {"kubernetes.io/config.source": "file"},
            },
            "spec": {"nodeName": "node-1", "containers": []},
            "status": {"phase": "Running"},
        });
        ListedPod::new(json).unwrap()
    }

    #[test]
    fn a_pod_is_found_by_each_of_its_names() {
        let pods = [
            listed("a", "p-node-1", "1"),
            listed("b", "p-node-1", "2"),
            listed("b", "q-node-1", "3"),
        ];
        let uid = |wanted: &str| pick(&pods, wanted).map(|found| found.pod.uid().to_owned());
        for (wanted, found) in [
            ("q-node-1", "3"),
            ("q", "3"),
            ("b/p-node-1", "2"),
            ("b/p", "2"),
            ("1", "1"),
        ] {
            assert_eq!(uid(wanted).unwrap(), found, "{wanted}");
        }
        let error = uid("p").unwrap_err();
        assert!(matches!(&error, Failure::Ambiguous(text) if text.contains("b/p-node-1 (2)")));
        let error = uid("a/q").unwrap_err();
        assert!(matches!(&error, Failure::NotFound(text) if text.contains("b/q-node-1")));
        assert!(matches!(pick(&[], "x"), Err(Failure::NotFound(text)) if text.ends_with("none")));
    }

    #[test]
    fn a_name_is_taken_before_a_manifests_name() {
        let pods = [listed("a", "p", "1"), listed("a", "p-node-1", "2")];
        assert_eq!(pick(&pods, "p").unwrap().pod.uid(), "1");
    }

    #[test]
    fn an_error_names_a_few_pods_only() {
        let pods: Vec<_> = (0..50)
            .map(|number| listed("a", &format!("p{number}"), &format!("{number}")))
            .collect();
        let Err(Failure::NotFound(text)) = pick(&pods, "x") else {
            panic!("it is not there")
        };
        assert!(text.ends_with("and 40 more"), "{text}");
    }

    #[test]
    fn a_desired_pod_without_a_status_is_pending() {
        let desired = |name: &str, uid: &str| {
            let mut json = listed("a", name, uid).json;
            json["status"] = Value::Null;
            let json = json.to_string().into_bytes();
            let pod = v1::Pod {
                json,
                ..v1::Pod::default()
            };
            v1::DesiredPod {
                pod: Some(pod),
                ..v1::DesiredPod::default()
            }
        };
        let merged = merge(
            vec![listed("a", "q", "2")],
            vec![desired("p", "1"), desired("q", "2")],
        );
        let phases: Vec<_> = merged
            .iter()
            .map(|listed| {
                (
                    listed.pod.name(),
                    listed.json["status"]["phase"].as_str().unwrap(),
                )
            })
            .collect();
        assert_eq!(phases, [("p", "Pending"), ("q", "Running")]);
    }
}
