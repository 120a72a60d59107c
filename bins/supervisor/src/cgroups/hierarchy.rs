//! Which hierarchies of cgroups the machine has, and where in each the supervisor was
//! started: its own are made below that. Pure, from the kernel's texts.

use std::path::{Component, Path, PathBuf};

use node_layout::mount_path;

/// What a cgroup can limit, as far as it is used here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Controller {
    Memory,
    Tasks,
    Processor,
    Disk,
}

impl Controller {
    pub(super) const ALL: [Controller; 4] = [
        Controller::Memory,
        Controller::Tasks,
        Controller::Processor,
        Controller::Disk,
    ];

    /// The kernel's name for it.
    pub(super) fn name(self, version: Version) -> &'static str {
        match self {
            Controller::Memory => "memory",
            Controller::Tasks => "pids",
            Controller::Processor => "cpu",
            Controller::Disk if version == Version::One => "blkio",
            Controller::Disk => "io",
        }
    }
}

/// Of the cgroup interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    /// A hierarchy for each controller, or for some.
    One,
    /// One hierarchy, which hands controllers down.
    Two,
}

/// A hierarchy that is of use here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hierarchy {
    pub(super) version: Version,
    /// The directory of the cgroup that the supervisor is in.
    pub(super) own: PathBuf,
    /// Of version 1; those of version 2 are listed in a file of each cgroup.
    pub(super) controllers: Vec<Controller>,
}

/// Finds the hierarchies in `/proc/self/mountinfo` and `/proc/self/cgroup`. One of
/// version 2 beside some of version 1 limits nothing, and to put a process into it
/// takes milliseconds: it counts where it is alone.
pub(super) fn find(mounts: &str, memberships: &str) -> Vec<Hierarchy> {
    let mounts: Vec<Mount<'_>> = mounts.lines().filter_map(Mount::parse).collect();
    let found = memberships.lines().filter_map(|line| {
        // `ID:CONTROLLERS:PATH`; version 2 has no controllers there.
        let mut parts = line.splitn(3, ':').skip(1);
        let (names, path) = (parts.next()?, Path::new(parts.next()?));
        let version = if names.is_empty() {
            Version::Two
        } else {
            Version::One
        };
        let names: Vec<&str> = names.split(',').collect();
        let is_of = |mount: &&Mount<'_>| match version {
            Version::Two => mount.version == Version::Two,
            Version::One => {
                mount.version == Version::One && names.iter().all(|name| mount.options(name))
            }
        };
        let named = |controller: &Controller| names.contains(&controller.name(Version::One));
        let hierarchy = Hierarchy {
            version,
            own: mounts.iter().find(is_of)?.directory(path)?,
            controllers: Controller::ALL.into_iter().filter(named).collect(),
        };
        let is_of_use = version == Version::Two || !hierarchy.controllers.is_empty();
        is_of_use.then_some(hierarchy)
    });
    let mut found: Vec<Hierarchy> = found.collect();
    if found.iter().any(|it| it.version == Version::One) {
        found.retain(|it| it.version == Version::One);
    }
    found
}

/// A line of the mount table:
/// `ID PARENT DEVICE ROOT MOUNT OPTIONS [TAGS] - TYPE SOURCE SUPER-OPTIONS`.
struct Mount<'a> {
    version: Version,
    root: PathBuf,
    point: PathBuf,
    options: &'a str,
}

impl<'a> Mount<'a> {
    fn parse(line: &'a str) -> Option<Mount<'a>> {
        let (mount, file_system) = line.split_once(" - ")?;
        let mut mount = mount.split(' ').skip(3);
        let mut file_system = file_system.split(' ');
        let version = match file_system.next()? {
            "cgroup" => Version::One,
            "cgroup2" => Version::Two,
            _ => return None,
        };
        Some(Mount {
            version,
            root: mount_path(mount.next()?.as_bytes()),
            point: mount_path(mount.next()?.as_bytes()),
            options: file_system.nth(1)?,
        })
    }

    fn options(&self, name: &str) -> bool {
        self.options.split(',').any(|option| option == name)
    }

    /// Where a cgroup of this hierarchy is seen; not at all where only another part of
    /// it is mounted.
    fn directory(&self, path: &Path) -> Option<PathBuf> {
        let below = path.strip_prefix(&self.root).ok()?;
        let is_plain = |part| matches!(part, Component::Normal(_));
        below
            .components()
            .all(is_plain)
            .then(|| self.point.join(below))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HYBRID: &str = "\
        31 30 0:27 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n\
        32 30 0:28 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
        33 30 0:29 / /sys/fs/cgroup/pids rw shared:3 - cgroup cgroup rw,pids\n\
        34 30 0:30 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd\n\
        35 30 0:31 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";

    #[test]
    fn each_hierarchy_of_use_is_found_where_the_supervisor_is() {
        let memberships = "9:name=systemd:/system.slice/b.service\n4:memory:/a\n\
            2:cpu,cpuacct:/\n8:pids:/system.slice/b.service\n0::/system.slice/b.service\n";
        let found = find(HYBRID, memberships);
        let found: Vec<_> = found
            .iter()
            .map(|it| (it.own.to_str().unwrap(), it.version, &it.controllers[..]))
            .collect();
        assert_eq!(
            found,
            [
                (
                    "/sys/fs/cgroup/memory/a",
                    Version::One,
                    &[Controller::Memory][..]
                ),
                (
                    "/sys/fs/cgroup/cpu,cpuacct/",
                    Version::One,
                    &[Controller::Processor]
                ),
                (
                    "/sys/fs/cgroup/pids/system.slice/b.service",
                    Version::One,
                    &[Controller::Tasks]
                ),
            ]
        );
    }

    #[test]
    fn only_what_is_mounted_is_found() {
        let root = "35 30 0:31 /pod/x /sys/fs/cgroup\\040two rw - cgroup2 cgroup2 rw\n";
        for (mounts, memberships, expected) in [
            (root, "0::/pod/x/y", Some("/sys/fs/cgroup two/y")),
            (root, "0::/pod/x", Some("/sys/fs/cgroup two/")),
            // Not below what is mounted.
            (root, "0::/pod/z", None),
            // Above the root of the cgroup namespace.
            ("1 2 0:3 / /c rw - cgroup2 cgroup2 rw", "0::/../x", None),
            ("", "0::/", None),
            ("garbage\n\n - cgroup2", "garbage\n\n1:2", None),
        ] {
            let found = find(mounts, memberships);
            let found = found.first().map(|it| it.own.to_str().unwrap());
            assert_eq!(found, expected, "{memberships}");
        }
    }
}
