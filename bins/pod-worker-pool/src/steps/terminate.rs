//! SyncTerminatingPod and SyncTerminatedPod: stopping everything of a pod within
//! its grace, and removing what it had on the node.

use std::time::Duration;

use pod::PodIdentity;

use super::kill::Stop;
use super::unstarted::Unstarted;
use super::{Memory, Outcome, Retry, StepError, Steps};
use crate::observation::{ContainerState, Observation};
use crate::publisher::Findings;
use crate::record::Record;
use crate::stop::StopOrder;
use crate::worker::{DesiredPod, Subject, Termination, TerminationCause};

/// How long calls of an interrupted sync may take to end before they are given up:
/// far longer than a sandbox or container takes, so that what they make is seen
/// and stopped.
const CALLS_MAY_TAKE: Duration = Duration::from_secs(5);

/// Rounds of one termination: what appears while it runs is stopped in the next.
const MAX_ROUNDS: usize = 4;

impl Steps {
    /// Stops all containers of a pod at once, each within what is left of its
    /// grace, then its sandboxes.
    pub(super) async fn terminate(
        &self,
        subject: &Subject,
        termination: &Termination,
        memory: &mut Memory,
    ) -> Outcome {
        memory.calls.settle(CALLS_MAY_TAKE).await;
        match self.stop_pod(subject, termination, memory).await {
            Ok(()) => Outcome::Stopped,
            Err(error) => {
                let identity = subject.identity();
                self.publisher.failed(identity.uid(), &error.message);
                let message = format!("error killing pod: {}", error.message);
                self.events.warning(identity, "", "FailedKillPod", &message);
                Outcome::Failed(error)
            }
        }
    }

    async fn stop_pod(
        &self,
        subject: &Subject,
        termination: &Termination,
        memory: &mut Memory,
    ) -> Result<(), StepError> {
        let identity = subject.identity();
        for round in 0..MAX_ROUNDS {
            let observation = self
                .observer
                .observe(identity, None, &mut memory.cache)
                .await?;
            let stops: Vec<Stop> = observation
                .possibly_running()
                .map(|container| Stop {
                    container_id: container.id.clone(),
                    name: container.name.clone(),
                    grace: termination.grace_for(container.termination_grace),
                    is_unknown: container.state == ContainerState::Unknown,
                })
                .collect();
            let orders = self.order_stops(&stops, memory);
            self.publish_termination(identity, &observation, &orders);
            // Sandboxes that run no more are stopped too, once: they may still
            // hold an address.
            if !observation.is_alive() && (round > 0 || observation.sandboxes.is_empty()) {
                return self.stopped(subject, termination, memory).await;
            }
            for stop in &stops {
                if memory.stopping.insert(stop.container_id.clone()) {
                    let message = format!("Stopping container {}", stop.name);
                    self.events
                        .normal(identity, &stop.name, "Killing", &message);
                }
            }
            if !stops.is_empty() {
                memory.record.termination = Some(termination.clone());
            }
            self.carry_out(identity, &stops, &orders, memory).await?;
            if !self.remove_all_unstarted(&observation).await? {
                continue;
            }
            self.stop_sandboxes(&observation).await?;
        }
        Err(StepError::new(
            "something of the pod runs still, or again",
            Retry::SOON,
        ))
    }

    /// Removes containers that were created and not started; `false` when one has been
    /// started meanwhile, so that the next round has to stop it.
    async fn remove_all_unstarted(&self, observation: &Observation) -> Result<bool, StepError> {
        let containers = observation.containers.iter();
        let mut all_removed = true;
        for container in containers.filter(|one| one.state == ContainerState::Created) {
            let removed = self.remove_unstarted(&container.id).await;
            let removed = removed.map_err(|error| {
                let what = format!("cannot remove container {}", container.name);
                StepError::from(error).while_doing(&what)
            })?;
            all_removed &= removed == Unstarted::Removed;
        }
        Ok(all_removed)
    }

    fn publish_termination(
        &self,
        identity: &PodIdentity,
        observation: &Observation,
        orders: &[StopOrder],
    ) {
        let last_plan = match orders.iter().map(|order| order.timeout).max() {
            None => "terminate the pod: no container runs".to_owned(),
            Some(left) => format!(
                "terminate the pod: {} containers run, {} of the grace period left",
                orders.len(),
                crate::plan::go_duration(left)
            ),
        };
        self.publisher.findings(
            identity.uid(),
            Findings {
                observation: observation.clone(),
                waiting: Vec::new(),
                sync_error: String::new(),
                last_plan,
                observed_at: self.clock.now(),
            },
        );
    }

    /// Nothing of the pod runs any more.
    async fn stopped(
        &self,
        subject: &Subject,
        termination: &Termination,
        memory: &mut Memory,
    ) -> Result<(), StepError> {
        if let Subject::RuntimeOnly(identity) = subject {
            if keeps_directory(&termination.cause) {
                // A termination that was resumed: its source has it still.
                self.take_down(identity).await?;
            } else {
                // Nobody will ask for more: what is left of it goes at once.
                self.remove_files(identity).await?;
            }
            self.close_record(identity, termination, memory).await?;
        }
        Ok(())
    }

    /// Removes what a stopped pod had on the node. Of a pod that has ended by
    /// itself the directory stays while its source has it: termination messages
    /// are in there.
    pub(super) async fn clean_up(
        &self,
        pod: &DesiredPod,
        termination: &Termination,
        memory: &mut Memory,
    ) -> Outcome {
        let identity = pod.identity();
        let removed = if keeps_directory(&termination.cause) {
            self.take_down(identity).await
        } else {
            self.remove_files(identity).await
        };
        let closed = match removed {
            Ok(()) => self.close_record(identity, termination, memory).await,
            failed => failed,
        };
        match closed {
            Ok(()) => Outcome::CleanedUp,
            Err(error) => {
                self.publisher.failed(identity.uid(), &error.message);
                Outcome::Failed(error)
            }
        }
    }

    async fn take_down(&self, identity: &PodIdentity) -> Result<(), StepError> {
        self.host.tear_down_volumes(identity.uid()).await?;
        self.host.remove_pod_cgroup(identity.uid()).await?;
        Ok(())
    }

    async fn remove_files(&self, identity: &PodIdentity) -> Result<(), StepError> {
        self.take_down(identity).await?;
        self.host.remove_pod_directory(identity.uid()).await?;
        Ok(())
    }

    /// Nothing is left to do: a record is of use only where nothing else tells that
    /// the pod has ended. There it has to be written before anybody may take the pod
    /// for ended, or another life of ours would start it again.
    async fn close_record(
        &self,
        identity: &PodIdentity,
        termination: &Termination,
        memory: &mut Memory,
    ) -> Result<(), StepError> {
        // While its source has it, it counts from the start that it had.
        let keeps_start = keeps_directory(&termination.cause);
        memory.record = Record {
            started_at: memory.record.started_at.filter(|_| keeps_start),
            ..Record::default()
        };
        if !termination.cause.is_known_by_record_alone() {
            self.save_record(identity, memory).await;
            return Ok(());
        }
        memory.record.termination = Some(termination.clone());
        let saved = self.records.save(identity, &memory.record).await;
        saved
            .map_err(|error| StepError::from(error).while_doing("cannot record the end of the pod"))
    }
}

fn keeps_directory(cause: &TerminationCause) -> bool {
    !cause.permits_recreation()
}
