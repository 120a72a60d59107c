//! The cgroups of one test node, on every hierarchy that the machine has:
//! finding them, listing their processes, removing them.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use topology::Process;

/// The mount points of all cgroup hierarchies, version 1 and 2.
///
/// # Errors
/// When the mount table cannot be read.
pub fn hierarchies() -> Result<Vec<PathBuf>> {
    let table = fs::read_to_string("/proc/self/mountinfo").context("/proc/self/mountinfo")?;
    Ok(parse_hierarchies(&table)
        .into_iter()
        .map(|hierarchy| hierarchy.mount_point)
        .collect())
}

/// Makes the cgroup `name` for the node's own processes (not for pods) on one
/// hierarchy and returns its directory: they can be found and killed there.
///
/// # Errors
/// When no hierarchy is mounted or it refuses a new cgroup.
pub(crate) fn create_for_processes(name: &str) -> Result<PathBuf> {
    let table = fs::read_to_string("/proc/self/mountinfo").context("/proc/self/mountinfo")?;
    let hierarchy = choose(parse_hierarchies(&table)).context("no cgroup hierarchy is mounted")?;
    let directory = hierarchy.mount_point.join(name).join("host");
    fs::create_dir_all(&directory)
        .with_context(|| format!("cannot make the cgroup {}", directory.display()))?;
    Ok(directory)
}

/// Makes a cgroup of the node on every hierarchy that limits something, below which
/// each service gets one of its own, as systemd does with `Delegate=yes`.
///
/// # Errors
/// When a hierarchy refuses a new cgroup.
pub(crate) fn create_for_services(name: &str) -> Result<Vec<PathBuf>> {
    const LIMITING: [&str; 4] = ["memory", "pids", "cpu", "blkio"];
    let table = fs::read_to_string("/proc/self/mountinfo").context("/proc/self/mountinfo")?;
    let limits = |hierarchy: &Hierarchy| {
        let mut options = hierarchy.options.split(',');
        hierarchy.version_2 || options.any(|option| LIMITING.contains(&option))
    };
    let mut services = Vec::new();
    for hierarchy in parse_hierarchies(&table).into_iter().filter(limits) {
        let directory = hierarchy.mount_point.join(name).join("services");
        fs::create_dir_all(&directory)
            .with_context(|| format!("cannot make the cgroup {}", directory.display()))?;
        if hierarchy.version_2 {
            hand_down(&hierarchy.mount_point, &directory);
        }
        services.push(directory);
    }
    Ok(services)
}

/// Has controllers handed down to what is below `to`. What is refused is a limit that
/// cannot be tested.
fn hand_down(from: &Path, to: &Path) {
    for controller in ["memory", "pids", "cpu", "io"] {
        let levels: Vec<&Path> = to
            .ancestors()
            .take_while(|level| level.starts_with(from))
            .collect();
        for level in levels.into_iter().rev() {
            let _ = fs::write(
                level.join("cgroup.subtree_control"),
                format!("+{controller}"),
            );
        }
    }
}

/// Every process in the cgroup `name` and below, on every hierarchy.
///
/// # Errors
/// When the mount table cannot be read.
pub fn processes(name: &str) -> Result<Vec<u32>> {
    let mut found = Vec::new();
    for hierarchy in hierarchies()? {
        collect_processes(&hierarchy.join(name), &mut found);
    }
    found.sort_unstable();
    found.dedup();
    Ok(found)
}

/// The directories of the cgroups of a process of Bulkhead that were made for it alone.
///
/// # Errors
/// When it is gone.
pub fn own(process: Process, pid: u32) -> Result<Vec<PathBuf>> {
    let memberships = fs::read_to_string(format!("/proc/{pid}/cgroup"))?;
    let name = format!("/{process}");
    let paths = memberships
        .lines()
        .filter_map(|line| line.splitn(3, ':').nth(2))
        .filter(|path| path.ends_with(&name));
    let mut found = Vec::new();
    for path in paths {
        for mount in hierarchies()? {
            let directory = mount.join(path.trim_start_matches('/'));
            if directory.exists() && !found.contains(&directory) {
                found.push(directory);
            }
        }
    }
    Ok(found)
}

/// The processes in a cgroup, but for those below it.
///
/// # Errors
/// When it is gone.
pub fn members(directory: &Path) -> Result<Vec<u32>> {
    let listed = fs::read_to_string(directory.join("cgroup.procs"))?;
    Ok(listed
        .lines()
        .filter_map(|line| line.parse().ok())
        .collect())
}

