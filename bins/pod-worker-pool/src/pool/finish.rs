//! What is under way at the runtime when the process is to stop.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::future::join_all;

use super::entry::Entry;
use crate::turns::Turns;

/// How long that may go on: the process is killed two seconds later.
const FINISH: Duration = Duration::from_secs(4);

/// What the workers have under way that is not waited for: stops, hooks and pulls. As long as
/// the process has connections it has to be kept: whoever drops a call takes it back, and
/// containerd then kills the hook, or forgets a SIGTERM that it was about to send. The end of
/// the process itself takes nothing back (`keep_open_of_run`).
pub(crate) struct UnderWay(
    #[expect(dead_code, reason = "it is only kept")] BTreeMap<String, Entry>,
);

/// Lets the calls end that make or start something of these pods, of which no step runs:
/// when nobody is connected any more, containerd kills what it has just started. Calls that
/// wait for their turn are not made.
pub(super) async fn finish_calls(workers: BTreeMap<String, Entry>, turns: &Turns) -> UnderWay {
    let finished = workers.iter().map(|(uid, entry)| {
        turns.steps_end(uid);
        async { entry.memory.lock().await.finish_calls(FINISH).await }
    });
    join_all(finished).await;
    UnderWay(workers)
}
