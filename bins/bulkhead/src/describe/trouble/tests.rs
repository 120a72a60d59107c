//! Situations of containers and pods, and what is said of them.

use serde_json::{Value, json};

use super::*;

fn pod(state: Value, last: Value, container: Value) -> Pod {
    let mut spec = json!({"name": "c", "image": "web:1"});
    for (key, value) in container.as_object().unwrap() {
        spec[key] = value.clone();
    }
    serde_json::from_value(json!({
        "metadata": {"name": "web", "namespace": "ns", "uid": "u"},
        "spec": {"containers": [spec], "initContainers": [{"name": "i"}]},
        "status": {
            "startTime": "1970-01-01T00:00:05Z",
            "conditions": [{
                "type": "ContainersReady", "status": "False",
                "lastTransitionTime": "1970-01-01T00:00:09Z",
            }],
            "initContainerStatuses": [{
                "name": "i", "image": "i", "imageID": "", "ready": true, "restartCount": 0,
                "state": {"terminated": {"exitCode": 0}},
            }],
            "containerStatuses": [{
                "name": "c", "image": "web:1", "imageID": "", "ready": false,
                "started": false, "restartCount": 3, "state": state, "lastState": last,
            }],
        },
    }))
    .unwrap()
}

fn found(pod: &Pod) -> Option<(String, i64, String)> {
    let mut found = of(pod, pod.status.as_ref().unwrap(), &Beside::default());
    assert!(found.len() <= 1, "{found:?}");
    let trouble = found.pop()?;
    assert_eq!(trouble.subject, "c");
    let since = trouble.since.map_or(-1, |since| since.0 / 1_000_000_000);
    Some((trouble.what, since, trouble.remedy))
}

/// Reason, message, what is said of it, since when in seconds, and a word of what to do.
const WAITING: &[(&str, &str, &str, i64, &str)] = &[
    (
        "CrashLoopBackOff",
        "back-off 40s",
        "exit code 3 (Error), and waits",
        7,
        "bulkhead logs --previous ns/web -c c",
    ),
    (
        "ErrImagePull",
        "no such host",
        "web:1 cannot be pulled: no such host",
        5,
        "registry",
    ),
    (
        "ImagePullBackOff",
        "",
        "web:1 cannot be pulled",
        5,
        "registry",
    ),
    (
        "RegistryUnavailable",
        "connection refused",
        "web:1 cannot be pulled: connection refused",
        5,
        "registry",
    ),
    (
        "SignatureValidationFailed",
        "no signature exists",
        "does not trust the image web:1: no signature exists",
        5,
        "policy for signatures",
    ),
    (
        "ErrImageNeverPull",
        "",
        "has no image web:1 for this pod",
        5,
        "imagePullSecrets",
    ),
    (
        "InvalidImageName",
        "",
        "\"web:1\" is no name",
        5,
        "manifest",
    ),
    (
        "CreateContainerConfigError",
        "secret \"s\" not found",
        "cannot be made as its spec says: secret \"s\" not found",
        5,
        "add the object",
    ),
    (
        "CreateContainerConfigError",
        "spec.containers[0].lifecycle.stopSignal: the runtime is too old",
        "spec says: spec.containers[0].lifecycle.stopSignal",
        5,
        "upgrade the runtime",
    ),
    (
        "CreateContainerError",
        "no such file",
        "refuses it: no such file",
        5,
        "mounts",
    ),
    (
        "PostStartHookError",
        "exit 1",
        "postStart hook failed: exit 1",
        7,
        "--previous",
    ),
    (
        "RefusedByNodePolicy",
        "rule",
        "does not allow the pod: rule",
        5,
        "policy check",
    ),
    (
        "PodInitializing",
        "",
        "PodInitializing: sandbox, volumes and image",
        5,
        "wait",
    ),
    (
        "ContainerCreating",
        "",
        "sandbox, volumes and image",
        5,
        "wait",
    ),
    (
        "CreateContainerConfigError",
        "container has runAsNonRoot and image will run as root (pod: \"web\", container: c)",
        "spec says: container has runAsNonRoot and image",
        5,
        "a runAsUser other than 0",
    ),
    (
        "CreateContainerConfigError",
        "container's runAsUser breaks non-root policy (pod: \"web\", container: c)",
        "spec says: container's runAsUser",
        5,
        "a runAsUser other than 0",
    ),
    (
        "CreateContainerConfigError",
        "couldn't find key k in ConfigMap ns/m",
        "spec says: couldn't find key k",
        5,
        "add the key",
    ),
    (
        "Surprise",
        "why",
        "Surprise: it is not started: why",
        5,
        "events",
    ),
];

