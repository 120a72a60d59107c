//! How a described pod looks.

use serde_json::{Value, json};

use super::*;

fn decoded(json: Value) -> Option<ListedPod> {
    ListedPod::decode(json.to_string().as_bytes())
}

fn pod() -> ListedPod {
    decoded(json!({
        "metadata": {
            "name": "web-n1", "namespace": "default", "uid": "u1",
            "labels": {"app": "web", "tier": "front"},
            "annotations": {"kubernetes.io/config.source": "file"},
        },
        "spec": {
            "nodeName": "n1", "hostNetwork": true, "terminationGracePeriodSeconds": 5,
            "initContainers": [{"name": "i", "image": "init:1"}],
            "containers": [{
                "name": "c", "image": "web:1", "command": ["sh", "-c", "sleep 1"],
                "ports": [{"containerPort": 80, "hostPort": 8080, "name": "http"}],
                "resources": {"limits": {"cpu": "1"}},
                "readinessProbe": {"httpGet": {"port": "http", "path": "/ok"}},
                "env": [
                    {"name": "A", "value": "b\u{1b}[2J"},
                    {"name": "N", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                ],
                "volumeMounts": [{"name": "v", "mountPath": "/data", "readOnly": true}],
            }],
            "volumes": [
                {"name": "v", "hostPath": {"path": "/srv", "type": "Directory"}},
                {"name": "e", "emptyDir": {}},
            ],
        },
        "status": {
            "phase": "Running", "startTime": "1970-01-01T00:00:10Z", "hostIP": "10.0.0.1",
            "podIPs": [{"ip": "10.0.0.1"}], "qosClass": "Burstable",
            "conditions": [
                {"type": "Initialized", "status": "True", "lastTransitionTime": "1970-01-01T00:00:20Z"},
                {"type": "Ready", "status": "False", "lastTransitionTime": "1970-01-01T00:00:30Z",
                 "reason": "ContainersNotReady", "message": "containers with unready status: [c]"},
            ],
            "initContainerStatuses": [{
                "name": "i", "image": "init:1", "imageID": "sha256:1", "ready": true, "restartCount": 0,
                "state": {"terminated": {"exitCode": 0, "reason": "Completed"}},
            }],
            "containerStatuses": [{
                "name": "c", "image": "web:1", "imageID": "sha256:2", "ready": false, "started": false,
                "restartCount": 3, "containerID": "containerd://abc",
                "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 40s"}},
                "lastState": {"terminated": {
                    "exitCode": 1, "reason": "Error", "message": "boom",
                    "startedAt": "1970-01-01T00:00:40Z", "finishedAt": "1970-01-01T00:00:41Z",
                }},
            }],
        },
    }))
    .unwrap()
}

fn event() -> v1::Event {
    v1::Event {
        pod: Some(v1::PodReference {
            uid: "u1".to_owned(),
            namespace: "default".to_owned(),
            name: "web-n1".to_owned(),
        }),
        r#type: v1::EventType::Warning.into(),
        reason: "BackOff".to_owned(),
        message: "again".to_owned(),
        reporter: "pool".to_owned(),
        unix_nanos: 60_000_000_000,
        ..v1::Event::default()
    }
}

const EXPECTED: &str = "\
Name:               web-n1
Namespace:          default
UID:                u1
Source:             file
Node:               n1/10.0.0.1
Start Time:         1970-01-01T00:00:10Z (60s ago)
Labels:             app=web
                    tier=front
Annotations:        kubernetes.io/config.source=file
Status:             CrashLoopBackOff (phase Running)
IPs:                10.0.0.1
QoS Class:          Burstable
Restart Policy:     Always
Grace Period:       5s
Of the Node:        network
Needs Attention:
  The pod:          no space
    What to do:     it is tried again by itself; the log of pod-worker-pool says more
  c:                CrashLoopBackOff: it ended with exit code 1 (Error): boom, and waits before its next start: back-off 40s; restarts so far: 3
    Since:          1970-01-01T00:00:41Z (29s ago)
    What to do:     bulkhead logs --previous default/web-n1 -c c
Init Containers:
  i:
    State:          Terminated: Completed
      Exit Code:    0
    Ready:          true
    Restart Count:  0
    Image:          init:1
    Image ID:       sha256:1
Containers:
  c:
    Container ID:   containerd://abc
    State:          Waiting: CrashLoopBackOff
      Message:      back-off 40s
    Last State:     Terminated: Error
      Exit Code:    1
      Started:      1970-01-01T00:00:40Z
      Finished:     1970-01-01T00:00:41Z
      Message:      boom
    Ready:          false
    Started:        false
    Restart Count:  3
    Image:          web:1
    Image ID:       sha256:2
    Command:        sh -c \"sleep 1\"
    Ports:          80/TCP (http) on *:8080 of the node
    Limits:         cpu=1
    Readiness:      http-get http://:http/ok delay=0s timeout=1s period=10s success=1 failure=3
    Environment:    A=b^[[2J
                    N from field metadata.name
    Mounts:         /data from v (read-only)
Conditions:
  TYPE          STATUS   SINCE   REASON               MESSAGE
  Initialized   True     50s
  Ready         False    40s     ContainersNotReady   containers with unready status: [c]
Volumes:
  v:                hostPath path=/srv type=Directory
  e:                emptyDir
Decision:
  Admission:        adopted: it ran when sync-loop came up
  Worker:           syncing
  Last decision:    UPDATE because PLEG: container died (5s ago, 1970-01-01T00:01:05Z)
  Worker's plan:    start c
  Sync error:       no space
  API server:       its status is on its way
Events:
  LAST SEEN   TYPE      REASON    FROM   MESSAGE
  10s         Warning   BackOff   pool   again
";

#[test]
fn a_pod_is_described_in_full() {
    let desired = v1::DesiredPod {
        admission: v1::Admission::Adopted.into(),
        worker_phase: "syncing".to_owned(),
        last_decision: "UPDATE because PLEG: container died".to_owned(),
        last_decision_unix_nanos: 65_000_000_000,
        ..v1::DesiredPod::default()
    };
    let now = UnixNanos(70_000_000_000);
    let pod = pod();
    let beside = Beside {
        events: &[event()],
        last_plan: "start c",
        sync_error: "no space",
        awaited_report: "its status is on its way",
        desired: Some(&desired),
        namesake: None,
    };
    assert_eq!(rendered(&pod.pod, &beside, now, false), EXPECTED);
}

#[test]
fn a_pod_without_status_events_or_decision_is_described_too() {
    let mut pod = pod();
    pod.pod.status = None;
    let text = rendered(&pod.pod, &Beside::default(), UnixNanos(0), false);
    assert!(text.contains("Status:             Unknown\n"), "{text}");
    assert!(text.contains("could not be asked"), "{text}");
    assert!(text.ends_with("Events:\n  none lately\n"), "{text}");
}

#[test]
fn a_rejected_pod_says_why() {
    let desired = v1::DesiredPod {
        admission: v1::Admission::Rejected.into(),
        rejection_reason: "OutOfcpu".to_owned(),
        rejection_message: "no room".to_owned(),
        ..v1::DesiredPod::default()
    };
    let beside = Beside {
        desired: Some(&desired),
        ..Beside::default()
    };
    let text = rendered(&pod().pod, &beside, UnixNanos(0), false);
    assert!(
        text.contains("  Rejected for:     OutOfcpu\n  Because:          no room\n"),
        "{text}"
    );
}
