//! `describe`: one pod in full, and why it is as it is.

mod container;
mod facts;
mod pod_wide;
mod remedies;
mod repeats;
#[cfg(test)]
mod tests;
mod trouble;
mod volume;

use std::process::ExitCode;

use bulkhead_api::v1;
use clock::{UnixNanos, WallClock};
use pod::core::{PodCondition, PodStatus};
use pod::meta::Time;
use pod::{Pod, PodExt as _};

use crate::arguments::DescribeOptions;
use crate::connection::{Connection, EXTRA_DEADLINE};
use crate::escape::plain;
use crate::events;
use crate::failure::Failure;
use crate::output::{Output, note};
use crate::pod_list::{self, ListedPod, PodEntry, pick};
use crate::pod_row::status_word;
use crate::table::{self, Cell};
use crate::text::Text;
use crate::words::{age, age_since, nanos, timestamp};
use facts::Beside;

/// Annotations that hold a copy of the whole pod.
const HIDDEN_ANNOTATIONS: [&str; 1] = ["kubectl.kubernetes.io/last-applied-configuration"];

/// Prints a pod.
pub(crate) async fn describe(
    connection: &Connection,
    options: &DescribeOptions,
    output: Output,
) -> Result<ExitCode, Failure> {
    let all = pod_list::all(connection).await?;
    let picked = pick(&all, &options.pod)?;
    let listed = picked.read()?;
    let (asked, not_shown) = Asked::of(connection, listed.pod.uid()).await;
    for text in not_shown {
        note(&text);
    }
    let beside = asked.beside(&listed, pod_list::namesake(&all, picked));
    let now = WallClock::system().now();
    output.text(&rendered(&listed.pod, &beside, now, output.colours))?;
    Ok(ExitCode::SUCCESS)
}

/// What sync-loop and status-syncer say of a pod beside its status.
struct Asked {
    desired: Option<v1::DesiredPod>,
    events: Vec<v1::Event>,
}

impl Asked {
    /// Asks; with what is not shown because there was no answer, which keeps nothing else back.
    async fn of(connection: &Connection, uid: &str) -> (Asked, Vec<String>) {
        let (desired, events) = tokio::join!(
            pod_list::desired(connection, EXTRA_DEADLINE),
            events::recent(connection, EXTRA_DEADLINE)
        );
        let not_shown = [
            desired.as_ref().err().map(|it| ("decisions", it)),
            events.as_ref().err().map(|it| ("events", it)),
        ];
        let not_shown = not_shown.into_iter().flatten().map(|(what, failure)| {
            let why = telemetry::chain(failure);
            format!("{what} are not shown: {why}")
        });
        let not_shown = not_shown.collect();
        let is_of_pod = |reference: Option<&v1::PodReference>| {
            reference.is_some_and(|reference| reference.uid == uid)
        };
        let mut events = events.unwrap_or_default();
        events.retain(|event| is_of_pod(event.pod.as_ref()));
        let mut desired = desired.unwrap_or_default().into_iter();
        let desired = desired
            .find(|desired| is_of_pod(desired.pod.as_ref().and_then(|pod| pod.reference.as_ref())));
        (Asked { desired, events }, not_shown)
    }

    fn beside<'a>(&'a self, listed: &'a ListedPod, namesake: Option<&'a str>) -> Beside<'a> {
        Beside {
            events: &self.events,
            last_plan: &listed.last_plan,
            sync_error: &listed.sync_error,
            awaited_report: &listed.awaited_report,
            desired: self.desired.as_ref(),
            namesake,
        }
    }
}

/// Why a container has written nothing, as far as that is known: what it, or its pod, waits
/// for or failed of, and what to do. `all` are the pods of the node.
pub(crate) async fn why_not_started(
    connection: &Connection,
    (all, picked): (&[PodEntry], &PodEntry),
    container: &str,
) -> Result<Option<String>, Failure> {
    let listed = picked.read()?;
    let (asked, _) = Asked::of(connection, listed.pod.uid()).await;
    let beside = asked.beside(&listed, pod_list::namesake(all, picked));
    let status = listed.pod.status.clone().unwrap_or_default();
    let trouble = trouble::of_container(&listed.pod, &status, &beside, container);
    Ok(trouble.map(|it| format!("{}. What to do: {}", it.what, it.remedy)))
}

