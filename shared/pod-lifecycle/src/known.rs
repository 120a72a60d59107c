//! What is known of one pod beside what the runtime shows of it: one value for each
//! instance, each sandbox and each container. The plan reads it, steps note in it what
//! they did. Pure.
//!
//! Only what a [`Record`] holds survives this process. Losing the rest costs time: a
//! call is made once more.
//!
//! ```text
//! instance:
//!   (nothing) --start refused--> StartRefused
//!   StartRefused --about to be started, or runs--> (nothing)
//!   (nothing), StartRefused --about to be started, or runs, with a hook--> PostStart
//!   PostStart --hook ended well--> (nothing)
//!   PostStart --start refused--> StartRefused
//!   PostStart --stop ordered--> Stopping
//!   (nothing) --stop ordered--> Stopping --stopped, and unknown still--> Unstoppable
//!   Stopping, Unstoppable --does not run any more--> Killed, or (nothing)
//!   Killed --a newer instance has run--> (nothing)
//!
//! sandbox:
//!   (nothing) --stopped--> Stopped
//!   (nothing) --stop failed--> StopFailed --next sync--> (nothing)
//! ```
//!
//! - start refused: the runtime answered StartContainer with a refusal. What ended was
//!   not a start that was abandoned, whatever the words of its message: it counts as a
//!   crash, and waits like one.
//! - about to be started: before a start. What was refused before says nothing of it.
//! - runs: an earlier start succeeded, though the last one was refused. For example, this
//!   process was restarted, and the runtime still carried out the StartContainer call of
//!   the process before it.
//! - stop ordered: for a reason of its own while the pod lives on, or with its pod.
//! - stopped, and unknown still: the runtime did not know whether it ran, was told to
//!   stop it, and does not know yet. What it cannot stop it may be able to remove.
//! - does not run any more: why it was stopped decides whether another is started, so
//!   that stays known.
//! - stop failed: the pod goes on without this sandbox for the rest of the sync.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use pod::{Pod, PodExt};

use crate::hook::{PostStart, PreStop};
use crate::instance_resources::{InstanceResources, KnownResources};
use crate::name_conflict::NextName;
use crate::observation::{Container, ContainerState, Observation};
use crate::record::Record;
use crate::stop::{KillReason, Moment, Stop, StopOrder};

/// All that is known of one pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// By the runtime's id.
    instances: BTreeMap<String, InstanceKnown>,
    /// What instances run with that was changed since they were made, by the runtime's id.
    resources: BTreeMap<String, KnownResources>,
    /// What containers keep while the node has no room for what they are to have, by name.
    kept_resources: BTreeMap<String, InstanceResources>,
    /// What the pod said of containers when the node last had room for it, by name. Only
    /// this process knows it: what they keep by then is in the record.
    admitted_resources: BTreeMap<String, InstanceResources>,
    /// By the runtime's id.
    sandboxes: BTreeMap<String, SandboxKnown>,
    /// The name of the next sandbox.
    pub next_sandbox: NextName,
    /// Names of the next instances, by container.
    pub next_instances: BTreeMap<String, NextName>,
}

/// What is known of one instance of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InstanceKnown {
    /// The runtime refused to start it.
    StartRefused {
        /// Whether its postStart hook is due if it runs after all.
        hook_is_due: bool,
    },
    /// It has a postStart hook that has not ended well.
    PostStart(PostStart),
    /// It is being stopped.
    Stopping {
        /// Why, unless only with its pod.
        reason: Option<KillReason>,
        /// How long it may take.
        stop: Stop,
    },
    /// It was stopped while its state was unknown, and that is unknown still.
    Unstoppable {
        /// Why it was stopped, unless only with its pod.
        reason: Option<KillReason>,
        /// How long that may take.
        stop: Stop,
    },
    /// It was stopped for this reason while its pod lives on, or is to be.
    Killed(KillReason),
}

/// What is known of one sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SandboxKnown {
    /// The runtime has stopped it, and given its address back.
    Stopped,
    /// It could not be stopped in this sync.
    StopFailed,
}

impl InstanceKnown {
    fn reason(self) -> Option<KillReason> {
        match self {
            InstanceKnown::StartRefused { .. } | InstanceKnown::PostStart(_) => None,
            InstanceKnown::Stopping { reason, .. } | InstanceKnown::Unstoppable { reason, .. } => {
                reason
            }
            InstanceKnown::Killed(reason) => Some(reason),
        }
    }

    fn stop(self) -> Option<Stop> {
        match self {
            InstanceKnown::StartRefused { .. }
            | InstanceKnown::PostStart(_)
            | InstanceKnown::Killed(_) => None,
            InstanceKnown::Stopping { stop, .. } | InstanceKnown::Unstoppable { stop, .. } => {
                Some(stop)
            }
        }
    }

