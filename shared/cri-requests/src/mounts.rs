//! What of the node a container sees: its volumes, its hosts file, and the file for
//! its termination message.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use cri::v1::{Mount, MountPropagation};
use pod::core::{Container, VolumeMount};
use pod::{Pod, PodExt};

use pod_volumes::MountedVolume;

use crate::container_input::ContainerInput;
use crate::error::BuildError;
use crate::image_volumes::{is_image, of_image};
use crate::sub_paths::{Variables, path_in_volume};

/// Where the hosts file of a pod is mounted.
const HOSTS_FILE: &str = "/etc/hosts";

/// All mounts of a container, in the kubelet's order.
pub(super) fn mounts(input: &ContainerInput<'_>, field: &str) -> Result<Vec<Mount>, BuildError> {
    let mut mounts = Vec::new();
    let stated = input.container.volume_mounts.as_deref().unwrap_or_default();
    let mut variables = None;
    for (index, mount) in stated.iter().enumerate() {
        let field = format!("{field}.volumeMounts[{index}]");
        mounts.push(volume_mount(input, &mut variables, (index, mount), &field)?);
    }
    let hides_hosts = stated.iter().any(|mount| mount.mount_path == HOSTS_FILE);
    if has_hosts_file(input.pod, !input.pod_ips.is_empty()) && !hides_hosts {
        mounts.push(Mount {
            container_path: HOSTS_FILE.to_owned(),
            host_path: text(&input.hosts_file)?,
            selinux_relabel: input.node.selinux,
            ..Mount::default()
        });
    }
    if let Some(log) = &input.termination_log {
        mounts.push(Mount {
            container_path: log.container_path.clone(),
            host_path: text(&log.host_path)?,
            selinux_relabel: input.node.selinux,
            ..Mount::default()
        });
    }
    Ok(mounts)
}

/// Whether a volume is made for this pod, so that its files may get the pod's label.
fn is_of_pod_alone(pod: &Pod, volume: &str) -> bool {
    let mut volumes = pod.volumes().iter();
    volumes
        .find(|found| found.name == volume)
        .is_some_and(|volume| {
            volume.empty_dir.is_some()
                || volume.secret.is_some()
                || volume.config_map.is_some()
                || volume.downward_api.is_some()
                || volume.projected.is_some()
        })
}

/// Whether a pod gets a hosts file: one without an address has nothing to write there.
fn has_hosts_file(pod: &Pod, has_address: bool) -> bool {
    has_address || pod.host_network()
}

fn volume_mount(
    input: &ContainerInput<'_>,
    variables: &mut Option<Variables>,
    (index, mount): (usize, &VolumeMount),
    field: &str,
) -> Result<Mount, BuildError> {
    if is_image(input.pod, &mount.name) {
        let sub_path = path_in_volume(input, variables, mount, field)?;
        let made = Mount {
            container_path: absolute(&mount.mount_path, field)?,
            recursive_read_only: resolved_recursive_read_only(input, mount, field)?,
            ..Mount::default()
        };
        return of_image(input, mount, sub_path, made, field);
    }
    let volume = input
        .volumes
        .get(&mount.name)
        .ok_or_else(|| BuildError::VolumeMissing {
            volume: mount.name.clone(),
            container: input.container.name.clone(),
        })?;
    let host_path = source(input.sub_paths, index, mount, volume, field)?;
    let propagation = match mount.mount_propagation.as_deref() {
        None | Some("None") => MountPropagation::PropagationPrivate,
        Some("HostToContainer") => MountPropagation::PropagationHostToContainer,
        Some("Bidirectional") => MountPropagation::PropagationBidirectional,
        Some(other) => {
            let reason = format!("invalid MountPropagation mode: {other:?}");
            return Err(BuildError::invalid(
                format!("{field}.mountPropagation"),
                reason,
            ));
        }
    };
    let recursive_read_only = resolved_recursive_read_only(input, mount, field)?;
    Ok(Mount {
        container_path: absolute(&mount.mount_path, field)?,
        host_path: text(host_path)?,
        readonly: mount.read_only.unwrap_or(false) || volume.read_only,
        recursive_read_only,
        propagation: propagation.into(),
        selinux_relabel: input.node.selinux && is_of_pod_alone(input.pod, &mount.name),
        ..Mount::default()
    })
}

fn resolved_recursive_read_only(
    input: &ContainerInput<'_>,
    mount: &VolumeMount,
    field: &str,
) -> Result<bool, BuildError> {
    recursive_read_only(input, mount).map_err(|reason| {
        let reason = format!("failed to resolve recursive read-only mode: {reason}");
        BuildError::invalid(format!("{field}.recursiveReadOnly"), reason)
    })
}

