//! What a malicious stand-in for a process answers: messages that are valid, as far as
//! their encoding goes, and that no honest server would send.
//!
//! What does not live here: how they are sent, and what is no message at all
//! (`hostile_service`).

use std::str::FromStr;

use anyhow::{Context as _, Result, bail};
use bulkhead_api::v1;
use pod::{PodDocument, PodSource};
use prost::Message;
use serde_json::{Value, json};
use v1::watch_pod_lifecycle_events_response::Message as Lifecycle;
use v1::watch_pods_response::Message as Configuration;
use v1::watch_results_response::Message as ProbeResult;

/// Before each object of a list, as protobuf has it: its number, and that a length follows.
const OBJECTS_TAG: u8 = 4 << 3 | 2;

/// How a stand-in answers whoever calls it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// Messages of what nobody knows, with ever new ids, without end.
    Endless,
    /// A snapshot that never ends.
    Unfinished,
    /// Messages as large as may be, of as many parts as go in.
    AtTheBound,
    /// A message that is said to be of 4 GiB.
    BeyondTheBound,
    /// Messages that are none.
    Malformed,
    /// Messages about pods that run, with what is another's, or not there.
    OfOthers,
    /// Each answer is broken off.
    Resets,
    /// No answer.
    Silent,
    /// Bytes that are no HTTP/2.
    NoHttp,
}

/// All of them, with their names.
pub const MANNERS: [(Manner, &str); 9] = [
    (Manner::Endless, "endless"),
    (Manner::Unfinished, "unfinished"),
    (Manner::AtTheBound, "at-the-bound"),
    (Manner::BeyondTheBound, "beyond-the-bound"),
    (Manner::Malformed, "malformed"),
    (Manner::OfOthers, "of-others"),
    (Manner::Resets, "resets"),
    (Manner::Silent, "silent"),
    (Manner::NoHttp, "no-http"),
];

impl Manner {
    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        let named = MANNERS.iter().find(|(manner, _)| *manner == self);
        named.map_or("", |(_, name)| name)
    }
}

impl FromStr for Manner {
    type Err = anyhow::Error;

    fn from_str(name: &str) -> Result<Manner> {
        let mut named = MANNERS.iter();
        let named = named.find(|(_, known)| *known == name);
        Ok(named.context("no such manner")?.0)
    }
}

/// A pod that runs.
#[derive(Clone, Debug, Default)]
pub struct RunningPod {
    /// Which.
    pub reference: v1::PodReference,
    /// Its container.
    pub container_id: String,
}

/// What a stand-in is told.
#[derive(Clone, Debug)]
pub struct Orders {
    /// How it is to answer.
    pub manner: Manner,
    /// What it may lie about.
    pub pods: Vec<RunningPod>,
}

impl Orders {
    /// As a file has them.
    #[must_use]
    pub fn to_text(&self) -> String {
        let pods = self.pods.iter().map(|pod| {
            let it = &pod.reference;
            json!([it.uid, it.namespace, it.name, pod.container_id])
        });
        json!({ "manner": self.manner.name(), "pods": pods.collect::<Vec<_>>() }).to_string()
    }

    /// From a file.
    ///
    /// # Errors
    /// When it has no orders.
    pub fn of_text(text: &str) -> Result<Orders> {
        let value: Value = serde_json::from_str(text)?;
        let manner = value["manner"].as_str().context("no manner")?.parse()?;
        let pods = value["pods"].as_array().context("no pods")?.iter();
        let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let pods = pods.map(|pod| RunningPod {
            reference: v1::PodReference {
                uid: word(&pod[0]),
                namespace: word(&pod[1]),
                name: word(&pod[2]),
            },
            container_id: word(&pod[3]),
        });
        Ok(Orders {
            manner,
            pods: pods.collect(),
        })
    }

    /// A pod that runs, and another one.
    pub(crate) fn two(&self, number: u64) -> (RunningPod, RunningPod) {
        let pods = self.pods.iter().cycle();
        let mut pods = pods.skip(usize::try_from(number % 64).unwrap_or_default());
        let mut next = || pods.next().cloned().unwrap_or_default();
        (next(), next())
    }
}

/// Whether a call of this method has one message as its answer.
#[must_use]
pub fn is_unary(path: &str) -> bool {
    let method = path.rsplit('/').next().unwrap_or_default();
    let streams = [
        "ListPodStatuses",
        "ListEvents",
        "ListDesiredPods",
        "ReadLogs",
    ];
    !method.starts_with("Watch") && !streams.contains(&method)
}

