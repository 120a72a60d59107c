//! SyncTerminatingPod and SyncTerminatedPod: stops everything of a pod within its
//! grace, and clears away what it had on the node.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::future::{join, join_all};
use local_objects::Objects;
use pod::PodIdentity;
use pod_lifecycle::known::Known;
use pod_lifecycle::observation::Observation;
use pod_lifecycle::plan::{
    CleanUp, CreatedContainer, Goal, Plan, ProbeVerdicts, describe_termination,
};
use pod_lifecycle::record::Record;
use pod_lifecycle::stop::StopOrder;
use pod_lifecycle::{DesiredPod, Subject, Termination};

use super::context::StepContext;
use super::created::Removal;
use super::error::{Retry, StepError};
use super::job::Outcome;
use super::memory::{Announcement, Memory};
use super::stop_turns::StopTurns;
use super::{created, resize, sandbox, stop};
use crate::publisher::Findings;
use crate::shutdown_kills::is_rejection;

/// How long calls of an interrupted sync may take to end before they are given up:
/// far longer than a sandbox or container takes, so that what they make is seen
/// and stopped.
const CALLS_MAY_TAKE: Duration = Duration::from_secs(5);

/// Rounds of one termination: one to wait for calls, then what appears while it runs
/// is stopped in the next.
const MAX_ROUNDS: usize = 5;

/// Stops everything of a pod.
pub(super) async fn terminate(
    context: &StepContext,
    subject: &Subject,
    termination: &Termination,
    memory: &mut Memory,
) -> Outcome {
    match stop_pod(context, subject, termination, memory).await {
        Ok(()) => Outcome::Stopped,
        Err(error) => {
            let identity = subject.identity();
            context.publisher.failed(identity.uid(), &error.message);
            let message = format!("error killing pod: {}", error.message);
            context
                .events
                .warning(identity, "", "FailedKillPod", &message);
            Outcome::Failed(error)
        }
    }
}

async fn stop_pod(
    context: &StepContext,
    subject: &Subject,
    termination: &Termination,
    memory: &mut Memory,
) -> Result<(), StepError> {
    let identity = subject.identity();
    record_what_nothing_else_tells(context, identity, termination, memory).await;
    for _ in 0..MAX_ROUNDS {
        let observation = context.observe(identity, None, memory).await?;
        note_former_sandboxes(&observation, termination, memory);
        let in_post_start = memory.known.in_post_start(&observation);
        let shown = (&observation, &in_post_start);
        let stop = match plan_of(context, subject, termination, &observation, memory) {
            Plan::AwaitCalls => {
                memory.calls.settle(CALLS_MAY_TAKE).await;
                continue;
            }
            Plan::StopPod(stop) => stop,
            Plan::Stopped => {
                publish_termination(context, identity, shown, &[], memory);
                return Ok(());
            }
            Plan::CleanUp(what) => {
                publish_termination(context, identity, shown, &[], memory);
                return clear_away(context, identity, termination, what, memory).await;
            }
            other => return Err(StepError::out_of_place(&other)),
        };
        let orders = stop::order_stops(context, &stop.containers, memory);
        publish_termination(context, identity, shown, &orders, memory);
        for stop in &stop.containers {
            let announcement = Announcement::Stopping(stop.container_id.clone());
            if memory.announced.insert(announcement) {
                context
                    .events
                    .normal(identity, &stop.name, "Killing", &stop.message);
            }
            memory.record.termination = Some(termination.clone());
        }
        let turns = StopTurns::default();
        let what = (&stop.containers[..], &orders[..]);
        let stops = stop::carry_out_stops(context, identity, what, &turns, memory);
        let (stopped, all_removed) =
            join(stops, remove_all_created(context, &stop.created, &turns)).await;
        stopped?;
        if all_removed? {
            sandbox::stop_sandboxes(context, &stop.sandboxes, memory).await?;
        }
    }
    Err(StepError::new(
        "something of the pod runs still, or again",
        Retry::SOON,
    ))
}

/// Decodes the pod for the plan alone: a stop may take as long as the grace, and many pods
/// stop at once.
fn plan_of(
    context: &StepContext,
    subject: &Subject,
    termination: &Termination,
    observation: &Observation,
    memory: &Memory,
) -> Plan {
    let pod = subject.desired().and_then(|pod| pod.decode().ok());
    let goal = Goal::Terminate {
        termination,
        pod: pod.as_ref(),
        is_runtime_only: matches!(subject, Subject::RuntimeOnly(_)),
    };
    context.plan_for(goal, &ProbeVerdicts::default(), observation, memory)
}

/// A pod that is stopped has not ended by itself: where it begins anew under its UID, the
/// instances of the sandboxes that it had do not count. One that has ended by itself begins
/// anew only when its source has removed it and has it again; until then its instances tell
/// the next process that it has ended. So they do where a shutdown of the node rejects a pod
/// of which nothing runs: it goes on after the boot as if that had not been.
fn note_former_sandboxes(
    observation: &Observation,
    termination: &Termination,
    memory: &mut Memory,
) {
    let shown = observation.sandbox_ids();
    let is_rejected = is_rejection(&termination.cause);
    let stops_nothing = is_rejected && !observation.is_alive();
    if !termination.cause.is_terminal() && !stops_nothing {
        memory.record.former_sandboxes.clone_from(&shown);
        if is_rejected {
            // The boot leaves it, and its deadline is to begin anew.
            memory.record.started_at = None;
        }
    }
    memory.sandboxes_if_begun_anew = shown;
}

