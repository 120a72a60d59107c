//! What is garbage: pure, from what the runtime has and what the workers say.

use std::collections::{BTreeMap, HashSet};

use bulkhead_api::v1::WorkerPhase;
use cri::v1::ContainerState;
use pod::PodIdentity;
use pod_lifecycle::TerminationCause;

use crate::pool::WorkerSummary;
use crate::relist::{ListedContainer, Relist, RuntimePod};
use crate::removed_pods::RemovedPods;

/// Who is wanted.
#[derive(Clone, Copy, Debug)]
pub(super) struct WantedPods<'a> {
    pub(super) workers: &'a BTreeMap<String, WorkerSummary>,
    pub(super) desired: &'a HashSet<String>,
    pub(super) sources_ready: bool,
    pub(super) removed_pods: &'a RemovedPods,
}

impl WantedPods<'_> {
    /// Whether nothing of a pod is of use any more: it was taken back or evicted,
    /// and is stopped; or nobody knows it.
    pub(super) fn contents_are_garbage(&self, uid: &str) -> bool {
        match self.workers.get(uid) {
            Some(worker) => {
                let is_stopped = matches!(
                    worker.phase,
                    WorkerPhase::Terminated | WorkerPhase::Finished
                );
                let is_unwanted = worker.cause.as_ref().is_some_and(|cause| {
                    // One that a shutdown of the node ended goes on after the boot.
                    let is_evicted = matches!(cause, TerminationCause::Evicted { .. });
                    cause.permits_recreation() || is_evicted && !cause.ends_with_the_boot()
                });
                is_stopped && is_unwanted
            }
            None => self.is_unknown(uid),
        }
    }

    /// Whether a pod has no worker, and nobody can want it.
    pub(super) fn is_unknown(&self, uid: &str) -> bool {
        let is_told_of = self.sources_ready || self.removed_pods.contains(uid);
        is_told_of && !self.desired.contains(uid) && !self.workers.contains_key(uid)
    }
}

/// Successors that are looked at of a dead instance. One of which the runtime abandoned the
/// start tells no exit, but it is removed before the next is made. With all of them, what is
/// planned of a container that ended thousands of times would not fit into our memory.
const SUCCESSORS: usize = 4;

/// A dead container to remove.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DeadContainer {
    pub(super) pod: PodIdentity,
    pub(super) name: String,
    pub(super) id: String,
    pub(super) attempt: u32,
    /// Its state is unknown though its worker has stopped everything: it is stopped
    /// once more before it is removed.
    pub(super) may_run: bool,
    /// The newest that are said to have ended after it, the newest first: lists show one
    /// whose start the runtime abandoned as ended too. Empty where nothing need take its place.
    pub(super) replaced_by: Vec<String>,
}

/// Dead containers that nothing needs.
pub(super) fn containers(relist: &Relist, wanted: &WantedPods<'_>) -> Vec<DeadContainer> {
    let mut garbage = Vec::new();
    for (uid, pod) in &relist.pods {
        let mut by_name: BTreeMap<&str, Vec<&ListedContainer>> = BTreeMap::new();
        for container in &pod.containers {
            by_name.entry(&container.name).or_default().push(container);
        }
        let all = wanted.contents_are_garbage(uid);
        for mut instances in by_name.into_values() {
            instances.sort_by_key(|it| std::cmp::Reverse((it.attempt, it.created_at)));
            // Of a pod without a worker the one that may run, or that an earlier process
            // may be starting, is for the worker that it gets, which gives it its grace.
            let has_worker = wanted.workers.contains_key(uid);
            let may_be_starting = |it: &ListedContainer| {
                it.state == ContainerState::ContainerCreated && pod.has_ready_sandbox()
            };
            instances.retain(|it| {
                it.state != ContainerState::ContainerRunning
                    && (has_worker || !it.may_run() && !may_be_starting(it))
            });
            let dead: Vec<DeadContainer> = match all {
                true => instances.iter().map(|it| dead_container(pod, it)).collect(),
                false => needless(&instances, pod),
            };
            garbage.extend(dead);
        }
    }
    garbage
}

