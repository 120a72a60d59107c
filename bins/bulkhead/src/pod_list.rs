//! The pods of the node: their statuses, the desired pods that have none yet,
//! and the one that a person means.
//!
//! status-syncer has statuses and no specs. The rest of a pod is that of sync-loop's desired
//! pod, and of one that is desired no more it is asked for by reference in pod-worker-pool.
//!
//! A pod takes many times the memory of its JSON once it is read, and what is read here is
//! what a process says that may be broken into. So all pods are kept as they came, each is
//! looked at when it comes, and one at a time is read again when it is shown.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bulkhead_api::v1;
use bulkhead_api::v1::list_pod_statuses_response::Message;
use bulkhead_api::v1::observations_client::ObservationsClient;
use bulkhead_api::v1::statuses_client::StatusesClient;
use bulkhead_api::v1::sync_loop_client::SyncLoopClient;
use clock::{UnixNanos, WallClock};
use pod::core::PodStatus;
use pod::items::{ItemBudget, MAX_ITEMS};
use pod::metadata::CONFIG_SOURCE_ANNOTATION;
use pod::{Pod, PodExt as _, PodIdentity, ephemeral, identity};
use serde::ser::Error as _;
use serde::{Serialize, Serializer};
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};
use tokio::time::Instant;
use tonic::Code;
use topology::Process;

use crate::connection::{Connection, DEADLINE, EXTRA_DEADLINE};
use crate::failure::Failure;
use crate::output::note;
use crate::pod_row;

/// Names that an error lists; more would hide what it says.
const MAX_NAMES_IN_ERROR: usize = 10;

/// Items in the lists of a pod: as many as its manifest may have, and as many in its status.
const MAX_ITEMS_WITH_STATUS: usize = 2 * MAX_ITEMS;

/// Most maps of a pod; one with as many items in its lists as there may be has fewer.
const MAX_MAPS: usize = 100_000;

/// A pod with its status, read.
#[derive(Clone, Debug)]
pub(crate) struct ListedPod {
    pub(crate) pod: Pod,
    /// What its worker last did and why, or empty.
    pub(crate) last_plan: String,
    /// Error of its last sync, or empty.
    pub(crate) sync_error: String,
    /// The report that the API server has not taken yet, or empty.
    pub(crate) awaited_report: String,
}

