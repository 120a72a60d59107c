//! SyncPod: observe, plan, act, until the plan is empty.

use std::collections::BTreeMap;

use clock::UnixNanos;
use pod::{Pod, PodIdentity};

use super::start_time::started_at;
use super::unstopped::Unstopped;
use super::{Memory, Outcome, Retry, StepError, Steps, SyncInput};
use crate::endings;
use crate::image::Image;
use crate::observation::{ContainerState, Observation};
use crate::plan::{self, Inputs, Plan, StartHow, Work};
use crate::publisher::{self, Findings};
use crate::worker::DesiredPod;

/// Rounds of one sync. A pod needs one for its sandbox and one for each of its
/// init containers that ends at once; who needs more goes on after a short pause,
/// so that no pod keeps a step for ever.
const MAX_ROUNDS: usize = 32;

/// What one sync is about.
pub(super) struct Target<'a> {
    pub(super) identity: &'a PodIdentity,
    pub(super) pod: &'a Pod,
    /// When its first sync was, if that is noted.
    pub(super) noted_start: Option<UnixNanos>,
}

/// Images that this sync has found already, or cannot have.
pub(super) type PreparedImages = BTreeMap<String, Result<Image, super::start::StartError>>;

impl Steps {
    /// Brings a pod to what is desired.
    pub(super) async fn sync(
        &self,
        desired: &DesiredPod,
        input: &SyncInput,
        memory: &mut Memory,
    ) -> Outcome {
        let pod = match desired.decode() {
            Ok(pod) => pod,
            Err(error) => {
                return Outcome::Failed(StepError::new(telemetry::chain(&error), Retry::LATER));
            }
        };
        let target = Target {
            identity: desired.identity(),
            pod: &pod,
            noted_start: self.note_start(desired.identity(), &pod, memory).await,
        };
        memory.pulls.retain_wanted(target.pod);
        match self.converge_in_time(&target, input, memory).await {
            Ok(outcome) => outcome,
            Err(error) => {
                self.publisher.failed(target.identity.uid(), &error.message);
                Outcome::Failed(error)
            }
        }
    }

    /// At the pod's deadline the plan is to end it, whatever hangs.
    async fn converge_in_time(
        &self,
        target: &Target<'_>,
        input: &SyncInput,
        memory: &mut Memory,
    ) -> Result<Outcome, StepError> {
        if let Some(left) = self.time_left(target) {
            let converging = self.converge(target, input, memory);
            if let Ok(outcome) = tokio::time::timeout(left, converging).await {
                return outcome;
            }
        }
        self.converge(target, input, memory).await
    }

    async fn converge(
        &self,
        target: &Target<'_>,
        input: &SyncInput,
        memory: &mut Memory,
    ) -> Result<Outcome, StepError> {
        let mut images = PreparedImages::new();
        let mut unstopped = Unstopped::default();
        for _ in 0..MAX_ROUNDS {
            let observation = self
                .observer
                .observe(target.identity, Some(target.pod), &mut memory.cache)
                .await?;
            let observation = with_refused_starts(observation, memory);
            self.forget_ended_kills(target, &observation, memory).await;
            let plan = self.plan(target, input, &observation, &unstopped, memory);
            self.publish(target, &observation, &plan, memory, unstopped.message());
            match without_pulls(plan, memory) {
                Plan::End(cause) => {
                    if let Some((reason, message)) = cause.failure() {
                        self.events.normal(target.identity, "", reason, message);
                    }
                    return Ok(Outcome::Ended(cause));
                }
                Plan::NewSandbox {
                    attempt,
                    why,
                    first,
                } => {
                    self.replace_sandbox(target, &observation, (attempt, why), memory)
                        .await?;
                    let made = self.new_sandbox(target, &observation, attempt, &first, memory);
                    images.extend(made.await?);
                }
                Plan::StopSandboxes { sandboxes, kills } => {
                    let stopped = self.stop_surplus_sandboxes(target, &sandboxes, &kills, memory);
                    if let Err(error) = stopped.await {
                        unstopped.note(sandboxes, error);
                    }
                }
                Plan::Work(work) if work.is_empty() => {
                    self.announce_waits(target, &work, memory);
                    return Ok(unstopped.outcome(work.wake_at));
                }
                Plan::Work(work) => {
                    self.announce_waits(target, &work, memory);
                    let observation = unstopped.set_aside(&observation);
                    let failures = self
                        .work(target, &observation, work, &mut images, memory)
                        .await
                        .map_err(|error| unstopped.and(error))?;
                    if let Some(error) = failures.map(|error| unstopped.and(error)) {
                        let wake_at = self
                            .look_after_failure(target, input, (&error, &unstopped), memory)
                            .await?;
                        return Ok(Outcome::Failed(error.at_latest(wake_at)));
                    }
                }
            }
        }
        Err(StepError::new(
            "the pod did not settle yet and is looked at again",
            Retry::SOON,
        ))
    }

