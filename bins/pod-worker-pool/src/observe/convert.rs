//! From the runtime's messages to plain values.

use std::collections::BTreeMap;
use std::time::Duration;

use clock::UnixNanos;
use cri::quirks::{FailedStart, failed_start};
use cri::v1;
use ipc::limits::MAX_TOLD_GROUPS;
use pod::PodIdentity;
use pod::core::ContainerPort;
use pod::identity::check_container_name;
use pod::metadata::{
    CONTAINER_HASH_ANNOTATION, CONTAINER_NAME_LABEL, CONTAINER_PORTS_ANNOTATION,
    CONTAINER_PRE_STOP_ANNOTATION, CONTAINER_RESTART_COUNT_ANNOTATION,
    POD_TERMINATION_GRACE_PERIOD_ANNOTATION,
};
use pod::stop_signal;
use pod_lifecycle::annotations;
use pod_lifecycle::hook::Hook;
use pod_lifecycle::observation::{
    Container, ContainerState, ContainerUser, Exit, Sandbox, SandboxNetwork,
};

use crate::relist::listed_pod;

/// Longest text that is taken over from a status.
const MAX_TEXT_BYTES: usize = 4096;

/// A listed sandbox of this pod.
pub(super) fn sandbox(pod: &PodIdentity, listed: &v1::PodSandbox) -> Option<Sandbox> {
    if listed_pod(&listed.labels)?.uid() != pod.uid() {
        return None;
    }
    Some(Sandbox {
        id: listed.id.clone(),
        attempt: listed.metadata.as_ref().map_or(0, |it| it.attempt),
        ready: listed.state() == v1::PodSandboxState::SandboxReady,
        created_at: UnixNanos(listed.created_at),
        network: SandboxNetwork::Unknown,
        pod_started_at: listed
            .annotations
            .get(annotations::POD_STARTED_AT)
            .and_then(|text| text.parse().ok())
            .map(UnixNanos),
        started_with: listed
            .annotations
            .get(annotations::STARTED_WITH)
            .map(|noted| text(noted)),
    })
}

/// How a sandbox is connected, by its status.
pub(super) fn network(status: &v1::PodSandboxStatus) -> SandboxNetwork {
    let options = status
        .linux
        .as_ref()
        .and_then(|linux| linux.namespaces.as_ref()?.options.as_ref());
    if options.is_some_and(|options| options.network() == v1::NamespaceMode::Node) {
        return SandboxNetwork::Host;
    }
    let network = status.network.as_ref();
    let primary = network.map(|network| network.ip.clone());
    let others = network
        .into_iter()
        .flat_map(|network| network.additional_ips.iter().map(|other| other.ip.clone()));
    SandboxNetwork::Pod {
        ips: primary
            .into_iter()
            .chain(others)
            // An address is an address: the text ends up in files and statuses.
            .filter(|ip| ip.parse::<std::net::IpAddr>().is_ok())
            .collect(),
    }
}

/// A listed container of this pod; what only its status tells is left zero.
pub(super) fn container(
    pod: &PodIdentity,
    listed: &v1::Container,
) -> Option<(v1::ContainerState, Container)> {
    if listed_pod(&listed.labels)?.uid() != pod.uid() {
        return None;
    }
    let name = listed.labels.get(CONTAINER_NAME_LABEL)?;
    check_container_name(name).ok()?;
    let annotation = |key: &str| listed.annotations.get(key);
    let attempt = listed.metadata.as_ref().map_or(0, |it| it.attempt);
    let container = Container {
        id: listed.id.clone(),
        name: name.clone(),
        sandbox_id: listed.pod_sandbox_id.clone(),
        restart_count: annotation(CONTAINER_RESTART_COUNT_ANNOTATION)
            .and_then(|text| text.parse().ok())
            .unwrap_or(attempt),
        created_at: UnixNanos(listed.created_at),
        state: state(listed.state(), None),
        image: text(listed.image.as_ref().map_or("", |image| &image.image)),
        image_id: text(&listed.image_ref),
        // Only a status tells.
        stop_signal: None,
        user: None,
        is_recursively_read_only: false,
        spec_hash: text(annotation(CONTAINER_HASH_ANNOTATION).map_or("", String::as_str)),
        termination_grace: annotation(POD_TERMINATION_GRACE_PERIOD_ANNOTATION)
            .and_then(|text| text.parse().ok())
            .map(Duration::from_secs),
        restart_wait: annotation(annotations::RESTART_WAIT)
            .and_then(|text| text.parse().ok())
            .map(Duration::from_secs),
        pre_stop: pre_stop(&listed.annotations),
        sidecar: annotation(annotations::SIDECAR).and_then(|text| text.parse().ok()),
        round: annotation(annotations::ROUND)
            .and_then(|text| text.parse().ok())
            .unwrap_or(0),
        resources: annotation(annotations::RESOURCES)
            .and_then(|text| serde_json::from_str(text).ok()),
    };
    Some((listed.state(), container))
}

