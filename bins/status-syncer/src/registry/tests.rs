//! Which pods have a status, through restarts of every process.

use bulkhead_api::v1::{
    ContainerObservation, ContainerWaiting, PodReference, ProbeKind, ProbeResult,
};
use ipc::Message as _;
use pod::PodSource;
use serde_json::{Value, json};

use super::*;
use crate::publication::MAX_NOTE_BYTES;

const BOOT: &str = "pool-1";

fn document(uid: &str, policy: &str) -> PodDocument {
    let json = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": format!("pod-{uid}"), "namespace": "default", "uid": uid,
            "annotations": {"kubernetes.io/config.source": "file"},
        },
        "spec": {
            "restartPolicy": policy,
            "aFieldOfTomorrow": 1,
            "containers": [{"name": "c", "readinessProbe": {"tcpSocket": {"port": 1}}}],
        },
    });
    PodDocument::from_json(json.to_string().into_bytes(), PodSource::File)
        .unwrap()
        .0
}

fn observation(uid: &str, phase: WorkerPhase) -> PodObservation {
    PodObservation {
        pod: Some(document(uid, "Always").to_message()),
        phase: phase.into(),
        is_observed: true,
        ..PodObservation::default()
    }
}

fn with_container(uid: &str, id: &str, state: RuntimeState) -> PodObservation {
    let mut observation = observation(uid, WorkerPhase::Syncing);
    observation.containers.push(ContainerObservation {
        name: "c".to_owned(),
        id: id.to_owned(),
        state: state.into(),
        ..ContainerObservation::default()
    });
    observation
}

fn never(mut observation: PodObservation, uid: &str) -> PodObservation {
    observation.pod = Some(document(uid, "Never").to_message());
    observation
}

fn verdict(uid: &str, id: &str, result: ProbeResult) -> ProbeVerdict {
    ProbeVerdict {
        pod_uid: uid.to_owned(),
        container_id: id.to_owned(),
        kind: ProbeKind::Readiness.into(),
        result: result.into(),
        ..ProbeVerdict::default()
    }
}

/// So many nanoseconds after the boot, with a wall clock that knows nothing of that.
fn at(nanos: i64) -> Now {
    Now {
        wall: UnixNanos(1_000_000_000_000 - nanos),
        since_boot: Duration::from_nanos(nanos.unsigned_abs()),
    }
}

/// A registry with the calls that a test makes most.
#[derive(Default)]
struct Test {
    registry: Registry,
    now: i64,
}

impl Test {
    /// A registry whose pool is there, with nothing in it.
    fn connected() -> Test {
        let mut test = Test::default();
        test.snapshot(BOOT, vec![]);
        test
    }

    fn snapshot(&mut self, boot_id: &str, observations: Vec<PodObservation>) {
        self.registry.begin_snapshot(boot_id);
        for observation in observations {
            self.observe(observation);
        }
        self.registry.end_snapshot(at(self.now).wall);
    }

    fn observe(&mut self, observation: PodObservation) {
        self.now += 1_000_000_000;
        self.registry.observe(observation, at(self.now)).unwrap();
    }

    fn let_go(&mut self, uid: &str) {
        self.registry.let_go(uid, at(self.now).wall);
    }

    /// A list comes that was made after all that was told.
    fn retain(&mut self, uids: &[&str]) {
        self.now += 1_000_000_000;
        self.retain_of(self.now, uids).unwrap();
    }

    /// A list comes that was made at this time.
    fn retain_of(&mut self, listed_at: i64, uids: &[&str]) -> Result<(), Refusal> {
        let known = KnownPods {
            uids: uids.iter().map(|&uid| uid.to_owned()).collect(),
            delivered: PodSource::ALL.into(),
            listed_at: at(listed_at).since_boot,
        };
        self.registry.retain(&known, at(self.now).since_boot)
    }

    fn reject(&mut self, uid: &str) -> Result<(), Refusal> {
        self.reject_for("OutOfcpu", uid)
    }

    fn reject_for(&mut self, reason: &str, uid: &str) -> Result<(), Refusal> {
        self.reject_as(&document(uid, "Always"), reason)
    }

    fn reject_as(&mut self, pod: &PodDocument, reason: &str) -> Result<(), Refusal> {
        let request = RejectPodRequest {
            pod: Some(pod.to_message()),
            reason: reason.to_owned(),
            message: "no room".to_owned(),
        };
        self.registry.reject(request, at(self.now))
    }

    fn json(&self, uid: &str) -> Value {
        let published = self
            .registry
            .to_save()
            .find(|pod| pod.uid() == uid)
            .unwrap();
        serde_json::from_slice(published.document.json()).unwrap()
    }

