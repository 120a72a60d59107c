//! What holds whatever happens, and in whatever order: random stories of one
//! pod, with restarts of every process in between.

use bulkhead_api::v1::{ContainerObservation, ProbeKind, ProbeResult};
use pod::PodSource;
use proptest::collection::vec;
use proptest::prelude::{Just, Strategy, any, prop_oneof, proptest};
use serde_json::{Value, json};

use super::*;

/// What happens to the pod or to a process.
#[derive(Clone, Debug)]
enum Step {
    /// The container's next instance runs.
    Start,
    /// The newest instance ends.
    Exit(bool),
    /// The runtime does not know the newest instance's state.
    Lose,
    /// Dead instances are collected, all but the newest or all.
    Collect {
        all: bool,
    },
    /// A verdict on the newest instance, or on one before.
    Verdict {
        success: bool,
        newest: bool,
        readiness: bool,
    },
    /// The prober knows nothing any more.
    ForgetVerdicts,
    RestartPool,
    RestartThis,
    /// The pool tells of the pod before it asked the runtime.
    Unobserved,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        Just(Step::Start),
        any::<bool>().prop_map(Step::Exit),
        Just(Step::Lose),
        any::<bool>().prop_map(|all| Step::Collect { all }),
        (any::<bool>(), any::<bool>(), any::<bool>()).prop_map(|(success, newest, readiness)| {
            Step::Verdict {
                success,
                newest,
                readiness,
            }
        }),
        Just(Step::ForgetVerdicts),
        Just(Step::RestartPool),
        Just(Step::RestartThis),
        Just(Step::Unobserved),
    ]
}

/// The pod, and what each process would know.
struct Story {
    registry: Registry,
    containers: Vec<ContainerObservation>,
    starts: u32,
    pool_life: u32,
    now: i64,
    document: PodDocument,
}

impl Story {
    fn new(policy: &str) -> Story {
        let probe = json!({"tcpSocket": {"port": 1}});
        let json = json!({
            "metadata": {"name": "p", "namespace": "default", "uid": "u"},
            "spec": {"restartPolicy": policy, "containers": [
                {"name": "c", "readinessProbe": probe, "startupProbe": probe},
            ]},
        });
        let bytes = json.to_string().into_bytes();
        let mut registry = Registry::default();
        registry.begin_snapshot("pool-0");
        registry.end_snapshot(UnixNanos(0));
        Story {
            registry,
            containers: Vec::new(),
            starts: 0,
            pool_life: 0,
            now: 0,
            document: PodDocument::from_json(bytes, PodSource::Api).unwrap().0,
        }
    }

    fn take(&mut self, step: &Step) {
        self.now += 1_000_000_000;
        match step {
            Step::Start => {
                // Two instances of a container never run at once.
                if self.newest_runs() {
                    return;
                }
                self.containers.insert(
                    0,
                    ContainerObservation {
                        name: "c".to_owned(),
                        id: format!("id-{}", self.starts),
                        state: RuntimeState::Running.into(),
                        created_at_unix_nanos: self.now,
                        restart_count: self.starts,
                        ..ContainerObservation::default()
                    },
                );
                self.starts += 1;
            }
            Step::Exit(success) => {
                if let Some(newest) = self.containers.first_mut() {
                    newest.set_state(RuntimeState::Exited);
                    newest.exit_code = i32::from(!success);
                }
            }
            Step::Lose => {
                if let Some(newest) = self.containers.first_mut() {
                    newest.set_state(RuntimeState::Unknown);
                }
            }
            Step::Collect { all } => {
                let keep = usize::from(!all || self.newest_runs());
                self.containers.truncate(keep);
            }
            Step::Verdict {
                success,
                newest,
                readiness,
            } => {
                self.verdict(*success, *newest, *readiness);
                return;
            }
            Step::ForgetVerdicts => {
                self.registry.verdicts = Verdicts::default();
                return;
            }
            Step::RestartPool => {
                self.pool_life += 1;
                self.registry
                    .begin_snapshot(&format!("pool-{}", self.pool_life));
                self.registry.end_snapshot(UnixNanos(self.now));
                return;
            }
            Step::RestartThis => {
                self.restart();
                return;
            }
            Step::Unobserved => {
                self.observe(false);
                return;
            }
        }
        self.observe(true);
    }

