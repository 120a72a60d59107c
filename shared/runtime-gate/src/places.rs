//! Where things of a pod are on the node, as far as a request names them: the
//! kubelet's layout, written down a second time on purpose. The gate must not ask
//! the code whose mistakes it is there to stop.

use std::path::{Component, Path, PathBuf};

use pod::PodIdentity;

/// The directories and the cgroup that everything of pods is below.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Places {
    /// Directories of pods: `<root-dir>/pods`.
    pub pods: PathBuf,
    /// Log directories of pods.
    pub pod_logs: PathBuf,
    /// Seccomp profiles of the node's owner: `<root-dir>/seccomp`.
    pub seccomp_profiles: PathBuf,
    /// The cgroup below which the cgroup of all pods is; `/` as a rule.
    pub cgroup_root: String,
}

/// What a path in a pod's own directory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OwnMount<'a> {
    /// A file or volume that is nobody else's.
    PodsAlone,
    /// Where a hostPath volume of this name is bound: the node's.
    HostPath(&'a str),
    /// What was prepared of a volume of this name, of whatever kind.
    SubPath(&'a str),
}

impl Places {
    /// Which of the places for mounts in a pod's own directory a path is: the hosts
    /// file, a file of a container, a volume, or a prepared sub-path. What is inside a
    /// volume is none: a container may have put a link there.
    pub(crate) fn own_mount<'a>(&self, pod_uid: &str, path: &'a str) -> Option<OwnMount<'a>> {
        let parts = parts(path)?;
        let own = self.pods.join(pod_uid);
        let own = own.to_str().and_then(self::parts)?;
        if !parts.starts_with(&own) {
            return None;
        }
        match *parts.get(own.len()..)? {
            ["etc-hosts"] | ["containers", _, _] | ["volumes", "kubernetes.io~csi", _, "mount"] => {
                Some(OwnMount::PodsAlone)
            }
            ["volumes", "kubernetes.io~csi", _] => None,
            ["volumes", "kubernetes.io~host-path", volume] => Some(OwnMount::HostPath(volume)),
            ["volumes", _, _] => Some(OwnMount::PodsAlone),
            ["volume-subpaths", volume, _, _] => Some(OwnMount::SubPath(volume)),
            _ => None,
        }
    }

    /// Whether a path is a seccomp profile that the node's owner has put there.
    pub(crate) fn is_seccomp_profile(&self, path: &str) -> bool {
        let below = Path::new(path).strip_prefix(&self.seccomp_profiles);
        below.is_ok_and(|below| below.to_str().is_some_and(stays_below))
    }

    /// The directory that the logs of a pod are in.
    pub(crate) fn log_directory(&self, pod: &PodIdentity) -> PathBuf {
        let name = format!("{}_{}_{}", pod.namespace(), pod.name(), pod.uid());
        self.pod_logs.join(name)
    }

    /// A cgroup below the root, as a plain directory.
    fn directory(&self, below: &[&str]) -> String {
        let root = self.cgroup_root.trim_matches('/');
        let parts = [root].into_iter().filter(|root| !root.is_empty());
        let parts: Vec<&str> = parts.chain(below.iter().copied()).collect();
        format!("/{}", parts.join("/"))
    }

    /// A cgroup below the root, as a slice of systemd with all those above it: a dash is
    /// what separates their names.
    fn slice(&self, below: &[&str]) -> String {
        let root = self.cgroup_root.trim_matches('/');
        let last = root.rsplit('/').next().unwrap_or_default();
        let root = match last.strip_suffix(".slice") {
            Some(slice) => slice.to_owned(),
            None => root.replace('-', "_").replace('/', "-"),
        };
        let (mut path, mut name) = (String::new(), String::new());
        let below = below.iter().map(|part| part.replace('-', "_"));
        let parts = root.split('-').filter(|part| !part.is_empty());
        for part in parts.map(str::to_owned).chain(below) {
            if !name.is_empty() {
                name.push('-');
            }
            name.push_str(&part);
            path = format!("{path}/{name}.slice");
        }
        path
    }

    /// Whether a cgroup is the pod's own, in the form of either driver. An empty name
    /// leaves it to the runtime, which has a place of its own for all containers.
    pub(crate) fn is_own_cgroup(&self, pod_uid: &str, cgroup: &str) -> bool {
        if cgroup.is_empty() {
            return true;
        }
        let own = format!("pod{pod_uid}");
        [None, Some("burstable"), Some("besteffort")]
            .into_iter()
            .any(|class| {
                let below: Vec<&str> = ["kubepods"]
                    .into_iter()
                    .chain(class)
                    .chain([own.as_str()])
                    .collect();
                cgroup == self.directory(&below) || cgroup == self.slice(&below)
            })
    }
}

/// The parts of an absolute path; `None` for any that is not in its simplest form, so
/// that no two spellings of one path are judged differently.
pub(crate) fn parts(path: &str) -> Option<Vec<&str>> {
    let below = path.strip_prefix('/')?;
    if below.is_empty() {
        return Some(Vec::new());
    }
    let parts: Vec<&str> = below.split('/').collect();
    let is_plain = |part: &&str| !matches!(*part, "" | "." | "..") && !part.contains('\0');
    parts.iter().all(is_plain).then_some(parts)
}