/// Before anything of the pod is looked at: where nothing of it runs, or the runtime does
/// not answer, no stop is recorded, and another process would know of no eviction.
async fn record_what_nothing_else_tells(
    context: &StepContext,
    identity: &PodIdentity,
    termination: &Termination,
    memory: &mut Memory,
) {
    if termination.cause.is_known_by_record_alone() {
        memory.record.termination = Some(termination.clone());
        context.save_record(identity, memory).await;
    }
}

/// Removes containers that were created and not started; `false` when one has been
/// started meanwhile, so that the next round has to stop it. One that the runtime cannot
/// remove keeps nothing else from ending.
async fn remove_all_created(
    context: &StepContext,
    created: &[CreatedContainer],
    turns: &StopTurns,
) -> Result<bool, StepError> {
    let removals = created.iter().map(|container| async {
        let removed = match created::remove_created(context, &container.container_id).await {
            Ok(removal) => Ok(removal != Removal::Started),
            Err(error) => {
                let what = format!("cannot remove container {}", container.name);
                Err(StepError::from(error).while_doing(&what))
            }
        };
        turns.note_end(&container.container_id, matches!(removed, Ok(true)));
        removed
    });
    let removed = join_all(removals).await.into_iter();
    let removed: Result<Vec<bool>, StepError> = removed.collect();
    Ok(removed?.into_iter().all(|is_removed| is_removed))
}

/// Of what is shown, those in their postStart hook are known from before their stop was
/// ordered: they have not started, and do not by being stopped.
fn publish_termination(
    context: &StepContext,
    identity: &PodIdentity,
    (observation, in_post_start): (&Observation, &BTreeSet<String>),
    orders: &[StopOrder],
    memory: &Memory,
) {
    context.publisher.findings(
        identity.uid(),
        Findings {
            observation: observation.clone(),
            in_post_start: in_post_start.clone(),
            waiting: Vec::new(),
            // Nothing is started again: all ends count.
            left_of_earlier: BTreeSet::new(),
            restarted_after_kill: BTreeSet::new(),
            resources: resize::known(observation, memory),
            resize: None,
            is_refused: context.policy.refuses(identity.uid()),
            sync_error: String::new(),
            last_plan: describe_termination(orders),
            is_observed: true,
        },
    );
}

/// Clears away what a stopped pod had on the node.
pub(super) async fn clean_up(
    context: &StepContext,
    pod: &DesiredPod,
    termination: &Termination,
    memory: &mut Memory,
) -> Outcome {
    let identity = pod.identity();
    let (nothing, no_probes) = (Observation::default(), ProbeVerdicts::default());
    let goal = Goal::CleanUp(termination);
    let cleared = match context.plan_for(goal, &no_probes, &nothing, memory) {
        Plan::CleanUp(what) => clear_away(context, identity, termination, what, memory).await,
        other => Err(StepError::out_of_place(&other)),
    };
    match cleared {
        Ok(()) => Outcome::CleanedUp,
        Err(error) => {
            context.publisher.failed(identity.uid(), &error.message);
            Outcome::Failed(error)
        }
    }
}

async fn clear_away(
    context: &StepContext,
    identity: &PodIdentity,
    termination: &Termination,
    what: CleanUp,
    memory: &mut Memory,
) -> Result<(), StepError> {
    // Secrets among it: an ended pod may stay for months.
    memory.files.clear();
    memory.volumes.clear();
    memory.objects = Objects::default();
    context.objects.forget(identity.uid());
    context.host.tear_down_volumes(identity.uid()).await?;
    context.files_in_memory.release(identity.uid());
    context.host.remove_pod_cgroup(identity.uid()).await?;
    if what.removes_directory {
        context.host.remove_pod_directory(identity.uid()).await?;
    }
    close_record(context, identity, termination, what, memory).await
}

/// Nothing is left to do: a record is of use only where nothing else tells that
/// the pod has ended.
async fn close_record(
    context: &StepContext,
    identity: &PodIdentity,
    termination: &Termination,
    what: CleanUp,
    memory: &mut Memory,
) -> Result<(), StepError> {
    memory.known = Known::default();
    memory.record = Record {
        // While its source has it, it counts from the start that it had.
        started_at: memory.record.started_at.filter(|_| !what.removes_directory),
        termination: what.must_be_recorded.then(|| termination.clone()),
        // One that could not be started is shown like one that nobody asked to start, which
        // the next process would start.
        refused_starts: match what.removes_directory {
            true => BTreeSet::new(),
            false => std::mem::take(&mut memory.record.refused_starts),
        },
        ..Record::begun_anew_beside(std::mem::take(&mut memory.record.former_sandboxes))
    };
    // A shutdown of the node waits for no disk, and the next boot needs no record.
    if !what.must_be_recorded || termination.cause.ends_with_the_boot() {
        context.save_record(identity, memory).await;
        return Ok(());
    }
    let saved = context.records.save(identity, &memory.record).await;
    saved.map_err(|error| StepError::from(error).while_doing("cannot record the end of the pod"))
}
