//! What keeps a whole pod from being started: since when, how often, and what to do. Pure.

use bulkhead_api::v1;
use clock::UnixNanos;
use pod::core::PodStatus;
use pod::{Pod, PodExt as _, PodPhase};

use super::facts::{Beside, Trouble};
use super::remedies;
use super::repeats::{self, Repeats};

/// Where a trouble is not one of a single container.
pub(super) const THE_POD: &str = "The pod";

/// Reasons of events of failures without which the pod's containers would be started.
const FAILURES: [&str; 5] = [
    "FailedCreatePodContainer",
    "FailedCreatePodSandBox",
    "FailedMount",
    "FailedMountPodDir",
    "NetworkNotReady",
];

/// What a pod waits for or fails of. `waits`: one of its containers waits, and nothing
/// of that container says for what.
pub(super) fn of(
    pod: &Pod,
    status: &PodStatus,
    beside: &Beside<'_>,
    waits: bool,
) -> Option<Trouble> {
    let phase = status.phase.as_deref().and_then(PodPhase::parse);
    if phase.is_some_and(PodPhase::is_terminal) {
        return None;
    }
    not_admitted(beside)
        .or_else(|| behind_namesake(pod, beside))
        .or_else(|| failed(status, beside, waits))
}

fn trouble(what: String, since: Option<UnixNanos>, remedy: &str) -> Trouble {
    Trouble {
        subject: THE_POD.to_owned(),
        what,
        since,
        seen: None,
        remedy: remedy.to_owned(),
    }
}

fn not_admitted(beside: &Beside<'_>) -> Option<Trouble> {
    let desired = beside.desired?;
    let waits = desired.admission() == v1::Admission::Pending;
    waits.then(|| {
        let what = format!("it is not admitted yet: it {}", desired.last_decision);
        let since = UnixNanos(desired.last_decision_unix_nanos);
        let remedy = "bulkhead status and bulkhead loop say which part does not answer";
        trouble(what, (since.0 > 0).then_some(since), remedy)
    })
}

fn behind_namesake(pod: &Pod, beside: &Beside<'_>) -> Option<Trouble> {
    let waits = beside.desired?.worker_phase == "waiting";
    let other = beside.namesake.filter(|_| waits)?;
    let name = pod.name();
    let what = format!("it waits until the other pod that is called {name} has ended");
    Some(trouble(
        what,
        None,
        &format!("wait, or see what that one does: bulkhead describe {other}"),
    ))
}

/// What its worker failed of last, unless that is said of a container.
fn failed(status: &PodStatus, beside: &Beside<'_>, waits: bool) -> Option<Trouble> {
    let error = beside.sync_error;
    if !waits && (error.is_empty() || is_of_a_container(status, error)) {
        return None;
    }
    let repeats = unsolved(beside.events).filter(|it| error.is_empty() || is_told_by(error, it));
    let Some(repeats) = repeats else {
        let is_told = error.is_empty() || is_of_a_container(status, error);
        return (!is_told).then(|| trouble(error.to_owned(), None, remedies::OF_A_SYNC));
    };
    let mut what = format!("{}: {}", repeats.reason, repeats.message);
    if error.is_empty() && !beside.last_plan.is_empty() {
        what += &format!("; it is tried again now: {}", beside.last_plan);
    }
    let remedy = remedies::of_pod(&repeats.reason, &repeats.message);
    Some(Trouble {
        seen: Some(repeats.seen),
        ..trouble(what, Some(repeats.since), remedy)
    })
}

/// What failed since a container was made last.
fn unsolved(events: &[v1::Event]) -> Option<Repeats> {
    let made = events.iter().filter(|event| event.reason == "Created");
    let made = made.map(|event| event.unix_nanos).max().unwrap_or(0);
    repeats::newest(events.iter().filter(|event| {
        event.container.is_empty()
            && FAILURES.contains(&event.reason.as_str())
            && event.unix_nanos >= made
    }))
}

/// Whether an error is that of an event, whose message may be cut and have words before it.
fn is_told_by(error: &str, repeats: &Repeats) -> bool {
    let message = repeats.message.as_str();
    let message = message
        .strip_prefix("Failed to create pod sandbox: ")
        .unwrap_or(message);
    error.contains(message)
}

/// Whether an error is that of a start of a container which does not run, and says why.
fn is_of_a_container(status: &PodStatus, error: &str) -> bool {
    let lists = [
        &status.init_container_statuses,
        &status.container_statuses,
        &status.ephemeral_container_statuses,
    ];
    let mut statuses = lists.into_iter().flatten().flatten();
    statuses.any(|status| {
        let state = status.state.as_ref();
        let runs = state.is_some_and(|state| state.running.is_some());
        !runs && error.contains(&format!("failed to start container {:?}", status.name))
    })
}
