//! SyncTerminatingPod and SyncTerminatedPod: stopping everything of a pod within
//! its grace, and removing what it had on the node.

use std::time::Duration;

use futures_util::future::join_all;
use pod::PodIdentity;

use super::{Memory, Outcome, Retry, StepError, Steps};
use crate::observation::{Container, ContainerState, Observation};
use crate::publisher::Findings;
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
    pub async fn terminate(
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
            self.publish_termination(identity, &observation, termination);
            // Sandboxes that run no more are stopped too, once: they may still
            // hold an address.
            if !observation.is_alive() && (round > 0 || observation.sandboxes.is_empty()) {
                return self.stopped(subject, memory).await;
            }
            let targets: Vec<&Container> = observation.possibly_running().collect();
            if !targets.is_empty() {
                // Written before the first signal: another life of ours goes on
                // with the same deadline.
                memory.record.termination = Some(termination.clone());
                self.save_record(identity, memory);
            }
            for container in &targets {
                if memory.stopping.insert(container.id.clone()) {
                    let message = format!("Stopping container {}", container.name);
                    self.events
                        .normal(identity, &container.name, "Killing", &message);
                }
            }
            let stops = targets.iter().map(|container| {
                let now = self.clock.now();
                let grace = termination.stop_timeout(now, container.termination_grace);
                self.stop_container(container, grace)
            });
            let failures = join_all(stops).await.into_iter().filter_map(Result::err);
            if let Some(error) = failures.reduce(StepError::and) {
                return Err(error);
            }
            self.remove_unstarted(&observation).await?;
            self.stop_sandboxes(&observation).await?;
        }
        Err(StepError::new(
            "something of the pod runs still, or again",
            Retry::SOON,
        ))
    }

    async fn stop_container(
        &self,
        container: &Container,
        grace: Duration,
    ) -> Result<(), StepError> {
        match self.runtime.stop_container(&container.id, grace).await {
            Err(error) if !error.is_not_found() => Err(StepError::from(error)
                .while_doing(&format!("cannot stop container {}", container.name))),
            _ => Ok(()),
        }
    }

    /// Removes containers that were created and not started. A start that an
    /// earlier life of this process asked for may still be under way: the runtime
    /// then refuses the removal, and the next round finds a container to stop,
    /// which its sandbox's end would have killed without a SIGTERM.
    async fn remove_unstarted(&self, observation: &Observation) -> Result<(), StepError> {
        let unstarted = observation.containers.iter();
        for container in unstarted.filter(|one| one.state == ContainerState::Created) {
            match self.runtime.remove_container(&container.id).await {
                Err(error) if !error.is_not_found() => {
                    let what = format!("cannot remove container {}", container.name);
                    return Err(StepError::from(error).while_doing(&what));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn publish_termination(
        &self,
        identity: &PodIdentity,
        observation: &Observation,
        termination: &Termination,
    ) {
        let now = self.clock.now();
        let running = observation.possibly_running().count();
        let last_plan = if running == 0 {
            "terminate the pod: no container runs".to_owned()
        } else {
            let left = termination.remaining(now, None);
            format!(
                "terminate the pod: {running} containers run, {} of the grace period left",
                crate::plan::go_duration(left)
            )
        };
        self.publisher.findings(
            identity.uid(),
            Findings {
                observation: observation.clone(),
                waiting: Vec::new(),
                sync_error: String::new(),
                last_plan,
                observed_at: now,
            },
        );
    }

    /// Nothing of the pod runs any more.
    async fn stopped(&self, subject: &Subject, memory: &mut Memory) -> Result<(), StepError> {
        if let Subject::RuntimeOnly(identity) = subject {
            // Nobody will ask for more: what is left of it goes at once.
            self.remove_files(identity).await?;
            self.forget_record(identity, memory);
        }
        Ok(())
    }

    /// Removes what a stopped pod had on the node. Of a pod that has ended by
    /// itself the directory stays while its source has it: termination messages
    /// are in there.
    pub async fn clean_up(
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
        match removed {
            Ok(()) => {
                self.forget_record(identity, memory);
                Outcome::CleanedUp
            }
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

    fn forget_record(&self, identity: &PodIdentity, memory: &mut Memory) {
        memory.record = crate::record::Record::default();
        self.save_record(identity, memory);
    }
}

fn keeps_directory(cause: &TerminationCause) -> bool {
    !cause.permits_recreation()
}