    fn phase(&self, uid: &str) -> String {
        self.json(uid)["status"]["phase"]
            .as_str()
            .unwrap()
            .to_owned()
    }

    fn ready(&self, uid: &str) -> bool {
        self.json(uid)["status"]["containerStatuses"][0]["ready"]
            .as_bool()
            .unwrap()
    }

    fn uids(&self) -> Vec<&str> {
        self.registry.to_save().map(PublishedPod::uid).collect()
    }

    /// UIDs of what is to be published, `-` before those that are gone.
    fn changes(&mut self) -> Vec<String> {
        let change = |change| match change {
            Change::Set(pod) => pod.uid().to_owned(),
            Change::Removed(uid) => format!("-{uid}"),
        };
        self.registry
            .take_changes()
            .into_iter()
            .map(change)
            .collect()
    }

    /// The same after a SIGKILL and a restart of this process.
    fn restarted(&self) -> Test {
        let mut registry = Registry::default();
        registry.restore(
            self.registry.to_save().cloned().collect(),
            at(self.now).since_boot,
        );
        Test {
            registry,
            now: self.now,
        }
    }
}

#[test]
fn an_observed_pod_is_served_with_its_status_and_unknown_fields() {
    let mut test = Test::connected();
    test.observe(with_container("u", "a", RuntimeState::Running));
    assert_eq!(test.phase("u"), "Running");
    assert_eq!(test.json("u")["spec"]["aFieldOfTomorrow"], 1);
    assert_eq!(test.changes(), ["u"]);
    assert!(!test.registry.has_changes());
}

#[test]
fn a_status_is_saved_when_it_changes_only_and_over_restarts() {
    let mut test = Test::connected();
    test.observe(observation("u", WorkerPhase::Syncing));
    assert!(test.registry.is_unsaved());
    test.registry.saved();
    test.observe(observation("u", WorkerPhase::Syncing));
    assert!(!test.registry.is_unsaved());
    let mut test = test.restarted();
    test.observe(observation("u", WorkerPhase::Syncing));
    assert!(!test.registry.is_unsaved());
    test.observe(with_container("u", "a", RuntimeState::Running));
    assert!(test.registry.is_unsaved());
}

#[test]
fn what_the_worker_did_is_published_but_is_no_new_status() {
    let mut test = Test::connected();
    test.observe(observation("u", WorkerPhase::Syncing));
    test.changes();
    assert!(test.registry.is_unsaved());
    test.registry.saved();
    let mut again = observation("u", WorkerPhase::Syncing);
    again.last_plan = "nothing to do".to_owned();
    again.sync_error = "x".repeat(1 << 20);
    test.observe(again.clone());
    let published = test.registry.to_save().next().unwrap();
    assert_eq!(published.worker.last_plan, "nothing to do");
    assert_eq!(published.worker.sync_error.len(), MAX_NOTE_BYTES);
    assert_eq!(test.changes(), ["u"]);
    assert!(!test.registry.is_unsaved());
    test.observe(again);
    assert!(!test.registry.has_changes(), "nothing is news");
}

#[test]
fn a_verdict_changes_readiness_whenever_it_comes() {
    let mut test = Test::connected();
    test.registry
        .set_verdicts(&[verdict("u", "a", ProbeResult::Success)], UnixNanos(1));
    test.observe(with_container("u", "a", RuntimeState::Running));
    assert!(test.ready("u"), "it came before the observation");
    test.registry
        .set_verdicts(&[verdict("u", "a", ProbeResult::Failure)], UnixNanos(2));
    assert!(!test.ready("u"));
}

#[test]
fn no_restart_of_any_process_flips_readiness() {
    let mut test = Test::connected();
    test.observe(with_container("u", "a", RuntimeState::Running));
    test.registry
        .set_verdicts(&[verdict("u", "a", ProbeResult::Success)], UnixNanos(1));
    assert!(test.ready("u"));
    test.registry.saved();
    // Of the prober: its verdict is not known yet.
    test.registry
        .set_verdicts(&[verdict("u", "a", ProbeResult::Unspecified)], UnixNanos(2));
    assert!(test.ready("u"));
    // Of the pool: it has not asked the runtime yet.
    test.snapshot("pool-2", vec![]);
    assert!(test.ready("u"));
    let mut unobserved = observation("u", WorkerPhase::Syncing);
    unobserved.is_observed = false;
    test.observe(unobserved);
    assert!(test.ready("u"));
    assert!(!test.registry.is_unsaved(), "nothing changed at all");
    // Of this process: no verdict is known.
    let mut test = test.restarted();
    assert!(test.ready("u"));
    test.snapshot(
        "pool-2",
        vec![with_container("u", "a", RuntimeState::Running)],
    );
    assert!(test.ready("u"));
    assert!(!test.registry.is_unsaved(), "nothing changed at all");
}