/// The message of this number, in answer to a call.
///
/// # Errors
/// When there is none for this method.
pub fn message(path: &str, orders: &Orders, number: u64) -> Result<Vec<u8>> {
    let path = path.trim_start_matches("/bulkhead.v1.");
    Ok(match path {
        "Pleg/WatchEvents" => v1::WatchPodLifecycleEventsResponse {
            boot_id: id(number),
            message: Some(lifecycle(orders, number)),
        }
        .encode_to_vec(),
        "Prober/WatchResults" => v1::WatchResultsResponse {
            boot_id: id(number),
            message: Some(result(orders, number)),
        }
        .encode_to_vec(),
        "ConfigSourcer/WatchPods" => v1::WatchPodsResponse {
            boot_id: id(number),
            message: Some(configuration(orders, number)?),
        }
        .encode_to_vec(),
        "Pods/GetPod" => v1::GetPodResponse {
            pod: Some(another_pod(orders, number)?),
        }
        .encode_to_vec(),
        "Objects/WatchObjects" => objects(orders, number),
        "CredentialProvider/GetCredentials" => credentials(orders, number).encode_to_vec(),
        _ if path.starts_with("StatusReports/") => boot_id_alone(orders, number),
        _ => bail!("{path} is not answered"),
    })
}

/// The id of a pod, container or process that nobody has heard of.
pub(crate) fn id(number: u64) -> String {
    format!(
        "{:08x}-{:04x}-4000-8000-000000000000",
        number >> 16,
        number & 0xffff
    )
}

fn lifecycle(orders: &Orders, number: u64) -> Lifecycle {
    let health = v1::PlegHealth {
        healthy: number.is_multiple_of(2),
        reason: "because".to_owned(),
        pool_boot_id: id(number),
    };
    let (pod, other) = orders.two(number);
    let kinds = [1, 2, 4, 5];
    let kind = kinds[usize::try_from(number % 4).unwrap_or_default()];
    match orders.manner {
        Manner::Unfinished => Lifecycle::Snapshot(v1::PlegSnapshot {
            health: Some(health),
            pod_uids: (0..2000).map(|more| id(number * 2000 + more)).collect(),
        }),
        // An empty text takes two bytes here, and 24 in memory.
        Manner::AtTheBound => Lifecycle::Snapshot(v1::PlegSnapshot {
            health: Some(health),
            pod_uids: vec![String::new(); ((256 << 10) - 200) / 2],
        }),
        Manner::OfOthers => Lifecycle::Event(v1::PodLifecycleEvent {
            pod_uid: pod.reference.uid,
            r#type: kind,
            container_id: other.container_id,
        }),
        _ if number.is_multiple_of(8) => Lifecycle::Health(health),
        _ => Lifecycle::Event(v1::PodLifecycleEvent {
            pod_uid: id(number),
            r#type: kind,
            container_id: id(number),
        }),
    }
}

fn result(orders: &Orders, number: u64) -> ProbeResult {
    let (pod, other) = orders.two(number / 16);
    let verdict = v1::ProbeVerdict {
        pod_uid: id(number),
        container_name: "app".to_owned(),
        container_id: id(number),
        kind: i32::try_from(number % 3).unwrap_or_default() + 1,
        result: v1::ProbeResult::Failure.into(),
        message: "no".to_owned(),
    };
    match (orders.manner, number) {
        (Manner::Unfinished, 0) => ProbeResult::SnapshotBegin(v1::SnapshotBegin {}),
        (Manner::Unfinished, _) => ProbeResult::Verdict(verdict),
        (Manner::AtTheBound, _) => ProbeResult::Verdict(v1::ProbeVerdict {
            message: "n".repeat((4 << 10) - 200),
            ..verdict
        }),
        (Manner::OfOthers, _) => match number % 16 {
            0..4 => ProbeResult::Attempt(v1::ProbeTry {
                pod_uid: pod.reference.uid,
                container_name: "other".to_owned(),
                outcome: v1::ProbeTryOutcome::Failure.into(),
                message: id(number),
                unix_nanos: i64::MIN,
            }),
            // Of a container that has no probe, and of a container of another pod.
            which => ProbeResult::Verdict(v1::ProbeVerdict {
                pod_uid: pod.reference.uid,
                container_id: match which % 2 {
                    0 => pod.container_id,
                    _ => other.container_id,
                },
                // Another one each time, so that it is news.
                result: 1 + i32::from((number / 16).is_multiple_of(2)),
                ..verdict
            }),
        },
        _ if number.is_multiple_of(8) => ProbeResult::Removed(v1::ProbeVerdictRemoved {
            container_id: id(number / 2),
            kind: 1,
        }),
        _ => ProbeResult::Verdict(verdict),
    }
}

