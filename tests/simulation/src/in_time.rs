//! By when a node has to be as desired once nothing goes wrong any more. What one mechanism
//! leaves undone another one often does later: only the time shows it.

use std::collections::BTreeMap;
use std::time::Duration;

use clock::UnixNanos;
use simulated_runtime::{Happening, SimulatedRuntime};

use crate::desired::Desired;
use crate::orders::command_failed_at;
use crate::targets::Targets;
use crate::uids::uids_by_version;

/// What a step waits for that failed just before the faults ended (15 s; the longest wait of
/// a process before its restart is shorter), the longest grace (5 s), a start and what is
/// tried again: no wait for a periodic look (60 s and more) has room in it.
const SETTLED_WITHIN: Duration = Duration::from_secs(25);

/// What a start takes when its wait is over.
const START_TAKES: Duration = Duration::from_secs(10);

/// A hang is noticed by a probe, and the program gets its grace.
const HANG_TAKES: Duration = Duration::from_secs(15);

/// The same by a startup probe, which allows for ten failures.
const HANG_AT_START_TAKES: Duration = Duration::from_secs(35);

/// What a container waits for after its second exit; each wait after it is twice as long.
const FIRST_BACK_OFF: Duration = Duration::from_secs(10);

/// By when all pods must be as desired if nothing happens to them from now on.
pub(crate) fn deadline(
    now: UnixNanos,
    runtime: &SimulatedRuntime,
    targets: &Targets,
    desired: &BTreeMap<String, Desired>,
) -> UnixNanos {
    let history = runtime.history();
    let uids = uids_by_version(&history);
    let mut deadline = now.plus(SETTLED_WITHIN);
    for pod in desired.values() {
        let Some(uid) = uids.get(&pod.version_label()) else {
            continue;
        };
        for name in pod.servers().iter().chain(pod.once()) {
            let of_container = history
                .iter()
                .filter(|entry| entry.pod_uid == *uid && entry.container == **name);
            let (mut exits, mut running) = (0_u32, None);
            let mut exited_at = now;
            for entry in of_container {
                match entry.happening {
                    Happening::Started => running = Some(&entry.id),
                    Happening::Exited { .. } => {
                        (exits, running, exited_at) = (exits + 1, None, entry.at);
                    }
                    _ => {}
                }
            }
            let hangs = running.is_some_and(|id| targets.hung_since(id).is_some());
            if hangs {
                let takes = match pod.start_time() {
                    Some(_) => HANG_AT_START_TAKES,
                    None => HANG_TAKES,
                };
                (exits, exited_at) = (exits + 1, now.plus(takes));
            }
            // Its size, or a postStart hook that failed, may have it stopped once more, by a
            // pool that comes back first.
            let is_resized = running.is_some() && pod.resize_restarts_since(name).is_some();
            let hook_failed = running.is_some_and(|id| command_failed_at(&history, id).is_some());
            if is_resized || hook_failed {
                (exits, exited_at) = (exits + 1, exited_at.max(now.plus(SETTLED_WITHIN)));
            }
            if running.is_none() || hangs || is_resized || hook_failed {
                let due = exited_at.plus(wait_after(exits)).plus(START_TAKES);
                deadline = deadline.max(due);
            }
        }
    }
    deadline
}

/// What a container waits for after so many exits.
fn wait_after(exits: u32) -> Duration {
    match exits.checked_sub(2) {
        None => Duration::ZERO,
        Some(doublings) => FIRST_BACK_OFF * 2_u32.saturating_pow(doublings),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_restart_comes_at_once_and_each_wait_after_it_doubles() {
        for (exits, seconds) in [(0, 0), (1, 0), (2, 10), (3, 20), (4, 40)] {
            assert_eq!(wait_after(exits), Duration::from_secs(seconds));
        }
    }
}