#[test]
fn a_verdict_counts_before_the_pool_is_heard_again() {
    let mut test = Test::connected();
    test.observe(with_container("u", "a", RuntimeState::Running));
    test.registry
        .set_verdicts(&[verdict("u", "a", ProbeResult::Success)], UnixNanos(1));
    let mut test = test.restarted();
    test.registry
        .set_verdicts(&[verdict("u", "a", ProbeResult::Failure)], UnixNanos(2));
    assert!(!test.ready("u"));
    assert_eq!(test.phase("u"), "Running");
}

#[test]
fn a_pod_that_a_fresh_pool_lacks_keeps_its_status_while_it_is_known() {
    let mut test = Test::connected();
    test.observe(with_container("u", "a", RuntimeState::Running));
    test.snapshot("pool-2", vec![]);
    assert_eq!(test.uids(), ["u"]);
    test.retain(&["u"]);
    assert_eq!(test.uids(), ["u"]);
    test.retain(&[]);
    assert!(test.uids().is_empty());
    assert_eq!(test.changes(), ["-u"]);
}

#[test]
fn a_source_that_has_not_delivered_keeps_the_statuses_of_its_pods() {
    let mut test = Test::connected();
    test.observe(with_container("u", "a", RuntimeState::Running));
    test.snapshot("pool-2", vec![]);
    let source = test.registry.to_save().next().unwrap().document.source();
    let others = PodSource::ALL
        .into_iter()
        .filter(|other| *other != source)
        .collect();
    let later = at(60_000_000_000).since_boot;
    let none_of = |delivered| KnownPods {
        uids: BTreeSet::new(),
        delivered,
        listed_at: later,
    };
    test.registry.retain(&none_of(others), later).unwrap();
    assert_eq!(test.uids(), ["u"]);
    let delivered = [source].into();
    test.registry.retain(&none_of(delivered), later).unwrap();
    assert!(test.uids().is_empty());
}

#[test]
fn an_orphan_waits_until_the_pool_lets_go() {
    let mut test = Test::connected();
    test.observe(observation("u", WorkerPhase::Terminating));
    test.observe(observation("v", WorkerPhase::Terminating));
    test.retain(&[]);
    assert_eq!(test.uids(), ["u", "v"]);
    test.let_go("u");
    assert_eq!(test.uids(), ["v"]);
    test.retain(&["v"]);
    test.let_go("v");
    assert_eq!(test.uids(), ["v"], "it is known again");
}

#[test]
fn nothing_is_dropped_before_the_pool_was_heard() {
    let mut test = Test::connected();
    test.observe(observation("u", WorkerPhase::Terminating));
    let mut test = test.restarted();
    test.retain(&[]);
    assert_eq!(test.uids(), ["u"]);
    test.registry.begin_snapshot(BOOT);
    test.retain(&[]);
    assert_eq!(test.uids(), ["u"], "the snapshot may still name it");
    test.registry.end_snapshot(at(test.now).wall);
    assert!(test.uids().is_empty());
}

/// A list that waited for its call says nothing of what came after it was made, so that
/// stays when the pool has to be told of it again.
#[test]
fn a_list_of_pods_says_nothing_of_one_that_came_since() {
    use WorkerPhase::{Finished, Syncing, Terminating};
    const SECOND: i64 = 1_000_000_000;
    // The last thing that happened to the pod, at the tenth second.
    type Last = fn(&mut Test);
    let cases: [(&str, Last); 7] = [
        ("it came", |test| test.observe(observation("u", Syncing))),
        ("it came as one that is stopped", |test| {
            test.observe(observation("u", Terminating));
        }),
        ("it was rejected", |test| {
            test.now = 10 * SECOND;
            test.reject("u").unwrap();
        }),
        ("it was rejected once more", |test| {
            test.now = SECOND;
            test.reject("u").unwrap();
            test.retain_of(SECOND, &[]).unwrap();
            test.now = 10 * SECOND;
            test.reject("u").unwrap();
        }),
        ("it began again", |test| {
            test.now = SECOND;
            test.observe(observation("u", Finished));
            test.now = 9 * SECOND;
            test.observe(observation("u", Syncing));
        }),
        ("it began again when it was no longer known", |test| {
            test.now = SECOND;
            test.observe(observation("u", Finished));
            test.retain(&[]);
            test.now = 9 * SECOND;
            test.observe(observation("u", Syncing));
        }),
        ("status-syncer was restarted", |test| {
            test.now = SECOND;
            test.observe(observation("u", Syncing));
            test.now = 10 * SECOND;
            *test = test.restarted();
            test.snapshot(BOOT, vec![]);
        }),
    ];
    // When the list was made, when it comes, and whether the pod stays.
    for (made, comes, stays) in [
        (3, 10, true),
        (9, 600, true),
        (10, 10, true),
        (11, 11, false),
        (11, 600, false),
    ] {
        for (case, last) in &cases {
            let mut test = Test::connected();
            test.now = 9 * SECOND;
            last(&mut test);
            test.now = comes * SECOND;
            test.retain_of(made * SECOND, &[]).unwrap();
            test.snapshot("pool-2", vec![]);
            let is_there = test.uids() == ["u"];
            assert_eq!(is_there, stays, "{case}, made {made}, comes {comes}");
        }
    }
}

