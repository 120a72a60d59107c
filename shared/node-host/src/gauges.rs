//! How much is used: of memory and processes by the machine, of a file system, and of the
//! disk by a pod. Blocking.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::sys::stat::stat;
use nix::sys::statvfs::statvfs;
use node_layout::paths::{CONFIG_MAP, CONTAINERS, EMPTY_DIR, HOSTS_FILE, VOLUMES, pods};
use node_layout::{FilesystemUsage, MachineUsage, PodFilesUsage, TreeSize};
use pod::PodIdentity;
use pod::identity::check_container_name;

use crate::directory::Directory;
use crate::error::{IoContext as _, NodeError};
use crate::pod_logs;
use crate::shared::{Shared, SystemPaths};
use crate::tree_size::{BLOCK_BYTES, Extent, tree_size};

/// Memory and processes of the whole machine.
pub(super) fn machine(system: &SystemPaths) -> Result<MachineUsage, NodeError> {
    let meminfo = system.proc_dir.join("meminfo");
    let text = fs::read_to_string(&meminfo).context("read", &meminfo)?;
    let (memory_capacity_bytes, memory_available_bytes) = memory(&text)
        .ok_or_else(|| NodeError::refused(&meminfo, "there is no MemTotal or MemFree in it"))?;
    let number = |name: &str| {
        let path = system.proc_dir.join("sys/kernel").join(name);
        let text = fs::read_to_string(&path).context("read", &path)?;
        let number = text.trim().parse::<u64>();
        number.map_err(|_| NodeError::refused(&path, "it is no number"))
    };
    let loadavg = system.proc_dir.join("loadavg");
    let text = fs::read_to_string(&loadavg).context("read", &loadavg)?;
    let processes = processes(&text)
        .ok_or_else(|| NodeError::refused(&loadavg, "there is no number of processes in it"))?;
    Ok(MachineUsage {
        memory_capacity_bytes,
        memory_available_bytes,
        max_processes: number("pid_max")?.min(number("threads-max")?),
        processes,
    })
}

/// Capacity and what is not in the working set: free, or read from files and not used
/// lately. On cgroup v2 the kubelet takes the same lines for its root cgroup.
fn memory(meminfo: &str) -> Option<(u64, u64)> {
    let bytes = |name| bytes_of(meminfo, name);
    let capacity = bytes("MemTotal")?;
    let available = bytes("MemFree")?.saturating_add(bytes("Inactive(file)").unwrap_or(0));
    Some((capacity, available.min(capacity)))
}

/// What a line of meminfo says, in bytes; the kernel says it in kB of 1024 bytes.
pub(super) fn bytes_of(meminfo: &str, name: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
    let line = line.strip_prefix(':')?.trim();
    let kilobytes: u64 = line.strip_suffix("kB")?.trim().parse().ok()?;
    kilobytes.checked_mul(1024)
}

/// From a line like `0.20 0.18 0.12 1/80 11206`: 80.
fn processes(loadavg: &str) -> Option<u64> {
    let (_, all) = loadavg.split_whitespace().nth(3)?.split_once('/')?;
    all.parse().ok()
}

/// Of the nearest directory that exists: the pods' own may not have been made yet.
pub(super) fn filesystem(path: &Path) -> Result<FilesystemUsage, NodeError> {
    let existing = path
        .ancestors()
        .find(|ancestor| ancestor.exists())
        .unwrap_or(Path::new("/"));
    let usage = statvfs(existing).context("inspect", existing)?;
    let unit = usage.fragment_size();
    Ok(FilesystemUsage {
        device: stat(existing).context("inspect", existing)?.st_dev,
        capacity_bytes: usage.blocks().saturating_mul(unit),
        available_bytes: usage.blocks_available().saturating_mul(unit),
        inodes: usage.files(),
        inodes_free: usage.files_free(),
    })
}

/// How long the files of one pod are gone through: a million of them, on a slow disk.
const FILES_MAY_TAKE: Duration = Duration::from_secs(20);

