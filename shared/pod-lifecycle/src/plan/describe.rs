//! A plan in words, for who wants to know why the pod is as it is.

use std::fmt::Write as _;

use clock::UnixNanos;
use pod::accessors::ContainerKind;
use pod::{Pod, PodExt};

use super::actions::{Plan, StartHow, Unusable, Work};
use super::facts::Refused;
use super::go_duration::go_duration;
use crate::hook::PostStart;
use crate::known::Known;
use crate::observation::Observation;
use crate::stop::{KillReason, StopOrder};
use crate::termination::TerminationCause;

/// Longest text; a pod of many containers is cut.
const MAX_BYTES: usize = 1024;

/// What a plan was made from, as far as it says what a plan without work waits for.
#[derive(Clone, Copy, Debug)]
pub struct Circumstances<'a> {
    /// The pod.
    pub pod: &'a Pod,
    /// What the runtime has of it.
    pub observation: &'a Observation,
    /// What is known besides.
    pub known: &'a Known,
    /// Why nothing new is made for it.
    pub refused: Option<&'a Refused>,
}

/// What a plan does and why, in a line.
#[must_use]
pub fn describe(plan: &Plan, circumstances: &Circumstances<'_>, now: UnixNanos) -> String {
    let mut text = match plan {
        Plan::End(cause) => format!("terminate the pod: {}", end(cause)),
        Plan::NewSandbox { attempt, why, .. } => {
            let why = why.map_or("there is none", unusable);
            format!("create sandbox {attempt}: {why}")
        }
        Plan::StopSandboxes { sandboxes, .. } => format!(
            "stop {} sandboxes that run beside the pod's own",
            sandboxes.len()
        ),
        Plan::Work(work) => describe_work(work, circumstances, now),
        Plan::AwaitCalls => "wait for calls to the runtime that are under way".to_owned(),
        Plan::StopPod(_) => "stop all that is alive of the pod".to_owned(),
        Plan::Stopped => "nothing of the pod is alive".to_owned(),
        Plan::CleanUp(_) => "clear away what the pod had on the node".to_owned(),
    };
    text.truncate(text.floor_char_boundary(MAX_BYTES));
    text
}

/// What a termination does that has ordered these stops.
#[must_use]
pub fn describe_termination(orders: &[StopOrder]) -> String {
    match orders.iter().map(|order| order.timeout).max() {
        None => "terminate the pod: no container runs".to_owned(),
        Some(left) => format!(
            "terminate the pod: {} containers run, {} of the grace period left",
            orders.len(),
            go_duration(left)
        ),
    }
}

fn describe_work(work: &Work, circumstances: &Circumstances<'_>, now: UnixNanos) -> String {
    let mut parts = Vec::new();
    for stop in &work.stops {
        let why = stop.reason.map_or("the pod ends", killed);
        parts.push(format!("stop {}: {why}", stop.name));
    }
    if !work.volumes.is_empty() {
        let names: Vec<&str> = work.volumes.iter().map(|it| it.name.as_str()).collect();
        parts.push(format!("make volumes {}", names.join(", ")));
    }
    if !work.refreshes.is_empty() {
        let names: Vec<&str> = work.refreshes.iter().map(|it| it.name.as_str()).collect();
        parts.push(format!("refresh volumes {}", names.join(", ")));
    }
    for resize in &work.resizes {
        parts.push(format!("change the resources of {}", resize.name));
    }
    for start in &work.starts {
        parts.push(match &start.how {
            StartHow::Create(instance) => match instance.restart_count {
                0 => format!("start {}: it does not run", start.name),
                count => format!("start {} again, restart {count}", start.name),
            },
            StartHow::Resume { .. } => format!("start {}: it was created before", start.name),
        });
    }
    for hook in &work.post_starts {
        parts.push(format!("begin the postStart hook of {}", hook.name));
    }
    for wait in &work.waits {
        let mut part = format!("{} waits after a crash", wait.name);
        // Writing to a String cannot fail.
        let _ = write!(
            part,
            ": back-off {}, {} left",
            go_duration(wait.wait),
            go_duration(wait.until.since(now))
        );
        parts.push(part);
    }
    for name in &work.pulls {
        parts.push(format!("{name} waits for its image"));
    }
    parts.extend(awaited(circumstances));
    if parts.is_empty() {
        return "nothing to do: the pod is as desired".to_owned();
    }
    parts.join("; ")
}

/// What has to end, or to change, before the pod is as desired.
fn awaited(circumstances: &Circumstances<'_>) -> Vec<String> {
    let mut awaited = Vec::new();
    let observation = circumstances.observation;
    if let Some(refused) = circumstances.refused {
        awaited.push(format!("nothing is started: {}", refused.reason));
    } else if observation.current_sandbox().is_none_or(|it| !it.ready) {
        awaited.push("wait a moment before the next sandbox".to_owned());
    }
    for container in observation.possibly_running() {
        let name = &container.name;
        let kind = circumstances.pod.container(name).map(|(kind, _)| kind);
        if circumstances.known.post_start(&container.id) == Some(PostStart::Begun) {
            awaited.push(format!("the postStart hook of {name} has not ended"));
        } else if kind == Some(ContainerKind::Init) {
            awaited.push(format!("init container {name} has not ended"));
        }
    }
    awaited
}

fn end(cause: &TerminationCause) -> &'static str {
    match cause {
        TerminationCause::Deleted => "its source marked it for deletion",
        TerminationCause::Killed => "it is no longer desired",
        TerminationCause::Evicted { .. } => "it is evicted",
        TerminationCause::DeadlineExceeded => "its active deadline is over",
        TerminationCause::Completed => "all its containers are done",
        TerminationCause::EndedAtSource => "its source says that it has ended",
        TerminationCause::Orphaned => "only the runtime has it",
    }
}

fn unusable(why: Unusable) -> &'static str {
    match why {
        Unusable::NotReady => "the last one does not run",
        Unusable::NetworkChanged => "the pod changed between the node's network and its own",
        Unusable::NoAddress => "the last one has no address",
        Unusable::OfAnotherVersion => "the last one was made for another version of the pod",
    }
}

fn killed(reason: KillReason) -> &'static str {
    match reason {
        KillReason::DefinitionChanged => "its definition changed",
        KillReason::LivenessFailed => "its liveness probe failed",
        KillReason::StartupFailed => "its startup probe failed",
        KillReason::StateUnknown => "the runtime does not know whether it runs",
        KillReason::Superseded => "a newer instance runs",
        KillReason::PostStartFailed => "its postStart hook failed",
        KillReason::AllRestart => "all containers are started again",
        KillReason::ResizeRestart => "its resources changed",
        KillReason::SandboxLost => "its sandbox cannot be used any more",
    }
}