#[test]
fn what_comes_again_is_no_longer_dropped_by_an_earlier_list() {
    let mut test = Test::connected();
    test.observe(observation("u", WorkerPhase::Finished));
    test.observe(observation("v", WorkerPhase::Finished));
    test.retain(&[]);
    test.observe(observation("u", WorkerPhase::Syncing));
    test.snapshot("pool-2", vec![]);
    assert_eq!(test.uids(), ["u"]);
}

#[test]
fn a_list_of_pods_of_the_future_is_refused() {
    let mut test = Test::connected();
    test.observe(observation("u", WorkerPhase::Syncing));
    test.snapshot("pool-2", vec![]);
    for later in [1, 3_600_000_000_000, i64::MAX - test.now] {
        let refused = test.retain_of(test.now + later, &[]);
        assert!(matches!(refused, Err(Refusal::ListOfNoTime)), "{later}");
        assert_eq!(test.uids(), ["u"], "{later}");
    }
}

#[test]
fn a_rejected_pod_stays_rejected_over_restarts() {
    let mut test = Test::connected();
    test.reject("u").unwrap();
    let mut test = test.restarted();
    assert_eq!(test.json("u")["status"]["reason"], "OutOfcpu");
    test.reject("u").unwrap();
    assert!(!test.registry.is_unsaved());
    test.snapshot(BOOT, vec![]);
    test.retain(&["u"]);
    assert_eq!(test.phase("u"), "Failed");
    test.retain(&[]);
    assert!(test.uids().is_empty());
}

#[test]
fn a_running_pod_cannot_be_rejected() {
    let mut test = Test::connected();
    test.observe(with_container("u", "a", RuntimeState::Running));
    assert!(matches!(test.reject("u"), Err(Refusal::AlreadyRuns { .. })));
    assert_eq!(test.phase("u"), "Running");
}

/// The pool tells only the newest of what was not read in time, so of a pod that it has let
/// go the end may never have been told.
#[test]
fn a_pod_whose_end_nobody_heard_can_be_rejected() {
    // What is heard instead, and whether the pod has ended then.
    type Heard = fn(&mut Test);
    let cases: [(&str, Heard, bool); 4] = [
        ("it was let go", |test| test.let_go("u"), true),
        (
            "the stream began anew",
            |test| test.snapshot(BOOT, vec![]),
            true,
        ),
        (
            "this process was restarted",
            |test| {
                *test = test.restarted();
                test.snapshot(BOOT, vec![]);
            },
            true,
        ),
        (
            "the pool was restarted",
            |test| test.snapshot("pool-2", vec![]),
            false,
        ),
    ];
    for (case, heard, has_ended) in cases {
        let mut test = Test::connected();
        test.observe(with_container("u", "a", RuntimeState::Running));
        heard(&mut test);
        test.retain(&["u"]);
        let rejected = test.reject("u");
        assert_eq!(rejected.is_ok(), has_ended, "{case}: {rejected:?}");
        if has_ended {
            let status = &test.json("u")["status"];
            assert_eq!(status["reason"], "OutOfcpu", "{case}");
            assert_eq!(test.phase("u"), "Failed", "{case}");
            let containers = &status["containerStatuses"];
            assert!(containers.is_null(), "{case}: {containers}");
        }
    }
}

#[test]
fn a_pod_that_was_let_go_does_not_run_and_begins_anew() {
    let mut test = Test::connected();
    let mut runs = with_container("u", "a", RuntimeState::Running);
    runs.containers[0].restart_count = 7;
    test.observe(runs);
    test.registry
        .set_verdicts(&[verdict("u", "a", ProbeResult::Success)], UnixNanos(1));
    assert!(test.ready("u"));
    test.let_go("u");
    assert!(!test.ready("u"));
    test.observe(with_container("u", "b", RuntimeState::Running));
    let status = &test.json("u")["status"]["containerStatuses"][0];
    assert_eq!(status["restartCount"], 0);
}