/// What a pod has on the node's disk; of one with very many files so much at least, which
/// is said then.
pub(super) fn pod_files(
    node: &Shared,
    pod: &PodIdentity,
    empty_dirs: &[String],
) -> Result<PodFilesUsage, NodeError> {
    let mut usage = PodFilesUsage::default();
    let until = Instant::now() + FILES_MAY_TAKE;
    // A tree that takes long leaves those after it their share.
    let size = |directory: &Directory, trees_left: usize| {
        let left = until.saturating_duration_since(Instant::now());
        let share = left / u32::try_from(trees_left.max(1)).unwrap_or(u32::MAX);
        tree_size(directory.fd(), Instant::now() + share).context("measure", directory.path())
    };
    if let Some(logs) = pod_logs::find(node, pod)? {
        let names = logs.names()?;
        let trees = names.len() + empty_dirs.len();
        for (index, name) in names.into_iter().enumerate() {
            if check_container_name(&name).is_ok()
                && let Ok(Some(directory)) = logs.child(&name)
            {
                let (size, extent) = size(&directory, trees - index)?;
                usage.is_partial |= extent != Extent::Whole;
                usage.logs.insert(name, size);
            }
        }
    }
    let Some(pod) = Directory::open_if_there(&pods(&node.root_dir))?
        .map(|pods| pods.child(pod.uid()))
        .transpose()?
        .flatten()
    else {
        return Ok(usage);
    };
    if let Some(hosts) = pod.file_status(HOSTS_FILE)? {
        let blocks = u64::try_from(hosts.st_blocks).unwrap_or(0);
        usage.other += TreeSize {
            bytes: blocks.saturating_mul(BLOCK_BYTES),
            inodes: 1,
        };
    }
    let volumes = pod.child(VOLUMES)?;
    let of_kind = |kind| match &volumes {
        Some(volumes) => volumes.child(kind),
        None => Ok(None),
    };
    let others = [pod.child(CONTAINERS)?, of_kind(CONFIG_MAP)?];
    for (index, directory) in others.iter().flatten().enumerate() {
        let (size, extent) = size(directory, 2 - index + empty_dirs.len())?;
        usage.is_partial |= extent != Extent::Whole;
        usage.other += size;
    }
    let Some(volumes) = of_kind(EMPTY_DIR)? else {
        return Ok(usage);
    };
    for (index, name) in empty_dirs.iter().enumerate() {
        if let Some(volume) = volumes.child(name)? {
            let (size, extent) = size(&volume, empty_dirs.len() - index)?;
            usage.is_partial |= extent != Extent::Whole;
            if extent == Extent::TooDeep {
                usage.too_deep.insert(name.clone());
            }
            usage.volumes.insert(name.clone(), size);
        }
    }
    Ok(usage)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_told_in_kilobytes() {
        let text = "MemTotal:       24686080 kB\nMemFree: 1 kB\n";
        assert_eq!(bytes_of(text, "MemTotal"), Some(25_278_545_920));
        for text in [
            "",
            "MemFree: 1 kB",
            "MemTotal: x kB",
            "MemTotal: 5",
            "MemTotal: 99999999999999999999 kB",
        ] {
            assert_eq!(bytes_of(text, "MemTotal"), None, "{text}");
        }
    }

    #[test]
    fn what_is_available_is_free_or_read_from_files_and_not_used() {
        let text = "MemTotal:       1000 kB\nMemFree:  100 kB\nMemAvailable: 900 kB\n\
                    Inactive:  999 kB\nInactive(anon): 9 kB\nInactive(file):  50 kB\n";
        assert_eq!(memory(text), Some((1000 << 10, 150 << 10)));
        let old = "MemTotal: 1000 kB\nMemFree: 100 kB\n";
        assert_eq!(memory(old), Some((1000 << 10, 100 << 10)));
        for text in [
            "",
            "MemTotal: 5 kB",
            "MemFree: 5 kB",
            "MemTotal: x kB\nMemFree: 1 kB",
        ] {
            assert_eq!(memory(text), None, "{text}");
        }
    }

    #[test]
    fn processes_are_the_second_number_of_the_fourth_field() {
        assert_eq!(processes("0.20 0.18 0.12 1/80 11206\n"), Some(80));
        for text in ["", "0.20 0.18 0.12", "0 0 0 80 1", "0 0 0 1/x 1"] {
            assert_eq!(processes(text), None, "{text}");
        }
    }

    #[test]
    fn this_machine_uses_something_of_everything() {
        let used = machine(&SystemPaths::default()).unwrap();
        assert!(used.memory_available_bytes > 0, "{used:?}");
        assert!(
            used.memory_available_bytes < used.memory_capacity_bytes,
            "{used:?}"
        );
        assert!(
            0 < used.processes && used.processes < used.max_processes,
            "{used:?}"
        );
        let found = filesystem(Path::new("/nowhere/at/all")).unwrap();
        assert!(found.available_bytes <= found.capacity_bytes, "{found:?}");
        assert!(found.capacity_bytes > 1 << 20, "{found:?}");
        assert_eq!(found.device, filesystem(Path::new("/")).unwrap().device);
    }
}
