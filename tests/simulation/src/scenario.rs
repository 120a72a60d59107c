//! What happens to a simulated node, made from a seed: pods come, change and go, so does
//! a ConfigMap that they have as a volume, containers get other CPU and memory, programs
//! crash, hang and turn ready or not, calls to the runtime fail, processes are killed, the
//! wall clock jumps. The nodes of some seeds are short of memory, disk or process ids for a
//! while (`shortage.rs`), others are shut down in the end (`shutdown.rs`).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use clock::UnixNanos;
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom as _;
use rand::{Rng, SeedableRng};
use simulated_runtime::{Entry, Faults, Happening, SimulatedRuntime};
use topology::Process;

use crate::check::{broken_promises, idle_cgroups, left_over, not_running, stale_settings};
use crate::desired::{Desired, SETTINGS, SETTINGS_KEY};
use crate::evictions::{self, Evicted, Span};
use crate::in_time;
use crate::launcher;
use crate::node::SimulatedNode;
use crate::orders;
use crate::resizes::wrong_sizes;
use crate::sigterms;
use crate::sizes::{MUCH_MEMORY, Size};
use crate::statuses::wrong_statuses;
use crate::supervision::Fate;
use crate::uids::uids_by_version;
use crate::visitor::Errand;

/// The file of the ConfigMap that pods have as a volume.
const SETTINGS_FILE: &str = "settings.json";

/// Different pods in a scenario.
const PODS: u32 = 4;

/// How often a container may crash or hang.
const MOST_FAILURES: u32 = 2;

/// Runs of a process that crash in a row: enough for the policy to wait for
/// seconds.
const MOST_CRASHES: usize = 6;

/// The longest that manifests are away, so that the last wait of who looks for them is short
/// enough for the end.
const MANIFESTS_AWAY: Duration = Duration::from_secs(6);

/// Starts that fail of a process that is away for a while.
const AWAY: usize = 3;

/// How long is waited for something to happen in whose midst a process is killed, and how
/// often that is looked for.
const MIDST_WITHIN: Duration = Duration::from_secs(3);

/// Within what a container that hangs is noticed and stopped, where nothing else goes wrong.
const STOPPED_WITHIN: Duration = Duration::from_secs(12);
const SLICE: Duration = Duration::from_millis(5);

/// What the calls that start a container take more when all processes are about to
/// be killed.
const SLOW_CALL: Duration = Duration::from_millis(500);

/// Simulated time within which a node must be as desired in all after the last fault:
/// what `in_time.rs` gives for its pods to run, and a round of garbage collection, which
/// comes once a minute, with what may be tried again for it.
const CONVERGENCE: Duration = Duration::from_secs(150);

/// How often it is looked whether a node is as desired, and where that waits for nothing but
/// a round of garbage collection.
const LOOK: Duration = Duration::from_millis(500);
const LOOK_FOR_COLLECTION: Duration = Duration::from_secs(2);

/// What a scenario remembers of what it did.
#[derive(Debug)]
pub struct Scenario {
    pub(crate) random: SmallRng,
    /// Whether processes die also when that is worst: who stops a container that hangs when
    /// that has ended, and sync-loop while nobody tells what should run.
    kills_at_the_worst: bool,
    /// Whether manifests come late where config-sourcer starts anew.
    manifests_are_late: bool,
    /// Pods that should run, by file name.
    pub(crate) desired: BTreeMap<String, Desired>,
    /// Every version of every pod so far.
    versions: Vec<Desired>,
    /// How often a container crashed or hung, by UID and name.
    failures: BTreeMap<String, u32>,
    /// What the ConfigMap says that pods have as a volume; `None` while it is not there.
    pub(crate) settings: Option<u32>,
    /// When the node was short of something.
    pub(crate) shortage: Option<Span>,
    /// Whether a pod was resized.
    pub(crate) has_resized: bool,
    /// When the wall clock jumped.
    jumps: Vec<UnixNanos>,
    pub(crate) log: Vec<String>,
}

impl Scenario {
    pub(crate) fn new(seed: u64) -> Scenario {
        Scenario {
            random: SmallRng::seed_from_u64(seed),
            kills_at_the_worst: seed % 4 == 2,
            manifests_are_late: seed % 4 == 3,
            desired: BTreeMap::new(),
            versions: Vec::new(),
            failures: BTreeMap::new(),
            settings: None,
            shortage: None,
            has_resized: false,
            jumps: Vec::new(),
            log: Vec::new(),
        }
    }

