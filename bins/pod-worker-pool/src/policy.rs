//! Node policy in this process: the file is read and read again, each pod is judged at
//! the head of its sync, and the gate in front of the runtime is told what each pod may
//! have. All of it goes through [`NodePolicy`].
//!
//! - `in_force`: which policy holds after a reading of the file;
//! - `judgement`: what follows for a pod; `audit`: who is told of a decision.
//!
//! Not here: what a policy says (`node-policy`), what of this node it protects
//! (`node-config`), and requests to the runtime (`runtime-gate`).

mod audit;
mod in_force;
mod judgement;

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bulkhead_api::v1;
use clock::WallClock;
use ipc::limits::truncate;
use node_config::NodeConfig;
use node_policy::{HostPathRules, MAX_POLICY_BYTES, Mode, Protected, Subject};
use pod::runtime_class::{self, RuntimeClasses};
use pod::{Pod, PodIdentity, PodSource};
use pod_lifecycle::DesiredPod;
use pod_lifecycle::plan::{REFUSED_REASON, Refused};
use runtime_gate::{HeldPod, HeldPods, Places, Standing};
use state_file::{Saver, StateFile, Writer};
use topology::{Identities, Process};

use crate::doorbell::Doorbell;
use crate::events::Events;
use crate::root_file::{self, Rules, Stamp};
use node_layout::paths;

use audit::Audit;
use in_force::{InForce, Origin};
use judgement::{Judgement, judge};

/// It may be read by everybody.
const RULES: Rules = Rules {
    max_bytes: MAX_POLICY_BYTES,
    is_secret: false,
};
/// The last good policy below the state directory, and the format of that file.
const LAST_GOOD_FILE: &str = "policy.json";
const LAST_GOOD_VERSION: u32 = 1;
/// Most refused pods that are told of by name, and how much of each reason.
const MAX_SHOWN_PODS: usize = 200;
const MAX_SHOWN_BYTES: usize = 2048;

/// Most refusals at the opening of one pod's volumes that are told: a link that somebody
/// swaps may lead anywhere.
const MAX_NOT_OPENED: usize = 16;

/// What the policy is made from.
pub(crate) struct PolicyIngredients<'a> {
    pub(crate) config: &'a NodeConfig,
    pub(crate) identities: &'a Identities,
    pub(crate) clock: WallClock,
    pub(crate) events: Events,
    pub(crate) doorbell: Doorbell,
}

/// Brings the last good policy to its file.
pub(crate) type PolicyWriter = Writer<(), String>;

/// The node's policy and how each pod stands with it. Clones share it.
#[derive(Clone)]
pub(crate) struct NodePolicy(Arc<Inner>);

struct Inner {
    path: PathBuf,
    node_name: String,
    protected: Protected,
    runtime_classes: RuntimeClasses,
    /// Of the last good policy, for the next process.
    saver: Saver<(), String>,
    clock: WallClock,
    events: Events,
    doorbell: Doorbell,
    held: HeldPods,
    state: Mutex<State>,
}

struct State {
    in_force: InForce,
    /// As the file was when it was read last.
    stamp: Stamp,
    /// The last judgement of each pod.
    judged: BTreeMap<String, JudgedPod>,
    audit: Audit,
}

/// A pod that was judged.
struct JudgedPod {
    pod: PodIdentity,
    source: PodSource,
    judgement: Judgement,
    /// What was refused when its volumes were opened, as far as it was told.
    not_opened: BTreeSet<String>,
}

impl std::fmt::Debug for NodePolicy {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("NodePolicy").finish_non_exhaustive()
    }
}

impl NodePolicy {
    /// Reads the policy. Where that fails the last good one holds, of an earlier process
    /// too; without one nothing new is started until the file is good.
    #[must_use]
    pub(crate) fn open(ingredients: PolicyIngredients<'_>) -> (NodePolicy, PolicyWriter) {
        let config = ingredients.config;
        let state_directory = config.directories.state(Process::PodWorkerPool);
        let last_good = StateFile::new(state_directory.join(LAST_GOOD_FILE), LAST_GOOD_VERSION);
        let (protected, problems) = node_config::protected(config, Some(ingredients.identities));
        for problem in problems {
            tracing::error!(error = telemetry::chain(&problem), "node policy");
        }
        let remembered = last_good.load::<String>().unwrap_or_else(|error| {
            let error = telemetry::chain(&error);
            tracing::warn!(error, "the last good policy is not known");
            None
        });
        let now = ingredients.clock.now();
        let path = config.policy_path.clone();
        let stamp = Stamp::of(&path);
        let in_force = InForce::at_start(remembered.as_deref(), &protected, now).after(
            root_file::read_text(&path, RULES),
            &protected,
            now,
        );
        // What was permitted before the file changed must not be permitted again.
        let write = move |(): &(), text: &String| {
            let saved = last_good.save(text);
            if saved.is_err() {
                drop(std::fs::remove_file(last_good.path()));
            }
            saved
        };
        let (saver, writer) = Saver::new("the last good node policy", write);
        let policy = NodePolicy(Arc::new(Inner {
            path,
            node_name: config.node_name.clone(),
            protected,
            runtime_classes: config.runtime_classes.clone(),
            saver,
            clock: ingredients.clock,
            events: ingredients.events,
            doorbell: ingredients.doorbell,
            held: HeldPods::default(),
            state: Mutex::new(State {
                in_force,
                stamp,
                judged: BTreeMap::new(),
                audit: Audit::default(),
            }),
        }));
        policy.tell();
        // What is saved already may be lost by saving it again.
        if remembered.as_deref() != Some(policy.lock().in_force.text.as_str()) {
            policy.remember();
        }
        (policy, writer)
    }