/// The preStop hook that an instance was made with.
fn pre_stop(annotations: &BTreeMap<String, String>) -> Option<Hook> {
    let handler = annotations.get(CONTAINER_PRE_STOP_ANNOTATION)?;
    let handler = serde_json::from_str(handler).ok()?;
    let ports = annotations.get(CONTAINER_PORTS_ANNOTATION);
    let ports: Vec<ContainerPort> = ports
        .and_then(|ports| serde_json::from_str(ports).ok())
        .unwrap_or_default();
    Hook::of(&handler, &ports)
}

/// Adds what the status tells; answers with the state as of the status.
pub(super) fn complete(
    container: &mut Container,
    status: &v1::ContainerStatus,
) -> v1::ContainerState {
    container.state = state_of(status);
    if let Some(image) = &status.image
        && !image.image.is_empty()
    {
        container.image = text(&image.image);
    }
    if !status.image_ref.is_empty() {
        container.image_id = text(&status.image_ref);
    }
    container.stop_signal = stop_signal::name(status.stop_signal);
    container.user = status.user.as_ref().and_then(user);
    let mut mounts = status.mounts.iter();
    container.is_recursively_read_only = mounts.any(|mount| mount.recursive_read_only);
    status.state()
}

/// As whom it was started, unless that cannot be or is too much to tell.
fn user(user: &v1::ContainerUser) -> Option<ContainerUser> {
    let v1::LinuxContainerUser {
        uid,
        gid,
        supplemental_groups: groups,
    } = user.linux.as_ref()?;
    let id = |id: &i64| u32::try_from(*id).ok();
    if groups.len() > MAX_TOLD_GROUPS {
        return None;
    }
    Some(ContainerUser {
        uid: id(uid)?,
        gid: id(gid)?,
        groups: groups.iter().map(id).collect::<Option<_>>()?,
    })
}

/// What an instance does, by its status.
pub(crate) fn state_of(status: &v1::ContainerStatus) -> ContainerState {
    state(status.state(), Some(status))
}

fn state(state: v1::ContainerState, status: Option<&v1::ContainerStatus>) -> ContainerState {
    match state {
        v1::ContainerState::ContainerCreated => ContainerState::Created,
        v1::ContainerState::ContainerRunning => ContainerState::Running {
            started_at: UnixNanos(status.map_or(0, |status| status.started_at)),
        },
        v1::ContainerState::ContainerExited => {
            let exit = Exit {
                started_at: UnixNanos(status.map_or(0, |status| status.started_at)),
                finished_at: UnixNanos(status.map_or(0, |status| status.finished_at)),
                exit_code: status.map_or(0, |status| status.exit_code),
                reason: text(status.map_or("", |status| &status.reason)),
                message: text(status.map_or("", |status| &status.message)),
            };
            match status.and_then(failed_start) {
                Some(FailedStart::Abandoned) => ContainerState::StartAbandoned(exit),
                Some(FailedStart::Refused) | None => ContainerState::Exited(exit),
            }
        }
        v1::ContainerState::ContainerUnknown => ContainerState::Unknown,
    }
}

fn text(text: &str) -> String {
    text[..text.floor_char_boundary(MAX_TEXT_BYTES)].to_owned()
}

#[cfg(test)]
mod tests {
    use pod::metadata::{POD_NAME_LABEL, POD_NAMESPACE_LABEL, POD_UID_LABEL};

    use super::*;

    fn labels(uid: &str, container: &str) -> BTreeMap<String, String> {
        [
            (POD_UID_LABEL, uid),
            (POD_NAMESPACE_LABEL, "default"),
            (POD_NAME_LABEL, "p"),
            (CONTAINER_NAME_LABEL, container),
        ]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into()
    }

    fn pod() -> PodIdentity {
        PodIdentity::new("u1", "default", "p").unwrap()
    }

    #[test]
    fn what_is_not_this_pods_or_is_malformed_is_passed_over() {
        for labels in [
            BTreeMap::new(),
            labels("u2", "c"),
            labels("../../etc", "c"),
            labels("u1", ""),
            labels("u1", "../c"),
            labels("u1", &"c".repeat(64)),
        ] {
            let listed = v1::Container {
                id: "1".to_owned(),
                labels,
                ..v1::Container::default()
            };
            assert!(container(&pod(), &listed).is_none(), "{:?}", listed.labels);
        }
        let foreign = v1::PodSandbox {
            labels: labels("u2", ""),
            ..v1::PodSandbox::default()
        };
        assert!(sandbox(&pod(), &foreign).is_none());
    }