#[test]
fn a_rejection_that_overtakes_the_end_of_its_pod_is_to_be_sent_again() {
    let mut test = Test::connected();
    let mut ends = with_container("u", "a", RuntimeState::Running);
    ends.set_phase(WorkerPhase::Terminating);
    test.observe(ends.clone());
    let early = test.reject("u").unwrap_err();
    assert!(matches!(early, Refusal::StillEnds { .. }), "{early}");
    let told = ipc::CallError::Refused(Box::new(early.into()));
    assert!(!told.is_final());
    assert_eq!(test.phase("u"), "Running");
    ends.set_phase(WorkerPhase::Terminated);
    test.observe(ends);
    test.reject("u").unwrap();
    assert_eq!(test.json("u")["status"]["reason"], "OutOfcpu");
}

/// While its image is pulled, and for ever where that fails.
#[test]
fn a_pod_that_is_admitted_after_its_rejection_is_pending() {
    let mut waits = observation("u", WorkerPhase::Waiting);
    waits.is_observed = false;
    let mut pulls = observation("u", WorkerPhase::Syncing);
    pulls.waiting.push(ContainerWaiting {
        name: "c".to_owned(),
        reason: "ErrImagePull".to_owned(),
        message: "not found".to_owned(),
    });
    for admitted in [waits, pulls] {
        for is_restarted in [false, true] {
            let mut test = Test::connected();
            test.reject("u").unwrap();
            if is_restarted {
                test = test.restarted();
                test.snapshot(BOOT, vec![]);
            }
            assert_eq!(test.phase("u"), "Failed");
            test.observe(admitted.clone());
            assert_eq!(test.phase("u"), "Pending");
            let status = &test.json("u")["status"];
            assert!(status["reason"].is_null() && status["message"].is_null());
            // The rejection comes once more, late.
            let refused = test.reject("u");
            assert!(matches!(refused, Err(Refusal::AlreadyRuns { .. })));
            assert_eq!(test.phase("u"), "Pending");
        }
    }
}

#[test]
fn a_rejected_pod_that_the_pool_stops_stays_rejected() {
    let mut fails = observation("u", WorkerPhase::Syncing);
    fails.failed_reason = "Evicted".to_owned();
    let mut ended = observation("u", WorkerPhase::Syncing);
    ended.terminal = true;
    let stops = [WorkerPhase::Terminating, WorkerPhase::Finished].map(|it| observation("u", it));
    for seen in [fails, ended].into_iter().chain(stops) {
        let mut test = Test::connected();
        test.reject("u").unwrap();
        test.observe(seen.clone());
        assert_eq!(test.json("u")["status"]["reason"], "OutOfcpu", "{seen:?}");
    }
}

/// It is rejected once more when sync-loop is restarted, and it has not begun anew.
#[test]
fn a_pod_that_had_ended_does_not_begin_again_for_a_rejection() {
    let mut test = Test::connected();
    test.observe(never(with_container("u", "a", RuntimeState::Exited), "u"));
    let mut finished = never(with_container("u", "a", RuntimeState::Exited), "u");
    finished.set_phase(WorkerPhase::Finished);
    test.observe(finished);
    test.reject_as(&document("u", "Never"), "OutOfcpu").unwrap();
    test.snapshot(
        "pool-2",
        vec![never(observation("u", WorkerPhase::Syncing), "u")],
    );
    assert_eq!(test.phase("u"), "Succeeded");
    // But as another pod of its UID it would have begun anew.
    test.snapshot("pool-2", vec![]);
    for reason in ["OutOfcpu", "NodePorts"] {
        test.reject_as(&document("u", "Always"), reason).unwrap();
        let status = &test.json("u")["status"];
        assert_eq!(status["phase"], "Failed");
        assert_eq!(status["reason"], reason);
        assert!(status["containerStatuses"].is_null(), "of the pod before");
    }
}

#[test]
fn a_terminal_phase_survives_restarts_of_both() {
    let mut test = Test::connected();
    test.observe(never(with_container("u", "a", RuntimeState::Exited), "u"));
    assert_eq!(test.phase("u"), "Succeeded");
    let mut test = test.restarted();
    test.snapshot(
        "pool-2",
        vec![never(observation("u", WorkerPhase::Syncing), "u")],
    );
    assert_eq!(test.phase("u"), "Succeeded");
}

