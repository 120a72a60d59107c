//! Where things of pods are on the node: the kubelet's layout. Every part of a path
//! that comes from a pod has been checked before: UIDs and names by `PodIdentity`,
//! container and volume names by their callers.

use std::path::{Path, PathBuf};

use pod::PodIdentity;

/// Directory of pods below the root directory.
const PODS: &str = "pods";
/// A pod's hosts file below its directory.
pub const HOSTS_FILE: &str = "etc-hosts";
/// Which ids a pod with a user namespace of its own has, below its directory.
pub const USER_NAMESPACE: &str = "userns";
/// Volumes of a pod below its directory, by kind and name.
pub const VOLUMES: &str = "volumes";
/// Sub-paths of volumes that containers mount, below a pod's directory: by volume,
/// container, and index of the mount.
pub const VOLUME_SUBPATHS: &str = "volume-subpaths";
/// What is kept of each container below its pod's directory.
pub const CONTAINERS: &str = "containers";
/// emptyDir volumes below `volumes`; the tilde stands for the slash of a kind's name.
pub const EMPTY_DIR: &str = "kubernetes.io~empty-dir";
/// hostPath volumes below `volumes`: what was opened on the node, bound there. A kubelet
/// has no such directory, since it hands the path itself to the runtime.
pub const HOST_PATH: &str = "kubernetes.io~host-path";

/// configMap volumes below `volumes`.
pub const CONFIG_MAP: &str = "kubernetes.io~configmap";
/// downwardAPI volumes below `volumes`.
pub const DOWNWARD_API: &str = "kubernetes.io~downward-api";
/// projected volumes below `volumes`.
pub const PROJECTED: &str = "kubernetes.io~projected";
/// secret volumes below `volumes`.
pub const SECRET: &str = "kubernetes.io~secret";

/// Longest file name, in bytes.
const MAX_FILE_NAME: usize = 255;

/// Directories of all pods.
pub fn pods(root_dir: &Path) -> PathBuf {
    root_dir.join(PODS)
}

/// A pod's directory.
pub fn pod(root_dir: &Path, pod_uid: &str) -> PathBuf {
    pods(root_dir).join(pod_uid)
}

/// A pod's hosts file.
pub fn hosts_file(root_dir: &Path, pod_uid: &str) -> PathBuf {
    pod(root_dir, pod_uid).join(HOSTS_FILE)
}

/// An emptyDir volume of a pod.
pub fn empty_dir(root_dir: &Path, pod_uid: &str, volume: &str) -> PathBuf {
    pod(root_dir, pod_uid)
        .join(VOLUMES)
        .join(EMPTY_DIR)
        .join(volume)
}

/// Where a hostPath volume of a pod is bound.
pub fn host_path(root_dir: &Path, pod_uid: &str, volume: &str) -> PathBuf {
    pod(root_dir, pod_uid)
        .join(VOLUMES)
        .join(HOST_PATH)
        .join(volume)
}

/// What is kept of a container: the files for its termination messages.
pub fn container(root_dir: &Path, pod_uid: &str, container: &str) -> PathBuf {
    pod(root_dir, pod_uid).join(CONTAINERS).join(container)
}

/// Name of a pod's log directory: `<namespace>_<name>_<uid>`.
pub fn pod_logs_name(identity: &PodIdentity) -> String {
    format!(
        "{}_{}_{}",
        identity.namespace(),
        identity.name(),
        identity.uid()
    )
}

/// The pod that a log directory is of, if its name is one.
pub fn pod_of_logs(directory: &str) -> Option<PodIdentity> {
    let mut parts = directory.split('_');
    let (namespace, name, uid) = (parts.next()?, parts.next()?, parts.next()?);
    if parts.next().is_some() {
        return None;
    }
    PodIdentity::new(uid, namespace, name).ok()
}

/// A pod's log directory.
pub fn pod_logs(pod_logs_dir: &Path, identity: &PodIdentity) -> PathBuf {
    pod_logs_dir.join(pod_logs_name(identity))
}

/// A container's log directory; its files are called by attempt.
pub fn container_logs(pod_logs_dir: &Path, identity: &PodIdentity, container: &str) -> PathBuf {
    pod_logs(pod_logs_dir, identity).join(container)
}

/// Name of the legacy link to a container's log, by which log shippers find it.
pub fn log_link_name(identity: &PodIdentity, container: &str, container_id: &str) -> String {
    const SUFFIX: &str = ".log";
    let mut name = format!("{}_{container}-{container_id}", identity.full_name());
    name.truncate(name.floor_char_boundary(MAX_FILE_NAME - SUFFIX.len()));
    name + SUFFIX
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(name: &str) -> PodIdentity {
        PodIdentity::new("0123", "ns", name).unwrap()
    }

    #[test]
    fn paths_are_the_kubelets() {
        let root = Path::new("/var/lib/kubelet");
        let shown = |path: PathBuf| path.display().to_string();
        assert_eq!(
            shown(hosts_file(root, "u")),
            "/var/lib/kubelet/pods/u/etc-hosts"
        );
        assert_eq!(
            shown(empty_dir(root, "u", "v")),
            "/var/lib/kubelet/pods/u/volumes/kubernetes.io~empty-dir/v"
        );
        assert_eq!(
            shown(container(root, "u", "c")),
            "/var/lib/kubelet/pods/u/containers/c"
        );
        let logs = Path::new("/var/log/pods");
        assert_eq!(
            shown(container_logs(logs, &identity("web"), "c")),
            "/var/log/pods/ns_web_0123/c"
        );
    }

    #[test]
    fn a_log_directory_tells_its_pod() {
        let identity = identity("web.x");
        assert_eq!(pod_of_logs(&pod_logs_name(&identity)), Some(identity));
        for other in [
            "",
            "a",
            "a_b",
            "ns_web_0123_x",
            "ns_.._0123",
            "NS_web_0123",
            "lost+found",
        ] {
            assert_eq!(pod_of_logs(other), None, "{other}");
        }
    }

    #[test]
    fn a_link_has_the_legacy_name_cut_to_what_a_file_system_takes() {
        assert_eq!(
            log_link_name(&identity("web"), "c", "abc"),
            "web_ns_c-abc.log"
        );
        let long = log_link_name(&identity(&"a".repeat(253)), "c", "abc");
        assert_eq!((long.len(), long.ends_with(".log")), (255, true));
    }
}