    pub(crate) fn broken_promises(&self, node: &SimulatedNode) -> Vec<String> {
        let evicted = node.observer.evicted();
        let history = node.runtime.history();
        let versions = evictions::with_evictions(&self.versions, &evicted, self.shortage, &history);
        let mut broken = broken_promises(
            &node.runtime,
            &node.targets,
            &self.to_run(&evicted),
            &versions,
            &self.failures,
            &self.jumps,
        );
        let observer = &node.observer;
        broken.extend(observer.broken_promises(&versions, &node.targets, &history));
        let span = self.shortage;
        broken.extend(evictions::broken(&evicted, span, &versions, &history));
        broken.extend(sigterms::late(&history, &versions, |at| {
            node.quiet_since(at)
        }));
        broken.extend(node.host.state().watch.violations.iter().cloned());
        broken.extend(node.runtime.needless_pulls());
        broken.extend(node.broken_sessions());
        broken
    }

    /// The pods that are desired and have not been evicted.
    pub(crate) fn to_run(&self, evicted: &BTreeMap<String, Evicted>) -> BTreeMap<String, Desired> {
        let mut desired = self.desired.clone();
        desired.retain(|_, pod| !evicted.contains_key(&pod.version_label()));
        desired
    }

    pub(crate) async fn converge(&mut self, node: &mut SimulatedNode) -> Result<(), String> {
        let until = node.elapsed() + CONVERGENCE;
        let (runtime, targets) = (&node.runtime, &node.targets);
        let due = in_time::deadline(node.clock.now(), runtime, targets, &self.desired);
        loop {
            let evicted = node.observer.evicted();
            let to_run = self.to_run(&evicted);
            let labels = self.desired.values().map(Desired::version_label);
            let ended = labels.filter_map(|label| Some(evicted.get(&label)?.uid.clone()));
            let ended: BTreeSet<String> = ended.collect();
            let (runtime, host, targets) = (&node.runtime, &node.host, &node.targets);
            let mut missing = not_running(runtime, targets, &to_run);
            let deaths: Vec<_> = node.supervision.deaths_of(Process::PodWorkerPool).collect();
            let history = runtime.history();
            missing.extend(orders::left_out(&history, &to_run, &deaths));
            missing.extend(idle_cgroups(&history, host, &to_run, &deaths));
            // What is held is copied when something happens.
            drop(history);
            missing.extend(stale_settings(runtime, host, &to_run, self.settings));
            if !missing.is_empty() && node.clock.now() > due {
                return Err(format!("late:\n{}", missing.join("\n")));
            }
            let pause = match missing.is_empty() {
                true => LOOK_FOR_COLLECTION,
                false => LOOK,
            };
            missing.extend(left_over(runtime, host, &to_run, &ended));
            if missing.is_empty() {
                let served = node.served_pods().await?;
                let labels = self.desired.values().map(Desired::version_label);
                let (wrong, served) = evictions::wrong_statuses(labels, &evicted, served);
                missing = wrong;
                let (runtime, host, targets) = (&node.runtime, &node.host, &node.targets);
                missing.extend(wrong_statuses(runtime, targets, &to_run, &served));
                missing.extend(wrong_sizes(runtime, host, to_run.values(), &served));
            }
            if missing.is_empty() {
                return Ok(());
            }
            if node.elapsed() > until {
                return Err(format!("not converged:\n{}", missing.join("\n")));
            }
            node.pass(pause).await?;
        }
    }

    pub(crate) fn pause(&mut self) -> Duration {
        // Mostly short, so that things happen in the midst of others.
        let millis = match self.random.random_range(0..4) {
            0 => self.random.random_range(0..20),
            1 | 2 => self.random.random_range(20..300),
            _ => self.random.random_range(300..4000),
        };
        Duration::from_millis(millis)
    }

    pub(crate) fn note(&mut self, node: &SimulatedNode, text: &str) {
        self.log
            .push(format!("{:>9.3}s {text}", node.elapsed().as_secs_f64()));
    }

    /// Has what comes next chosen by the seed and this number alone: what is left out before
    /// changes nothing of it.
    pub(crate) fn begin_step(&mut self, seed: u64, number: u32) {
        const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;
        let own = seed.wrapping_add(SPREAD.wrapping_mul(u64::from(number) + 1));
        self.random = SmallRng::seed_from_u64(own);
    }