impl ListedPod {
    /// A pod from its JSON.
    pub(crate) fn decode(json: &[u8]) -> Option<ListedPod> {
        Some(ListedPod {
            pod: serde_json::from_slice(json).ok()?,
            last_plan: String::new(),
            sync_error: String::new(),
            awaited_report: String::new(),
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

/// A pod as it came.
#[derive(Clone, Debug)]
pub(crate) struct PodEntry {
    identity: PodIdentity,
    manifest_name: Option<String>,
    json: Vec<u8>,
    last_plan: String,
    sync_error: String,
    awaited_report: String,
    /// Whether it has no status yet.
    is_pending: bool,
}

impl PodEntry {
    /// A pod of this JSON; none where it is no pod that a node has.
    pub(crate) fn new(json: Vec<u8>) -> Option<PodEntry> {
        let mut value = serde_json::Deserializer::from_slice(&json);
        let budget = ItemBudget::new(MAX_ITEMS_WITH_STATUS).with_maps(MAX_MAPS);
        if !budget.has_room_for(&mut value).ok()? {
            return None;
        }
        let listed = ListedPod::decode(&json)?;
        if !has_names_of_its_own(&listed.pod) {
            return None;
        }
        Some(PodEntry {
            identity: PodIdentity::of(&listed.pod).ok()?,
            manifest_name: listed.manifest_name().map(str::to_owned),
            json,
            last_plan: String::new(),
            sync_error: String::new(),
            awaited_report: String::new(),
            is_pending: false,
        })
    }

    /// `namespace/name`.
    pub(crate) fn full_name(&self) -> String {
        format!("{}/{}", self.identity.namespace(), self.identity.name())
    }

    /// Which pod it is.
    pub(crate) fn identity(&self) -> &PodIdentity {
        &self.identity
    }

    /// The pod itself.
    ///
    /// # Errors
    /// None: that it can be read was seen when it came.
    pub(crate) fn read(&self) -> Result<ListedPod, Failure> {
        let listed = ListedPod::decode(&self.json);
        let unreadable = || Failure::NotFound(format!("{} is no pod", self.full_name()));
        let mut listed = listed.ok_or_else(unreadable)?;
        if self.is_pending {
            listed.pod.status.get_or_insert_with(pending);
        }
        listed.last_plan.clone_from(&self.last_plan);
        listed.sync_error.clone_from(&self.sync_error);
        listed.awaited_report.clone_from(&self.awaited_report);
        Ok(listed)
    }
}

/// As it came, read when it is written.
impl Serialize for PodEntry {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut json: Value = serde_json::from_slice(&self.json).map_err(S::Error::custom)?;
        if self.is_pending && json["status"].is_null() {
            json["status"] = serde_json::to_value(pending()).map_err(S::Error::custom)?;
        }
        json.serialize(serializer)
    }
}

/// The status of a pod that has none yet.
fn pending() -> PodStatus {
    PodStatus {
        phase: Some("Pending".to_owned()),
        ..PodStatus::default()
    }
}

/// Whether its containers have names, each another one: what is told of a container is found
/// by its name.
fn has_names_of_its_own(pod: &Pod) -> bool {
    let containers = pod.all_containers().map(|(_, container)| &container.name);
    let ephemeral = ephemeral::listed(pod).iter().map(|it| &it.name);
    let mut known = BTreeSet::new();
    let mut names = containers.chain(ephemeral);
    names.all(|name| identity::check_container_name(name).is_ok() && known.insert(name))
}

/// All pods by namespace and name.
pub(crate) async fn all(connection: &Connection) -> Result<Vec<PodEntry>, Failure> {
    let statuses = statuses(connection).await?;
    let desired = desired(connection, EXTRA_DEADLINE).await;
    let desired = desired.unwrap_or_else(|failure| {
        note(&format!(
            "pods without a status are not shown: {}",
            telemetry::chain(&failure)
        ));
        Vec::new()
    });
    let mut pods = by_uid(desired);
    let unknown: Vec<&str> = statuses
        .iter()
        .filter_map(uid)
        .filter(|uid| !pods.contains_key(*uid))
        .collect();
    let others = desired_no_more(connection, &unknown).await;
    pods.extend(others.unwrap_or_else(|failure| {
        note(&format!(
            "specs of {} pods are not shown: {}",
            unknown.len(),
            telemetry::chain(&failure)
        ));
        BTreeMap::new()
    }));
    let (pods, left_out) = merge(statuses, pods);
    if left_out > 0 {
        note(&format!(
            "{left_out} pods are not shown: what is said of them is of no pod that a node has"
        ));
    }
    Ok(pods)
}

/// Pods by UID, without their statuses.
type PodsByUid = BTreeMap<String, v1::Pod>;

fn uid(entry: &v1::PodStatusEntry) -> Option<&str> {
    let reference = entry.pod.as_ref()?.reference.as_ref()?;
    Some(&reference.uid)
}

fn by_uid(desired: Vec<v1::DesiredPod>) -> PodsByUid {
    let pods = desired.into_iter().filter_map(|desired| desired.pod);
    let uid = |pod: &v1::Pod| pod.reference.clone().unwrap_or_default().uid;
    pods.map(|pod| (uid(&pod), pod)).collect()
}

/// The pods of these UIDs, as far as pod-worker-pool has them.
async fn desired_no_more(connection: &Connection, uids: &[&str]) -> Result<PodsByUid, Failure> {
    let process = Process::PodWorkerPool;
    let mut pods = PodsByUid::new();
    if uids.is_empty() {
        return Ok(pods);
    }
    let client = ObservationsClient::new(connection.channel(process)?)
        .max_decoding_message_size(ipc::limits::MAX_POD_MESSAGE_BYTES);
    let until = Instant::now() + EXTRA_DEADLINE;
    for uid in uids {
        let left = until.saturating_duration_since(Instant::now());
        let answer = ipc::call(left, || {
            let mut client = client.clone();
            let request = v1::GetPodRequest {
                pod_uid: (*uid).to_owned(),
                hash: String::new(),
            };
            async move { client.get_observed_pod(request).await }
        });
        match answer.await {
            Ok(answer) => {
                pods.insert((*uid).to_owned(), answer.pod.unwrap_or_default());
            }
            Err(error) if error.code() == Some(Code::NotFound) => {}
            Err(error) => return Err(Failure::of_call(process, error)),
        }
    }
    Ok(pods)
}

/// Pods with a status.
async fn statuses(connection: &Connection) -> Result<Vec<v1::PodStatusEntry>, Failure> {
    let process = Process::StatusSyncer;
    let client = StatusesClient::new(connection.channel(process)?)
        .max_decoding_message_size(ipc::limits::MAX_POD_MESSAGE_BYTES);
    let messages = connection
        .list(process, DEADLINE, || {
            let mut client = client.clone();
            let request = v1::ListPodStatusesRequest::default();
            async move { client.list_pod_statuses(request).await }
        })
        .await?;
    let entry = |response: v1::ListPodStatusesResponse| match response.message? {
        Message::Entry(entry) => Some(entry),
        Message::SnapshotComplete(_) | Message::RemovedPodUid(_) => None,
    };
    Ok(messages.into_iter().filter_map(entry).collect())
}

/// Desired pods, with what was decided about each.
pub(crate) async fn desired(
    connection: &Connection,
    deadline: Duration,
) -> Result<Vec<v1::DesiredPod>, Failure> {
    let process = Process::SyncLoop;
    let client = SyncLoopClient::new(connection.channel(process)?)
        .max_decoding_message_size(ipc::limits::MAX_POD_MESSAGE_BYTES);
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

/// The pods with a status, the others as pending, and how many were no pods.
fn merge(statuses: Vec<v1::PodStatusEntry>, mut pods: PodsByUid) -> (Vec<PodEntry>, usize) {
    let mut entries = Vec::new();
    let mut left_out = 0;
    for entry in statuses {
        let of_pod = uid(&entry).and_then(|uid| pods.remove(uid));
        let served = entry.pod.unwrap_or_default();
        let pod = of_pod.as_ref().unwrap_or(&served);
        match with_status(pod, &served).and_then(PodEntry::new) {
            Some(mut pod) => {
                pod.last_plan = entry.last_plan;
                pod.sync_error = entry.sync_error;
                pod.awaited_report = entry.awaited_report;
                entries.push(pod);
            }
            None => left_out += 1,
        }
    }
    for pod in pods.values() {
        match with_status(pod, &v1::Pod::default()).and_then(PodEntry::new) {
            Some(mut pod) => {
                pod.is_pending = true;
                entries.push(pod);
            }
            None => left_out += 1,
        }
    }
    entries.sort_by_cached_key(PodEntry::full_name);
    (entries, left_out)
}

/// A JSON object; what is in its fields is passed on as it is.
type Fields = BTreeMap<String, Box<RawValue>>;

/// A pod with the status that is served of it, when it will be gone, and its source, whatever
/// its own annotation says.
fn with_status(pod: &v1::Pod, served: &v1::Pod) -> Option<Vec<u8>> {
    let fields = |json: &[u8]| serde_json::from_slice::<Fields>(json).ok();
    let of = |fields: &Fields, name: &str| match fields.get(name) {
        Some(value) => serde_json::from_str::<Option<Fields>>(value.get()).ok(),
        None => Some(None),
    };
    let mut shown = fields(&pod.json)?;
    if !served.status.is_empty() {
        let status = serde_json::from_slice(&served.status).ok()?;
        shown.insert("status".to_owned(), status);
    }
    let mut metadata = of(&shown, "metadata")??;
    if !served.json.is_empty() {
        let mut of_status = of(&fields(&served.json)?, "metadata")??;
        for name in ["deletionTimestamp", "deletionGracePeriodSeconds"] {
            if let Some(value) = of_status.remove(name) {
                metadata.insert(name.to_owned(), value);
            }
        }
    }
    let mut annotations = of(&metadata, "annotations")?.unwrap_or_default();
    annotations.insert(
        CONFIG_SOURCE_ANNOTATION.to_owned(),
        to_raw_value(&pod.source).ok()?,
    );
    metadata.insert("annotations".to_owned(), to_raw_value(&annotations).ok()?);
    shown.insert("metadata".to_owned(), to_raw_value(&metadata).ok()?);
    serde_json::to_vec(&shown).ok()
}

/// The pod that `wanted` names: a name, namespace/name, UID, or the name in a
/// static pod's manifest.
pub(crate) fn pick<'a>(pods: &'a [PodEntry], wanted: &str) -> Result<&'a PodEntry, Failure> {
    let (namespace, name) = match wanted.split_once('/') {
        Some((namespace, name)) => (Some(namespace), name),
        None => (None, wanted),
    };
    let in_namespace =
        |pod: &&PodEntry| namespace.is_none_or(|wanted| wanted == pod.identity.namespace());
    let exact = |pod: &&PodEntry| {
        pod.identity.name() == name || (namespace.is_none() && pod.identity.uid() == name)
    };
    let mut meant: Vec<&PodEntry> = pods.iter().filter(in_namespace).filter(exact).collect();
    if meant.is_empty() {
        let by_manifest = |pod: &&PodEntry| pod.manifest_name.as_deref() == Some(name);
        meant = pods
            .iter()
            .filter(in_namespace)
            .filter(by_manifest)
            .collect();
    }
    match meant.as_slice() {
        [only] => Ok(*only),
        [] => Err(Failure::NotFound(format!(
            "no pod is called {wanted}; there are: {}",
            names(pods.iter(), |pod| format!(
                "{} ({})",
                pod.full_name(),
                pod.identity.uid()
            ))
        ))),
        several => {
            let first = several.first().map(|pod| pod.full_name());
            let of_one_name = several.iter().all(|pod| Some(pod.full_name()) == first);
            let what = match of_one_name {
                true => "the UID",
                false => "NAMESPACE/NAME or the UID",
            };
            let now = WallClock::system().now();
            Err(Failure::Ambiguous(format!(
                "{} pods are called {wanted}; give {what} of one: {}",
                several.len(),
                names(several.iter().copied(), |pod| apart(pod, now))
            )))
        }
    }
}

/// The UID of another pod of the same namespace and name.
pub(crate) fn namesake<'a>(pods: &'a [PodEntry], pod: &PodEntry) -> Option<&'a str> {
    let mut others = pods.iter().filter(|other| {
        other.identity.uid() != pod.identity.uid() && other.full_name() == pod.full_name()
    });
    others.next().map(|other| other.identity.uid())
}