/// Of the instances of one container that do not run, newest first, those that its
/// pod does not need. It needs the newest that ended, which tells its exit, its restart
/// count and its back-off, one that is about to be started, and those of unknown state,
/// which are for their worker to judge.
fn needless(instances: &[&ListedContainer], pod: &RuntimePod) -> Vec<DeadContainer> {
    let newest = instances.first().map(|newest| newest.attempt);
    let has_newer = |than: &ListedContainer| {
        let mut all = pod.containers.iter();
        all.any(|it| it.name == than.name && it.attempt > than.attempt)
    };
    let mut ended_after: Vec<String> = Vec::new();
    let mut dead = Vec::new();
    for it in instances {
        match it.state {
            ContainerState::ContainerExited => {
                if !ended_after.is_empty() {
                    dead.push(DeadContainer {
                        replaced_by: ended_after.clone(),
                        ..dead_container(pod, it)
                    });
                }
                if ended_after.len() < SUCCESSORS {
                    ended_after.push(it.id.clone());
                }
            }
            ContainerState::ContainerCreated => {
                if Some(it.attempt) != newest || has_newer(it) {
                    dead.push(dead_container(pod, it));
                }
            }
            ContainerState::ContainerRunning | ContainerState::ContainerUnknown => {}
        }
    }
    dead
}

fn dead_container(pod: &RuntimePod, container: &ListedContainer) -> DeadContainer {
    DeadContainer {
        pod: pod.identity.clone(),
        name: container.name.clone(),
        id: container.id.clone(),
        attempt: container.attempt,
        may_run: container.may_run(),
        replaced_by: Vec::new(),
    }
}

/// Sandboxes that run no more and that nothing needs, once `removed` containers
/// are gone: all of a pod that is garbage, else all but the newest. One that still
/// has a container stays.
pub(super) fn sandboxes(
    relist: &Relist,
    wanted: &WantedPods<'_>,
    removed: &HashSet<String>,
) -> Vec<String> {
    let mut garbage = Vec::new();
    for (uid, pod) in &relist.pods {
        let in_use: HashSet<&str> = pod
            .containers
            .iter()
            .filter(|container| !removed.contains(&container.id))
            .map(|container| container.sandbox_id.as_str())
            .collect();
        let mut sandboxes: Vec<_> = pod.sandboxes.iter().collect();
        sandboxes.sort_by_key(|it| std::cmp::Reverse((it.ready, it.created_at, it.id.clone())));
        let kept = usize::from(!wanted.contents_are_garbage(uid));
        garbage.extend(
            sandboxes
                .into_iter()
                .skip(kept)
                .filter(|sandbox| !sandbox.ready && !in_use.contains(sandbox.id.as_str()))
                .map(|sandbox| sandbox.id.clone()),
        );
    }
    garbage
}

/// Whether a pod has no worker, is not wanted, and nothing of it is alive.
pub(super) fn is_gone(uid: &str, relist: &Relist, wanted: &WantedPods<'_>) -> bool {
    wanted.is_unknown(uid) && !relist.pods.get(uid).is_some_and(RuntimePod::is_alive)
}

/// Whether containers of a pod are left beside those that this round removed.
pub(super) fn has_containers(uid: &str, relist: &Relist, removed: &HashSet<String>) -> bool {
    let pod = relist.pods.get(uid);
    pod.is_some_and(|pod| pod.containers.iter().any(|it| !removed.contains(&it.id)))
}

#[cfg(test)]
mod tests {
    use clock::UnixNanos;

    use pod::node_shutdown::TERMINATED;

    use super::*;
    use crate::relist::ListedSandbox;

    const RUNNING: ContainerState = ContainerState::ContainerRunning;
    const EXITED: ContainerState = ContainerState::ContainerExited;
    const CREATED: ContainerState = ContainerState::ContainerCreated;
    const UNKNOWN: ContainerState = ContainerState::ContainerUnknown;