#[test]
fn what_a_container_waits_for_is_told_with_what_to_do() {
    let last = json!({"terminated": {
        "exitCode": 3, "reason": "Error", "finishedAt": "1970-01-01T00:00:07Z",
    }});
    for (reason, message, what, since, remedy) in WAITING {
        let state = json!({"waiting": {"reason": reason, "message": message}});
        let found = found(&pod(state, last.clone(), json!({}))).unwrap();
        assert!(found.0.contains(what), "{reason}: {found:?}");
        assert_eq!(found.1, *since, "{reason}");
        assert!(found.2.contains(remedy), "{reason}: {found:?}");
    }
}

#[test]
fn a_pull_that_goes_on_is_what_is_waited_for() {
    for reason in ["ContainerCreating", "ErrImagePull"] {
        let pod = pod(json!({"waiting": {"reason": reason}}), json!({}), json!({}));
        let beside = Beside {
            events: &[event("c", "Pulling", "", 6)],
            ..Beside::default()
        };
        let found = of(&pod, pod.status.as_ref().unwrap(), &beside);
        let [trouble] = &found[..] else {
            panic!("{found:?}")
        };
        assert_eq!(trouble.what, "its image web:1 is being pulled", "{reason}");
        assert_eq!(trouble.since, Some(UnixNanos(6_000_000_000)));
        assert!(trouble.remedy.contains("wait"), "{found:?}");
    }
}

#[test]
fn an_init_container_in_the_way_is_named() {
    let mut pod = pod(
        json!({"waiting": {"reason": "PodInitializing"}}),
        json!({}),
        json!({}),
    );
    let status = pod.status.as_mut().unwrap();
    let init = &mut status.init_container_statuses.as_mut().unwrap()[0];
    init.state = serde_json::from_value(json!({"running": {}})).unwrap();
    init.started = Some(true);
    let found = found(&pod).unwrap();
    assert!(
        found.0.ends_with("init container i comes first"),
        "{found:?}"
    );
}

#[test]
fn a_bad_ending_is_trouble_and_a_good_one_is_not() {
    let ended = |code: i32, reason: &str| {
        let finished = "1970-01-01T00:00:08Z";
        let ended = json!({"exitCode": code, "reason": reason, "finishedAt": finished});
        json!({"terminated": ended})
    };
    let limits = json!({"resources": {"limits": {"memory": "64Mi"}}});
    assert_eq!(
        found(&pod(ended(0, "Completed"), json!({}), json!({}))),
        None
    );
    let error = found(&pod(ended(2, "Error"), json!({}), json!({}))).unwrap();
    assert_eq!(error.0, "it ended with exit code 2 (Error)");
    assert_eq!(
        (error.1, error.2.as_str()),
        (8, "bulkhead logs ns/web -c c")
    );
    let killed = found(&pod(ended(137, "OOMKilled"), json!({}), limits)).unwrap();
    assert!(killed.2.contains("limit of memory (64Mi)"), "{killed:?}");
}

#[test]
fn a_container_that_runs_is_in_trouble_only_where_a_probe_says_so() {
    let running = json!({"running": {"startedAt": "1970-01-01T00:00:06Z"}});
    let probe = json!({"tcpSocket": {"port": 1}});
    for (container, expected) in [
        (json!({}), None),
        (json!({"livenessProbe": probe}), None),
        (json!({"readinessProbe": probe}), Some(("readiness", 9))),
        (
            json!({"startupProbe": probe, "readinessProbe": probe}),
            Some(("startup", 6)),
        ),
    ] {
        let found = found(&pod(running.clone(), json!({}), container));
        let found = found.as_ref();
        assert_eq!(found.map(|it| it.1), expected.map(|it| it.1));
        let words = expected.map_or("", |it| it.0);
        assert!(found.is_none_or(|it| it.0.contains(words)), "{found:?}");
    }
}

