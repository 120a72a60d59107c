//! What the kernel says about the machine.

use std::fs;
use std::path::Path;

use nix::sys::statvfs::statvfs;
use nix::unistd::{SysconfVar, sysconf};
use node_layout::{DiskUsage, NodeCapacity};

use crate::error::IoContext as _;
use crate::error::NodeError;
use crate::linux::SystemPaths;

/// What the machine has; `storage` is on the file system of pods' directories.
pub(super) fn capacity(system: &SystemPaths, storage: &Path) -> Result<NodeCapacity, NodeError> {
    let meminfo = system.proc_dir.join("meminfo");
    let text = fs::read_to_string(&meminfo).context("read", &meminfo)?;
    let memory_bytes = memory_total(&text)
        .ok_or_else(|| NodeError::refused(&meminfo, "there is no MemTotal in it"))?;
    Ok(NodeCapacity {
        cpu_millis: cores()? * 1000,
        memory_bytes,
        ephemeral_storage_bytes: size_of_filesystem(storage)?,
        huge_page_sizes: huge_page_sizes(&system.sys_dir),
    })
}

/// Cores that are online, whether this process may use them or not.
fn cores() -> Result<u64, NodeError> {
    let online = sysconf(SysconfVar::_NPROCESSORS_ONLN).context("count", Path::new("cores"))?;
    Ok(online
        .and_then(|cores| u64::try_from(cores).ok())
        .unwrap_or(1)
        .max(1))
}

/// `MemTotal` in bytes; the kernel says it in kB of 1024 bytes.
fn memory_total(meminfo: &str) -> Option<u64> {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kilobytes.checked_mul(1024)
}

/// Of the nearest directory that exists: the pods' own may not have been made yet.
fn size_of_filesystem(path: &Path) -> Result<u64, NodeError> {
    let existing = path
        .ancestors()
        .find(|ancestor| ancestor.exists())
        .unwrap_or(Path::new("/"));
    let size = statvfs(existing).context("inspect", existing)?;
    Ok(size.blocks().saturating_mul(size.fragment_size()))
}

/// How full the file system of an existing path is.
pub(super) fn disk_usage(path: &Path) -> Result<DiskUsage, NodeError> {
    let usage = statvfs(path).context("inspect", path)?;
    Ok(DiskUsage {
        capacity_bytes: usage.blocks().saturating_mul(usage.fragment_size()),
        available_bytes: usage
            .blocks_available()
            .saturating_mul(usage.fragment_size()),
    })
}

/// From directories like `hugepages-2048kB`; none on a kernel without huge pages.
fn huge_page_sizes(sys_dir: &Path) -> Vec<u64> {
    let entries = fs::read_dir(sys_dir.join("kernel/mm/hugepages"))
        .into_iter()
        .flatten()
        .flatten();
    let mut sizes: Vec<u64> = entries
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let kilobytes = name.strip_prefix("hugepages-")?.strip_suffix("kB")?;
            kilobytes.parse::<u64>().ok()?.checked_mul(1024)
        })
        .collect();
    sizes.sort_unstable();
    sizes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_told_in_kilobytes() {
        let text = "MemTotal:       24686080 kB\nMemFree: 1 kB\n";
        assert_eq!(memory_total(text), Some(25_278_545_920));
        for text in [
            "",
            "MemFree: 1 kB",
            "MemTotal: x kB",
            "MemTotal: 5",
            "MemTotal: 99999999999999999999 kB",
        ] {
            assert_eq!(memory_total(text), None, "{text}");
        }
    }

    #[test]
    fn huge_page_sizes_are_read_in_order() {
        let sys = tempfile::tempdir().unwrap();
        assert!(huge_page_sizes(sys.path()).is_empty());
        for name in [
            "hugepages-1048576kB",
            "hugepages-2048kB",
            "other",
            "hugepages-xkB",
        ] {
            fs::create_dir_all(sys.path().join("kernel/mm/hugepages").join(name)).unwrap();
        }
        assert_eq!(huge_page_sizes(sys.path()), [2 << 20, 1 << 30]);
    }

    #[test]
    fn this_machine_has_something_of_everything() {
        let found = capacity(&SystemPaths::default(), Path::new("/nowhere/at/all")).unwrap();
        assert!(
            found.cpu_millis >= 1000 && found.memory_bytes > 1 << 20,
            "{found:?}"
        );
        assert!(found.ephemeral_storage_bytes > 1 << 20, "{found:?}");
    }
}