/// Whether the newest instance of a container is one whose program never ran.
pub(crate) fn never_ran(pod: &Pod, container: &str) -> bool {
    let status = pod.status.as_ref();
    status.is_some_and(|status| trouble::container_never_ran(status, container))
}

fn rendered(pod: &Pod, beside: &Beside<'_>, now: UnixNanos, colours: bool) -> String {
    let default = PodStatus::default();
    let status = pod.status.as_ref().unwrap_or(&default);
    let mut text = Text::default();
    identity(&mut text, pod, status, now);
    state(&mut text, pod, status);
    troubles(&mut text, pod, status, beside, now);
    container::list(
        &mut text,
        "Init Containers",
        pod.init_containers(),
        &status.init_container_statuses,
    );
    container::list(
        &mut text,
        "Containers",
        pod.containers(),
        &status.container_statuses,
    );
    conditions(&mut text, status, now);
    volume::list(&mut text, pod.volumes());
    decision(&mut text, beside.desired, now);
    text.optional(1, "Worker's plan", Some(beside.last_plan));
    text.optional(1, "Sync error", Some(beside.sync_error));
    text.optional(1, "API server", Some(beside.awaited_report));
    text.heading("Events");
    if beside.events.is_empty() {
        text.line(1, "none lately");
    } else {
        text.block(&events::as_table_of_pod(beside.events, now, colours));
    }
    text.into_string()
}

fn identity(text: &mut Text, pod: &Pod, status: &PodStatus, now: UnixNanos) {
    let metadata = &pod.metadata;
    let spec = pod.spec_or_default();
    text.field(0, "Name", pod.name());
    text.field(0, "Namespace", pod.namespace());
    text.field(0, "UID", pod.uid());
    let source = pod
        .annotation(pod::metadata::CONFIG_SOURCE_ANNOTATION)
        .unwrap_or("api");
    text.field(0, "Source", source);
    let node = [spec.node_name.as_deref(), status.host_ip.as_deref()];
    text.field(
        0,
        "Node",
        &node.into_iter().flatten().collect::<Vec<_>>().join("/"),
    );
    text.optional(0, "Priority Class", spec.priority_class_name.as_deref());
    text.optional(
        0,
        "Start Time",
        status.start_time.as_ref().map(|start| moment(start, now)),
    );
    if let Some(deletion) = &metadata.deletion_timestamp {
        let left = age(nanos(deletion).since(now));
        let grace = metadata.deletion_grace_period_seconds.unwrap_or(0);
        text.field(0, "Terminating", &format!("{left} left of {grace}s grace"));
    }
    let pairs = |map: &Option<std::collections::BTreeMap<String, String>>| -> Vec<String> {
        let shown = |key: &&String| !HIDDEN_ANNOTATIONS.contains(&key.as_str());
        let pairs = map.iter().flatten().filter(|(key, _)| shown(key));
        pairs.map(|(key, value)| format!("{key}={value}")).collect()
    };
    text.values(0, "Labels", &pairs(&metadata.labels));
    text.values(0, "Annotations", &pairs(&metadata.annotations));
}

fn state(text: &mut Text, pod: &Pod, status: &PodStatus) {
    let spec = pod.spec_or_default();
    let phase = status.phase.as_deref().unwrap_or("Unknown");
    let word = status_word(pod, status);
    if word == phase {
        text.field(0, "Status", phase);
    } else {
        text.field(0, "Status", &format!("{word} (phase {phase})"));
    }
    text.optional(0, "Reason", status.reason.as_deref());
    text.optional(0, "Message", status.message.as_deref());
    let ips: Vec<String> = status
        .pod_ips
        .iter()
        .flatten()
        .map(|ip| ip.ip.clone())
        .collect();
    text.values(0, "IPs", &ips);
    text.optional(0, "QoS Class", status.qos_class.as_deref());
    text.field(0, "Restart Policy", pod.restart_policy().as_str());
    text.field(
        0,
        "Grace Period",
        &format!("{}s", pod.termination_grace_period_seconds()),
    );
    text.optional(
        0,
        "Active Deadline",
        pod.active_deadline_seconds()
            .map(|seconds| format!("{seconds}s")),
    );
    let host: Vec<&str> = [
        (pod.host_network(), "network"),
        (pod.host_pid(), "PID"),
        (pod.host_ipc(), "IPC"),
    ]
    .into_iter()
    .filter_map(|(shared, name)| shared.then_some(name))
    .collect();
    text.optional(
        0,
        "Of the Node",
        (!host.is_empty()).then(|| host.join(", ")),
    );
    text.optional(0, "Runtime Class", spec.runtime_class_name.as_deref());
}