/// Whether the mounts below a mount are made read-only too, or in the kubelet's words why
/// they cannot be.
fn recursive_read_only(input: &ContainerInput<'_>, mount: &VolumeMount) -> Result<bool, String> {
    let is_possible = input.recursive_read_only;
    let is_read_only = mount.read_only == Some(true);
    let propagation = mount.mount_propagation.as_deref().unwrap_or("None");
    let asks = format!(
        "volume {:?} requested recursive read-only mode, but",
        mount.name
    );
    match mount.recursive_read_only.as_deref() {
        None | Some("Disabled") => Ok(false),
        Some("IfPossible") => Ok(is_possible && is_read_only && propagation == "None"),
        Some("Enabled") if !is_read_only => Err(format!("{asks} it is not read-only")),
        Some("Enabled") if propagation != "None" => Err(format!(
            "{asks} it is not compatible with propagation {propagation:?}"
        )),
        Some("Enabled") if !is_possible => {
            Err(format!("{asks} it is not supported by the runtime"))
        }
        Some("Enabled") => Ok(true),
        Some(other) => Err(format!("unknown recursive read-only mode {other:?}")),
    }
}

/// Whether a container has a mount that is to be read-only with all mounts below it, so
/// that what the runtime can do has to be known.
pub fn wants_recursive_read_only(container: &Container) -> bool {
    let mut mounts = container.volume_mounts.iter().flatten();
    mounts.any(|mount| {
        !matches!(
            mount.recursive_read_only.as_deref(),
            None | Some("Disabled")
        )
    })
}

/// The volume itself, or for a sub-path what was prepared for this mount: resolving it
/// here would follow links that the container made.
fn source<'a>(
    sub_paths: &'a BTreeMap<usize, PathBuf>,
    index: usize,
    mount: &VolumeMount,
    volume: &'a MountedVolume,
    field: &str,
) -> Result<&'a Path, BuildError> {
    let stated = |path: &Option<String>| path.as_deref().is_some_and(|path| !path.is_empty());
    for (name, path) in [
        ("subPath", &mount.sub_path),
        ("subPathExpr", &mount.sub_path_expr),
    ] {
        if stated(path) {
            let prepared = sub_paths.get(&index).map(PathBuf::as_path);
            let missing = || BuildError::invalid(format!("{field}.{name}"), "it is not prepared");
            return prepared.ok_or_else(missing);
        }
    }
    Ok(&volume.host_path)
}

/// A relative mount path is one below the root, as the kubelet has it.
fn absolute(path: &str, field: &str) -> Result<String, BuildError> {
    let leaves = Path::new(path)
        .components()
        .any(|part| part == Component::ParentDir);
    if path.is_empty() || leaves {
        let reason = format!("{path:?} must not be empty or contain '..'");
        return Err(BuildError::invalid(format!("{field}.mountPath"), reason));
    }
    Ok(if path.starts_with('/') {
        path.to_owned()
    } else {
        format!("/{path}")
    })
}