    fn stop_mut(&mut self) -> Option<&mut Stop> {
        match self {
            InstanceKnown::StartRefused { .. }
            | InstanceKnown::PostStart(_)
            | InstanceKnown::Killed(_) => None,
            InstanceKnown::Stopping { stop, .. } | InstanceKnown::Unstoppable { stop, .. } => {
                Some(stop)
            }
        }
    }
}

impl Known {
    /// What an earlier process has recorded.
    #[must_use]
    pub fn of_record(record: &Record) -> Known {
        let post_starts = record.post_starts.iter();
        let post_starts = post_starts
            // One that was begun goes on, or has ended: nobody will know.
            .filter(|(_, how_far)| **how_far != PostStart::Begun)
            .map(|(id, how_far)| (id.clone(), InstanceKnown::PostStart(*how_far)));
        let refused = record.refused_starts.iter().map(|id| {
            let hook_is_due = record.post_starts.contains_key(id);
            (id.clone(), InstanceKnown::StartRefused { hook_is_due })
        });
        let mut instances: BTreeMap<String, InstanceKnown> = post_starts.chain(refused).collect();
        for (id, reason) in &record.kills {
            instances.insert(id.clone(), InstanceKnown::Killed(*reason));
        }
        for (id, stop) in &record.stops {
            let stopping = InstanceKnown::Stopping {
                reason: record.kills.get(id).copied(),
                stop: (*stop).into(),
            };
            instances.insert(id.clone(), stopping);
        }
        Known {
            instances,
            resources: record.resources.clone(),
            kept_resources: record.kept_resources.clone(),
            ..Known::default()
        }
    }

    /// Puts what the next process has to know of instances into the pod's record.
    pub fn write_to(&self, record: &mut Record) {
        let instances = || self.instances.iter();
        let reasons = instances().filter_map(|(id, it)| Some((id.clone(), it.reason()?)));
        record.kills = reasons.collect();
        let stops = instances().filter_map(|(id, it)| Some((id.clone(), it.stop()?.record())));
        record.stops = stops.collect();
        let post_starts = instances().filter_map(|(id, it)| match it {
            InstanceKnown::PostStart(how_far) => Some((id.clone(), *how_far)),
            // It is in `refused_starts` too.
            InstanceKnown::StartRefused { hook_is_due: true } => Some((id.clone(), PostStart::Due)),
            _ => None,
        });
        record.post_starts = post_starts.collect();
        let refused =
            instances().filter(|(_, it)| matches!(it, InstanceKnown::StartRefused { .. }));
        record.refused_starts = refused.map(|(id, _)| id.clone()).collect();
        record.resources.clone_from(&self.resources);
        record.kept_resources.clone_from(&self.kept_resources);
    }

    /// What is known of an instance.
    #[must_use]
    pub fn instance(&self, id: &str) -> Option<InstanceKnown> {
        self.instances.get(id).copied()
    }

    /// Why an instance is or was stopped while its pod lives on.
    #[must_use]
    pub fn kill_reason(&self, id: &str) -> Option<KillReason> {
        self.instance(id)?.reason()
    }

    /// Whether an instance is shown as abandoned though its start was refused.
    #[must_use]
    pub fn start_was_refused(&self, id: &str) -> bool {
        matches!(self.instance(id), Some(InstanceKnown::StartRefused { .. }))
    }

    /// How far the postStart hook of an instance is.
    #[must_use]
    pub fn post_start(&self, id: &str) -> Option<PostStart> {
        match self.instance(id)? {
            InstanceKnown::PostStart(how_far) => Some(how_far),
            _ => None,
        }
    }

    /// The instances that run and whose postStart hooks have not ended well.
    #[must_use]
    pub fn in_post_start(&self, observation: &Observation) -> BTreeSet<String> {
        let running = observation.possibly_running();
        running
            .filter(|shown| self.post_start(&shown.id).is_some())
            .map(|shown| shown.id.clone())
            .collect()
    }

    /// How far the preStop hook of an instance is.
    #[must_use]
    pub fn pre_stop(&self, id: &str) -> Option<PreStop> {
        self.instance(id)?.stop()?.pre_stop()
    }

    /// What an instance runs with, if that is known.
    #[must_use]
    pub fn resources(&self, shown: &Container) -> Option<KnownResources> {
        let changed = self.resources.get(&shown.id).copied();
        changed.or(shown.resources.map(KnownResources::certain))
    }

    /// What is known of a sandbox.
    #[must_use]
    pub fn sandbox(&self, id: &str) -> Option<SandboxKnown> {
        self.sandboxes.get(id).copied()
    }