#[test]
fn the_same_uid_created_again_begins_anew() {
    // In the same run of the pool: a worker that had finished begins again.
    let mut test = Test::connected();
    test.observe(never(with_container("u", "a", RuntimeState::Exited), "u"));
    let mut finished = never(with_container("u", "a", RuntimeState::Exited), "u");
    finished.set_phase(WorkerPhase::Finished);
    test.observe(finished);
    test.let_go("u");
    assert_eq!(test.phase("u"), "Succeeded");
    test.observe(never(observation("u", WorkerPhase::Syncing), "u"));
    assert_eq!(test.phase("u"), "Pending");

    // In another: an instance runs that the run before did not have.
    let mut test = Test::connected();
    test.observe(never(with_container("u", "a", RuntimeState::Exited), "u"));
    test.snapshot(
        "pool-2",
        vec![never(with_container("u", "b", RuntimeState::Running), "u")],
    );
    assert_eq!(test.phase("u"), "Running");

    // Or it ran, and has ended before anybody looked.
    let mut test = Test::connected();
    let mut failed = never(with_container("u", "a", RuntimeState::Exited), "u");
    failed.containers[0].exit_code = 1;
    test.observe(failed);
    assert_eq!(test.phase("u"), "Failed");
    test.snapshot(
        "pool-2",
        vec![never(with_container("u", "b", RuntimeState::Exited), "u")],
    );
    assert_eq!(test.phase("u"), "Succeeded");
}

#[test]
fn another_pod_of_the_same_uid_that_began_unseen_counts_its_restarts_anew() {
    let restarts = |test: &Test| {
        let status = &test.json("u")["status"]["containerStatuses"][0];
        status["restartCount"].as_i64().unwrap()
    };
    let mut test = Test::connected();
    let mut before = with_container("u", "a", RuntimeState::Running);
    before.containers[0].restart_count = 7;
    test.observe(before);
    // This process is away while the pool ends the pod and begins it anew.
    let mut test = test.restarted();
    assert_eq!(restarts(&test), 7);
    let mut other = test.restarted();
    test.snapshot(BOOT, vec![with_container("u", "b", RuntimeState::Running)]);
    assert_eq!(restarts(&test), 7, "the same pod: a number that was lost");
    let anew = never(with_container("u", "b", RuntimeState::Running), "u");
    other.snapshot(BOOT, vec![anew]);
    assert_eq!(restarts(&other), 0);
}

#[test]
fn a_pod_has_not_begun_anew_because_an_earlier_instance_was_not_known() {
    let mut seen = never(with_container("u", "b", RuntimeState::Exited), "u");
    seen.containers[0].restart_count = 1;
    seen.containers[0].exit_code = 1;
    let mut test = Test::connected();
    test.observe(seen.clone());
    assert_eq!(test.phase("u"), "Failed");
    let began = test.json("u")["status"]["startTime"].clone();
    let earlier = with_container("u", "a", RuntimeState::Exited);
    seen.containers.splice(0..0, earlier.containers);
    test.snapshot("pool-2", vec![seen]);
    assert_eq!(test.phase("u"), "Failed");
    assert_eq!(test.json("u")["status"]["startTime"], began);
}

#[test]
fn an_evicted_pod_whose_container_was_just_restarted_stays_failed() {
    let mut test = Test::connected();
    let mut evicted = with_container("u", "a", RuntimeState::Exited);
    evicted.failed_reason = "Evicted".to_owned();
    test.observe(evicted);
    let mut raced = with_container("u", "b", RuntimeState::Running);
    raced.failed_reason = "Evicted".to_owned();
    test.observe(raced);
    assert_eq!(test.phase("u"), "Failed");
}

#[test]
fn a_pod_whose_source_dropped_it_shows_when_it_will_be_gone() {
    let mut test = Test::connected();
    let mut terminating = with_container("u", "a", RuntimeState::Running);
    terminating.set_phase(WorkerPhase::Terminating);
    terminating.termination_requested_at_unix_nanos = 100_000_000_000;
    terminating.termination_grace_period_seconds = 30;
    test.observe(terminating.clone());
    let json = test.json("u");
    assert_eq!(
        json["metadata"]["deletionTimestamp"],
        "1970-01-01T00:02:10Z"
    );
    assert_eq!(json["metadata"]["deletionGracePeriodSeconds"], 30);

    terminating.failed_reason = "Evicted".to_owned();
    test.observe(terminating);
    assert!(
        test.json("u")["metadata"]["deletionTimestamp"].is_null(),
        "evicted is not deleted"
    );
}

#[test]
fn a_pod_that_only_the_runtime_has_needs_what_was_known_of_it() {
    let mut test = Test::connected();
    let runtime_only = |uid: &str| {
        let mut observation = with_container(uid, "a", RuntimeState::Exited);
        let reference = PodReference {
            uid: uid.to_owned(),
            ..PodReference::default()
        };
        observation.pod = Some(bulkhead_api::v1::Pod {
            reference: Some(reference),
            ..Default::default()
        });
        observation
    };
    test.observe(runtime_only("x"));
    assert!(test.uids().is_empty());
    test.observe(with_container("u", "a", RuntimeState::Running));
    test.observe(runtime_only("u"));
    let status = test.json("u")["status"]["containerStatuses"][0]["state"].clone();
    assert!(status["terminated"].is_object());
}