/// The wire has text for paths.
fn text(path: &Path) -> Result<String, BuildError> {
    match path.to_str() {
        Some(text) if path.is_absolute() => Ok(text.to_owned()),
        _ => Err(BuildError::invalid(
            "mount",
            format!("{path:?} is not an absolute UTF-8 path"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_pods::{ContainerCase, pod};

    fn case(mounts: &str) -> ContainerCase {
        let pod = pod(&format!(
            r#"{{"metadata":{{"name":"p","namespace":"ns","uid":"u"}},
                "spec":{{"containers":[{{"name":"c","image":"i","volumeMounts":{mounts}}}]}}}}"#
        ));
        let mut case = ContainerCase::new(pod);
        let volume = |path: &str, read_only| MountedVolume {
            host_path: path.into(),
            read_only,
        };
        case.volumes.insert("v".into(), volume("/vol/v", false));
        case.volumes.insert("ro".into(), volume("/vol/ro", true));
        case
    }

    fn of(mounts_json: &str) -> Result<Vec<Mount>, BuildError> {
        mounts(&case(mounts_json).input(), "spec.containers[0]")
    }

    #[test]
    fn volumes_come_first_then_the_hosts_file_then_the_termination_log() {
        let all =
            of(r#"[{"name":"v","mountPath":"/data"},{"name":"ro","mountPath":"x"}]"#).unwrap();
        let paths: Vec<_> = all
            .iter()
            .map(|mount| {
                (
                    mount.container_path.as_str(),
                    mount.host_path.as_str(),
                    mount.readonly,
                )
            })
            .collect();
        assert_eq!(
            paths,
            [
                ("/data", "/vol/v", false),
                ("/x", "/vol/ro", true),
                ("/etc/hosts", "/var/lib/kubelet/pods/u/etc-hosts", false),
                (
                    "/dev/termination-log",
                    "/var/lib/kubelet/pods/u/containers/c/0badcafe",
                    false
                ),
            ]
        );
    }

    #[test]
    fn with_selinux_what_is_made_for_the_pod_gets_its_label_and_the_nodes_paths_do_not() {
        let mut case = case(r#"[{"name":"v","mountPath":"/a"},{"name":"ro","mountPath":"/b"}]"#);
        let volumes = r#"[{"name":"v","emptyDir":{}},{"name":"ro","hostPath":{"path":"/h"}}]"#;
        let volumes = serde_json::from_str(volumes).unwrap();
        case.pod.spec.as_mut().unwrap().volumes = volumes;
        for selinux in [false, true] {
            case.node.selinux = selinux;
            let all = mounts(&case.input(), "").unwrap();
            let relabelled: Vec<_> = all.iter().map(|mount| mount.selinux_relabel).collect();
            assert_eq!(relabelled, [selinux, false, selinux, selinux]);
        }
    }

    #[test]
    fn a_mount_over_the_hosts_file_replaces_it() {
        let all = of(r#"[{"name":"v","mountPath":"/etc/hosts"}]"#).unwrap();
        assert_eq!(all[0].host_path, "/vol/v");
        assert_eq!(
            all.iter()
                .filter(|mount| mount.container_path == "/etc/hosts")
                .count(),
            1
        );
    }

    #[test]
    fn a_pod_without_an_address_has_no_hosts_file_unless_on_the_nodes_network() {
        let mut case = case("[]");
        case.pod_ips.clear();
        assert_eq!(mounts(&case.input(), "").unwrap().len(), 1);
        case.pod.spec.as_mut().unwrap().host_network = Some(true);
        assert_eq!(mounts(&case.input(), "").unwrap().len(), 2);
    }

    #[test]
    fn propagation_and_read_only_are_passed_on() {
        let all = of(
            r#"[{"name":"v","mountPath":"/a","mountPropagation":"HostToContainer"},
                {"name":"v","mountPath":"/b","mountPropagation":"Bidirectional","readOnly":true},
                {"name":"v","mountPath":"/c","mountPropagation":"None",
                 "recursiveReadOnly":"Disabled"}]"#,
        )
        .unwrap();
        assert_eq!(
            all[0].propagation(),
            MountPropagation::PropagationHostToContainer
        );
        assert_eq!(
            all[1].propagation(),
            MountPropagation::PropagationBidirectional
        );
        assert!(all[1].readonly && !all[0].readonly);
        assert_eq!(all[2].propagation(), MountPropagation::PropagationPrivate);
    }

    #[test]
    fn mounts_below_are_read_only_where_that_is_asked_for_and_the_runtime_can() {
        let asks = "f.volumeMounts[0].recursiveReadOnly: failed to resolve recursive read-only \
                    mode: volume \"v\" requested recursive read-only mode, but it is not";
        for (fields, without, with) in [
            (r#""readOnly":true"#, Ok(false), Ok(false)),
            (
                r#""readOnly":true,"recursiveReadOnly":"Disabled""#,
                Ok(false),
                Ok(false),
            ),
            (
                r#""readOnly":true,"recursiveReadOnly":"IfPossible""#,
                Ok(false),
                Ok(true),
            ),
            (r#""recursiveReadOnly":"IfPossible""#, Ok(false), Ok(false)),
            (
                r#""readOnly":true,"recursiveReadOnly":"Enabled""#,
                Err(format!("{asks} supported by the runtime")),
                Ok(true),
            ),
            (
                r#""recursiveReadOnly":"Enabled""#,
                Err(format!("{asks} read-only")),
                Err(format!("{asks} read-only")),
            ),
            (
                r#""readOnly":true,"recursiveReadOnly":"Enabled",
                "mountPropagation":"HostToContainer""#,
                Err(format!(
                    "{asks} compatible with propagation \"HostToContainer\""
                )),
                Err(format!(
                    "{asks} compatible with propagation \"HostToContainer\""
                )),
            ),
        ] {
            let json = format!(r#"[{{"name":"v","mountPath":"/a",{fields}}}]"#);
            let mut case = case(&json);
            for (recursive_read_only, expected) in [(false, without), (true, with)] {
                case.recursive_read_only = recursive_read_only;
                let found = mounts(&case.input(), "f").map(|all| all[0].recursive_read_only);
                assert_eq!(
                    found.map_err(|error| error.to_string()),
                    expected,
                    "{fields}"
                );
            }
        }
    }

    #[test]
    fn a_sub_path_is_only_ever_what_was_prepared_for_it() {
        let json = r#"[{"name":"v","mountPath":"/a"},
                       {"name":"v","mountPath":"/b","subPath":"../../etc"}]"#;
        let mut case = case(json);
        let error = mounts(&case.input(), "spec.containers[0]").unwrap_err();
        assert_eq!(
            error.to_string(),
            "spec.containers[0].volumeMounts[1].subPath: it is not prepared"
        );
        case.sub_paths.insert(1, "/prepared".into());
        assert_eq!(mounts(&case.input(), "").unwrap()[1].host_path, "/prepared");
    }

    #[test]
    fn what_cannot_be_mounted_is_an_error() {
        for (json, expected) in [
            (
                r#"[{"name":"x","mountPath":"/a"}]"#,
                r#"cannot find volume "x" to mount into container "c""#,
            ),
            (
                r#"[{"name":"v","mountPath":"/a/../b"}]"#,
                r#"f.volumeMounts[0].mountPath: "/a/../b" must not be empty or contain '..'"#,
            ),
            (
                r#"[{"name":"v","mountPath":"/a","mountPropagation":"X"}]"#,
                r#"f.volumeMounts[0].mountPropagation: invalid MountPropagation mode: "X""#,
            ),
        ] {
            let error = mounts(&case(json).input(), "f").unwrap_err();
            assert_eq!(error.to_string(), expected);
        }
    }
}