/// Thaws the cgroup `name` and all below: a runtime that is killed leaves what it had
/// frozen as it is, and on version 1 a frozen process does not end.
///
/// # Errors
/// When the mount table cannot be read.
pub(crate) fn thaw(name: &str) -> Result<()> {
    for directory in existing(name)? {
        thaw_tree(&directory);
    }
    Ok(())
}

fn thaw_tree(directory: &Path) {
    let state = directory.join("freezer.state");
    if state.exists() {
        // Gone meanwhile is as good.
        let _ = fs::write(state, "THAWED");
    }
    for child in children(directory) {
        thaw_tree(&child);
    }
}

/// The directories of the cgroup `name` that exist, one a hierarchy.
///
/// # Errors
/// When the mount table cannot be read.
pub fn existing(name: &str) -> Result<Vec<PathBuf>> {
    Ok(hierarchies()?
        .into_iter()
        .map(|hierarchy| hierarchy.join(name))
        .filter(|path| path.exists())
        .collect())
}

/// Removes the empty cgroup `name` with everything below on every hierarchy.
///
/// # Errors
/// When one is not empty.
pub(crate) fn remove(name: &str) -> Result<()> {
    for directory in existing(name)? {
        remove_tree(&directory)
            .with_context(|| format!("cannot remove the cgroup {}", directory.display()))?;
    }
    Ok(())
}

struct Hierarchy {
    mount_point: PathBuf,
    version_2: bool,
    options: String,
}

fn parse_hierarchies(mountinfo: &str) -> Vec<Hierarchy> {
    mountinfo
        .lines()
        .filter_map(|line| {
            // "id parent major:minor root mount-point options [tags] - type source super-options"
            let (left, right) = line.split_once(" - ")?;
            let mount_point = left.split(' ').nth(4)?;
            let mut right = right.split(' ');
            let version_2 = match right.next()? {
                "cgroup" => false,
                "cgroup2" => true,
                _ => return None,
            };
            Some(Hierarchy {
                mount_point: PathBuf::from(mount_point),
                version_2,
                options: right.nth(1).unwrap_or("").to_owned(),
            })
        })
        .collect()
}

/// A version 1 hierarchy whose new cgroups need no setup (cpuset would), or
/// the version 2 one.
fn choose(hierarchies: Vec<Hierarchy>) -> Option<Hierarchy> {
    const PREFERRED: [&str; 4] = ["pids", "freezer", "memory", "devices"];
    let rank = |hierarchy: &Hierarchy| {
        if hierarchy.version_2 {
            return PREFERRED.len();
        }
        let controllers: Vec<&str> = hierarchy.options.split(',').collect();
        PREFERRED
            .iter()
            .position(|name| controllers.contains(name))
            .unwrap_or(PREFERRED.len() + 1)
    };
    hierarchies.into_iter().min_by_key(rank)
}

fn collect_processes(directory: &Path, found: &mut Vec<u32>) {
    // Whatever vanishes meanwhile has no processes any more.
    if let Ok(text) = fs::read_to_string(directory.join("cgroup.procs")) {
        found.extend(
            text.lines()
                .filter_map(|line| line.trim().parse::<u32>().ok()),
        );
    }
    for child in children(directory) {
        collect_processes(&child, found);
    }
}

fn remove_tree(directory: &Path) -> io::Result<()> {
    for child in children(directory) {
        remove_tree(&child)?;
    }
    match fs::remove_dir(directory) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn children(directory: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(directory) else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.path())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const VERSION_1: &str = "\
30 29 0:26 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
31 30 0:27 / /sys/fs/cgroup/cpuset rw,relatime - cgroup cgroup rw,cpuset
32 30 0:28 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct
33 30 0:29 / /sys/fs/cgroup/pids rw,relatime shared:8 - cgroup cgroup rw,pids
34 30 0:30 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
";

    #[test]
    fn all_hierarchies_are_found_and_pids_is_preferred() {
        let found = parse_hierarchies(VERSION_1);
        assert_eq!(found.len(), 4);
        let chosen = choose(found).unwrap();
        assert_eq!(chosen.mount_point, Path::new("/sys/fs/cgroup/pids"));
    }

    #[test]
    fn a_pure_version_2_machine_uses_its_one_hierarchy() {
        let found = parse_hierarchies("30 29 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
        assert_eq!(
            choose(found).unwrap().mount_point,
            Path::new("/sys/fs/cgroup")
        );
    }

    #[test]
    fn a_hierarchy_that_needs_setup_comes_last() {
        let found = parse_hierarchies(
            "31 30 0:27 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n\
             34 30 0:30 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n",
        );
        assert_eq!(
            choose(found).unwrap().mount_point,
            Path::new("/sys/fs/cgroup/unified")
        );
    }
}