fn event(container: &str, reason: &str, message: &str, seconds: i64) -> v1::Event {
    repeated(container, reason, message, (seconds, seconds, 1))
}

/// First and last time in seconds, and how often.
fn repeated(
    container: &str,
    reason: &str,
    message: &str,
    (first, last, count): (i64, i64, u32),
) -> v1::Event {
    let is_good = ["Created", "Pulled", "Pulling", "Started"].contains(&reason);
    let kind = match is_good {
        true => v1::EventType::Normal,
        false => v1::EventType::Warning,
    };
    v1::Event {
        container: container.to_owned(),
        reason: reason.to_owned(),
        message: message.to_owned(),
        r#type: kind.into(),
        unix_nanos: last * 1_000_000_000,
        first_unix_nanos: first * 1_000_000_000,
        count,
        ..v1::Event::default()
    }
}

/// A pod of the containers `c`, which has a postStart hook, and `d`. `state` and `last` are
/// those of `c`; `d` is not started yet.
fn pair(id: Option<&str>, state: Value, last: Value) -> Pod {
    let hook = json!({"postStart": {"sleep": {"seconds": 900}}});
    let status = |name: &str, id: Option<&str>, state: Value, last: Value| {
        json!({
            "name": name, "image": "web:1", "imageID": "", "ready": false, "started": false,
            "restartCount": 0, "containerID": id, "state": state, "lastState": last,
        })
    };
    let creating = json!({"waiting": {"reason": "ContainerCreating"}});
    serde_json::from_value(json!({
        "metadata": {"name": "web", "namespace": "ns", "uid": "u"},
        "spec": {"containers": [
            {"name": "c", "image": "web:1", "lifecycle": hook}, {"name": "d", "image": "web:1"},
        ]},
        "status": {
            "phase": "Pending", "startTime": "1970-01-01T00:00:05Z",
            "containerStatuses": [
                status("c", id, state, last), status("d", None, creating, json!({})),
            ],
        },
    }))
    .unwrap()
}

/// What is said: the subject, what, since when, how often, and a word of what to do.
type Said<'a> = (&'a str, &'a str, i64, u32, &'a str);

fn says(pod: &Pod, beside: &Beside<'_>, expected: &[Said<'_>]) {
    let found = of(pod, pod.status.as_ref().unwrap(), beside);
    assert_eq!(found.len(), expected.len(), "{found:#?}");
    for (found, (subject, what, since, count, remedy)) in found.iter().zip(expected) {
        assert_eq!(
            (found.subject.as_str(), found.what.as_str()),
            (*subject, *what)
        );
        let seconds = found.since.map_or(-1, |since| since.0 / 1_000_000_000);
        let times = found.seen.map_or(0, |seen| seen.count);
        assert_eq!((seconds, times), (*since, *count), "{found:#?}");
        assert!(found.remedy.contains(remedy), "{found:#?}");
    }
}

const MOUNT: &str = "MountVolume.SetUp failed for volume \"v\" : configmap \"m\" not found";
const LATE: &str = "volumes are still being made: [v]";
const USERS: &str = "can't set `spec.hostUsers: false`: the runtime is too old";
const NO_USERS: &str = "Failed to create pod sandbox: can't set `spec.hostUsers: false`: the \
                        runtime is too old";
const NO_NETWORK: &str = "network is not ready: no plugin";
const FIRST_SANDBOX: &str = "Failed to create pod sandbox: no network for sandbox \"1ab2\"";
const SANDBOX: &str = "Failed to create pod sandbox: no network for sandbox \"3cd4\"";
const PLAN: &str = "create sandbox 0: there is none";

/// Reason and message of an event of the pod; its first and last time, and how often.
type Happened<'a> = (&'a str, &'a str, (i64, i64, u32));

