//! What a malicious stand-in answers the command line: pods, events, logs and tables that
//! would steer a terminal, take the place of others or fill the memory.
//!
//! What does not live here: how they are sent (`hostile_service`).

use std::sync::LazyLock;

use bulkhead_api::v1;
use prost::Message;
use serde_json::{Value, json};
use v1::list_events_response::Message as Listed;
use v1::list_pod_statuses_response::Message as Status;

use crate::hostile_answers::{Manner, Orders, id};

/// Clears the screen, sets the clipboard, has the terminal answer, and turns text around; in
/// two lines, of which the second looks like another pod.
pub const STEERING: &str =
    "x\u{1b}[2J\u{1b}]52;c;cm0=\u{7}\u{1b}[6n\u{9b}2J\u{202e}\r\ndefault   fine   1/1   Running";

/// As far away as times go, and where they no longer fit.
const TIMES: [&str; 3] = [
    "0000-01-01T00:00:00Z",
    "9999-12-30T00:00:00Z",
    "1677-09-22T00:00:00Z",
];

/// Largest messages that the command line takes.
const POD: usize = (2 << 20) - 400;
const MESSAGE: usize = (4 << 20) - 400;
const USAGE: usize = (16 << 20) - 400;

/// Parts that a message may have, whatever its bytes.
const PARTS: usize = bulkhead_api::codec::MAX_PARTS - 100;

/// How many messages an answer has that ends; the others end with the caller.
#[must_use]
pub fn length(path: &str) -> Option<usize> {
    match path.rsplit('/').next() {
        Some("ListPodStatuses" | "ListDesiredPods" | "ReadLogs") => Some(18),
        // The most that is kept of a list.
        Some("ListEvents") => Some(4_000),
        _ => None,
    }
}

/// The message of this number in answer to a call of the command line, if it is one.
#[must_use]
pub fn answer(path: &str, orders: &Orders, number: u64) -> Option<Vec<u8>> {
    Some(match path.trim_start_matches("/bulkhead.v1.") {
        "Statuses/ListPodStatuses" => status(orders, number).encode_to_vec(),
        "Statuses/ListEvents" => event(orders, number).encode_to_vec(),
        "SyncLoop/ListDesiredPods" => desired(orders, number).encode_to_vec(),
        "SyncLoop/GetLoopStatus" => loop_status(orders).encode_to_vec(),
        "ContainerLogs/ReadLogs" => log(orders, number).encode_to_vec(),
        "NodePolicy/GetPolicy" => policy(orders).encode_to_vec(),
        "Usage/GetUsage" => usage(orders).encode_to_vec(),
        "Supervisor/GetStatus" => processes(orders).encode_to_vec(),
        "Supervisor/ListCrashes" => crashes(orders).encode_to_vec(),
        "Supervisor/RestartProcess" => {
            v1::RestartProcessResponse { old_pid: u32::MAX }.encode_to_vec()
        }
        "Supervisor/Reload" => v1::ReloadResponse {
            restarted: texts(orders),
        }
        .encode_to_vec(),
        _ => return None,
    })
}

/// A text that steers, or one that is as large as it may be.
fn text(orders: &Orders, bound: usize) -> String {
    match orders.manner {
        Manner::AtTheBound => "\u{9b}".repeat(bound / 2),
        _ => STEERING.to_owned(),
    }
}

/// Texts that steer, or as many as go into a message.
fn texts(orders: &Orders) -> Vec<String> {
    match orders.manner {
        Manner::AtTheBound => vec!["x".repeat(100); PARTS],
        _ => vec![STEERING.to_owned(); 3],
    }
}

fn reference(orders: &Orders, number: u64) -> v1::PodReference {
    match orders.manner {
        Manner::OfOthers | Manner::AtTheBound => orders.two(number).0.reference,
        _ => v1::PodReference {
            uid: id(number),
            namespace: "default".to_owned(),
            name: format!("invented-{number}"),
        },
    }
}

