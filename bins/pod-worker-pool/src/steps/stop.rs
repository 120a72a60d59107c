//! Stops instances: single ones while their pod lives on, or all of a pod.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use cri::RuntimeError;
use futures_util::future::join_all;
use pod::PodIdentity;
use pod_lifecycle::hook::PreStop;
use pod_lifecycle::plan::{ContainerStop, StopHow};
use pod_lifecycle::stop::{MINIMUM_SIGTERM_GRACE, StopOrder};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::calls::Calls;
use super::context::StepContext;
use super::error::StepError;
use super::memory::Memory;
use super::pre_stop::{self, BeforeSigterm};
use super::stop_turns::StopTurns;

/// What a stop came to that did not fail.
enum Stopped {
    Yes,
    /// One that has to end before it could not be stopped.
    NotYet,
}

/// Stops instances while their pod lives on, all at once.
pub(super) async fn stop_containers(
    context: &StepContext,
    identity: &PodIdentity,
    stops: &[ContainerStop],
    memory: &mut Memory,
) -> Result<(), StepError> {
    for stop in stops {
        if let Some(reason) = stop.reason
            && memory.known.note_kill(&stop.container_id, reason)
        {
            context
                .events
                .normal(identity, &stop.name, "Killing", &stop.message);
        }
    }
    let orders = order_stops(context, stops, memory);
    let turns = StopTurns::default();
    carry_out_stops(context, identity, (stops, &orders), &turns, memory).await
}

/// How long each instance gets once its stop begins, whichever process ends it.
pub(super) fn order_stops(
    context: &StepContext,
    stops: &[ContainerStop],
    memory: &mut Memory,
) -> Vec<StopOrder> {
    let now = context.moment();
    let known = &mut memory.known;
    stops
        .iter()
        .map(|stop| known.order_stop(&stop.container_id, stop.grace, now))
        .collect()
}

/// Begins the stops: who calls it sends the signals before anything can cut it
/// short. The record says when that was a little later.
fn begin_stops(
    context: &StepContext,
    identity: &PodIdentity,
    stops: &[ContainerStop],
    orders: &[StopOrder],
    memory: &mut Memory,
) -> Vec<StopOrder> {
    let now = context.moment();
    let known = &mut memory.known;
    let begun = stops
        .iter()
        .zip(orders)
        .map(|(stop, order)| known.begin_stop(&stop.container_id, *order, now));
    let begun = begun.collect();
    memory.update_record();
    context.records.save_later(identity, &memory.record);
    begun
}

/// Carries out what was ordered. It is written down before the first signal is
/// sent: the next process goes on with the same deadlines. What else the stops wait for tells
/// its end to `turns`.
pub(super) async fn carry_out_stops(
    context: &StepContext,
    identity: &PodIdentity,
    (stops, orders): (&[ContainerStop], &[StopOrder]),
    turns: &StopTurns,
    memory: &mut Memory,
) -> Result<(), StepError> {
    if stops.is_empty() {
        return Ok(());
    }
    let pre_stops: Vec<BeforeSigterm> = stops
        .iter()
        .map(|stop| pre_stop::intend(context, stop, memory))
        .collect();
    memory.update_record();
    context.save_record(identity, memory).await;
    let orders = begin_stops(context, identity, stops, orders, memory);
    let stopping = (stops, &orders[..], &pre_stops[..]);
    let results = stop_all(context, identity, stopping, turns, memory).await;
    let mut failure: Option<StepError> = None;
    for ((stop, order), (result, elapsed)) in stops.iter().zip(&orders).zip(results) {
        let id = &stop.container_id;
        match result {
            Ok(Stopped::Yes) if stop.how == StopHow::StopUnknown => {
                memory.known.note_stop_of_unknown(id);
            }
            Ok(Stopped::Yes | Stopped::NotYet) => {}
            Err(error) => {
                memory.known.note_failed_stop(id, *order, elapsed);
                failure = Some(error.and_before(failure));
            }
        }
    }
    match failure {
        None => Ok(()),
        Some(error) => {
            memory.update_record();
            context.save_record(identity, memory).await;
            Err(error)
        }
    }
}

/// Stops instances at once, each after its preStop hook and when its turn has come; with
/// each result how long it took. The end of a hook is recorded when it comes.
async fn stop_all(
    context: &StepContext,
    identity: &PodIdentity,
    (stops, orders, pre_stops): (&[ContainerStop], &[StopOrder], &[BeforeSigterm]),
    turns: &StopTurns,
    memory: &mut Memory,
) -> Vec<(Result<Stopped, StepError>, Duration)> {
    let begun = Instant::now();
    let (calls, hooks) = (&memory.stop_calls.clone(), &memory.hooks.clone());
    let pod_ip = &memory.pod_ip.clone();
    let (ended, mut ends) = mpsc::unbounded_channel();
    let ended = &ended;
    let all = stops.iter().zip(orders).zip(pre_stops);
    let all = all.map(|((stop, order), before)| async move {
        let until = begun + order.timeout;
        if !matches!(before, BeforeSigterm::Nothing) {
            pre_stop::run(context, identity, stop, before, until, (hooks, pod_ip)).await;
            // Nobody takes it any more when the step was dropped.
            let _ = ended.send(stop.container_id.clone());
        }
        let has_turn = turns.wait_for(&stop.after, until).await;
        let has_waited = !stop.after.is_empty() || !matches!(before, BeforeSigterm::Nothing);
        let left = until.saturating_duration_since(Instant::now());
        let timeout = match has_waited {
            true => left.max(MINIMUM_SIGTERM_GRACE),
            false => order.timeout,
        };
        let result = match has_turn {
            true => stop_one(context, stop, timeout, calls)
                .await
                .map(|()| Stopped::Yes),
            false => Ok(Stopped::NotYet),
        };
        turns.note_end(&stop.container_id, matches!(result, Ok(Stopped::Yes)));
        (result, begun.elapsed())
    });
    let mut all = pin!(join_all(all));
    loop {
        tokio::select! {
            // Polled on with the next round.
            results = &mut all => return results,
            // Cancel-safe: an end leaves its list only when it is returned.
            Some(id) = ends.recv() => {
                memory.known.note_pre_stop(&id, PreStop::Ended);
                memory.update_record();
                context.records.save_later(identity, &memory.record);
            }
        }
    }
}

/// A StopContainer goes on when its step is cut short, beside the one with a nearer
/// deadline that follows: containerd takes one whose caller leaves just after it
/// came for one whose SIGTERM was sent, and never sends it again.
async fn stop_one(
    context: &StepContext,
    stop: &ContainerStop,
    timeout: Duration,
    calls: &Calls,
) -> Result<(), StepError> {
    let runtime = &context.runtime.changes;
    let stopped = match stop.how {
        StopHow::Stop | StopHow::StopUnknown => {
            let runtime = Arc::clone(runtime);
            let id = stop.container_id.clone();
            let call = async move { runtime.stop_container(&id, timeout).await };
            calls.run("StopContainer", call).await
        }
        StopHow::Remove => runtime.remove_container(&stop.container_id).await,
    };
    unless_gone(stop, stopped)
}

fn unless_gone(stop: &ContainerStop, result: Result<(), RuntimeError>) -> Result<(), StepError> {
    match result {
        Err(error) if !error.is_not_found() => {
            let what = format!("cannot stop container {}", stop.name);
            Err(StepError::from(error).while_doing(&what))
        }
        _ => Ok(()),
    }
}