#[test]
fn a_malformed_observation_is_refused_alone() {
    let mut test = Test::connected();
    let mut bad = observation("u", WorkerPhase::Syncing);
    bad.pod.as_mut().unwrap().hash = "0".to_owned();
    assert!(test.registry.observe(bad, at(1)).is_err());
    assert!(
        test.registry
            .observe(PodObservation::default(), at(1))
            .is_err()
    );
    test.observe(observation("v", WorkerPhase::Syncing));
    assert_eq!(test.uids(), ["v"]);
}

#[test]
fn pods_are_bounded() {
    let mut test = Test::connected();
    for number in 0..ipc::limits::MAX_PODS {
        test.observe(observation(&format!("u{number}"), WorkerPhase::Syncing));
    }
    let one_more = observation("one-more", WorkerPhase::Syncing);
    assert!(matches!(
        test.registry.observe(one_more, at(1)),
        Err(Refusal::TooManyPods)
    ));
    assert!(matches!(test.reject("another"), Err(Refusal::TooManyPods)));
    test.observe(observation("u0", WorkerPhase::Terminating));
}

/// A pod of about a million bytes.
fn large(uid: &str, source: PodSource) -> PodDocument {
    with_bytes(uid, source, 1_000_000)
}

/// A pod of a little more than so many bytes.
fn with_bytes(uid: &str, source: PodSource, bytes: usize) -> PodDocument {
    let mut json: Value = serde_json::from_slice(document(uid, "Always").json()).unwrap();
    json["metadata"]["annotations"]["large"] = "x".repeat(bytes).into();
    let json = json.to_string().into_bytes();
    PodDocument::from_json(json, source).unwrap().0
}

/// As many of them as there is room for, and more than a source may have.
const MANY: usize = MAX_KEPT_BYTES / 1_001_000;

impl Test {
    fn reject_large(&mut self, uid: &str) {
        let request = RejectPodRequest {
            pod: Some(large(uid, PodSource::Http).to_message()),
            reason: "NodeAffinity".to_owned(),
            message: "not here".to_owned(),
        };
        self.registry.reject(request, at(self.now)).unwrap();
    }

    fn observe_large(&mut self, uid: &str) -> Result<(), Refusal> {
        let mut observation = with_container(uid, "a", RuntimeState::Running);
        observation.pod = Some(large(uid, PodSource::File).to_message());
        self.registry.observe(observation, at(self.now))
    }

    fn has_spec(&self, uid: &str) -> bool {
        self.json(uid)["spec"].is_object()
    }

    fn bytes(&self) -> usize {
        let entries = self.registry.pods.values();
        let bytes = entries.map(|entry| {
            assert_eq!(entry.bytes, entry.desired.json().len());
            entry.bytes
        });
        bytes.sum()
    }
}

#[test]
fn pods_that_are_rejected_take_no_room_from_those_that_run() {
    let mut test = Test::connected();
    for number in 0..2 * MANY {
        test.reject_large(&format!("r{number}"));
    }
    assert!(test.has_spec("r0") && !test.has_spec("r49") && test.bytes() <= MAX_KEPT_BYTES);
    test.changes();
    for number in 0..MANY {
        test.observe_large(&format!("u{number}")).unwrap();
    }
    assert!(test.bytes() <= MAX_KEPT_BYTES);
    let changes = test.changes();
    assert!(
        changes.contains(&"r0".to_owned()),
        "its spec went: {changes:?}"
    );
    for number in 0..MANY {
        assert!(test.has_spec(&format!("u{number}")));
        assert_eq!(test.phase(&format!("u{number}")), "Running");
        assert!(!test.has_spec(&format!("r{number}")));
        assert_eq!(test.phase(&format!("r{number}")), "Failed");
    }
    let mut test = test.restarted();
    test.reject_large("r0");
    assert_eq!(test.changes().len(), 3 * MANY, "what was restored");
    assert_eq!(test.json("r0")["status"]["reason"], "NodeAffinity");
    // One that is admitted now has its spec again.
    test.retain(&["r0"]);
    test.snapshot(BOOT, vec![]);
    test.observe_large("r0").unwrap();
    assert!(test.has_spec("r0"));
    assert_eq!(test.phase("r0"), "Running");
}