    pub(crate) async fn step(&mut self, node: &mut SimulatedNode) -> Result<(), String> {
        match self.random.random_range(0..100) {
            0..18 => self.put(node),
            18..23 => self.resize(node),
            23..27 => self.put_settings(node),
            27..28 => {
                self.note(node, "remove the settings");
                node.remove_object(SETTINGS_FILE);
                self.settings = None;
            }
            28..35 => self.remove(node),
            35..43 => self.crash(node),
            43..50 => self.hang(node).await?,
            50..56 => self.turn(node),
            56..80 => {
                let process = self.process();
                self.kill(node, process).await?;
            }
            80..84 => self.kill_in_the_midst(node).await?,
            84..86 => {
                let process = self.process();
                self.note(node, &format!("restart {process}"));
                node.supervision.restart(process).await;
            }
            86..87 => {
                self.note(node, "stop and start the supervisor");
                node.supervision.stop().await;
            }
            87..90 => self.kill_all(node).await?,
            90..94 => {
                self.note(node, "the runtime is down");
                node.runtime.set_faults(Faults {
                    unavailable: true,
                    ..Faults::NONE
                });
            }
            94..95 => self.jump_clock(node),
            95..97 => {
                self.note(node, "the runtime fails sometimes");
                node.runtime.set_faults(Faults::SOME);
            }
            _ => {
                self.note(node, "the runtime works");
                node.runtime.set_faults(Faults::NONE);
            }
        }
        if let Some(errand) = Errand::random(PODS, &mut self.random) {
            self.note(node, &format!("{errand:?}"));
            node.visitor.go(errand);
        }
        Ok(())
    }

    /// Whether something comes about that does so often.
    pub(crate) fn chance(&mut self, often: f64) -> bool {
        self.random.random_bool(often)
    }

    /// Any process but the supervisor.
    pub(crate) fn process(&mut self) -> Process {
        let all: Vec<Process> = launcher::processes().collect();
        all[self.random.random_range(0..all.len())]
    }

    /// Kills a process, and every third time also its next runs, so that it is
    /// away for longer and longer.
    async fn kill(&mut self, node: &mut SimulatedNode, process: Process) -> Result<(), String> {
        let is_doomed = self.random.random_bool(0.3);
        if self.manifests_are_late && process == Process::ConfigSourcer {
            return self.kill_without_manifests(node).await;
        }
        if self.kills_at_the_worst && process == Process::ConfigSourcer {
            self.note(node, "kill config-sourcer for a while, and sync-loop");
            node.supervision.doom(process, [Fate::LaunchFails; AWAY]);
            node.supervision.kill([process, Process::SyncLoop]).await;
            return Ok(());
        }
        self.kill_and_doom(node, process, is_doomed).await;
        Ok(())
    }

    /// Kills who reads manifests and who is told of them, or all, and has them come late. Until
    /// they do, nobody knows which pods there are, and others may be killed too.
    async fn kill_without_manifests(&mut self, node: &mut SimulatedNode) -> Result<(), String> {
        let everybody = self.random.random_bool(0.3);
        self.note(node, &format!("kill without manifests, all: {everybody}"));
        if everybody {
            node.runtime.close_connection();
            node.supervision.kill_all().await;
        } else {
            let told = [Process::ConfigSourcer, Process::SyncLoop];
            node.supervision.kill(told).await;
        }
        // Of the next runs nothing has run yet.
        node.take_manifests_away();
        let back = node.elapsed() + self.random.random_range(Duration::ZERO..MANIFESTS_AWAY);
        while node.elapsed() < back {
            let pause = self.pause().min(back - node.elapsed());
            node.pass(pause).await?;
            if self.random.random_bool(0.2) {
                let process = self.process();
                self.kill_and_doom(node, process, false).await;
            }
        }
        self.note(node, "manifests are back");
        node.bring_manifests_back();
        Ok(())
    }

    async fn kill_and_doom(&mut self, node: &mut SimulatedNode, process: Process, is_doomed: bool) {
        let mut fates = Vec::new();
        if is_doomed {
            for _ in 0..self.random.random_range(1..=MOST_CRASHES) {
                let millis = self.random.random_range(0..100);
                fates.push(match millis {
                    0..20 => Fate::LaunchFails,
                    _ => Fate::Crashes(Duration::from_millis(millis - 20)),
                });
            }
        }
        self.note(node, &format!("kill {process}, then {fates:?}"));
        node.supervision.doom(process, fates);
        node.supervision.kill([process]).await;
    }

    /// Kills the process that changes the runtime just when something happens there, every
    /// other time when a hook begins or a container is asked to end.
    async fn kill_in_the_midst(&mut self, node: &mut SimulatedNode) -> Result<(), String> {
        let any = self.random.random_bool(0.5);
        let is_doomed = self.random.random_bool(0.5);
        let before = node.runtime.history().len();
        let wanted = |entry: &Entry| match entry.happening {
            Happening::Executed { .. } | Happening::Terminated => true,
            _ => any,
        };
        let is_in_the_midst = |history: &[Entry]| history[before..].iter().any(wanted);
        node.pass_until(is_in_the_midst, SLICE, MIDST_WITHIN)
            .await?;
        self.kill_and_doom(node, Process::PodWorkerPool, is_doomed)
            .await;
        Ok(())
    }