/// By what pods of one name differ: UID, age, and whether it is on its way out.
fn apart(pod: &PodEntry, now: UnixNanos) -> String {
    let listed = pod.read().ok();
    let told = listed
        .as_ref()
        .map(|listed| pod_row::age_and_status(&listed.pod, now));
    format!(
        "{} ({}, {})",
        pod.full_name(),
        pod.identity.uid(),
        told.unwrap_or_default()
    )
}

fn names<'a>(
    pods: impl ExactSizeIterator<Item = &'a PodEntry>,
    name: impl Fn(&PodEntry) -> String,
) -> String {
    let more = pods.len().saturating_sub(MAX_NAMES_IN_ERROR);
    let shown = pods.take(MAX_NAMES_IN_ERROR);
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
    use serde_json::json;

    use super::*;
    use crate::words::nanos;

    fn pod(namespace: &str, name: &str, uid: &str) -> Value {
        json!({
            "metadata": {
                "namespace": namespace, "name": name, "uid": uid,
                "annotations": {"kubernetes.io/config.source": "file"},
            },
            "spec": {"nodeName": "node-1", "containers": []},
            "status": {"phase": "Running"},
        })
    }

    fn entry_of(pod: &Value) -> Option<PodEntry> {
        PodEntry::new(pod.to_string().into_bytes())
    }

    fn listed(namespace: &str, name: &str, uid: &str) -> PodEntry {
        entry_of(&pod(namespace, name, uid)).unwrap()
    }

    fn message(pod: &Value) -> Option<v1::Pod> {
        let uid = pod["metadata"]["uid"].as_str().unwrap_or_default();
        let mut pod = pod.clone();
        let fields = pod.as_object_mut();
        let status = fields.and_then(|pod| pod.remove("status"));
        let status = status.filter(|status| !status.is_null());
        let status = status.map_or_else(String::new, |status| status.to_string());
        Some(v1::Pod {
            source: "file".to_owned(),
            status: status.into_bytes(),
            reference: Some(v1::PodReference {
                uid: uid.to_owned(),
                ..v1::PodReference::default()
            }),
            json: pod.to_string().into_bytes(),
            ..v1::Pod::default()
        })
    }

    #[test]
    fn a_pod_is_found_by_each_of_its_names() {
        let pods = [
            listed("a", "p-node-1", "1"),
            listed("b", "p-node-1", "2"),
            listed("b", "q-node-1", "3"),
        ];
        let uid = |wanted: &str| pick(&pods, wanted).map(|found| found.identity.uid().to_owned());
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
        assert!(matches!(&error, Failure::Ambiguous(text) if text.contains("b/p-node-1 (2, ")));
        let error = uid("a/q").unwrap_err();
        assert!(matches!(&error, Failure::NotFound(text) if text.contains("b/q-node-1")));
        assert!(matches!(pick(&[], "x"), Err(Failure::NotFound(text)) if text.ends_with("none")));
    }

    #[test]
    fn pods_of_one_name_are_told_apart() {
        let mut waits = pod("a", "p", "1");
        waits["status"]["phase"] = json!("Pending");
        waits["metadata"]["annotations"]["kubernetes.io/config.seen"] =
            json!("2026-01-01T00:04:53Z");
        let mut ends = pod("a", "p", "2");
        ends["metadata"]["creationTimestamp"] = json!("2026-01-01T00:00:00Z");
        ends["metadata"]["deletionTimestamp"] = json!("2026-01-02T00:00:00Z");
        let pods = [
            entry_of(&waits).unwrap(),
            entry_of(&ends).unwrap(),
            listed("b", "p", "3"),
        ];
        let created = entry_of(&ends)
            .unwrap()
            .read()
            .unwrap()
            .pod
            .metadata
            .creation_timestamp;
        let now = nanos(&created.unwrap()).plus(Duration::from_secs(300));
        let told: Vec<String> = pods.iter().map(|pod| apart(pod, now)).collect();
        assert_eq!(
            told,
            [
                "a/p (1, 7s old, Pending)",
                "a/p (2, 5m old, Terminating)",
                "b/p (3, of unknown age, Running)",
            ]
        );
        for (wanted, words) in [
            (
                "a/p",
                "2 pods are called a/p; give the UID of one: a/p (1, ",
            ),
            (
                "p",
                "3 pods are called p; give NAMESPACE/NAME or the UID of one: a/p (1, ",
            ),
        ] {
            let error = pick(&pods, wanted).unwrap_err().to_string();
            assert!(error.starts_with(words), "{error}");
        }
        assert_eq!(namesake(&pods, &pods[0]), Some("2"));
        assert_eq!(namesake(&pods, &pods[2]), None);
    }

    #[test]
    fn a_name_is_taken_before_a_manifests_name() {
        let pods = [listed("a", "p", "1"), listed("a", "p-node-1", "2")];
        assert_eq!(pick(&pods, "p").unwrap().identity.uid(), "1");
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
            let mut json = pod("a", name, uid);
            json["status"] = Value::Null;
            v1::DesiredPod {
                pod: message(&json),
                ..v1::DesiredPod::default()
            }
        };
        let mut served = pod("a", "q", "2");
        served["spec"] = Value::Null;
        served["metadata"]["deletionTimestamp"] = json!("2026-01-02T00:00:00Z");
        let status = v1::PodStatusEntry {
            pod: message(&served),
            last_plan: "nothing to do".to_owned(),
            ..v1::PodStatusEntry::default()
        };
        let desired = by_uid(vec![desired("p", "1"), desired("q", "2")]);
        let (merged, left_out) = merge(vec![status], desired);
        assert_eq!(left_out, 0);
        let read: Vec<_> = merged.iter().map(|it| it.read().unwrap()).collect();
        let told: Vec<_> = read
            .iter()
            .map(|listed| {
                let status = listed.pod.status.as_ref().unwrap();
                let phase = status.phase.as_deref().unwrap();
                (listed.pod.name(), phase, listed.last_plan.as_str())
            })
            .collect();
        assert_eq!(
            told,
            [("p", "Pending", ""), ("q", "Running", "nothing to do")]
        );
        let printed = serde_json::to_value(&merged).unwrap();
        assert_eq!(printed[0]["status"]["phase"], "Pending");
        assert_eq!(printed[1]["spec"]["nodeName"], "node-1");
        let metadata = &printed[1]["metadata"];
        assert_eq!(metadata["deletionTimestamp"], "2026-01-02T00:00:00Z");
        assert!(metadata["annotations"].is_object());
    }

    #[test]
    fn a_pod_whose_spec_nobody_has_is_shown_with_its_status() {
        let mut served = pod("a", "p", "1");
        served["spec"] = Value::Null;
        let status = v1::PodStatusEntry {
            pod: message(&served),
            ..v1::PodStatusEntry::default()
        };
        let (merged, left_out) = merge(vec![status], PodsByUid::new());
        assert_eq!((merged.len(), left_out), (1, 0));
        let read = merged[0].read().unwrap();
        assert_eq!(read.pod.status.unwrap().phase.as_deref(), Some("Running"));
    }

    #[test]
    fn what_is_no_pod_of_a_node_is_counted_and_left_out() {
        let with = |field: &str, value: Value| {
            let mut pod = pod("a", "p", "1");
            *pod.pointer_mut(field).unwrap() = value;
            pod
        };
        let many = vec![json!({}); MAX_ITEMS_WITH_STATUS + 1];
        let maps: Value = (0..MAX_MAPS)
            .map(|number| (number.to_string(), json!({})))
            .collect();
        let mut hostile = vec![
            json!([]),
            json!({}),
            with("/metadata/name", json!("p\na/other")),
            with("/metadata/name", json!("\u{1b}[2Jp")),
            with("/metadata/name", json!("p".repeat(1 << 20))),
            with("/metadata/namespace", json!("..")),
            with("/metadata/uid", json!("")),
            with("/spec/containers", json!([{ "name": "c\u{1b}" }])),
            with(
                "/spec/containers",
                json!([{ "name": "c" }, { "name": "c" }]),
            ),
            // Two bytes each as text, and kilobytes each as containers or their statuses.
            with("/spec/containers", json!(many[..MAX_ITEMS / 2])),
            with("/status", json!({ "containerStatuses": many })),
            // Four bytes each as text, and hundreds each when it is printed.
            with("/status", json!({ "unknown": maps })),
        ];
        let mut init = with("/spec/containers", json!([{ "name": "c" }]));
        init["spec"]["initContainers"] = json!([{ "name": "c" }]);
        hostile.push(init);
        let count = hostile.len() + 1;
        let entry = |pod: &Value| v1::PodStatusEntry {
            pod: message(pod),
            ..v1::PodStatusEntry::default()
        };
        let mut statuses: Vec<_> = hostile.iter().map(entry).collect();
        statuses.push(v1::PodStatusEntry::default());
        statuses.push(entry(&pod("a", "good", "2")));
        let (pods, left_out) = merge(statuses, PodsByUid::new());
        assert_eq!((pods.len(), left_out), (1, count));
        assert_eq!(pods[0].identity.name(), "good");
        let (pods, left_out) = merge(
            Vec::new(),
            by_uid(vec![v1::DesiredPod {
                pod: message(&hostile[2]),
                ..v1::DesiredPod::default()
            }]),
        );
        assert_eq!((pods.len(), left_out), (0, 1));
    }
}
