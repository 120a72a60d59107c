//! How pods' cgroups are called: the kubelet's layout, so that monitoring finds them
//! and a node can be switched over with its pods running.

use node_config::{CgroupDriver, NodeConfig};
use pod::QosClass;

/// The cgroup of all pods.
const ALL_PODS: &str = "kubepods";

/// How pods' cgroups are called on this node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CgroupNaming {
    /// Who makes them, and so what their names look like.
    pub driver: CgroupDriver,
    /// Below which cgroup everything is; `/` for a kubelet.
    pub root: String,
    /// Whether pods have cgroups of their own at all.
    pub per_qos: bool,
}

impl CgroupNaming {
    /// As the node is configured.
    pub fn new(config: &NodeConfig) -> CgroupNaming {
        CgroupNaming {
            driver: config.cgroup_driver,
            root: config.cgroup_root.clone(),
            per_qos: config.cgroups_per_qos,
        }
    }

    /// The cgroup that the runtime puts a pod's containers below, as a kubelet names it
    /// with either driver; empty leaves it to the runtime.
    pub fn pod_parent(&self, qos: QosClass, pod_uid: &str) -> String {
        match self.per_qos {
            true => format!("/{}", self.pod_path(qos, pod_uid)),
            false => String::new(),
        }
    }

    /// The path of a QoS class's cgroup below the controllers' mounts, without a slash
    /// in front. That of guaranteed pods is the one of all pods.
    pub fn class_path(&self, qos: QosClass) -> String {
        self.path(&self.class_parts(qos))
    }

    /// The path of a pod's cgroup.
    pub fn pod_path(&self, qos: QosClass, pod_uid: &str) -> String {
        let mut parts = self.class_parts(qos);
        parts.push(pod_part(pod_uid));
        self.path(&parts)
    }

    /// The UID in the last part of a pod's cgroup path, if it is one.
    pub fn pod_uid(&self, directory: &str) -> Option<String> {
        let name = match self.driver {
            CgroupDriver::Cgroupfs => directory.to_owned(),
            CgroupDriver::Systemd => {
                let name = directory.strip_suffix(".slice")?;
                name.rsplit('-').next()?.replace('_', "-")
            }
        };
        let uid = name.strip_prefix("pod")?;
        pod::identity::check_uid(uid).ok().map(|()| uid.to_owned())
    }

    fn class_parts(&self, qos: QosClass) -> Vec<String> {
        let root: Vec<&str> = self.root.split('/').filter(|it| !it.is_empty()).collect();
        let slice = root.last().and_then(|last| last.strip_suffix(".slice"));
        let mut parts: Vec<String> = match (self.driver, slice) {
            // The last slice of a path names all those above it.
            (CgroupDriver::Systemd, Some(slice)) => slice.split('-').map(str::to_owned).collect(),
            _ => root.into_iter().map(str::to_owned).collect(),
        };
        parts.push(ALL_PODS.to_owned());
        match qos {
            QosClass::Guaranteed => {}
            QosClass::Burstable => parts.push("burstable".to_owned()),
            QosClass::BestEffort => parts.push("besteffort".to_owned()),
        }
        parts
    }

    fn path(&self, parts: &[String]) -> String {
        match self.driver {
            CgroupDriver::Cgroupfs => parts.join("/"),
            CgroupDriver::Systemd => {
                let slices = (1..=parts.len()).map(|length| slice(&parts[..length]));
                slices.collect::<Vec<_>>().join("/")
            }
        }
    }
}

fn pod_part(pod_uid: &str) -> String {
    format!("pod{pod_uid}")
}

/// systemd's name of a nested slice; a dash separates levels, so those in names become
/// underscores.
fn slice(parts: &[String]) -> String {
    let parts: Vec<_> = parts.iter().map(|part| part.replace('-', "_")).collect();
    format!("{}.slice", parts.join("-"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const UID: &str = "12-ab";

    fn naming(driver: CgroupDriver, root: &str) -> CgroupNaming {
        CgroupNaming {
            driver,
            root: root.to_owned(),
            per_qos: true,
        }
    }

    #[test]
    fn parents_have_the_form_that_the_driver_wants() {
        use CgroupDriver::{Cgroupfs, Systemd};
        use QosClass::{BestEffort, Burstable, Guaranteed};
        for (driver, root, qos, parent, path) in [
            (
                Cgroupfs,
                "/",
                Guaranteed,
                "/kubepods/pod12-ab",
                "kubepods/pod12-ab",
            ),
            (
                Cgroupfs,
                "/",
                Burstable,
                "/kubepods/burstable/pod12-ab",
                "kubepods/burstable/pod12-ab",
            ),
            (
                Cgroupfs,
                "/a/b/",
                BestEffort,
                "/a/b/kubepods/besteffort/pod12-ab",
                "a/b/kubepods/besteffort/pod12-ab",
            ),
            (
                Systemd,
                "/",
                Guaranteed,
                "/kubepods.slice/kubepods-pod12_ab.slice",
                "kubepods.slice/kubepods-pod12_ab.slice",
            ),
            (
                Systemd,
                "/lab.slice",
                Burstable,
                "/lab.slice/lab-kubepods.slice/lab-kubepods-burstable.slice/\
                 lab-kubepods-burstable-pod12_ab.slice",
                "lab.slice/lab-kubepods.slice/lab-kubepods-burstable.slice/\
                 lab-kubepods-burstable-pod12_ab.slice",
            ),
            (
                Systemd,
                "/a.slice/a-b.slice",
                Guaranteed,
                "/a.slice/a-b.slice/a-b-kubepods.slice/a-b-kubepods-pod12_ab.slice",
                "a.slice/a-b.slice/a-b-kubepods.slice/a-b-kubepods-pod12_ab.slice",
            ),
            (
                Systemd,
                "/a-b/c",
                Guaranteed,
                "/a_b.slice/a_b-c.slice/a_b-c-kubepods.slice/a_b-c-kubepods-pod12_ab.slice",
                "a_b.slice/a_b-c.slice/a_b-c-kubepods.slice/a_b-c-kubepods-pod12_ab.slice",
            ),
        ] {
            let naming = naming(driver, root);
            assert_eq!(naming.pod_parent(qos, UID), parent);
            assert_eq!(naming.pod_path(qos, UID), path);
            let directory = path.rsplit('/').next().unwrap();
            assert_eq!(naming.pod_uid(directory).as_deref(), Some(UID));
        }
    }

    #[test]
    fn only_what_is_called_like_a_pod_is_one() {
        let plain = naming(CgroupDriver::Cgroupfs, "/");
        let systemd = naming(CgroupDriver::Systemd, "/");
        for directory in ["burstable", "pod", "pod..", "podA/b", "cgroup.procs", ""] {
            assert_eq!(plain.pod_uid(directory), None, "{directory}");
            assert_eq!(
                systemd.pod_uid(&format!("kubepods-{directory}.slice")),
                None
            );
        }
        assert_eq!(systemd.pod_uid("kubepods-pod1"), None);
    }

    #[test]
    fn without_qos_cgroups_the_runtime_decides() {
        let mut naming = naming(CgroupDriver::Cgroupfs, "/");
        naming.per_qos = false;
        assert_eq!(naming.pod_parent(QosClass::Burstable, UID), "");
    }
}