    /// Kills all processes, the supervisor among them, while a pod is likely to be
    /// started, and perhaps again while they put right what that left.
    async fn kill_all(&mut self, node: &mut SimulatedNode) -> Result<(), String> {
        node.runtime.set_faults(Faults {
            container_delay: SLOW_CALL,
            start_delay: SLOW_CALL,
            loses_tasks: self.random.random_bool(0.5),
            ..Faults::NONE
        });
        self.put(node);
        for _ in 0..self.random.random_range(1..=3) {
            let pause = self.random.random_range(Duration::ZERO..3 * SLOW_CALL);
            node.pass(pause).await?;
            self.note(node, "kill all");
            // With the supervisor goes what keeps calls in flight alive.
            node.runtime.close_connection();
            node.supervision.kill_all().await;
        }
        node.runtime.set_faults(Faults::NONE);
        Ok(())
    }

    fn put(&mut self, node: &SimulatedNode) {
        let name = format!("p{}", self.random.random_range(0..PODS));
        self.put_one(node, &name, |_| true);
    }

    /// Puts some pod of this name that is as asked for.
    pub(crate) fn put_one(
        &mut self,
        node: &SimulatedNode,
        name: &str,
        is_right: impl Fn(&Desired) -> bool,
    ) {
        let version = u32::try_from(self.versions.len()).unwrap_or(u32::MAX);
        let desired = loop {
            let desired = Desired::random(name, version, &mut self.random);
            if is_right(&desired) {
                break desired;
            }
        };
        self.versions.push(desired.clone());
        node.targets.add(&desired);
        if let (Some(uid), Some(true)) = (
            desired.pinned_uid(),
            desired.sizes().map(|sizes| sizes.uses_much),
        ) {
            let bytes = u64::from(MUCH_MEMORY) << 20;
            node.runtime.set_memory_use(&uid, bytes);
        }
        self.note(node, &format!("put {desired}"));
        node.put_manifest(&format!("{name}.yaml"), &desired.manifest());
        if let Some(replaced) = self.desired.insert(name.to_owned(), desired) {
            self.dismiss(node, &replaced);
        }
    }

    /// Gives a container of a pod that is desired another size. One that is started again
    /// for it counts as one that failed, so that waits stay short enough for the end.
    fn resize(&mut self, node: &SimulatedNode) {
        // One that was refused or evicted for a shortage is judged again, or started anew, when
        // its manifest changes: what becomes of it then is not followed here.
        let stays = |pod: &&Desired| self.shortage.is_none() || pod.is_critical();
        let sized = self.desired.values().filter(|pod| pod.sizes().is_some());
        let containers = sized.filter(stays).flat_map(|pod| {
            let names = pod.servers().iter();
            names.map(|name| (pod.name().to_owned(), *name))
        });
        let containers: Vec<(String, &str)> = containers.collect();
        let Some((name, container)) = containers.choose(&mut self.random).cloned() else {
            return;
        };
        let size = Size::random(&mut self.random);
        let Some(pod) = self.desired.get_mut(&name) else {
            return;
        };
        if pod.sizes().is_some_and(|it| it.restarts(container, size)) {
            let key = format!("{}/{container}", pod.pinned_uid().unwrap_or_default());
            let count = self.failures.entry(key).or_default();
            if *count >= MOST_FAILURES {
                return;
            }
            *count += 1;
        }
        self.has_resized = true;
        pod.resize(container, size, node.clock.now());
        let pod = pod.clone();
        node.put_manifest(&format!("{name}.yaml"), &pod.manifest());
        self.note(node, &format!("resize {container} of {pod}"));
        let mut versions = self.versions.iter_mut();
        if let Some(version) = versions.find(|version| version.version() == pod.version()) {
            *version = pod;
        }
    }

    /// Sets the wall clock by at most an hour, as where a node hears the time at last.
    fn jump_clock(&mut self, node: &SimulatedNode) {
        let seconds = self.random.random_range(-3600..=3600);
        self.note(node, &format!("the wall clock jumps by {seconds} s"));
        node.jump_clock(seconds * 1_000_000_000);
        self.jumps.push(node.clock.now());
    }