    struct Case {
        relist: Relist,
        workers: BTreeMap<String, WorkerSummary>,
        desired: HashSet<String>,
        sources_ready: bool,
        removed_pods: RemovedPods,
    }

    impl Case {
        /// Pod `u1`: containers as name, attempt, state, sandbox; sandboxes as
        /// readiness, by age from the oldest.
        fn new(
            containers: &[(&str, u32, ContainerState, usize)],
            sandboxes: &[bool],
            worker: Option<(WorkerPhase, Option<TerminationCause>)>,
        ) -> Case {
            let pod = RuntimePod {
                identity: PodIdentity::new("u1", "default", "p").unwrap(),
                source: String::new(),
                sandboxes: sandboxes
                    .iter()
                    .zip(0..)
                    .map(|(&ready, age)| ListedSandbox {
                        id: format!("s{age}"),
                        ready,
                        created_at: UnixNanos(age),
                    })
                    .collect(),
                containers: containers
                    .iter()
                    .map(|&(name, attempt, state, sandbox)| ListedContainer {
                        id: format!("{name}{attempt}"),
                        name: name.to_owned(),
                        sandbox_id: format!("s{sandbox}"),
                        state,
                        attempt,
                        created_at: UnixNanos(attempt.into()),
                        images: Vec::new(),
                    })
                    .collect(),
            };
            Case {
                relist: Relist {
                    pods: [("u1".to_owned(), pod)].into(),
                    asked_at: UnixNanos(0),
                },
                workers: worker
                    .map(|(phase, cause)| ("u1".to_owned(), WorkerSummary { phase, cause }))
                    .into_iter()
                    .collect(),
                desired: HashSet::new(),
                sources_ready: true,
                removed_pods: RemovedPods::default(),
            }
        }

        fn wanted(&self) -> WantedPods<'_> {
            WantedPods {
                workers: &self.workers,
                desired: &self.desired,
                sources_ready: self.sources_ready,
                removed_pods: &self.removed_pods,
            }
        }

        fn containers(&self) -> Vec<String> {
            let garbage = containers(&self.relist, &self.wanted()).into_iter();
            garbage.map(|container| container.id).collect()
        }

