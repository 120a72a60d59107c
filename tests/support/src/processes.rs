//! Finding and ending every process of a test node, also those whose parent
//! is gone and those that a runtime moved elsewhere.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::Duration;

use anyhow::{Context as _, Result};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::cgroup;
use crate::wait::wait_in_any_case;

/// Set for every process that a node starts; a container runtime hands it on
/// to its shims.
pub(crate) const MARKER: &str = "BULKHEAD_TEST_NODE";

/// Killing is quick; what takes longer hangs in the kernel.
const KILL_TIMEOUT: Duration = Duration::from_secs(20);

/// Every living process of the node: in its cgroups, marked as its own, or
/// descending from one of these.
pub(crate) fn of_node(name: &str) -> Result<BTreeSet<u32>> {
    let mut found: BTreeSet<u32> = cgroup::processes(name)?.into_iter().collect();
    let wanted = format!("{MARKER}={name}");
    let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for entry in fs::read_dir("/proc").context("/proc")?.flatten() {
        let Some(pid) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse::<u32>().ok())
        else {
            continue;
        };
        // A process that ended meanwhile is of no interest.
        let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else {
            continue;
        };
        let Some((state, parent)) = parse_stat(&stat) else {
            continue;
        };
        if state == 'Z' || state == 'X' {
            found.remove(&pid);
            continue;
        }
        children.entry(parent).or_default().push(pid);
        let marked = fs::read(entry.path().join("environ")).is_ok_and(|bytes| {
            bytes
                .split(|byte| *byte == 0)
                .any(|v| v == wanted.as_bytes())
        });
        if marked {
            found.insert(pid);
        }
    }
    let mut open: Vec<u32> = found.iter().copied().collect();
    while let Some(pid) = open.pop() {
        for child in children.get(&pid).into_iter().flatten() {
            if found.insert(*child) {
                open.push(*child);
            }
        }
    }
    found.remove(&std::process::id());
    Ok(found)
}

/// Kills until none is left.
pub(crate) fn kill_all(name: &str) -> Result<()> {
    wait_in_any_case(
        "the processes of the test node to end",
        KILL_TIMEOUT,
        || {
            let found = of_node(name).map_err(|error| format!("{error:#}"))?;
            for pid in &found {
                // It may have ended by itself since it was found.
                let _ = kill(
                    Pid::from_raw(i32::try_from(*pid).unwrap_or(i32::MAX)),
                    Signal::SIGKILL,
                );
            }
            if found.is_empty() {
                Ok(())
            } else {
                cgroup::thaw(name).map_err(|error| format!("{error:#}"))?;
                Err(format!("processes {found:?} live"))
            }
        },
    )?;
    Ok(())
}

/// State and parent from `/proc/<pid>/stat`; the name in between may hold
/// blanks and parentheses.
fn parse_stat(stat: &str) -> Option<(char, u32)> {
    let mut fields = stat.get(stat.rfind(')')? + 1..)?.split_whitespace();
    let state = fields.next()?.chars().next()?;
    Some((state, fields.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_name_cannot_mislead() {
        assert_eq!(parse_stat("12 (a) Z 1 (b) S 7 12 12 0"), Some(('S', 7)));
        assert_eq!(parse_stat("12 (sh) Z 1 0"), Some(('Z', 1)));
        assert_eq!(parse_stat("12 (sh"), None);
    }
}