/// Of a source that has delivered nothing: who owns config-sourcer may end every pod by
/// saying so, which is not what is tried here.
fn configuration(orders: &Orders, number: u64) -> Result<Configuration> {
    let file = || PodSource::File.as_str().to_owned();
    let (pod, other) = orders.two(number);
    let arrived = |pod| {
        Configuration::Pod(v1::SourcePod {
            source: file(),
            pod,
        })
    };
    Ok(match (orders.manner, number) {
        (_, 0) => Configuration::Sources(v1::ConfiguredSources {
            names: vec![file(), "no such source".to_owned()],
        }),
        (Manner::Unfinished, 1) => Configuration::SnapshotBegin(v1::SourceSnapshotBegin {
            source: file(),
            ready: true,
        }),
        (Manner::OfOthers, _) => match number % 4 {
            0 => Configuration::Gone(v1::SourcePodGone {
                source: file(),
                uid: pod.reference.uid,
            }),
            1 => arrived(Some(v1::Pod {
                hash: id(number),
                ..another_pod(orders, number)?
            })),
            2 => Configuration::Gone(v1::SourcePodGone {
                source: PodSource::Http.as_str().to_owned(),
                uid: other.reference.uid,
            }),
            _ => Configuration::SnapshotEnd(v1::SourceSnapshotEnd { source: file() }),
        },
        (Manner::AtTheBound, _) => arrived(Some(new_pod(number, 1 << 20)?)),
        (Manner::Endless, _) if number.is_multiple_of(8) => {
            let problems = (0..256).map(|more| v1::SourceProblem {
                subject: id(number + more),
                field: id(more),
                reason: "because".to_owned(),
            });
            Configuration::Problems(v1::SourceProblems {
                source: file(),
                problems: problems.collect(),
            })
        }
        _ => arrived(Some(new_pod(number, 0)?)),
    })
}

/// A pod that no honest source has, filled up to so many bytes.
pub(crate) fn new_pod(number: u64, bytes: usize) -> Result<v1::Pod> {
    let of = |filling: &str| {
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": format!("invented-{number}"), "namespace": "default", "uid": id(number),
                "annotations": { "filling": filling },
            },
            "spec": { "containers": [{ "name": "app", "image": "localhost/busybox:test" }] },
        })
        .to_string()
    };
    let filling = bytes.saturating_sub(of("").len());
    let json = of(&"x".repeat(filling)).into_bytes();
    Ok(PodDocument::from_json(json, PodSource::File)?
        .0
        .to_message())
}

/// Other bytes than were asked for, in the name of a pod that runs.
fn another_pod(orders: &Orders, number: u64) -> Result<v1::Pod> {
    let bytes = if orders.manner == Manner::AtTheBound {
        1 << 20
    } else {
        0
    };
    Ok(v1::Pod {
        reference: Some(orders.two(number).0.reference),
        ..new_pod(number, bytes)?
    })
}

fn objects(orders: &Orders, number: u64) -> Vec<u8> {
    let known = (0..50).map(|more| v1::ObjectVersion {
        kind: "Secret".to_owned(),
        namespace: "default".to_owned(),
        name: id(number * 50 + more),
        version: id(number),
    });
    let response = v1::WatchObjectsResponse {
        is_read: true,
        incomplete: String::new(),
        objects: known.collect(),
    };
    let mut bytes = response.encode_to_vec();
    if orders.manner == Manner::AtTheBound {
        // An object without anything takes two bytes here, and 96 in memory.
        let empty = [OBJECTS_TAG, 0];
        bytes.extend(empty.repeat(((512 << 10) - bytes.len()) / empty.len()));
    }
    bytes
}

fn credentials(orders: &Orders, number: u64) -> v1::GetCredentialsResponse {
    let count = match orders.manner {
        Manner::AtTheBound => ((1 << 20) - 200) / 2,
        _ => 1,
    };
    let credential = match orders.manner {
        Manner::AtTheBound => v1::PullCredential::default(),
        _ => v1::PullCredential {
            username: id(number),
            password: "p\r\nx: y".to_owned(),
        },
    };
    v1::GetCredentialsResponse {
        credentials: vec![credential; count],
        failures: Vec::new(),
    }
}

/// What answers of status-syncer have; each is of another run.
fn boot_id_alone(orders: &Orders, number: u64) -> Vec<u8> {
    let mut boot_id = id(number);
    if orders.manner == Manner::AtTheBound {
        boot_id += &"x".repeat((4 << 20) - 200);
    }
    v1::SetProbeVerdictsResponse { boot_id }.encode_to_vec()
}