    /// Kills come first and are looked at before anything is started.
    async fn work(
        &self,
        target: &Target<'_>,
        observation: &Observation,
        work: Work,
        images: &mut PreparedImages,
        memory: &mut Memory,
    ) -> Result<Option<StepError>, StepError> {
        if !work.kills.is_empty() {
            self.kill(target.identity, &work.kills, memory).await?;
            return Ok(None);
        }
        let prepared = self.prepare_containers(target, observation).await?;
        Ok(self
            .start_all(target, &prepared, work.starts, images, memory)
            .await)
    }

    /// Some containers could not be started; others may have been, or wait for
    /// something else: until when is the answer.
    async fn look_after_failure(
        &self,
        target: &Target<'_>,
        input: &SyncInput,
        (error, unstopped): (&StepError, &Unstopped),
        memory: &mut Memory,
    ) -> Result<Option<UnixNanos>, StepError> {
        let observation = self
            .observer
            .observe(target.identity, Some(target.pod), &mut memory.cache)
            .await?;
        let observation = with_refused_starts(observation, memory);
        let plan = self.plan(target, input, &observation, unstopped, memory);
        self.publish(target, &observation, &plan, memory, &error.message);
        Ok(match plan {
            Plan::Work(work) => work.wake_at,
            Plan::End(_) | Plan::NewSandbox { .. } | Plan::StopSandboxes { .. } => None,
        })
    }

    fn plan(
        &self,
        target: &Target<'_>,
        input: &SyncInput,
        observation: &Observation,
        unstopped: &Unstopped,
        memory: &Memory,
    ) -> Plan {
        let now = self.clock.now();
        let observation = &*unstopped.set_aside(observation);
        let ahead = self.endings.ahead_of(target.pod, observation);
        let plan = plan::plan(&Inputs {
            pod: target.pod,
            observation: ahead.as_ref().unwrap_or(observation),
            failed_probes: &input.failed_probes,
            kills: &memory.record.kills,
            restart_curve: self.restart_curve,
            started_at: started_at(target, observation),
            now,
        });
        let plan = match ahead {
            Some(_) => endings::only_work(plan, observation, now),
            None => plan,
        };
        unstopped.leave_alone(plan, observation)
    }

    async fn forget_ended_kills(
        &self,
        target: &Target<'_>,
        observation: &Observation,
        memory: &mut Memory,
    ) {
        let before = memory.record.clone();
        memory
            .record
            .kills
            .retain(|id, _| is_kill_of_use(observation, id));
        memory.deadlines.retain(&mut memory.record.stops, |id| {
            observation
                .container(id)
                .is_some_and(|container| container.state.may_run())
        });
        memory
            .announced
            .retain(|id| observation.container(id).is_some());
        memory
            .unstoppable
            .retain(|id| observation.container(id).is_some());
        memory
            .refused_starts
            .retain(|id| observation.container(id).is_some());
        if memory.record != before {
            self.save_record(target.identity, memory).await;
        }
    }

    pub(super) async fn save_record(&self, identity: &PodIdentity, memory: &Memory) {
        if let Err(error) = self.records.save(identity, &memory.record).await {
            // The kill goes on: a full disk, or one that hangs, must not keep a pod
            // alive. What is lost is that another life of ours would know of it; of
            // a pod that must stay ended `close_record` makes sure.
            tracing::warn!(pod = %identity, error = telemetry::chain(&error), "not recorded");
        }
    }