    #[test]
    fn annotations_that_are_no_numbers_count_as_absent() {
        let mut listed = v1::Container {
            id: "1".to_owned(),
            labels: labels("u1", "c"),
            created_at: -5,
            metadata: Some(v1::ContainerMetadata {
                name: "c".to_owned(),
                attempt: 7,
            }),
            ..v1::Container::default()
        };
        for (count, wait, expected) in [
            ("3", "20", (3, Some(20))),
            ("-1", "-20", (7, None)),
            ("99999999999999999999", "x", (7, None)),
            ("", "", (7, None)),
        ] {
            listed.annotations = [
                (CONTAINER_RESTART_COUNT_ANNOTATION, count),
                (annotations::RESTART_WAIT, wait),
            ]
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into();
            let (_, found) = container(&pod(), &listed).unwrap();
            let wait = found.restart_wait.map(|wait| wait.as_secs());
            assert_eq!((found.restart_count, wait), expected);
        }
    }

    #[test]
    fn texts_of_the_runtime_are_cut() {
        let mut listed = v1::Container {
            id: "1".to_owned(),
            labels: labels("u1", "c"),
            ..v1::Container::default()
        };
        listed.set_state(v1::ContainerState::ContainerExited);
        let (_, mut found) = container(&pod(), &listed).unwrap();
        let mut status = v1::ContainerStatus {
            message: "ä".repeat(10_000),
            finished_at: i64::MIN,
            ..v1::ContainerStatus::default()
        };
        status.set_state(v1::ContainerState::ContainerExited);
        complete(&mut found, &status);
        assert_eq!(found.state.exit().unwrap().message.len(), MAX_TEXT_BYTES);
    }

    #[test]
    fn a_stop_signal_is_known_where_a_status_tells_one() {
        let listed = v1::Container {
            id: "1".to_owned(),
            labels: labels("u1", "c"),
            ..v1::Container::default()
        };
        for (number, expected) in [(0, None), (18, Some("SIGQUIT")), (66, None), (-1, None)] {
            let (_, mut found) = container(&pod(), &listed).unwrap();
            let status = v1::ContainerStatus {
                stop_signal: number,
                ..v1::ContainerStatus::default()
            };
            complete(&mut found, &status);
            assert_eq!(found.stop_signal, expected, "{number}");
        }
    }

    #[test]
    fn as_whom_it_was_started_is_known_where_a_status_tells_something_possible() {
        let linux = |uid, gid, supplemental_groups: Vec<i64>| {
            Some(v1::LinuxContainerUser {
                uid,
                gid,
                supplemental_groups,
            })
        };
        let highest = i64::from(u32::MAX);
        let many = |count| std::iter::repeat_n(1, count).collect();
        for (linux, is_known) in [
            (None, false),
            (linux(0, 0, vec![]), true),
            (linux(highest, highest, vec![highest]), true),
            (linux(highest + 1, 0, vec![]), false),
            (linux(0, -1, vec![]), false),
            (linux(0, 0, vec![1, -1]), false),
            (linux(0, 0, many(MAX_TOLD_GROUPS)), true),
            (linux(0, 0, many(MAX_TOLD_GROUPS + 1)), false),
        ] {
            let expected = linux.clone().filter(|_| is_known);
            let found = user(&v1::ContainerUser { linux }).map(|it| v1::LinuxContainerUser {
                uid: it.uid.into(),
                gid: it.gid.into(),
                supplemental_groups: it.groups.into_iter().map(i64::from).collect(),
            });
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn only_addresses_are_taken_for_addresses() {
        let mut status = v1::PodSandboxStatus {
            network: Some(v1::PodSandboxNetworkStatus {
                ip: "10.0.0.2".to_owned(),
                additional_ips: ["fd00::2", "; rm -rf", ""]
                    .map(|ip| v1::PodIp { ip: ip.to_owned() })
                    .into(),
            }),
            ..v1::PodSandboxStatus::default()
        };
        assert_eq!(network(&status).ips(), ["10.0.0.2", "fd00::2"]);
        status.network = None;
        assert_eq!(network(&status), SandboxNetwork::Pod { ips: Vec::new() });
        let mut options = v1::NamespaceOption::default();
        options.set_network(v1::NamespaceMode::Node);
        status.linux = Some(v1::LinuxPodSandboxStatus {
            namespaces: Some(v1::Namespace {
                options: Some(options),
            }),
        });
        assert_eq!(network(&status), SandboxNetwork::Host);
    }
}