    // ---- what steps note

    /// The runtime refused to start an instance. One that is being stopped by now is not
    /// concerned.
    pub fn note_refused_start(&mut self, id: String) {
        let hook = self.post_start(&id);
        let refused = InstanceKnown::StartRefused {
            hook_is_due: hook == Some(PostStart::Due),
        };
        let known = self.instances.entry(id).or_insert(refused);
        if hook.is_some() {
            *known = refused;
        }
    }

    /// An instance is about to be started; whether that changes what is known of it. The
    /// postStart hook of one that was not started before is due, if it is started now.
    pub fn note_start(&mut self, id: &str, has_post_start: bool) -> bool {
        let known = self.instance(id);
        if known.is_some() && !self.start_was_refused(id) {
            return false;
        }
        if !has_post_start {
            return self.instances.remove(id).is_some();
        }
        let due = InstanceKnown::PostStart(PostStart::Due);
        self.instances.insert(id.to_owned(), due);
        true
    }

    /// The postStart hook of an instance is about to be begun.
    pub fn note_begun_post_start(&mut self, id: &str) {
        if let Some(InstanceKnown::PostStart(how_far)) = self.instances.get_mut(id) {
            *how_far = PostStart::Begun;
        }
    }

    /// The postStart hook of an instance was not begun after all.
    pub fn note_due_post_start(&mut self, id: &str) {
        if let Some(InstanceKnown::PostStart(how_far)) = self.instances.get_mut(id) {
            *how_far = PostStart::Due;
        }
    }

    /// The postStart hook of an instance has ended. One that is being stopped by now is
    /// not concerned.
    pub fn note_ended_post_start(&mut self, id: &str, went_well: bool) {
        if self.post_start(id).is_none() {
            return;
        }
        self.instances.remove(id);
        if !went_well {
            let failed = InstanceKnown::PostStart(PostStart::Failed);
            self.instances.insert(id.to_owned(), failed);
        }
    }

    /// The preStop hook of an instance whose stop is ordered is about to be begun, or
    /// has ended.
    pub fn note_pre_stop(&mut self, id: &str, how_far: PreStop) {
        if let Some(stop) = self.instances.get_mut(id).and_then(InstanceKnown::stop_mut) {
            stop.note_pre_stop(how_far);
        }
    }

    /// Why an instance is to be stopped while its pod lives on; whether that is new. The
    /// first reason stands.
    pub fn note_kill(&mut self, id: &str, reason: KillReason) -> bool {
        if self.kill_reason(id).is_some() {
            return false;
        }
        let known = match self.instance(id) {
            Some(InstanceKnown::Stopping { stop, .. }) => InstanceKnown::Stopping {
                reason: Some(reason),
                stop,
            },
            Some(InstanceKnown::Unstoppable { stop, .. }) => InstanceKnown::Unstoppable {
                reason: Some(reason),
                stop,
            },
            Some(
                InstanceKnown::StartRefused { .. }
                | InstanceKnown::PostStart(_)
                | InstanceKnown::Killed(_),
            )
            | None => InstanceKnown::Killed(reason),
        };
        self.instances.insert(id.to_owned(), known);
        true
    }

    /// Orders the stop of an instance, see [`Stop::order`].
    pub fn order_stop(&mut self, id: &str, grace: Duration, now: Moment) -> StopOrder {
        let known = self.instance(id);
        let reason = known.and_then(InstanceKnown::reason);
        let (stop, order) = Stop::order(known.and_then(InstanceKnown::stop), grace, now);
        let known = match known {
            Some(InstanceKnown::Unstoppable { .. }) => InstanceKnown::Unstoppable { reason, stop },
            _ => InstanceKnown::Stopping { reason, stop },
        };
        self.instances.insert(id.to_owned(), known);
        order
    }

    /// Begins a stop that was ordered, see [`Stop::begin`].
    pub fn begin_stop(&mut self, id: &str, order: StopOrder, now: Moment) -> StopOrder {
        match self.instances.get_mut(id).and_then(InstanceKnown::stop_mut) {
            Some(stop) => stop.begin(order, now),
            None => order,
        }
    }

    /// A stop failed, see [`Stop::failed`].
    pub fn note_failed_stop(&mut self, id: &str, order: StopOrder, elapsed: Duration) {
        if let Some(stop) = self.instances.get_mut(id).and_then(InstanceKnown::stop_mut) {
            stop.failed(order, elapsed);
        }
    }

    /// The runtime says that it has stopped an instance whose state it did not know.
    pub fn note_stop_of_unknown(&mut self, id: &str) {
        if let Some(known) = self.instances.get_mut(id)
            && let InstanceKnown::Stopping { reason, stop } = *known
        {
            *known = InstanceKnown::Unstoppable { reason, stop };
        }
    }

