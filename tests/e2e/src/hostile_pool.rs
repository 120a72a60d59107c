//! What a malicious stand-in for pod-worker-pool answers: lists for pleg and sync-loop, and
//! streams of observations, of probes and of hooks.
//!
//! What does not live here: what it has in common with the others (`hostile_answers`).

use anyhow::Result;
use bulkhead_api::v1;
use prost::Message;
use v1::watch_hints_response::Message as Hint;
use v1::watch_observations_response::Message as Observed;
use v1::watch_probe_targets_response::Message as Targeted;

use crate::hostile_answers::{Manner, Orders, id, new_pod};

/// Most bytes that each caller takes: of its relist, of an answer to sync-loop, of an
/// observation and of what concerns a probe. Some are left for what is around them.
const RELIST: usize = (4 << 20) - 200;
const ANSWER: usize = (2 << 20) - 200;
const SMALL_ANSWER: usize = (64 << 10) - 200;
const OBSERVATION: usize = (2 << 20) - 200;
const PROBE: usize = (64 << 10) - 200;
const EXEC: usize = (16 << 10) - 200;

/// Parts that a message may have, whatever its bytes.
const PARTS: usize = bulkhead_api::codec::MAX_PARTS;

/// The message of this number in answer to a call of the pool, if it is one of the methods that
/// other processes call.
///
/// # Errors
/// When an invented pod cannot be encoded.
pub fn answer(path: &str, orders: &Orders, number: u64) -> Result<Option<Vec<u8>>> {
    let path = path.trim_start_matches("/bulkhead.v1.");
    let is_full = orders.manner == Manner::AtTheBound;
    let short = |bound: usize| match is_full {
        true => filled(id(number), bound),
        false => id(number),
    };
    Ok(Some(match path {
        "RuntimePods/ListPods" => pods(orders, number),
        "RuntimePods/WatchHints" => hint(orders, number).encode_to_vec(),
        "PodWorkers/SyncKnownPods" => known_pods(orders, number),
        "PodWorkers/GetNodeCapacity" => capacity(orders, number),
        "PodWorkers/UpdatePod" => v1::UpdatePodResponse {
            boot_id: short(SMALL_ANSWER),
            phase: v1::WorkerPhase::Syncing.into(),
        }
        .encode_to_vec(),
        "PodWorkers/CleanUpContainers" | "PodWorkers/CollectGarbage" => {
            around(1, short(SMALL_ANSWER).as_bytes())
        }
        "ProbeTargets/WatchProbeTargets" => target(orders, number),
        "ProbeTargets/WatchHttpHooks" => hook(orders, number),
        "ProbeTargets/ReportHttpHook" => around(1, short(EXEC).as_bytes()),
        "ProbeTargets/ExecProbe" => v1::ExecProbeResponse {
            exit_code: 1,
            output: short(EXEC).into_bytes(),
            ..v1::ExecProbeResponse::default()
        }
        .encode_to_vec(),
        "Observations/WatchObservations" => observation(orders, number)?,
        _ => return Ok(None),
    }))
}

fn filled(text: String, bytes: usize) -> String {
    let filling = bytes.saturating_sub(text.len());
    text + &"x".repeat(filling)
}

/// So many parts of this number in their message, with nothing in them: two bytes each.
fn empty(number: u8, count: usize) -> Vec<u8> {
    [number << 3 | 2, 0].repeat(count)
}

/// A message with these bytes as its part of this number.
fn around(number: u8, inner: &[u8]) -> Vec<u8> {
    let mut bytes = vec![number << 3 | 2];
    prost::encode_length_delimiter(inner.len(), &mut bytes).unwrap_or_default();
    bytes.extend(inner);
    bytes
}

fn invented(number: u64) -> v1::PodReference {
    v1::PodReference {
        uid: id(number),
        namespace: "default".to_owned(),
        name: format!("invented-{number}"),
    }
}

