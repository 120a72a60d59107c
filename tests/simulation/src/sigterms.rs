//! When a container is asked to end whose preStop hook is over.

use std::collections::BTreeSet;
use std::time::Duration;

use clock::UnixNanos;
use simulated_runtime::{Entry, Happening};

use crate::desired::Desired;

/// What may pass between the end of a preStop hook and the SIGTERM while all processes run
/// and the runtime works: pod-worker-pool that was restarted learns what is to be stopped,
/// and looks once a second whether a hook of the run before has ended.
const SIGTERM_WITHIN: Duration = Duration::from_millis(2500);

/// Containers that were asked to end long after their preStop hook had ended. `quiet_since`
/// answers since when nothing has gone wrong, of a moment at which nothing does.
pub(crate) fn late(
    history: &[Entry],
    versions: &[Desired],
    quiet_since: impl Fn(UnixNanos) -> Option<UnixNanos>,
) -> Vec<String> {
    let after_start = versions.iter().filter_map(Desired::command_after_start);
    let after_start: BTreeSet<[String; 3]> = after_start.collect();
    let is_pre_stop = |it: &Happening| match it {
        Happening::Executed { command } => !after_start.iter().any(|other| other == &command[..]),
        _ => false,
    };
    let mut late = Vec::new();
    let mut asked = BTreeSet::new();
    for (index, entry) in history.iter().enumerate() {
        if entry.happening != Happening::Terminated || !asked.insert(&entry.id) {
            continue;
        }
        let before = || history[..index].iter().filter(|it| it.id == entry.id);
        let begun = before().filter(|it| matches!(it.happening, Happening::Executed { .. }));
        let ended = before().filter(|it| it.happening == Happening::CommandEnded);
        let all_have_ended = begun.count() == ended.clone().count();
        let over = ended.map(|it| it.at).next_back();
        let (Some(over), true, Some(quiet)) = (over, all_have_ended, quiet_since(entry.at)) else {
            continue;
        };
        let waited = entry.at.since(over.max(quiet));
        if before().any(|it| is_pre_stop(&it.happening)) && waited > SIGTERM_WITHIN {
            let (name, uid) = (&entry.container, &entry.pod_uid);
            late.push(format!(
                "{name} of {uid} had its SIGTERM {waited:?} after its preStop hook"
            ));
        }
    }
    late
}
