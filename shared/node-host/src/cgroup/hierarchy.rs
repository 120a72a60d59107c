//! Which cgroup hierarchies the node has, from its table of mounts.
//!
//! A node has either the one unified hierarchy (v2), or one for each controller (v1),
//! there perhaps with a v2 mount beside them that controls nothing (hybrid).

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::volume::mount_table;

/// The controllers that limits are written to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Controller {
    Cpu,
    Memory,
    Pids,
    HugePages,
}

impl Controller {
    fn name(self) -> &'static str {
        match self {
            Controller::Cpu => "cpu",
            Controller::Memory => "memory",
            Controller::Pids => "pids",
            Controller::HugePages => "hugetlb",
        }
    }
}

/// One hierarchy of version 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LegacyHierarchy {
    mount: PathBuf,
    controllers: Vec<String>,
}

/// The hierarchies of the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Hierarchies {
    /// Version 2 alone.
    Unified {
        /// Where it is mounted.
        mount: PathBuf,
    },
    /// Version 1.
    Legacy {
        /// Each with its controllers.
        hierarchies: Vec<LegacyHierarchy>,
        /// A version 2 mount beside them, for cleaning up only.
        unified: Option<PathBuf>,
    },
}

/// The node's mounts show no cgroups that pods could be limited by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no cgroup hierarchy with a memory controller is mounted")]
pub(crate) struct NoHierarchy;

impl Hierarchies {
    /// The hierarchies in a table of mounts, in the format of `/proc/self/mountinfo`.
    pub(crate) fn detect(mountinfo: &[u8]) -> Result<Hierarchies, NoHierarchy> {
        let mut unified = None;
        let mut hierarchies: Vec<LegacyHierarchy> = Vec::new();
        let mut seen = BTreeSet::new();
        let lines = mountinfo.split(|byte| *byte == b'\n');
        for mount in lines.filter_map(CgroupMount::parse) {
            match mount {
                CgroupMount::Unified(mount) => {
                    unified.get_or_insert(mount);
                }
                CgroupMount::Legacy(hierarchy) => {
                    // A hierarchy may be mounted again elsewhere; the first one counts.
                    if seen.insert(hierarchy.controllers.clone()) {
                        hierarchies.push(hierarchy);
                    }
                }
            }
        }
        let controls = |hierarchy: &LegacyHierarchy| {
            hierarchy
                .controllers
                .iter()
                .any(|name| name == Controller::Memory.name())
        };
        match unified {
            unified if hierarchies.iter().any(controls) => Ok(Hierarchies::Legacy {
                hierarchies,
                unified,
            }),
            Some(mount) => Ok(Hierarchies::Unified { mount }),
            None => Err(NoHierarchy),
        }
    }

    /// Where the cgroup `path` is in each hierarchy, those for cleaning up included.
    pub(super) fn directories(&self, path: &str) -> Vec<PathBuf> {
        self.mounts().map(|mount| mount.join(path)).collect()
    }

    /// Where the cgroup `path` is for one controller, if the node has that controller.
    pub(super) fn directory(&self, controller: Controller, path: &str) -> Option<PathBuf> {
        match self {
            Hierarchies::Unified { mount } => Some(mount.join(path)),
            Hierarchies::Legacy { hierarchies, .. } => {
                let has = |hierarchy: &&LegacyHierarchy| {
                    hierarchy
                        .controllers
                        .iter()
                        .any(|name| name == controller.name())
                };
                hierarchies
                    .iter()
                    .find(has)
                    .map(|hierarchy| hierarchy.mount.join(path))
            }
        }
    }

    fn mounts(&self) -> impl Iterator<Item = &Path> {
        let (unified, hierarchies) = match self {
            Hierarchies::Unified { mount } => (Some(mount), [].as_slice()),
            Hierarchies::Legacy {
                hierarchies,
                unified,
            } => (unified.as_ref(), hierarchies.as_slice()),
        };
        let legacy = hierarchies
            .iter()
            .map(|hierarchy| hierarchy.mount.as_path());
        legacy.chain(unified.map(PathBuf::as_path))
    }
}