/// Whether a relative path stays below the directory that it is relative to.
pub(crate) fn stays_below(path: &str) -> bool {
    let is_normal = |part: Component<'_>| matches!(part, Component::Normal(_));
    !path.is_empty() && Path::new(path).components().all(is_normal)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(cgroup_root: &str) -> Places {
        Places {
            pods: "/var/lib/kubelet/pods".into(),
            pod_logs: "/var/log/pods".into(),
            seccomp_profiles: "/var/lib/kubelet/seccomp".into(),
            cgroup_root: cgroup_root.to_owned(),
        }
    }

    #[test]
    fn a_pods_own_mounts_are_told_from_everything_else() {
        for (path, own) in [
            ("/var/lib/kubelet/pods/u/etc-hosts", true),
            ("/var/lib/kubelet/pods/u/containers/c/0badcafe", true),
            (
                "/var/lib/kubelet/pods/u/volumes/kubernetes.io~empty-dir/v",
                true,
            ),
            (
                "/var/lib/kubelet/pods/u/volumes/kubernetes.io~host-path/v",
                true,
            ),
            (
                "/var/lib/kubelet/pods/u/volumes/kubernetes.io~csi/v/mount",
                true,
            ),
            ("/var/lib/kubelet/pods/u/volume-subpaths/v/c/0", true),
            // Not in one of the places for mounts.
            ("/var/lib/kubelet/pods/u", false),
            ("/var/lib/kubelet/pods/u/volumes", false),
            ("/var/lib/kubelet/pods/u/volumes/kubernetes.io~csi/v", false),
            ("/var/lib/kubelet/pods/u/containers/c", false),
            // A container may have made a link there.
            (
                "/var/lib/kubelet/pods/u/volumes/kubernetes.io~empty-dir/v/x",
                false,
            ),
            // Another pod's.
            ("/var/lib/kubelet/pods/uu/etc-hosts", false),
            (
                "/var/lib/kubelet/pods/u2/volumes/kubernetes.io~empty-dir/v",
                false,
            ),
            // Other spellings.
            ("/var/lib/kubelet/pods/u/../u2/etc-hosts", false),
            ("/var/lib/kubelet/pods/u/containers/c/..", false),
            ("/var/lib/kubelet/pods//u/etc-hosts", false),
            ("/var/lib/kubelet/pods/u/etc-hosts/", false),
            ("var/lib/kubelet/pods/u/etc-hosts", false),
            ("", false),
            ("/", false),
            ("/etc/shadow", false),
        ] {
            let found = places("/").own_mount("u", path);
            assert_eq!(found.is_some(), own, "{path}");
        }
        let named = |path: &str| format!("{:?}", places("/").own_mount("u", path));
        let own = "/var/lib/kubelet/pods/u";
        assert_eq!(
            named(&format!("{own}/volumes/kubernetes.io~host-path/v")),
            "Some(HostPath(\"v\"))"
        );
        assert_eq!(
            named(&format!("{own}/volume-subpaths/v/c/0")),
            "Some(SubPath(\"v\"))"
        );
    }

    #[test]
    fn a_pods_own_cgroup_is_told_from_everything_else() {
        for (root, cgroup, own) in [
            ("/", "/kubepods/podu", true),
            ("/", "/kubepods/burstable/podu", true),
            ("/", "/kubepods/besteffort/podu", true),
            (
                "/",
                "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-podu.slice",
                true,
            ),
            ("/", "kubepods-besteffort-podu.slice", false),
            ("/", "/kubepods.slice/kubepods-poduu.slice", false),
            ("/", "/kubepods.slice", false),
            ("/a/b", "/a/b/kubepods/podu", true),
            ("/a/b/", "/a/b/kubepods/podu", true),
            ("/a.slice", "/a.slice/kubepods/podu", true),
            (
                "/a.slice",
                "/a.slice/a-kubepods.slice/a-kubepods-podu.slice",
                true,
            ),
            (
                "/a.slice/a-b.slice",
                "/a.slice/a-b.slice/a-b-kubepods.slice/a-b-kubepods-podu.slice",
                true,
            ),
            ("/", "", true),
            ("/", "/", false),
            ("/", "/kubepods", false),
            ("/", "/kubepods/burstable", false),
            ("/", "/kubepods/poduu", false),
            ("/", "/kubepods/podu/x", false),
            ("/", "/kubepods/burstable/../podu", false),
            ("/", "/system.slice/podu", false),
            ("/a", "/kubepods/podu", false),
        ] {
            assert_eq!(
                places(root).is_own_cgroup("u", cgroup),
                own,
                "{root} {cgroup}"
            );
        }
        // The names of slices have underscores for dashes.
        let slice = "/kubepods.slice/kubepods-poda_b.slice";
        assert!(places("/").is_own_cgroup("a-b", slice));
    }

    #[test]
    fn a_log_path_stays_below_its_directory() {
        for (path, stays) in [
            ("c/0.log", true),
            ("0.log", true),
            ("", false),
            ("..", false),
            ("c/../../x", false),
            ("/etc/x", false),
            ("./x", false),
        ] {
            assert_eq!(stays_below(path), stays, "{path}");
        }
    }
}