    fn restart(&mut self) {
        let saved = self.registry.to_save().cloned().collect();
        self.registry = Registry::default();
        self.registry.restore(saved, Duration::ZERO);
        self.registry
            .begin_snapshot(&format!("pool-{}", self.pool_life));
        // It names the pod, which is not known before that.
        self.observe(false);
        self.registry.end_snapshot(UnixNanos(self.now));
    }

    fn newest_runs(&self) -> bool {
        self.containers
            .first()
            .is_some_and(|newest| newest.state() != RuntimeState::Exited)
    }

    fn observe(&mut self, observed: bool) {
        let observation = PodObservation {
            pod: Some(self.document.identity().into()),
            source: self.document.source().as_str().to_owned(),
            hash: self.document.hash().to_owned(),
            phase: WorkerPhase::Syncing.into(),
            containers: if observed {
                self.containers.clone()
            } else {
                Vec::new()
            },
            is_observed: observed,
            ..PodObservation::default()
        };
        let pod = self
            .registry
            .lacks(&observation)
            .then(|| self.document.clone());
        let now = Now {
            wall: UnixNanos(self.now),
            since_boot: Duration::ZERO,
        };
        self.registry.observe(observation, pod, now).unwrap();
    }

    fn verdict(&mut self, success: bool, newest: bool, readiness: bool) {
        let Some(number) = self.starts.checked_sub(if newest { 1 } else { 2 }) else {
            return;
        };
        let kind = if readiness {
            ProbeKind::Readiness
        } else {
            ProbeKind::Startup
        };
        let result = if success {
            ProbeResult::Success
        } else {
            ProbeResult::Failure
        };
        let verdict = ProbeVerdict {
            pod_uid: "u".to_owned(),
            container_id: format!("id-{number}"),
            kind: kind.into(),
            result: result.into(),
            ..ProbeVerdict::default()
        };
        self.registry.set_verdicts(&[verdict], UnixNanos(self.now));
    }

    fn seen(&self) -> Option<Seen> {
        let published = self.registry.to_save().next()?;
        let json: Value = serde_json::from_slice(&published.document.to_json().unwrap()).unwrap();
        let container = &json["status"]["containerStatuses"][0];
        Some(Seen {
            phase: json["status"]["phase"].as_str().unwrap().to_owned(),
            id: container["containerID"]
                .as_str()
                .unwrap_or_default()
                .to_owned(),
            running: container["state"]["running"].is_object(),
            ready: container["ready"].as_bool().unwrap(),
            restart_count: container["restartCount"].as_i64().unwrap(),
        })
    }
}

/// What a reader sees of the pod.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    phase: String,
    id: String,
    running: bool,
    ready: bool,
    restart_count: i64,
}

fn check(before: Option<&Seen>, step: &Step, after: &Seen) {
    let Some(before) = before else { return };
    assert!(
        after.restart_count >= before.restart_count,
        "a restart was uncounted"
    );
    let restart = matches!(
        step,
        Step::RestartPool | Step::RestartThis | Step::ForgetVerdicts | Step::Unobserved
    );
    if restart {
        assert_eq!(after, before, "a restart of a process was seen");
    }
    if before.ready && !after.ready && after.id == before.id {
        let failed = matches!(
            step,
            Step::Verdict {
                success: false,
                newest: true,
                ..
            }
        );
        assert!(failed || !after.running, "ready was lost for nothing");
    }
    if !before.ready && after.ready {
        let succeeded = matches!(
            step,
            Step::Verdict {
                success: true,
                newest: true,
                ..
            }
        );
        let known_before = matches!(step, Step::Start | Step::Collect { .. });
        assert!(succeeded || known_before, "ready came from nothing");
        assert!(after.running, "ready and not running");
    }
    let terminal = ["Succeeded", "Failed"].contains(&before.phase.as_str());
    if terminal && !matches!(step, Step::Start) {
        assert_eq!(after.phase, before.phase, "a terminal phase was left");
    }
}

proptest! {
    #[test]
    fn what_was_published_is_taken_back_for_a_reason_only(
        policy in prop_oneof![Just("Always"), Just("OnFailure"), Just("Never")],
        steps in vec(step(), 1..40),
    ) {
        let mut story = Story::new(policy);
        for step in &steps {
            let before = story.seen();
            story.take(step);
            if let Some(after) = story.seen() {
                check(before.as_ref(), step, &after);
            }
        }
    }
}