    /// Changes the ConfigMap that pods have as a volume.
    pub(crate) fn put_settings(&mut self, node: &SimulatedNode) {
        let value = self.random.random();
        self.note(node, &format!("settings become {value}"));
        let text = format!(
            r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"{SETTINGS}"}},"data":{{"{SETTINGS_KEY}":"{value}"}}}}"#
        );
        node.put_object(SETTINGS_FILE, &text);
        self.settings = Some(value);
    }

    fn remove(&mut self, node: &SimulatedNode) {
        let name = format!("p{}", self.random.random_range(0..PODS));
        self.remove_one(node, &name);
    }

    /// Removes the pod of this name, if it is there.
    pub(crate) fn remove_one(&mut self, node: &SimulatedNode, name: &str) {
        self.note(node, &format!("remove {name}"));
        node.remove_manifest(&format!("{name}.yaml"));
        if let Some(removed) = self.desired.remove(name) {
            self.dismiss(node, &removed);
        }
    }

    fn dismiss(&mut self, node: &SimulatedNode, pod: &Desired) {
        let mut versions = self.versions.iter_mut();
        if let Some(version) = versions.find(|version| version.version() == pod.version()) {
            version.dismiss(node.clock.now());
        }
    }

    /// Crashes one running container.
    fn crash(&mut self, node: &SimulatedNode) {
        if let Some((uid, name, id)) = self.choose(running(&node.runtime)) {
            self.note(node, &format!("crash {name} of {uid}"));
            node.runtime.crash_container(&id, 1);
        }
    }

    /// Lets one running container hang whose liveness probe will show it.
    async fn hang(&mut self, node: &mut SimulatedNode) -> Result<(), String> {
        let uids = uids_by_version(&node.runtime.history());
        let mut candidates = running(&node.runtime);
        candidates.retain(|(uid, name, id)| {
            let mut versions = self.versions.iter();
            let pod = versions.find(|pod| uids.get(&pod.version_label()) == Some(uid));
            let has_liveness = pod.is_some_and(|pod| pod.has_liveness(name));
            has_liveness && node.targets.hung_since(id).is_none()
        });
        if let Some((uid, name, id)) = self.choose(candidates) {
            self.note(node, &format!("hang {name} of {uid}"));
            node.targets.hang(&id);
            if self.kills_at_the_worst {
                return self.kill_who_stops(node, &id).await;
            }
        }
        Ok(())
    }

    /// Kills the process that stops a container when that has ended and no other one was
    /// started in its place: only what was written down tells that one is to be.
    async fn kill_who_stops(&mut self, node: &mut SimulatedNode, id: &str) -> Result<(), String> {
        let has_ended = |history: &[Entry]| {
            let mut newest_first = history.iter().rev();
            newest_first.any(|it| it.id == id && matches!(it.happening, Happening::Exited { .. }))
        };
        node.pass_until(has_ended, SLICE, STOPPED_WITHIN).await?;
        self.kill_and_doom(node, Process::PodWorkerPool, false)
            .await;
        Ok(())
    }

    /// Chooses whom something happens to, each at most twice, so that waits stay
    /// short enough for the end.
    fn choose(&mut self, candidates: Vec<Instance>) -> Option<Instance> {
        if candidates.is_empty() {
            return None;
        }
        let index = self.random.random_range(0..candidates.len());
        let chosen = candidates.into_iter().nth(index)?;
        let (uid, name, _) = &chosen;
        let count = self.failures.entry(format!("{uid}/{name}")).or_default();
        let may_fail = *count < MOST_FAILURES;
        *count += u32::from(may_fail);
        may_fail.then_some(chosen)
    }

    /// Turns the readiness of a container of a pod that is desired.
    fn turn(&mut self, node: &SimulatedNode) {
        let probed = self.desired.values().flat_map(|pod| {
            let names = pod.servers().iter().copied();
            let names = names.filter(|name| pod.readiness_threshold(name).is_some());
            names.map(|name| (pod.version(), name))
        });
        let probed: Vec<(u32, &str)> = probed.collect();
        if probed.is_empty() {
            return;
        }
        let (version, name) = probed[self.random.random_range(0..probed.len())];
        let ready = node.targets.turn(version, name);
        self.note(node, &format!("{name} of v{version} is ready: {ready}"));
    }
}

/// UID, name and id of a container.
pub(crate) type Instance = (String, String, String);

pub(crate) fn running(runtime: &SimulatedRuntime) -> Vec<Instance> {
    let containers = runtime
        .containers()
        .into_iter()
        .filter(|container| container.running);
    containers
        .map(|container| (container.pod_uid, container.name, container.id))
        .collect()
}