    /// An instance that has `from` at most is about to be given `to`.
    pub fn note_resize(&mut self, id: &str, from: InstanceResources, to: InstanceResources) {
        let known = KnownResources {
            now: from,
            attempted: Some(to),
        };
        self.resources.insert(id.to_owned(), known);
    }

    /// Whether a change of an instance was begun whose end is not known.
    #[must_use]
    pub fn may_be_resized(&self, id: &str) -> bool {
        let known = self.resources.get(id);
        known.is_some_and(|known| known.attempted.is_some())
    }

    /// An instance has been given these.
    pub fn note_resized(&mut self, id: &str, to: InstanceResources) {
        let known = KnownResources::certain(to);
        self.resources.insert(id.to_owned(), known);
    }

    /// The node has no room for what the containers of this pod are to have: each keeps
    /// what its newest instance was last to have, from the first time that this is called.
    /// One without an instance keeps what the pod said of it when the node had room.
    pub fn keep_resources(&mut self, pod: &Pod, observation: &Observation) {
        for (_, spec) in pod.all_containers() {
            let last = match observation.newest(&spec.name) {
                Some(newest) => self
                    .resources(newest)
                    .map(|known| known.attempted.unwrap_or(known.now)),
                None => self.admitted_resources.get(&spec.name).copied(),
            };
            if let Some(last) = last {
                let kept = self.kept_resources.entry(spec.name.clone());
                kept.or_insert(last);
            }
        }
    }

    /// What containers keep, by name.
    #[must_use]
    pub fn kept_resources(&self) -> &BTreeMap<String, InstanceResources> {
        &self.kept_resources
    }

    /// The containers may have what their pod says.
    pub fn keep_no_resources(&mut self, pod: &Pod) {
        self.kept_resources.clear();
        let of_containers = pod.all_containers();
        let of_containers =
            of_containers.map(|(_, spec)| (spec.name.clone(), InstanceResources::of(pod, spec)));
        self.admitted_resources = of_containers.collect();
    }

    /// A sandbox was stopped, or could not be.
    pub fn note_sandbox(&mut self, id: &str, known: SandboxKnown) {
        self.sandboxes.insert(id.to_owned(), known);
    }

    /// Another sync tries again what the one before could not stop.
    pub fn forget_failed_stops(&mut self) {
        self.sandboxes
            .retain(|_, known| *known != SandboxKnown::StopFailed);
    }

    /// Forgets what is of no use any more now that the runtime shows this.
    pub fn observed(&mut self, observation: &Observation) {
        self.instances = std::mem::take(&mut self.instances)
            .into_iter()
            .filter_map(|(id, known)| Some((after(known, &id, observation)?, id)))
            .map(|(known, id)| (id, known))
            .collect();
        self.resources.retain(|id, _| {
            let shown = observation.container(id);
            // Of one that has ended the next instance may have to keep them.
            shown.is_some_and(|shown| {
                let newest = observation.newest(&shown.name);
                shown.state.may_run() || newest.is_some_and(|newest| newest.id == shown.id)
            })
        });
        self.sandboxes
            .retain(|id, _| observation.sandboxes.iter().any(|it| it.id == *id));
    }
}

/// What is of use of an instance now that the runtime shows this. Why it was killed
/// counts until a newer instance has run: it decides whether another one is started,
/// and one that was made may have to be removed before it ran.
fn after(known: InstanceKnown, id: &str, observation: &Observation) -> Option<InstanceKnown> {
    let shown = observation.container(id)?;
    match known {
        InstanceKnown::StartRefused { hook_is_due } if shown.state.is_running() => {
            hook_is_due.then_some(InstanceKnown::PostStart(PostStart::Due))
        }
        InstanceKnown::StartRefused { .. } => Some(known),
        InstanceKnown::PostStart(_) => {
            let waits = shown.state == ContainerState::Created || shown.state.may_run();
            waits.then_some(known)
        }
        InstanceKnown::Stopping { .. }
        | InstanceKnown::Unstoppable { .. }
        | InstanceKnown::Killed(_)
            if shown.state.may_run() =>
        {
            Some(known)
        }
        InstanceKnown::Stopping { reason, .. } | InstanceKnown::Unstoppable { reason, .. } => {
            let newest = observation.newest_that_ran(&shown.name)?;
            (newest.id == id).then_some(InstanceKnown::Killed(reason?))
        }
        InstanceKnown::Killed(_) => {
            let newest = observation.newest_that_ran(&shown.name)?;
            (newest.id == id).then_some(known)
        }
    }
}

#[cfg(test)]
mod tests;