fn runtime_pod(pod: v1::PodReference, container: String) -> v1::RuntimePod {
    v1::RuntimePod {
        pod: Some(pod),
        sandboxes: vec![v1::RuntimeSandbox {
            id: container.clone(),
            ready: true,
        }],
        containers: vec![v1::RuntimeContainer {
            id: container,
            name: "app".to_owned(),
            state: v1::RuntimeState::Running.into(),
        }],
    }
}

fn pods(orders: &Orders, number: u64) -> Vec<u8> {
    let (pod, other) = orders.two(number);
    let list = |pods| v1::ListPodsResponse {
        boot_id: id(number),
        pods,
    };
    match (orders.manner, number % 4) {
        // Pods of nothing, and one pod of containers of nothing.
        (Manner::AtTheBound, 0) => empty(2, RELIST / 2),
        (Manner::AtTheBound, 1) => around(2, &empty(3, RELIST / 2)),
        (Manner::AtTheBound, 2) => empty(2, PARTS),
        // As many as there may be, and none as another.
        (Manner::AtTheBound, _) => {
            let pods = (0..4_000).map(|more| {
                let pod = id(number * 4_000 + more);
                let container = |which| v1::RuntimeContainer {
                    id: filled(format!("{which}-{pod}"), 200),
                    ..v1::RuntimeContainer::default()
                };
                v1::RuntimePod {
                    containers: (0..4).map(container).collect(),
                    ..runtime_pod(invented(number * 4_000 + more), String::new())
                }
            });
            let mut pods: Vec<_> = pods.collect();
            pods.iter_mut().for_each(|pod| pod.sandboxes.clear());
            list(pods).encode_to_vec()
        }
        (Manner::OfOthers, _) => list(vec![
            runtime_pod(pod.reference, other.container_id),
            runtime_pod(invented(number), pod.container_id),
        ])
        .encode_to_vec(),
        _ => {
            let pods = (0..100).map(|more| {
                let number = number * 100 + more;
                runtime_pod(invented(number), id(number))
            });
            list(pods.collect()).encode_to_vec()
        }
    }
}

fn hint(orders: &Orders, number: u64) -> v1::WatchHintsResponse {
    let (pod, _) = orders.two(number);
    v1::WatchHintsResponse {
        boot_id: match orders.manner {
            Manner::AtTheBound => filled(id(number), 800),
            _ => id(number),
        },
        message: Some(match (orders.manner, number % 8) {
            (Manner::OfOthers, 0..6) => Hint::PodUid(pod.reference.uid),
            (_, 0) => Hint::EventsAvailable(number.is_multiple_of(16)),
            (_, 1) => Hint::Lost(true),
            _ => Hint::PodUid(id(number)),
        }),
    }
}

fn known_pods(orders: &Orders, number: u64) -> Vec<u8> {
    let (pod, other) = orders.two(number);
    let worker = |pod: v1::PodReference| v1::WorkerState {
        pod: Some(pod),
        phase: v1::WorkerPhase::Syncing.into(),
        ..v1::WorkerState::default()
    };
    let of_runtime = |pod: v1::PodReference| v1::RuntimePodState {
        pod: Some(pod),
        source: "file".to_owned(),
        has_running_container: true,
        has_ready_sandbox: true,
    };
    match (orders.manner, number % 3) {
        (Manner::AtTheBound, 0) => [empty(2, ANSWER / 4), empty(3, ANSWER / 4)].concat(),
        (Manner::AtTheBound, 1) => empty(3, PARTS),
        (Manner::AtTheBound, _) => v1::SyncKnownPodsResponse {
            runtime_error: "x".repeat(ANSWER),
            ..v1::SyncKnownPodsResponse::default()
        }
        .encode_to_vec(),
        (Manner::OfOthers, _) => v1::SyncKnownPodsResponse {
            boot_id: id(number),
            workers: vec![worker(invented(number)), worker(pod.reference.clone())],
            runtime_pods: vec![
                of_runtime(v1::PodReference {
                    uid: pod.reference.uid,
                    ..other.reference
                }),
                of_runtime(invented(number)),
            ],
            ..v1::SyncKnownPodsResponse::default()
        }
        .encode_to_vec(),
        _ => {
            let pods = (0..100).map(|more| invented(number * 100 + more));
            v1::SyncKnownPodsResponse {
                boot_id: id(number),
                workers: pods.clone().map(worker).collect(),
                runtime_pods: pods.map(of_runtime).collect(),
                ..v1::SyncKnownPodsResponse::default()
            }
            .encode_to_vec()
        }
    }
}

