//! Which pods have a status, through restarts of every process.

use bulkhead_api::v1::{ContainerObservation, ContainerWaiting, ProbeKind, ProbeResult};
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
            "annotations": {"kubernetes.io/config.source": "file"}, "labels": {"app": "web"},
        },
        "spec": {
            "restartPolicy": policy,
            "containers": [{"name": "c", "readinessProbe": {"tcpSocket": {"port": 1}}}],
        },
    });
    PodDocument::from_json(json.to_string().into_bytes(), PodSource::File)
        .unwrap()
        .0
}

/// As the pool tells of this pod.
fn named(document: &PodDocument) -> PodObservation {
    PodObservation {
        pod: Some(document.identity().into()),
        source: document.source().as_str().to_owned(),
        hash: document.hash().to_owned(),
        ..PodObservation::default()
    }
}

fn observation(uid: &str, phase: WorkerPhase) -> PodObservation {
    PodObservation {
        phase: phase.into(),
        is_observed: true,
        ..named(&document(uid, "Always"))
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
    observation.hash = document(uid, "Never").hash().to_owned();
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
        self.try_to_observe(observation).unwrap();
    }

    /// With the pod, where it is to be asked for.
    fn try_to_observe(&mut self, observation: PodObservation) -> Result<(), Refusal> {
        let uid = observation.pod.clone().unwrap_or_default().uid;
        let pods = ["Always", "Never"].map(|policy| document(&uid, policy));
        let mut pods = pods
            .into_iter()
            .filter(|_| self.registry.lacks(&observation));
        let pod = pods.find(|pod| pod.hash() == observation.hash);
        self.registry.observe(observation, pod, at(self.now))
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
        serde_json::from_slice(&published.document.to_json().unwrap()).unwrap()
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
fn an_observed_pod_is_served_with_its_status_and_without_its_spec() {
    let mut test = Test::connected();
    test.observe(with_container("u", "a", RuntimeState::Running));
    assert_eq!(test.phase("u"), "Running");
    let json = test.json("u");
    assert_eq!(json["metadata"]["labels"]["app"], "web");
    assert!(json["spec"].is_null() && json["metadata"]["annotations"].is_null());
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
fn a_condition_that_others_set_is_published_at_once() {
    let mut test = Test::connected();
    let condition = |type_: &str| PodCondition {
        type_: type_.to_owned(),
        status: "True".to_owned(),
        ..PodCondition::default()
    };
    let told = |test: &Test, type_: &str| {
        let json = test.json("u");
        let conditions = json["status"]["conditions"].as_array().unwrap();
        conditions.iter().any(|it| it["type"] == type_)
    };
    // Known before the pod is.
    let now = UnixNanos(7);
    test.registry.set_held("u", Some(vec![condition("a")]), now);
    test.observe(with_container("u", "1", RuntimeState::Running));
    assert!(told(&test, "a"));
    test.registry.take_changes();
    test.registry.set_held("u", Some(vec![condition("a")]), now);
    assert!(!test.registry.has_changes());
    test.registry.set_held("u", Some(vec![condition("b")]), now);
    assert!(test.registry.has_changes() && told(&test, "b") && !told(&test, "a"));
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
    let runtime_only = |uid: &str| PodObservation {
        source: String::new(),
        hash: String::new(),
        ..with_container(uid, "a", RuntimeState::Exited)
    };
    test.observe(runtime_only("x"));
    assert!(test.uids().is_empty());
    test.observe(with_container("u", "a", RuntimeState::Running));
    test.observe(runtime_only("u"));
    let status = test.json("u")["status"]["containerStatuses"][0]["state"].clone();
    assert!(status["terminated"].is_object());
}

#[test]
fn a_pod_is_asked_for_once_in_each_version() {
    let mut test = Test::connected();
    let (first, second) = (document("u", "Always"), document("u", "Never"));
    let runs = |pod: &PodDocument| PodObservation {
        hash: pod.hash().to_owned(),
        ..with_container("u", "a", RuntimeState::Running)
    };
    assert!(test.registry.lacks(&runs(&first)));
    // The pool has another version by now, or was restarted: it is heard of again.
    let registry = &mut test.registry;
    registry.observe(runs(&first), None, at(1)).unwrap();
    assert_eq!(registry.len(), 0);
    assert!(registry.pool.has("u") && registry.lacks(&runs(&first)));
    registry
        .observe(runs(&second), Some(second.clone()), at(2))
        .unwrap();
    assert!(!registry.lacks(&runs(&second)) && registry.lacks(&runs(&first)));
    // What is seen counts, of the version that is known.
    registry
        .observe(with_container("u", "a", RuntimeState::Exited), None, at(3))
        .unwrap();
    assert_eq!(test.phase("u"), "Succeeded");
    // Nothing of it was saved.
    assert!(test.restarted().registry.lacks(&runs(&second)));
}

#[test]
fn a_malformed_observation_is_refused_alone() {
    let mut test = Test::connected();
    let mut bad = observation("u", WorkerPhase::Syncing);
    bad.pod.as_mut().unwrap().uid = "../u".to_owned();
    let nameless = PodObservation::default();
    for malformed in [bad, nameless] {
        test.registry.observe(malformed, None, at(1)).unwrap_err();
    }
    // As is a pod that is another one.
    let (one, other) = (document("u", "Always"), document("v", "Always"));
    let observation = with_container("u", "a", RuntimeState::Running);
    test.registry
        .observe(observation, Some(other), at(1))
        .unwrap();
    assert!(test.uids().is_empty());
    test.registry
        .observe(named(&one), Some(one), at(1))
        .unwrap();
    assert_eq!(test.uids(), ["u"]);
}

#[test]
fn pods_are_bounded() {
    let mut test = Test::connected();
    for number in 0..ipc::limits::MAX_PODS {
        test.observe(observation(&format!("u{number}"), WorkerPhase::Syncing));
    }
    let one_more = observation("one-more", WorkerPhase::Syncing);
    assert!(matches!(
        test.try_to_observe(one_more),
        Err(Refusal::TooManyPods)
    ));
    assert!(matches!(test.reject("another"), Err(Refusal::TooManyPods)));
    test.observe(observation("u0", WorkerPhase::Terminating));
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

#[test]
fn what_names_a_pod_or_a_run_of_the_pool_is_bounded() {
    let mut test = Test::connected();
    let long = "x".repeat(1 << 20);
    let mut unknown = observation("u", WorkerPhase::Syncing);
    unknown.pod.as_mut().unwrap().uid = long.clone();
    test.registry.observe(unknown, None, at(1)).unwrap_err();
    assert!(!test.registry.pool.has(&long));
    test.registry.begin_snapshot(&long);
    assert_eq!(test.registry.pool.boot_id.len(), 64);
}

#[test]
fn a_pod_that_ended_with_the_node_is_forgotten_for_its_next_boot() {
    let mut test = Test::connected();
    for (reason, uid) in [("Evicted", "a"), ("Terminated", "b"), ("NodeShutdown", "c")] {
        test.reject_for(reason, uid).unwrap();
    }
    assert_eq!(test.uids(), ["a"]);
}
