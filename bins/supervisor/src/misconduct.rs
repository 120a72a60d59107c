//! What the servers report of their callers: what the status shows of it, and who is ended
//! for it. Plain values.

use bulkhead_api::v1;
use clock::UnixNanos;
use ipc::Refusal;
use topology::{Identities, Process};

use crate::policy::{Accusation, Accusations, Moment, RESTARTS_AN_HOUR, Verdict};
use crate::refused::{Refused, RefusedTable};

/// All that was reported.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Misconduct {
    refused: RefusedTable,
    accusations: Accusations,
}

/// When something was reported, by both clocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Heard {
    pub(crate) wall: UnixNanos,
    pub(crate) moment: Moment,
}

impl Misconduct {
    /// Takes note of what `server` has refused; `caller` is who runs by that pid as that
    /// user, if it is one of ours. Returns whom to end for it.
    pub(crate) fn hear(
        &mut self,
        server: Process,
        refusal: Refusal,
        caller: Option<Process>,
        identities: &Identities,
        heard: Heard,
    ) -> Option<Process> {
        let counts = self
            .refused
            .add(server, refusal, caller, heard.wall, identities);
        let caller = caller.filter(|_| counts && refusal.kind.cuts_off())?;
        let accusation = Accusation {
            server,
            caller,
            pid: refusal.pid,
            cut_off: refusal.count,
        };
        let what = refusal.kind.name();
        match self.accusations.hear(heard.moment, accusation) {
            Verdict::Shown => {
                tracing::warn!(%server, %caller, what, "cut off");
                None
            }
            // Shown by the status; here it would fill the log.
            Verdict::Disbelieved => None,
            Verdict::Restart => {
                tracing::error!(%server, %caller, what, "cut off again: restarting it");
                Some(caller)
            }
        }
    }

    /// What was refused to whom.
    pub(crate) fn refused(&self) -> &RefusedTable {
        &self.refused
    }

    /// Who is not believed about whom.
    pub(crate) fn disbelieved(&self, now: Moment) -> Vec<(Process, Process)> {
        self.accusations.disbelieved(now).collect()
    }
}

/// The row of a status.
pub(crate) fn row((server, refused): (Process, &Refused)) -> v1::Refused {
    let caller = refused.caller.map_or("", Process::name);
    v1::Refused {
        server: server.name().to_owned(),
        caller: caller.to_owned(),
        uid: refused.refusal.uid,
        kind: refused.refusal.kind.name().to_owned(),
        count: refused.total,
        last_unix_nanos: refused.last.0,
    }
}

/// For people: that a server is not believed about a caller.
pub(crate) fn disbelief((server, caller): &(Process, Process)) -> String {
    format!(
        "{server} has had {caller} restarted {RESTARTS_AN_HOUR} times within an hour for what it refused: it cannot for now, and one of the two is broken"
    )
}
