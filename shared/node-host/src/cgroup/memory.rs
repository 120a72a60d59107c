//! How much memory a cgroup has in use.

use std::fs;
use std::path::Path;

/// The memory of the cgroup and of those below it that cannot be dropped, as a kubelet
/// counts it: not pages of files that were not used lately. What has ended counts too, as
/// far as it left something in memory. `None` if there is no such cgroup.
pub(super) fn working_set(directory: &Path, is_unified: bool) -> Option<u64> {
    let (usage, idle) = match is_unified {
        true => ("memory.current", "inactive_file"),
        false => ("memory.usage_in_bytes", "total_inactive_file"),
    };
    let read = |name: &str| fs::read_to_string(directory.join(name)).ok();
    let usage: u64 = read(usage)?.trim().parse().ok()?;
    let stat = read("memory.stat")?;
    let mut lines = stat.lines().filter_map(|line| line.split_once(' '));
    let (_, idle) = lines.find(|(name, _)| *name == idle)?;
    Some(usage.saturating_sub(idle.trim().parse().ok()?))
}
