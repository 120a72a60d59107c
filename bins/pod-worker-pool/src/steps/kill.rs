//! Stopping instances: single ones while their pod lives on, or all of a pod.

use std::sync::Arc;
use std::time::Duration;

use cri::RuntimeError;
use futures_util::future::join_all;
use pod::PodIdentity;
use tokio::time::Instant;

use super::{Calls, Memory, StepError, Steps};
use crate::plan::{Kill, KillReason};
use crate::stop::{Moment, StopOrder};

/// An instance to stop.
pub(super) struct Stop {
    pub(super) container_id: String,
    /// Its container.
    pub(super) name: String,
    /// How long it may take if its stop begins now.
    pub(super) grace: Duration,
    /// The runtime does not know whether it runs.
    pub(super) is_unknown: bool,
}

impl Steps {
    /// Stops instances while their pod lives on, all at once.
    pub(super) async fn kill(
        &self,
        identity: &PodIdentity,
        kills: &[Kill],
        memory: &mut Memory,
    ) -> Result<(), StepError> {
        for kill in kills {
            let id = &kill.container_id;
            if !memory.record.kills.contains_key(id) {
                memory.record.kills.insert(id.clone(), kill.reason);
                self.events
                    .normal(identity, &kill.name, "Killing", &kill.message);
            }
        }
        let stops: Vec<Stop> = kills
            .iter()
            .map(|kill| Stop {
                container_id: kill.container_id.clone(),
                name: kill.name.clone(),
                grace: kill.grace,
                is_unknown: kill.reason == KillReason::StateUnknown,
            })
            .collect();
        let orders = self.order_stops(&stops, memory);
        self.carry_out(identity, &stops, &orders, memory).await
    }

    /// How long each instance gets once its stop begins, in the next life too.
    pub(super) fn order_stops(&self, stops: &[Stop], memory: &mut Memory) -> Vec<StopOrder> {
        let now = self.moment();
        let records = &mut memory.record.stops;
        stops
            .iter()
            .map(|stop| {
                let id = &stop.container_id;
                memory.deadlines.order(records, id, stop.grace, now)
            })
            .collect()
    }

    /// Begins the stops: who calls it sends the signals before anything can cut it
    /// short. The next life learns when that was a little later.
    fn begin_stops(
        &self,
        identity: &PodIdentity,
        stops: &[Stop],
        orders: &[StopOrder],
        memory: &mut Memory,
    ) -> Vec<StopOrder> {
        let now = self.moment();
        let records = &mut memory.record.stops;
        let begun = stops.iter().zip(orders).map(|(stop, order)| {
            let id = &stop.container_id;
            memory.deadlines.begin(records, id, *order, now)
        });
        let begun = begun.collect();
        self.records.save_later(identity, &memory.record);
        begun
    }

    fn moment(&self) -> Moment {
        Moment {
            wall: self.clock.now(),
            monotonic: Instant::now(),
        }
    }

    /// Carries out what was ordered. It is written down before the first signal is
    /// sent: another life of ours goes on with the same deadlines.
    pub(super) async fn carry_out(
        &self,
        identity: &PodIdentity,
        stops: &[Stop],
        orders: &[StopOrder],
        memory: &mut Memory,
    ) -> Result<(), StepError> {
        if stops.is_empty() {
            return Ok(());
        }
        self.save_record(identity, memory).await;
        let orders = self.begin_stops(identity, stops, orders, memory);
        let begun = Instant::now();
        let calls = &memory.stop_calls;
        let all = stops.iter().zip(&orders).map(|(stop, order)| {
            let is_unstoppable = memory.unstoppable.contains(&stop.container_id);
            async move {
                let result = if is_unstoppable {
                    self.remove_unstoppable(stop).await
                } else {
                    self.stop(stop, order.timeout, calls).await
                };
                (result, begun.elapsed())
            }
        });
        let results = join_all(all).await;
        let mut failure: Option<StepError> = None;
        for ((stop, order), (result, elapsed)) in stops.iter().zip(&orders).zip(results) {
            let id = &stop.container_id;
            match result {
                Ok(()) if stop.is_unknown => {
                    memory.unstoppable.insert(id.clone());
                }
                Ok(()) => {}
                Err(error) => {
                    let records = &mut memory.record.stops;
                    memory.deadlines.failed(records, id, *order, elapsed);
                    failure = Some(match failure {
                        Some(other) => other.and(error),
                        None => error,
                    });
                }
            }
        }
        match failure {
            None => Ok(()),
            Some(error) => {
                self.save_record(identity, memory).await;
                Err(error)
            }
        }
    }

    /// The call goes on when its step is cut short, beside the one with a nearer
    /// deadline that follows: containerd takes one that is given up just after it
    /// came for one whose SIGTERM was sent, and never sends it again.
    async fn stop(&self, stop: &Stop, timeout: Duration, calls: &Calls) -> Result<(), StepError> {
        let runtime = Arc::clone(&self.runtime);
        let id = stop.container_id.clone();
        let call = async move { runtime.stop_container(&id, timeout).await };
        unless_gone(stop, calls.run("StopContainer", call).await)
    }

    /// It was stopped and is still unknown: what the runtime cannot stop it may be
    /// able to remove.
    async fn remove_unstoppable(&self, stop: &Stop) -> Result<(), StepError> {
        unless_gone(
            stop,
            self.runtime.remove_container(&stop.container_id).await,
        )
    }
}

fn unless_gone(stop: &Stop, result: Result<(), RuntimeError>) -> Result<(), StepError> {
    match result {
        Err(error) if !error.is_not_found() => {
            let what = format!("cannot stop container {}", stop.name);
            Err(StepError::from(error).while_doing(&what))
        }
        _ => Ok(()),
    }
}