    fn announce_waits(&self, target: &Target<'_>, work: &Work, memory: &mut Memory) {
        for wait in &work.waits {
            if memory.announced.insert(wait.container_id.clone()) {
                let message = format!(
                    "Back-off restarting failed container {} in pod {}_{}({})",
                    wait.name,
                    target.identity.name(),
                    target.identity.namespace(),
                    target.identity.uid()
                );
                self.events
                    .warning(target.identity, &wait.name, "BackOff", &message);
            }
        }
    }

    fn publish(
        &self,
        target: &Target<'_>,
        observation: &Observation,
        plan: &Plan,
        memory: &Memory,
        error: &str,
    ) {
        let mut reasons = memory.reasons.clone();
        if let Plan::Work(work) = plan {
            for wait in &work.waits {
                let message = wait.message(target.identity);
                reasons.insert(wait.name.clone(), ("CrashLoopBackOff".to_owned(), message));
            }
        }
        let findings = Findings {
            observation: observation.clone(),
            waiting: publisher::waiting(target.pod, observation, &reasons),
            sync_error: error.to_owned(),
            last_plan: plan::describe(plan, self.clock.now()),
            observed_at: self.clock.now(),
        };
        self.publisher.findings(target.identity.uid(), findings);
    }
}

/// A container whose image is being pulled is not started before another step.
fn without_pulls(mut plan: Plan, memory: &Memory) -> Plan {
    if let Plan::Work(work) = &mut plan {
        work.starts.retain(|start| match start.how {
            StartHow::Create(_) => !memory.pulls.is_under_way(&start.name),
            StartHow::Resume { .. } => true,
        });
    }
    plan
}

/// A kill is remembered until a newer instance has run: why an instance was killed
/// decides whether another one is started, and one that was made may have to be
/// removed before it ran.
fn is_kill_of_use(observation: &Observation, container_id: &str) -> bool {
    observation.container(container_id).is_some_and(|killed| {
        killed.state.may_run()
            || observation
                .newest_that_ran(&killed.name)
                .is_some_and(|newest| newest.id == killed.id)
    })
}

/// A start that failed while its caller waited was not cut short by the caller's
/// death, whatever the runtime's words for it: it counts, and waits like a crash.
fn with_refused_starts(mut observation: Observation, memory: &Memory) -> Observation {
    for container in &mut observation.containers {
        if let ContainerState::StartAbandoned(exit) = &container.state
            && memory.refused_starts.contains(&container.id)
        {
            container.state = ContainerState::Exited(exit.clone());
        }
    }
    observation
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observation::{Container, Exit};

    fn exit() -> Exit {
        Exit {
            started_at: UnixNanos(1),
            finished_at: UnixNanos(2),
            exit_code: 0,
            reason: String::new(),
            message: String::new(),
        }
    }

    fn container(restart_count: u32, state: ContainerState) -> Container {
        Container {
            id: format!("c{restart_count}"),
            name: "c".to_owned(),
            sandbox_id: "s".to_owned(),
            restart_count,
            created_at: UnixNanos(0),
            state,
            image: String::new(),
            image_id: String::new(),
            spec_hash: String::new(),
            termination_grace: None,
            restart_wait: None,
        }
    }

    #[test]
    fn a_kill_is_remembered_until_a_newer_instance_has_run() {
        let running = || ContainerState::Running {
            started_at: UnixNanos(1),
        };
        let exited = || ContainerState::Exited(exit());
        for (newer, killed, expected) in [
            (None, None, false),
            (None, Some(running()), true),
            (None, Some(exited()), true),
            (Some(ContainerState::Created), Some(exited()), true),
            (
                Some(ContainerState::StartAbandoned(exit())),
                Some(exited()),
                true,
            ),
            (Some(running()), Some(exited()), false),
            (Some(exited()), Some(exited()), false),
            (Some(running()), Some(running()), true),
        ] {
            let newer = newer.map(|state| container(1, state));
            let killed = killed.map(|state| container(0, state));
            let observation = Observation {
                containers: newer.into_iter().chain(killed).collect(),
                ..Observation::default()
            };
            assert_eq!(
                is_kill_of_use(&observation, "c0"),
                expected,
                "{observation:?}"
            );
        }
    }
}