        fn sandboxes(&self, removed: &[&str]) -> Vec<String> {
            let removed = removed.iter().map(|&id| id.to_owned()).collect();
            sandboxes(&self.relist, &self.wanted(), &removed)
        }
    }

    fn syncing() -> Option<(WorkerPhase, Option<TerminationCause>)> {
        Some((WorkerPhase::Syncing, None))
    }

    fn finished(cause: TerminationCause) -> Option<(WorkerPhase, Option<TerminationCause>)> {
        Some((WorkerPhase::Finished, Some(cause)))
    }

    fn evicted() -> TerminationCause {
        evicted_for("Evicted")
    }

    fn evicted_for(reason: &str) -> TerminationCause {
        TerminationCause::Evicted {
            reason: reason.into(),
            message: String::new(),
            is_disruption: false,
        }
    }

    const THREE_DEAD: [(&str, u32, ContainerState, usize); 4] = [
        ("a", 0, EXITED, 0),
        ("a", 1, EXITED, 0),
        ("a", 2, EXITED, 0),
        ("b", 0, EXITED, 0),
    ];

    #[test]
    fn of_a_pod_that_lives_the_newest_dead_instance_of_each_container_stays() {
        assert_eq!(
            Case::new(&THREE_DEAD, &[true], syncing()).containers(),
            ["a1", "a0"]
        );
        let running = [("a", 0, EXITED, 0), ("a", 1, RUNNING, 0)];
        assert!(
            Case::new(&running, &[true], syncing())
                .containers()
                .is_empty()
        );
    }

    #[test]
    fn an_instance_that_ended_goes_for_the_sake_of_the_next_one_that_did() {
        let instances = [
            ("a", 0, EXITED, 0),
            ("a", 1, EXITED, 0),
            ("a", 2, UNKNOWN, 0),
            ("a", 3, EXITED, 0),
            ("a", 4, RUNNING, 0),
        ];
        let case = Case::new(&instances, &[true], syncing());
        let replaced = |case: &Case| -> Vec<(String, Vec<String>)> {
            let garbage = containers(&case.relist, &case.wanted()).into_iter();
            garbage.map(|it| (it.id, it.replaced_by)).collect()
        };
        let by = |id: &str, newer: &[&str]| {
            let newer = newer.iter().map(|&id| id.to_owned());
            (id.to_owned(), newer.collect())
        };
        assert_eq!(
            replaced(&case),
            [by("a1", &["a3"]), by("a0", &["a3", "a1"])]
        );
        let gone = Case::new(&THREE_DEAD, &[false], finished(TerminationCause::Deleted));
        assert!(replaced(&gone).iter().all(|(_, newer)| newer.is_empty()));
    }

    #[test]
    fn what_is_planned_of_a_container_grows_with_its_dead_instances_and_no_faster() {
        let instances: Vec<_> = (0..2000).map(|number| ("a", number, EXITED, 0)).collect();
        let case = Case::new(&instances, &[true], syncing());
        let garbage = containers(&case.relist, &case.wanted());
        assert_eq!(garbage.len(), 1999, "all but the newest");
        let newest = |it: &DeadContainer| it.replaced_by.first().cloned();
        assert!(
            garbage
                .iter()
                .all(|it| newest(it).as_deref() == Some("a1999"))
        );
        let named: usize = garbage.iter().map(|it| it.replaced_by.len()).sum();
        assert!(named <= 4 * garbage.len(), "{named}");
    }

    #[test]
    fn an_instance_that_is_about_to_be_started_is_not_dead() {
        let starting = [("a", 0, EXITED, 0), ("a", 1, CREATED, 0)];
        let case = Case::new(&starting, &[true], syncing());
        assert!(case.containers().is_empty(), "the last end stays too");
        let left_over = [("a", 0, CREATED, 0), ("a", 1, RUNNING, 0)];
        let case = Case::new(&left_over, &[true], syncing());
        assert_eq!(case.containers(), ["a0"]);
    }

    #[test]
    fn what_an_earlier_run_may_be_starting_is_left_to_the_worker_that_its_pod_gets() {
        let instances = [("a", 0, EXITED, 0), ("b", 0, CREATED, 0)];
        let case = Case::new(&instances, &[true], None);
        assert_eq!(case.containers(), ["a0"]);
        let case = Case::new(&instances, &[false], None);
        assert_eq!(case.containers(), ["a0", "b0"]);
    }

    #[test]
    fn of_a_pod_that_was_taken_back_or_evicted_nothing_stays() {
        let all = ["a2", "a1", "a0", "b0"];
        for cause in [
            TerminationCause::Deleted,
            TerminationCause::Killed,
            evicted(),
        ] {
            let case = Case::new(&THREE_DEAD, &[false], finished(cause));
            assert_eq!(case.containers(), all);
            assert_eq!(case.sandboxes(&all), ["s0"]);
        }
        // Both go on: the one if it is asked for again, the other after the boot.
        for cause in [TerminationCause::Completed, evicted_for(TERMINATED)] {
            let case = Case::new(&THREE_DEAD, &[false], finished(cause));
            assert_eq!(case.containers(), ["a1", "a0"]);
            assert!(case.sandboxes(&["a1", "a0"]).is_empty());
        }
    }

    #[test]
    fn of_a_pod_that_is_being_stopped_nothing_more_goes() {
        let stopping = Some((WorkerPhase::Terminating, Some(TerminationCause::Deleted)));
        assert_eq!(
            Case::new(&THREE_DEAD, &[true], stopping).containers(),
            ["a1", "a0"]
        );
    }

    #[test]
    fn a_pod_that_nobody_knows_goes_once_all_sources_have_spoken() {
        let mut case = Case::new(&THREE_DEAD, &[false], None);
        assert_eq!(case.containers().len(), 4);
        assert!(is_gone("u1", &case.relist, &case.wanted()));
        case.sources_ready = false;
        assert_eq!(case.containers(), ["a1", "a0"]);
        assert!(!is_gone("u1", &case.relist, &case.wanted()));
        // Its own source took it back, or it began anew.
        case.removed_pods.insert("u1");
        assert_eq!(case.containers().len(), 4);
        assert!(is_gone("u1", &case.relist, &case.wanted()));
        case.removed_pods.remove("u1");
        assert_eq!(case.containers(), ["a1", "a0"]);
        case.sources_ready = true;
        case.desired.insert("u1".to_owned());
        assert_eq!(case.containers(), ["a1", "a0"]);
        assert!(!is_gone("u1", &case.relist, &case.wanted()));
    }

    #[test]
    fn files_of_a_pod_stay_while_anything_of_it_is_alive() {
        for (containers, sandboxes, gone) in [
            (vec![("a", 0, RUNNING, 0)], vec![false], false),
            (vec![("a", 0, UNKNOWN, 0)], vec![false], false),
            (vec![("a", 0, EXITED, 0)], vec![true], false),
            (vec![("a", 0, EXITED, 0)], vec![false], true),
        ] {
            let case = Case::new(&containers, &sandboxes, None);
            assert_eq!(is_gone("u1", &case.relist, &case.wanted()), gone);
        }
    }

    #[test]
    fn what_may_run_is_left_to_whoever_stops_it_with_its_grace() {
        let dead = [("a", 0, UNKNOWN, 0), ("a", 1, EXITED, 0)];
        let terminating = Some((WorkerPhase::Terminating, Some(TerminationCause::Orphaned)));
        for worker in [syncing(), terminating] {
            let case = Case::new(&dead, &[true], worker);
            assert!(case.containers().is_empty());
        }
        let orphan = Case::new(&dead, &[false], None);
        assert_eq!(orphan.containers(), ["a1"]);
        assert!(orphan.sandboxes(&["a1"]).is_empty());
        assert!(!is_gone("u1", &orphan.relist, &orphan.wanted()));
        // Its worker has stopped everything and does nothing any more.
        for cause in [TerminationCause::Deleted, evicted()] {
            let case = Case::new(&dead, &[false], finished(cause));
            let garbage = containers(&case.relist, &case.wanted());
            assert!(garbage.iter().any(|it| it.id == "a0" && it.may_run));
        }
        let completed = Case::new(&dead, &[false], finished(TerminationCause::Completed));
        assert!(completed.containers().is_empty());
    }

    #[test]
    fn sandboxes_that_run_or_hold_a_container_stay() {
        // Oldest first; of a pod that lives the newest stays as well.
        for (ready, containers, worker, removed, garbage) in [
            (
                vec![false, false, true],
                vec![],
                syncing(),
                vec![],
                vec!["s1", "s0"],
            ),
            (vec![false, false], vec![], syncing(), vec![], vec!["s0"]),
            (vec![true], vec![], None, vec![], vec![]),
            (vec![false], vec![], None, vec![], vec!["s0"]),
            (vec![false], vec![("a", 0, EXITED, 0)], None, vec![], vec![]),
            (
                vec![false],
                vec![("a", 0, EXITED, 0)],
                None,
                vec!["a0"],
                vec!["s0"],
            ),
            (
                vec![false, false],
                vec![("a", 0, EXITED, 0)],
                syncing(),
                vec![],
                vec![],
            ),
        ] {
            let case = Case::new(&containers, &ready, worker);
            assert_eq!(
                case.sandboxes(&removed),
                garbage,
                "{ready:?} {containers:?}"
            );
        }
    }
}