/// Room for every pod: who owns the pool may have each turned away, which is not what is
/// tried here.
fn capacity(orders: &Orders, number: u64) -> Vec<u8> {
    let capacity = v1::NodeCapacity {
        boot_id: id(number),
        cpu_millis: u64::MAX,
        memory_bytes: u64::MAX,
        ephemeral_storage_bytes: u64::MAX,
        kernel_release: "6.1.0".to_owned(),
        ..v1::NodeCapacity::default()
    };
    let mut bytes = capacity.encode_to_vec();
    if orders.manner == Manner::AtTheBound {
        bytes.extend(empty(11, (SMALL_ANSWER - bytes.len()) / 2));
    }
    bytes
}

/// A probe of a command, which the stand-in is then asked to run.
fn probed(pod: v1::PodReference, container_id: String) -> v1::ProbeTarget {
    v1::ProbeTarget {
        pod: Some(pod),
        container_name: "app".to_owned(),
        container_id,
        pod_ip: "127.0.0.1".to_owned(),
        started_at_unix_nanos: 1,
        liveness_json: br#"{"exec":{},"periodSeconds":1,"failureThreshold":1}"#.to_vec(),
        running: true,
        ..v1::ProbeTarget::default()
    }
}

fn target(orders: &Orders, number: u64) -> Vec<u8> {
    let (pod, other) = orders.two(number / 2);
    let of = |message| {
        v1::WatchProbeTargetsResponse {
            message: Some(message),
        }
        .encode_to_vec()
    };
    let new = probed(invented(number), id(number));
    let headers = |count| {
        let headers = vec![r#"{"name":"a","value":""}"#; count].join(",");
        format!(r#"{{"httpGet":{{"port":1,"httpHeaders":[{headers}]}}}}"#)
    };
    of(match (orders.manner, number % 8) {
        (Manner::Unfinished, 0) if number == 0 => Targeted::SnapshotBegin(v1::SnapshotBegin {}),
        (Manner::AtTheBound, 0) => {
            let target = [new.encode_to_vec(), empty(12, PARTS)].concat();
            return around(3, &target);
        }
        (Manner::AtTheBound, 1..4) => Targeted::Target(v1::ProbeTarget {
            liveness_json: headers(PROBE / 3 / 25).into(),
            readiness_json: headers(PROBE / 3 / 25).into(),
            startup_json: headers(PROBE / 3 / 25).into(),
            ..new
        }),
        (Manner::AtTheBound, _) => Targeted::Target(v1::ProbeTarget {
            pod_ip: "1".repeat(PROBE - 1000),
            ..new
        }),
        (Manner::OfOthers, 0..4) => Targeted::Target(probed(pod.reference, other.container_id)),
        (Manner::OfOthers, 4..6) => Targeted::Target(probed(pod.reference, pod.container_id)),
        (Manner::OfOthers, 6) => Targeted::RemovedContainerId(pod.container_id),
        (Manner::Endless, 7) => Targeted::RemovedContainerId(id(number / 2)),
        _ => Targeted::Target(new),
    })
}

fn hook(orders: &Orders, number: u64) -> Vec<u8> {
    let (pod, _) = orders.two(number);
    let hook = v1::HttpHook {
        boot_id: id(number),
        id: number,
        pod: Some(match orders.manner {
            Manner::OfOthers => pod.reference,
            _ => invented(number),
        }),
        container_name: "app".to_owned(),
        pod_ip: "127.0.0.1".to_owned(),
        port: 1,
        path: "/".to_owned(),
        timeout_seconds: u32::MAX,
        is_cancelled: orders.manner == Manner::OfOthers && number.is_multiple_of(2),
        ..v1::HttpHook::default()
    };
    match (orders.manner, number % 2) {
        (Manner::AtTheBound, 0) => {
            let bytes = hook.encode_to_vec();
            [bytes, empty(10, PARTS)].concat()
        }
        (Manner::AtTheBound, _) => v1::HttpHook {
            path: filled("/".to_owned(), PROBE - 200),
            ..hook
        }
        .encode_to_vec(),
        _ => hook.encode_to_vec(),
    }
}

/// A pod whose container has ended.
fn of(pod: v1::Pod, id: String) -> v1::PodObservation {
    let container = v1::ContainerObservation {
        name: "app".to_owned(),
        id,
        state: v1::RuntimeState::Exited.into(),
        exit_code: i32::MIN,
        finished_at_unix_nanos: i64::MIN,
        ..v1::ContainerObservation::default()
    };
    v1::PodObservation {
        pod: Some(pod),
        phase: v1::WorkerPhase::Syncing.into(),
        containers: vec![container],
        is_observed: true,
        ..v1::PodObservation::default()
    }
}

fn observation(orders: &Orders, number: u64) -> Result<Vec<u8>> {
    let (pod, other) = orders.two(number / 8);
    let event = |bytes| v1::Event {
        pod: Some(invented(number)),
        reason: "Because".to_owned(),
        message: filled(id(number), bytes),
        unix_nanos: i64::MAX,
        ..v1::Event::default()
    };
    // Only the runtime has it.
    let alone = |reference| v1::Pod {
        reference: Some(reference),
        ..v1::Pod::default()
    };
    let mut boot_id = id(number);
    let message = match (orders.manner, number % 8) {
        (Manner::Unfinished, 0) if number == 0 => Observed::SnapshotBegin(v1::SnapshotBegin {}),
        (Manner::AtTheBound, 1) => {
            boot_id = filled(boot_id, OBSERVATION - (1 << 20));
            Observed::SnapshotBegin(v1::SnapshotBegin {})
        }
        (Manner::AtTheBound, 0 | 2) => {
            let observation = of(new_pod(number, 0)?, id(number)).encode_to_vec();
            // Who refuses one opens the stream anew.
            let count = match number % 256 {
                250 => (OBSERVATION - observation.len() - 200) / 2,
                _ => PARTS - 10,
            };
            return Ok(around(3, &[observation, empty(4, count)].concat()));
        }
        (Manner::AtTheBound, 3) => Observed::Observation(of(
            alone(v1::PodReference {
                uid: filled(id(number), OBSERVATION - 1000),
                ..invented(number)
            }),
            id(number),
        )),
        (Manner::AtTheBound, 6) => Observed::Observation(v1::PodObservation {
            last_plan: "x".repeat(OBSERVATION - 4000),
            ..of(new_pod(number, 0)?, id(number))
        }),
        (Manner::AtTheBound, 4) => Observed::Event(event(OBSERVATION - 1000)),
        (Manner::AtTheBound, 5) => Observed::Observation(of(new_pod(number, 1 << 20)?, id(number))),
        (Manner::OfOthers, 0..3) => {
            Observed::Observation(of(alone(pod.reference), other.container_id))
        }
        (Manner::OfOthers, 3..6) => Observed::Observation(of(
            v1::Pod {
                reference: Some(pod.reference),
                ..new_pod(number, 0)?
            },
            other.container_id,
        )),
        (Manner::OfOthers, 6) => Observed::RemovedPodUid(pod.reference.uid),
        (Manner::Endless, 6) => Observed::RemovedPodUid(id(number / 2)),
        (_, 7) => Observed::Event(event(0)),
        _ => Observed::Observation(of(new_pod(number, 0)?, id(number))),
    };
    let message = Some(message);
    Ok(v1::WatchObservationsResponse { boot_id, message }.encode_to_vec())
}