    /// The pods that requests may be made for.
    #[must_use]
    pub(crate) fn held(&self) -> HeldPods {
        self.0.held.clone()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Judges a pod that is about to be synced, tells the gate what may be requested for it,
    /// and audits a judgement that differs from the last one. The answer is why nothing new
    /// may be made for it.
    pub(crate) fn judge_and_register(&self, desired: &DesiredPod, pod: &Pod) -> Option<Refused> {
        let source = desired.document().source();
        let subject = Subject::of(source, pod, &self.0.node_name);
        let identity = desired.identity();
        let mut state = self.lock();
        let (standing, judgement) = judge(&state.in_force, &subject, pod);
        self.register_at_gate(identity, pod, standing);
        let refused = judgement.refused().cloned();
        self.tell_if_new(&mut state, identity, source, judgement);
        refused
    }

    fn register_at_gate(&self, identity: &PodIdentity, pod: &Pod, standing: Standing) {
        self.0.held.hold(HeldPod {
            identity: identity.clone(),
            is_beyond_baseline: match &standing {
                Standing::Permitted(permit) | Standing::Audited(permit) => {
                    permit.is_beyond_baseline(pod)
                }
                Standing::Refused(_) => true,
            },
            standing,
            // Nothing is made for a pod of a class that is not configured.
            runtime_handler: runtime_class::handler(pod, &self.0.runtime_classes)
                .unwrap_or_default()
                .to_owned(),
            has_user_namespace: cri_requests::has_user_namespace(pod),
            commands: judgement::commands(pod),
            volumes: judgement::volumes(pod),
        });
    }

    fn tell_if_new(
        &self,
        state: &mut State,
        identity: &PodIdentity,
        source: PodSource,
        judgement: Judgement,
    ) {
        let last = state.judged.get(identity.uid());
        if last.is_some_and(|last| last.judgement == judgement) {
            return;
        }
        let (word, rule) = (judgement.word(), judgement.message().unwrap_or_default());
        let now = self.0.clock.now();
        state.audit.decided(now, identity, source, word, rule);
        if let Some(message) = judgement.message() {
            self.0.events.warning(identity, "", REFUSED_REASON, message);
        }
        let judged = JudgedPod {
            pod: identity.clone(),
            source,
            judgement,
            not_opened: BTreeSet::new(),
        };
        state.judged.insert(identity.uid().to_owned(), judged);
    }

    /// Whether the policy refuses a pod that has a worker. Its containers may run on.
    #[must_use]
    pub(crate) fn refuses(&self, pod_uid: &str) -> bool {
        let held = self.0.held.get(pod_uid);
        held.is_some_and(|held| matches!(held.standing, Standing::Refused(_)))
    }

    /// How the pod's hostPath volumes may be opened; `None` when nothing new may be made
    /// for it. What is refused then is audited.
    #[must_use]
    pub(crate) fn host_path_rules(&self, pod_uid: &str) -> Option<HostPathRules> {
        let rules = match &self.0.held.get(pod_uid)?.standing {
            Standing::Permitted(permit) => HostPathRules::new(Arc::clone(permit), false),
            Standing::Audited(permit) => HostPathRules::new(Arc::clone(permit), true),
            Standing::Refused(_) => return None,
        };
        let word = match rules.only_audits() {
            true => judgement::ONLY_AUDITED,
            false => judgement::REFUSED,
        };
        let (policy, uid) = (self.clone(), pod_uid.to_owned());
        Some(rules.reported_to(move |rule| policy.not_opened(&uid, word, rule)))
    }

    /// Opening a volume of this pod was decided against. Told once, not at each try.
    fn not_opened(&self, pod_uid: &str, word: &str, rule: &str) {
        let state = &mut *self.lock();
        let Some(known) = state.judged.get_mut(pod_uid) else {
            return;
        };
        if known.not_opened.len() < MAX_NOT_OPENED && known.not_opened.insert(rule.to_owned()) {
            let now = self.0.clock.now();
            state
                .audit
                .decided(now, &known.pod, known.source, word, rule);
        }
    }

    /// The pod is gone; nothing more is asked of the runtime for it.
    pub(crate) fn release(&self, pod_uid: &str) {
        self.0.held.release(pod_uid);
        self.lock().judged.remove(pod_uid);
    }

    /// Reads the file again whenever it changes, has all pods judged again then, and
    /// keeps what was good. Never ends.
    pub(crate) async fn run(self, writer: PolicyWriter) -> Infallible {
        tokio::select! {
            biased;
            never = writer.run() => never,
            never = root_file::keep_looking("the policy's file", move || self.look()) => never,
        }
    }

    /// Reads the file if it has changed.
    fn look(&self) {
        let stamp = Stamp::of(&self.0.path);
        // One that cannot be looked at is tried again each time.
        if stamp == self.lock().stamp && stamp != Stamp::Unreadable {
            return;
        }
        let found = root_file::read_text(&self.0.path, RULES);
        let now = self.0.clock.now();
        let (pods, is_news): (Vec<String>, bool) = {
            let mut state = self.lock();
            let before = state.in_force.clone();
            state.stamp = stamp;
            state.in_force = before.clone().after(found, &self.0.protected, now);
            let is_news = !state.in_force.says_the_same(&before);
            (state.judged.keys().cloned().collect(), is_news)
        };
        if !is_news {
            return;
        }
        self.tell();
        self.remember();
        for uid in pods {
            self.0.doorbell.ring(&uid);
        }
    }

    /// Keeps for the next process what was read from the file, or that there was none: that is
    /// as good as an empty file.
    fn remember(&self) {
        let text = {
            let state = self.lock();
            match state.in_force.origin {
                Origin::File | Origin::NoFile => state.in_force.text.clone(),
                Origin::LastGood | Origin::Nothing => return,
            }
        };
        // Nobody waits for it: what is in force does not depend on it.
        drop(self.0.saver.put((), text));
    }

    fn tell(&self) {
        let path = self.0.path.display();
        let in_force = &self.lock().in_force;
        let origin = in_force.origin.as_str();
        let mode = mode_word(in_force);
        match &in_force.problem {
            None => tracing::info!(%path, origin, mode, "node policy"),
            Some(problem) => {
                tracing::error!(%path, origin, mode, problem, "node policy cannot be read");
                let message = format!("{path}: {problem}");
                self.0.events.node_warning("NodePolicyInvalid", &message);
            }
        }
    }

    /// A line for `bulkhead status`; empty when there is nothing to worry about.
    #[must_use]
    pub(crate) fn status_line(&self) -> String {
        let state = self.lock();
        let mut parts = Vec::new();
        if state.in_force.mode() == Some(Mode::Audit) {
            parts.push("degraded: node policy only audits (mode = \"audit\")".to_owned());
        }
        let refused = state.judged.values();
        let refused = refused.filter(|known| known.judgement.refused().is_some());
        match refused.count() {
            0 => {}
            1 => parts.push("node policy refuses 1 pod".to_owned()),
            count => parts.push(format!("node policy refuses {count} pods")),
        }
        parts.extend(self.0.saver.trouble());
        // The last, since it may name all the keys that there are.
        if let Some(problem) = &state.in_force.problem {
            parts.push(format!("node policy: {}: {problem}", self.0.path.display()));
        }
        parts.join("; ")
    }

    /// What `bulkhead policy show` prints.
    #[must_use]
    pub(crate) fn report(&self) -> v1::PolicyReport {
        let state = self.lock();
        let findings = state.judged.values();
        let findings = findings.filter_map(|known| {
            let mut message = known.judgement.message()?.to_owned();
            truncate(&mut message, MAX_SHOWN_BYTES);
            Some(v1::PolicyFinding {
                pod: Some((&known.pod).into()),
                refused: known.judgement.refused().is_some(),
                message,
            })
        });
        let findings: Vec<v1::PolicyFinding> = findings.collect();
        let count = |refused: bool| {
            let found = findings.iter().filter(|finding| finding.refused == refused);
            u32::try_from(found.count()).unwrap_or(u32::MAX)
        };
        v1::PolicyReport {
            path: self.0.path.display().to_string(),
            origin: state.in_force.origin.as_str().to_owned(),
            mode: mode_word(&state.in_force).to_owned(),
            since_unix_nanos: state.in_force.since.0,
            problem: state.in_force.problem.clone().unwrap_or_default(),
            text: state.in_force.text.clone(),
            refused_pods: count(true),
            audited_pods: count(false),
            findings: findings.into_iter().take(MAX_SHOWN_PODS).collect(),
        }
    }
}

fn mode_word(in_force: &InForce) -> &'static str {
    match in_force.mode() {
        Some(Mode::Enforce) => "enforce",
        Some(Mode::Audit) => "audit",
        None => "none",
    }
}

/// Where things of pods are on this node, as the gate is to know them.
#[must_use]
pub(crate) fn places(config: &NodeConfig) -> Places {
    let root_dir = &config.directories.root_dir;
    Places {
        pods: paths::pods(root_dir),
        pod_logs: config.directories.pod_logs(),
        seccomp_profiles: root_dir.join("seccomp"),
        cgroup_root: config.cgroup_root.clone(),
    }
}

#[cfg(test)]
mod tests;