/// A pod that the node may have, with what nobody says of one.
fn steering_pod(pod: &v1::PodReference, time: &str) -> Value {
    let state = json!({ "terminated": {
        "exitCode": i32::MIN, "reason": STEERING, "message": STEERING,
        "startedAt": time, "finishedAt": "9999-12-30T00:00:00Z",
    } });
    json!({
        "metadata": {
            "uid": pod.uid, "namespace": pod.namespace, "name": pod.name,
            "creationTimestamp": time, "deletionTimestamp": time,
            "deletionGracePeriodSeconds": i64::MIN,
            "labels": { STEERING: STEERING }, "annotations": { STEERING: STEERING },
        },
        "spec": {
            "nodeName": STEERING, "priorityClassName": STEERING,
            "terminationGracePeriodSeconds": i64::MIN, "activeDeadlineSeconds": i64::MAX,
            "containers": [{ "name": "app", "image": STEERING, "command": [STEERING],
                "env": [{ "name": STEERING, "value": STEERING }] }],
            "volumes": [{ "name": STEERING, "hostPath": { "path": STEERING } }],
        },
        "status": {
            "phase": STEERING, "reason": STEERING, "message": STEERING, "startTime": time,
            "podIP": STEERING, "podIPs": [{ "ip": STEERING }], "qosClass": STEERING,
            "conditions": [{ "type": STEERING, "status": STEERING, "reason": STEERING,
                "message": STEERING, "lastTransitionTime": time }],
            "containerStatuses": [{ "name": "app", "image": STEERING, "imageID": STEERING,
                "ready": true, "restartCount": i32::MIN, "state": state, "lastState": state }],
        },
    })
}