enum CgroupMount {
    Unified(PathBuf),
    Legacy(LegacyHierarchy),
}

impl CgroupMount {
    /// The last field of a line has the options of the file system.
    fn parse(line: &[u8]) -> Option<CgroupMount> {
        let found = mount_table::parse(line)?;
        let mount = found.point.into_owned();
        match found.filesystem {
            "cgroup2" => Some(CgroupMount::Unified(mount)),
            "cgroup" => {
                let options = line.rsplit(|byte| *byte == b' ').next()?;
                let options = str::from_utf8(options).ok()?.split(',');
                let controllers = options.filter(|option| !matches!(*option, "rw" | "ro"));
                let controllers = controllers.map(str::to_owned).collect();
                Some(CgroupMount::Legacy(LegacyHierarchy { mount, controllers }))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEGACY: &[u8] = b"\
        30 31 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n\
        32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw shared:9 - cgroup cgroup rw,cpu,cpuacct\n\
        35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n\
        40 31 0:37 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd\n\
        50 31 0:29 / /mnt/again rw - cgroup cgroup rw,cpu,cpuacct\n";
    const UNIFIED: &[u8] =
        b"41 31 0:38 / /sys/fs/cgroup/a\\040b rw - cgroup2 cgroup2 rw,nsdelegate\n";

    #[test]
    fn version_two_alone_is_unified() {
        let found = Hierarchies::detect(UNIFIED).unwrap();
        assert_eq!(
            found,
            Hierarchies::Unified {
                mount: "/sys/fs/cgroup/a b".into()
            }
        );
        let pids = found.directory(Controller::Pids, "kubepods").unwrap();
        assert_eq!(pids, Path::new("/sys/fs/cgroup/a b/kubepods"));
        assert_eq!(found.directories("k").len(), 1);
    }

    #[test]
    fn version_one_has_a_directory_for_each_controller() {
        let found = Hierarchies::detect(LEGACY).unwrap();
        let directory = |controller| found.directory(controller, "k");
        assert_eq!(
            directory(Controller::Cpu),
            Some("/sys/fs/cgroup/cpu,cpuacct/k".into())
        );
        assert_eq!(
            directory(Controller::Memory),
            Some("/sys/fs/cgroup/memory/k".into())
        );
        assert_eq!(directory(Controller::Pids), None);
        assert_eq!(found.directories("k").len(), 3);
    }

    #[test]
    fn a_version_two_mount_beside_version_one_only_counts_for_cleaning_up() {
        let found = Hierarchies::detect(&[UNIFIED, LEGACY].concat()).unwrap();
        assert_eq!(
            found.directory(Controller::Memory, "k"),
            Some("/sys/fs/cgroup/memory/k".into())
        );
        assert_eq!(found.directories("k").len(), 4);
    }

    #[test]
    fn version_one_without_controllers_leaves_them_to_version_two() {
        let named = b"40 31 0:37 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd\n";
        let found = Hierarchies::detect(&[named, UNIFIED].concat()).unwrap();
        assert!(matches!(found, Hierarchies::Unified { .. }));
    }

    #[test]
    fn a_node_without_cgroups_is_an_error_and_odd_lines_are_passed_over() {
        for table in [
            "",
            "\n\n",
            "garbage",
            "1 2 3 - cgroup",
            "1 2 0:1 / /x rw - ext4 /dev/sda rw",
        ] {
            let found = Hierarchies::detect(table.as_bytes());
            assert_eq!(found, Err(NoHierarchy), "{table:?}");
        }
        // Whoever may mount something can call it as he likes.
        let odd = b"1 2 0:1 / /\xff rw - fuse x rw\n";
        assert!(Hierarchies::detect(&[odd, UNIFIED].concat()).is_ok());
    }
}