#[test]
fn what_is_observed_of_a_known_pod_always_counts() {
    let mut test = Test::connected();
    for number in 0..MANY {
        test.observe_large(&format!("u{number}")).unwrap();
    }
    // As many as there are: only a broken sync-loop has more.
    let refused = test.observe_large("one-more");
    assert!(matches!(refused, Err(Refusal::TooLarge)), "{refused:?}");
    let mut crashed = with_container("u0", "a", RuntimeState::Exited);
    let left = MAX_KEPT_BYTES - test.bytes();
    let mut filling = with_container("filling", "a", RuntimeState::Running);
    filling.pod = Some(with_bytes("filling", PodSource::File, left - 1000).to_message());
    test.observe(filling);
    let grown = with_bytes("u0", PodSource::File, 1_040_000);
    crashed.pod = Some(grown.to_message());
    crashed.containers[0].message = "z".repeat(1 << 20);
    crashed.sync_error = "e".repeat(1 << 20);
    test.observe(crashed);
    let json = test.json("u0");
    let annotation = json["metadata"]["annotations"]["large"].as_str();
    assert_eq!(annotation.map(str::len), Some(1_000_000));
    let container = &json["status"]["containerStatuses"][0];
    assert_eq!(container["ready"], false);
    assert!(container["state"]["running"].is_null(), "{container}");
    let kept = test.registry.pods["u0"].observation.as_ref().unwrap();
    assert!(kept.encoded_len() < 10_000, "{}", kept.encoded_len());
}

#[test]
fn what_is_observed_of_a_pod_is_bounded_in_bytes() {
    let mut test = Test::connected();
    let mut observation = observation("u", WorkerPhase::Syncing);
    for number in 0..200 {
        let mut instance = with_container("u", &format!("id{number}"), RuntimeState::Exited);
        instance.containers[0].message = "m".repeat(4096);
        observation.containers.extend(instance.containers);
    }
    test.observe(observation);
    let kept = test.registry.pods["u"].observation.as_ref().unwrap();
    assert_eq!(kept.containers.len(), 200);
    assert!(kept.encoded_len() <= 64 << 10, "{}", kept.encoded_len());
}

/// With texts that a status has in full.
fn much(uid: &str, bytes: usize) -> PodObservation {
    let mut observation = with_container(uid, "a", RuntimeState::Running);
    observation.containers[0].image = "i".repeat(bytes);
    observation
}

#[test]
fn what_is_observed_of_all_pods_is_bounded_together() {
    let mut test = Test::connected();
    for number in 0..12 {
        test.observe(much(&format!("u{number}"), 1_000_000));
    }
    let mut refused = |observation| test.registry.observe(observation, at(1)).unwrap_err();
    let many = PodObservation {
        containers: vec![ContainerObservation::default(); 5_000],
        ..much("u12", 0)
    };
    for observation in [much("u12", 1_000_000), many, much("u0", 2_000_000)] {
        assert!(matches!(refused(observation), Refusal::TooMuchObserved));
    }
    // What is no more than before counts, and leaves room for others.
    test.observe(much("u0", 10));
    test.observe(much("u12", 900_000));
}

#[test]
fn what_names_a_pod_or_a_run_of_the_pool_is_bounded() {
    let mut test = Test::connected();
    let long = "x".repeat(1 << 20);
    let mut unknown = observation("u", WorkerPhase::Syncing);
    unknown.pod = Some(bulkhead_api::v1::Pod {
        reference: Some(PodReference {
            uid: long.clone(),
            ..PodReference::default()
        }),
        ..bulkhead_api::v1::Pod::default()
    });
    test.registry.observe(unknown, at(1)).unwrap_err();
    assert!(!test.registry.pool.has(&long));
    test.registry.begin_snapshot(&long);
    assert_eq!(test.registry.pool.boot_id.len(), 64);
}

#[test]
fn a_pod_without_room_for_its_status_is_served_without_its_spec() {
    let mut test = Test::connected();
    let json = json!({
        "metadata": {"name": "p", "namespace": "default", "uid": "u",
            "annotations": {"large": "x".repeat(pod::wire::MAX_POD_BYTES - 300)}},
        "spec": {"containers": [{"name": "c"}]},
    });
    let (document, _) =
        PodDocument::from_json(json.to_string().into_bytes(), PodSource::File).unwrap();
    let mut observation = with_container("u", "a", RuntimeState::Running);
    observation.pod = Some(document.to_message());
    test.observe(observation);
    assert_eq!(test.phase("u"), "Running");
}

#[test]
fn a_pod_that_ended_with_the_node_is_forgotten_for_its_next_boot() {
    let mut test = Test::connected();
    for (reason, uid) in [("Evicted", "a"), ("Terminated", "b"), ("NodeShutdown", "c")] {
        test.reject_for(reason, uid).unwrap();
    }
    assert_eq!(test.uids(), ["a"]);
}