/// What no node has: names with line breaks and of any length, lists and maps of what takes
/// some bytes as text and kilobytes as a pod, names of containers that come again.
fn impossible_pod(pod: &v1::PodReference, number: u64) -> Option<Vec<u8>> {
    let with = |field: &str, value: Value| {
        let mut json = steering_pod(pod, TIMES[0]);
        if let Some(place) = json.pointer_mut(field) {
            *place = value;
        }
        json.to_string()
    };
    let filled = |before: &str, item: &str, after: &str| {
        let items = format!("{item},").repeat((POD - 100) / (item.len() + 1));
        format!("{before}{items}{item}{after}")
    };
    let json = match number {
        0 => "{".to_owned(),
        1 => "[]".to_owned(),
        2 => "[".repeat(POD),
        3 => filled(r#"{"spec":{"containers":["#, "{}", "]}}"),
        4 => filled(r#"{"spec":{"volumes":["#, "{}", "]}}"),
        5 => filled(r#"{"status":{"containerStatuses":["#, "{}", "]}}"),
        6 => filled(r#"{"x":["#, "0", "]}"),
        7 => filled(r#"{"x":["#, &nested(100), "]}"),
        8 => with("/metadata/name", json!(STEERING)),
        9 => with("/metadata/name", json!("n".repeat(POD / 2))),
        10 => with("/metadata/namespace", json!("../..")),
        11 => with("/metadata/uid", json!(STEERING)),
        12 => with(
            "/spec/containers",
            json!(vec![json!({ "name": "app" }); 900]),
        ),
        13 => with("/spec/containers", json!([{ "name": "a".repeat(POD / 2) }])),
        _ => return None,
    };
    Some(json.into_bytes())
}

/// So many maps in each other.
fn nested(depth: usize) -> String {
    format!("{}0{}", r#"{"":"#.repeat(depth), "}".repeat(depth))
}

/// As many labels as go into a pod.
static LABELS: LazyLock<String> = LazyLock::new(|| {
    let labels = (0..(POD - 8_000) / 13).map(|it| format!(r#""{it:07x}":"""#));
    format!("{{{}}}", labels.collect::<Vec<_>>().join(","))
});

/// A pod as large as may be, of what a pod may have.
fn large_pod(pod: &v1::PodReference, number: u64) -> Vec<u8> {
    let place = |field: &str, with: &str| {
        let mut json = steering_pod(pod, TIMES[0]);
        if let Some(place) = json.pointer_mut(field) {
            *place = json!("PLACE");
        }
        json.to_string().replace("\"PLACE\"", with).into_bytes()
    };
    match number % 3 {
        0 => {
            let reason = "\u{9b}".repeat((POD - 8_000) / 2);
            place("/status/reason", &format!("\"{reason}\""))
        }
        1 => place("/metadata/labels", &LABELS),
        _ => {
            let maps = format!("{},", nested(100)).repeat(900);
            place("/spec/nodeName", &format!("\"n\",\"deep\":[{maps}0]"))
        }
    }
}

/// The JSON of the pod of this number.
fn pod(orders: &Orders, number: u64) -> v1::Pod {
    let reference = reference(orders, number);
    let usual = || {
        let time = usize::try_from(number).unwrap_or_default() % TIMES.len();
        steering_pod(&reference, TIMES[time])
            .to_string()
            .into_bytes()
    };
    let json = match (orders.manner, number.checked_sub(2)) {
        (Manner::AtTheBound, None) => large_pod(&reference, number),
        (Manner::AtTheBound, Some(_)) => {
            let other = v1::PodReference {
                uid: id(number),
                name: format!("large-{number}"),
                ..reference.clone()
            };
            large_pod(&other, number)
        }
        (Manner::OfOthers, Some(number)) => {
            impossible_pod(&reference, number).unwrap_or_else(usual)
        }
        _ => usual(),
    };
    v1::Pod {
        reference: Some(orders.two(number + 1).0.reference),
        json,
        ..v1::Pod::default()
    }
}

fn status(orders: &Orders, number: u64) -> v1::ListPodStatusesResponse {
    let entry = v1::PodStatusEntry {
        pod: Some(pod(orders, number)),
        last_plan: STEERING.to_owned(),
        sync_error: STEERING.to_owned(),
    };
    let message = match (orders.manner, number % 8) {
        (Manner::Endless, 6) => Status::SnapshotComplete(true),
        (Manner::Endless, 7) => Status::RemovedPodUid(id(number)),
        _ => Status::Entry(entry),
    };
    v1::ListPodStatusesResponse {
        message: Some(message),
    }
}

fn desired(orders: &Orders, number: u64) -> v1::DesiredPod {
    v1::DesiredPod {
        pod: Some(v1::Pod {
            reference: Some(reference(orders, number)),
            ..pod(orders, number)
        }),
        admission: i32::MAX,
        rejection_reason: STEERING.to_owned(),
        rejection_message: STEERING.to_owned(),
        last_decision: STEERING.to_owned(),
        last_decision_unix_nanos: i64::MIN,
        worker_phase: STEERING.to_owned(),
    }
}

fn event(orders: &Orders, number: u64) -> v1::ListEventsResponse {
    let reasons = ["Started", "Pulling", "Killing", STEERING];
    let times = [i64::MIN, i64::MAX, -1, 1];
    let which = usize::try_from(number % 4).unwrap_or_default();
    let event = v1::Event {
        pod: Some(match number % 3 {
            2 => v1::PodReference {
                uid: STEERING.to_owned(),
                namespace: STEERING.to_owned(),
                name: STEERING.to_owned(),
            },
            _ => reference(orders, number),
        }),
        container: "app".to_owned(),
        r#type: i32::MIN,
        reason: reasons[which].to_owned(),
        message: text(orders, 6 << 10),
        unix_nanos: times[which],
        reporter: STEERING.to_owned(),
        subject: STEERING.to_owned(),
        count: u32::MAX,
        first_unix_nanos: times[3 - which],
    };
    let message = match (orders.manner, number % 8) {
        (Manner::Endless, 7) => Listed::SnapshotComplete(true),
        _ => Listed::Event(event),
    };
    v1::ListEventsResponse {
        message: Some(message),
    }
}

fn loop_status(orders: &Orders) -> v1::LoopStatus {
    v1::LoopStatus {
        boot_id: STEERING.to_owned(),
        sources: vec![v1::SourceStatus {
            name: STEERING.to_owned(),
            pods: u32::MAX,
            problems: texts(orders),
            ..v1::SourceStatus::default()
        }],
        peers: vec![v1::PeerStatus {
            process: STEERING.to_owned(),
            last_error: text(orders, 1 << 20),
            ..v1::PeerStatus::default()
        }],
        iterations: u64::MAX,
        millis_since_last_iteration: u64::MAX,
        pleg_reason: STEERING.to_owned(),
        runtime_error: STEERING.to_owned(),
        work_queue_length: u32::MAX,
        ..v1::LoopStatus::default()
    }
}

/// Of a log there is no end but that of the stream.
fn log(orders: &Orders, number: u64) -> v1::ReadLogsResponse {
    v1::ReadLogsResponse {
        content: match orders.manner {
            Manner::AtTheBound => vec![0x9b; MESSAGE],
            Manner::Endless | Manner::Unfinished => Vec::new(),
            _ => STEERING.as_bytes().to_vec(),
        },
        unix_nanos: i64::MAX,
        restart_count: Some(u32::try_from(number).unwrap_or(u32::MAX)),
    }
}

fn policy(orders: &Orders) -> v1::PolicyReport {
    let finding = v1::PolicyFinding {
        pod: Some(reference(orders, 0)),
        refused: true,
        message: STEERING.to_owned(),
    };
    v1::PolicyReport {
        path: STEERING.to_owned(),
        origin: STEERING.to_owned(),
        mode: STEERING.to_owned(),
        since_unix_nanos: i64::MIN,
        problem: text(orders, 1 << 20),
        text: text(orders, 1 << 20),
        refused_pods: u32::MAX,
        audited_pods: u32::MAX,
        findings: vec![finding; 200],
    }
}

fn usage(orders: &Orders) -> v1::UsageReport {
    let container = v1::ContainerUsage {
        id: id(0),
        name: STEERING.to_owned(),
        cpu_nanos: Some(u64::MAX),
        cpu_at_unix_nanos: i64::MIN,
        memory_bytes: Some(u64::MAX),
        layer_bytes: Some(u64::MAX),
    };
    let pod = v1::PodUsage {
        pod: Some(v1::PodReference {
            uid: id(0),
            namespace: STEERING.to_owned(),
            name: text(orders, USAGE),
        }),
        containers: vec![container; 2],
        network: Some(v1::NetworkUsage {
            received_bytes: u64::MAX,
            sent_bytes: u64::MAX,
            at_unix_nanos: i64::MIN,
        }),
    };
    let mut pods = vec![pod];
    if orders.manner == Manner::AtTheBound {
        pods.extend(vec![v1::PodUsage::default(); PARTS / 2]);
        pods[0].pod = Some(v1::PodReference {
            name: text(orders, USAGE - PARTS * 2),
            ..v1::PodReference::default()
        });
    }
    v1::UsageReport { pods }
}

fn ending(orders: &Orders) -> v1::Ending {
    v1::Ending {
        kind: i32::MAX,
        code: i32::MIN,
        unix_nanos: i64::MIN,
        reason: text(orders, 1 << 20),
        pid: u32::MAX,
        last_log_lines: vec![STEERING.to_owned(); 20],
        uptime_millis: u64::MAX,
    }
}

fn processes(orders: &Orders) -> v1::SupervisorStatus {
    let process = v1::ProcessStatus {
        name: STEERING.to_owned(),
        state: i32::MAX,
        pid: u32::MAX,
        user: STEERING.to_owned(),
        uptime_millis: u64::MAX,
        restarts_last_hour: u32::MAX,
        restarts_total: u64::MAX,
        last_ending: Some(ending(orders)),
        rss_bytes: u64::MAX,
        pss_bytes: u64::MAX,
        confinement: STEERING.to_owned(),
        status_text: STEERING.to_owned(),
        next_start_in_millis: u64::MAX,
        ..v1::ProcessStatus::default()
    };
    let refused = v1::Refused {
        server: STEERING.to_owned(),
        caller: STEERING.to_owned(),
        kind: STEERING.to_owned(),
        count: u64::MAX,
        last_unix_nanos: i64::MIN,
        ..v1::Refused::default()
    };
    let mut processes = vec![process];
    if orders.manner == Manner::AtTheBound {
        processes.extend(vec![v1::ProcessStatus::default(); PARTS / 4]);
    }
    v1::SupervisorStatus {
        boot_id: STEERING.to_owned(),
        processes,
        node_name: STEERING.to_owned(),
        version: STEERING.to_owned(),
        degradations: vec![STEERING.to_owned(); 3],
        refused: vec![refused; 3],
        left_out: vec![STEERING.to_owned(); 3],
    }
}

fn crashes(orders: &Orders) -> v1::ListCrashesResponse {
    let crash = v1::Crash {
        name: STEERING.to_owned(),
        ending: Some(ending(orders)),
    };
    let mut crashes = vec![crash];
    if orders.manner == Manner::AtTheBound {
        crashes.extend(vec![v1::Crash::default(); PARTS / 2]);
    }
    v1::ListCrashesResponse { crashes }
}