/// What is waited for or failed, first of all that follows: it is what most come for.
fn troubles(text: &mut Text, pod: &Pod, status: &PodStatus, beside: &Beside<'_>, now: UnixNanos) {
    let troubles = trouble::of(pod, status, beside);
    if troubles.is_empty() {
        return;
    }
    text.heading("Needs Attention");
    for trouble in troubles {
        text.field(1, &trouble.subject, &trouble.what);
        text.optional(
            2,
            "Since",
            trouble.since.map(|since| {
                let ago = age(now.since(since));
                let begin = format!("{} ({ago} ago)", timestamp(since));
                begin
                    + &trouble
                        .seen
                        .map_or_else(String::new, |seen| how_often(seen, now))
            }),
        );
        text.field(2, "What to do", &trouble.remedy);
    }
}

fn how_often(seen: repeats::Seen, now: UnixNanos) -> String {
    match seen.count {
        0 | 1 => String::new(),
        count => format!(
            ", {count} times, the last {} ago",
            age(now.since(seen.last))
        ),
    }
}

fn conditions(text: &mut Text, status: &PodStatus, now: UnixNanos) {
    let row = |condition: &PodCondition| -> Vec<Cell> {
        let since = condition.last_transition_time.as_ref();
        let words = |text: &Option<String>| plain(text.as_deref().unwrap_or_default());
        vec![
            plain(&condition.type_).into(),
            plain(&condition.status).into(),
            since
                .map_or_else(|| "-".to_owned(), |since| age_since(since, now))
                .into(),
            words(&condition.reason).into(),
            words(&condition.message).into(),
        ]
    };
    let rows: Vec<_> = status.conditions.iter().flatten().map(row).collect();
    if !rows.is_empty() {
        text.heading("Conditions");
        text.block(&table::render(
            &["TYPE", "STATUS", "SINCE", "REASON", "MESSAGE"],
            &rows,
            false,
        ));
    }
}

/// Why the pod is handled as it is: sync-loop's view.
fn decision(text: &mut Text, desired: Option<&v1::DesiredPod>, now: UnixNanos) {
    text.heading("Decision");
    let Some(desired) = desired else {
        text.line(1, "sync-loop does not want this pod, or could not be asked");
        return;
    };
    let admission = match desired.admission() {
        v1::Admission::Unspecified => "unknown",
        v1::Admission::Pending => "pending: what runs already is not known yet",
        v1::Admission::Admitted => "admitted",
        v1::Admission::Adopted => "adopted: it ran when sync-loop came up",
        v1::Admission::Rejected => "rejected",
    };
    text.field(1, "Admission", admission);
    let non_empty = |text: &String| (!text.is_empty()).then(|| text.clone());
    text.optional(1, "Rejected for", non_empty(&desired.rejection_reason));
    text.optional(1, "Because", non_empty(&desired.rejection_message));
    text.optional(1, "Worker", non_empty(&desired.worker_phase));
    text.optional(1, "Mirror pod", non_empty(&desired.mirror_uid));
    if let Some(last) = non_empty(&desired.last_decision) {
        let at = UnixNanos(desired.last_decision_unix_nanos);
        let ago = age(now.since(at));
        text.field(
            1,
            "Last decision",
            &format!("{last} ({ago} ago, {})", timestamp(at)),
        );
    }
}

/// A point in time and how long ago that was.
fn moment(time: &Time, now: UnixNanos) -> String {
    format!("{} ({} ago)", timestamp(nanos(time)), age_since(time, now))
}
