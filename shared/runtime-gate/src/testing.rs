//! A pod and the requests for it that ask for nothing, for the tests of this crate.

use std::collections::BTreeMap;

use cri::v1::security_profile::ProfileType;
use cri::v1::{self, Int64Value};
use pod::PodIdentity;

use crate::{HeldVolume, HeldVolumes, Places};

pub(crate) const UID: &str = "11111111-2222-3333-4444-555555555555";

pub(crate) fn identity() -> PodIdentity {
    PodIdentity::new(UID, "ns", "web").unwrap()
}

pub(crate) fn places() -> Places {
    Places {
        pods: "/var/lib/kubelet/pods".into(),
        pod_logs: "/var/log/pods".into(),
        seccomp_profiles: "/var/lib/kubelet/seccomp".into(),
        cgroup_root: "/".to_owned(),
    }
}

/// The volumes of the pod: `v` is its own.
pub(crate) fn volumes() -> HeldVolumes {
    let volumes = [("etc", Some("/etc")), ("root", Some("/")), ("v", None)];
    let volumes = volumes.map(|(volume, path)| {
        let path = path.map(|path| HeldVolume::HostPath(path.to_owned()));
        (volume.to_owned(), path.unwrap_or(HeldVolume::PodsAlone))
    });
    volumes.into()
}

/// Where a hostPath volume is bound.
pub(crate) fn host_path_mount(volume: &str) -> String {
    format!("/var/lib/kubelet/pods/{UID}/volumes/kubernetes.io~host-path/{volume}")
}

fn labels(container: Option<&str>) -> BTreeMap<String, String> {
    let name = container.map(|name| ("io.kubernetes.container.name", name));
    [
        ("io.kubernetes.pod.uid", UID),
        ("io.kubernetes.pod.name", "web"),
        ("io.kubernetes.pod.namespace", "ns"),
    ]
    .into_iter()
    .chain(name)
    .map(|(key, value)| (key.to_owned(), value.to_owned()))
    .collect()
}

fn own_namespaces() -> v1::NamespaceOption {
    v1::NamespaceOption {
        pid: v1::NamespaceMode::Container.into(),
        ..v1::NamespaceOption::default()
    }
}

fn default_profile() -> v1::SecurityProfile {
    v1::SecurityProfile {
        profile_type: ProfileType::RuntimeDefault.into(),
        localhost_ref: String::new(),
    }
}

/// A sandbox that asks for nothing.
pub(crate) fn sandbox() -> v1::PodSandboxConfig {
    v1::PodSandboxConfig {
        metadata: Some(v1::PodSandboxMetadata {
            name: "web".to_owned(),
            uid: UID.to_owned(),
            namespace: "ns".to_owned(),
            attempt: 0,
        }),
        log_directory: format!("/var/log/pods/ns_web_{UID}"),
        labels: labels(None),
        linux: Some(v1::LinuxPodSandboxConfig {
            cgroup_parent: format!("/kubepods/besteffort/pod{UID}"),
            security_context: Some(v1::LinuxSandboxSecurityContext {
                namespace_options: Some(own_namespaces()),
                seccomp: Some(default_profile()),
                seccomp_profile_path: "runtime/default".to_owned(),
                ..v1::LinuxSandboxSecurityContext::default()
            }),
            ..v1::LinuxPodSandboxConfig::default()
        }),
        ..v1::PodSandboxConfig::default()
    }
}

/// A container of user 1000 that asks for nothing.
pub(crate) fn container(image: &str) -> v1::ContainerConfig {
    let all = |paths: &[&str]| paths.iter().map(|&path| path.to_owned()).collect();
    v1::ContainerConfig {
        metadata: Some(v1::ContainerMetadata {
            name: "c".to_owned(),
            attempt: 0,
        }),
        image: Some(v1::ImageSpec {
            image: image.to_owned(),
            ..v1::ImageSpec::default()
        }),
        labels: labels(Some("c")),
        log_path: "c/0.log".to_owned(),
        mounts: vec![v1::Mount {
            container_path: "/etc/hosts".to_owned(),
            host_path: format!("/var/lib/kubelet/pods/{UID}/etc-hosts"),
            ..v1::Mount::default()
        }],
        linux: Some(v1::LinuxContainerConfig {
            resources: None,
            security_context: Some(v1::LinuxContainerSecurityContext {
                capabilities: Some(v1::Capability {
                    drop_capabilities: vec!["ALL".to_owned()],
                    ..v1::Capability::default()
                }),
                namespace_options: Some(own_namespaces()),
                run_as_user: Some(Int64Value { value: 1000 }),
                no_new_privs: true,
                masked_paths: all(&crate::request::MASKED),
                readonly_paths: all(&crate::request::READ_ONLY),
                seccomp: Some(default_profile()),
                seccomp_profile_path: "runtime/default".to_owned(),
                ..v1::LinuxContainerSecurityContext::default()
            }),
        }),
        ..v1::ContainerConfig::default()
    }
}

/// The security context of a container of [`container`].
pub(crate) fn security(config: &mut v1::ContainerConfig) -> &mut v1::LinuxContainerSecurityContext {
    let linux = config.linux.get_or_insert_default();
    linux.security_context.get_or_insert_default()
}

/// The security context of a sandbox of [`sandbox`].
pub(crate) fn sandbox_security(
    config: &mut v1::PodSandboxConfig,
) -> &mut v1::LinuxSandboxSecurityContext {
    let linux = config.linux.get_or_insert_default();
    linux.security_context.get_or_insert_default()
}