/// Events, the error of the last sync, and what is said.
const FAILED: &[(&[Happened<'_>], &str, Said<'_>)] = &[
    (
        &[("FailedMount", MOUNT, (7, 47, 5))],
        MOUNT,
        (
            "The pod",
            "FailedMount: {MOUNT}",
            7,
            5,
            "make what the message names",
        ),
    ),
    (
        &[("FailedMount", MOUNT, (7, 47, 5))],
        "",
        (
            "The pod",
            "FailedMount: {MOUNT}; it is tried again now: {PLAN}",
            7,
            5,
            "make what the message names",
        ),
    ),
    (
        &[("FailedMount", LATE, (7, 7, 1))],
        LATE,
        ("The pod", "FailedMount: {LATE}", 7, 1, "does not answer"),
    ),
    (
        &[("FailedCreatePodSandBox", NO_USERS, (7, 17, 2))],
        USERS,
        (
            "The pod",
            "FailedCreatePodSandBox: {NO_USERS}",
            7,
            2,
            "waiting does not help",
        ),
    ),
    (
        &[
            ("FailedMount", MOUNT, (6, 6, 1)),
            ("FailedCreatePodSandBox", FIRST_SANDBOX, (8, 8, 1)),
            ("MissingClusterDNS", "it has no name server", (7, 19, 3)),
            ("FailedCreatePodSandBox", SANDBOX, (18, 18, 1)),
        ],
        "failed to create pod sandbox: RunPodSandbox: no network for sandbox \"3cd4\"",
        (
            "The pod",
            "FailedCreatePodSandBox: {SANDBOX}",
            8,
            2,
            "network plugin",
        ),
    ),
    (
        &[("NetworkNotReady", NO_NETWORK, (7, 7, 1))],
        NO_NETWORK,
        ("The pod", "NetworkNotReady: {NO_NETWORK}", 7, 1, "CNI"),
    ),
    // An error that no event reports.
    (
        &[("FailedMount", MOUNT, (7, 47, 5))],
        "the sandbox is gone",
        ("The pod", "the sandbox is gone", -1, 0, "pod-worker-pool"),
    ),
];

/// With the texts that a row names.
fn filled(what: &str) -> String {
    let texts = [
        ("{MOUNT}", MOUNT),
        ("{LATE}", LATE),
        ("{NO_USERS}", NO_USERS),
        ("{SANDBOX}", SANDBOX),
        ("{NO_NETWORK}", NO_NETWORK),
        ("{PLAN}", PLAN),
    ];
    let texts = texts.into_iter();
    texts.fold(what.to_owned(), |what, (name, text)| {
        what.replace(name, text)
    })
}

#[test]
fn a_pod_of_which_nothing_starts_says_what_failed_since_when_and_how_often() {
    let creating = json!({"waiting": {"reason": "ContainerCreating"}});
    let pod = pair(None, creating, json!({}));
    for (happened, error, (subject, what, since, count, remedy)) in FAILED {
        let events = happened
            .iter()
            .map(|(reason, message, times)| repeated("", reason, message, *times));
        let beside = Beside {
            events: &events.collect::<Vec<_>>(),
            sync_error: error,
            last_plan: PLAN,
            ..Beside::default()
        };
        says(
            &pod,
            &beside,
            &[(subject, &filled(what), *since, *count, remedy)],
        );
    }
}

#[test]
fn what_failed_before_a_container_was_made_is_mended() {
    let creating = json!({"waiting": {"reason": "ContainerCreating"}});
    let pod = pair(None, creating, json!({}));
    let events = [
        repeated("", "FailedMount", MOUNT, (7, 47, 5)),
        event("c", "Created", "", 48),
    ];
    let beside = Beside {
        events: &events,
        last_plan: "d waits for its image",
        ..Beside::default()
    };
    let plan = "ContainerCreating: its worker's plan is: d waits for its image";
    let expected = [("c", plan, 5, 0, "wait"), ("d", plan, 5, 0, "wait")];
    says(&pod, &beside, &expected);
}

#[test]
fn a_post_start_hook_that_runs_is_what_its_container_and_those_after_it_wait_for() {
    let begun = [event("c", "Created", "", 6), event("c", "Started", "", 7)];
    let restarted = [
        repeated("c", "Created", "", (6, 20, 2)),
        repeated("c", "Started", "", (7, 21, 2)),
    ];
    let not_begun = [
        repeated("c", "Created", "", (6, 20, 2)),
        event("c", "Started", "", 7),
    ];
    let ended = json!({"terminated": {"exitCode": 1, "containerID": "containerd://old"}});
    let runs = "its postStart hook runs; the container counts as started when that has ended";
    let hook = |since| ("c", runs, since, 0, "bulkhead logs ns/web -c c");
    let behind = |since| {
        (
            "d",
            "the postStart hook of c comes first",
            since,
            0,
            "see c",
        )
    };
    for (events, last, expected) in [
        (&begun, json!({}), [hook(7), behind(7)]),
        (&restarted, ended.clone(), [hook(21), behind(21)]),
        (
            &not_begun,
            ended,
            [
                ("c", "it is made, and about to be started", 20, 0, "wait"),
                (
                    "d",
                    "ContainerCreating: its worker's plan is: begin it",
                    5,
                    0,
                    "wait",
                ),
            ],
        ),
    ] {
        let pod = pair(Some("containerd://new"), json!({"waiting": {}}), last);
        let beside = Beside {
            events,
            last_plan: "begin it",
            ..Beside::default()
        };
        says(&pod, &beside, &expected);
    }
}

#[test]
fn a_program_that_never_ran_has_a_reason_and_no_logs() {
    let refused = "exec: \"/absent\": no such file";
    let ended = json!({"terminated": {
        "exitCode": 128, "reason": "StartError", "message": refused,
        "finishedAt": "1970-01-01T00:00:47Z", "containerID": "containerd://a",
    }});
    let message = format!("Error: StartContainer: failed: {refused}");
    let events = [repeated("c", "Failed", &message, (7, 47, 4))];
    let error = format!("failed to start container \"c\": RunContainerError: {message}");
    let beside = Beside {
        events: &events,
        sync_error: &error,
        ..Beside::default()
    };
    let why = format!("it could not be started (StartError): {refused}");
    let waits = format!("CrashLoopBackOff: {why}, and waits before its next start: back-off 40s");
    let waiting = json!({"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 40s"}});
    for (state, last, what, since, count) in [
        (waiting, ended.clone(), waits, 7, 4),
        (ended, json!({}), why, 47, 0),
    ] {
        let mut pod = pair(Some("containerd://a"), state, last);
        let status = pod.status.as_mut().unwrap();
        status.container_statuses.as_mut().unwrap().truncate(1);
        says(
            &pod,
            &beside,
            &[("c", &what, since, count, "check command")],
        );
        let status = pod.status.as_ref().unwrap();
        assert!(container_never_ran(status, "c") && !container_never_ran(status, "d"));
        let said = of_container(&pod, status, &beside, "c").unwrap();
        assert!(!said.remedy.contains("bulkhead logs"), "{said:?}");
    }
}

#[test]
fn a_pod_that_is_not_admitted_or_has_a_namesake_waits_for_that() {
    let creating = json!({"waiting": {"reason": "ContainerCreating"}});
    let pod = pair(None, creating, json!({}));
    let pending = v1::DesiredPod {
        admission: v1::Admission::Pending.into(),
        last_decision: "waits until the capacity of the node is known".to_owned(),
        last_decision_unix_nanos: 8_000_000_000,
        ..v1::DesiredPod::default()
    };
    let behind = v1::DesiredPod {
        admission: v1::Admission::Admitted.into(),
        worker_phase: "waiting".to_owned(),
        ..v1::DesiredPod::default()
    };
    let capacity = "it is not admitted yet: it waits until the capacity of the node is known";
    let other = "it waits until the other pod that is called web has ended";
    for (desired, expected) in [
        (&pending, ("The pod", capacity, 8, 0, "bulkhead status")),
        (&behind, ("The pod", other, -1, 0, "bulkhead describe u2")),
    ] {
        let beside = Beside {
            desired: Some(desired),
            namesake: Some("u2"),
            ..Beside::default()
        };
        says(&pod, &beside, &[expected]);
    }
}
