//! What the processes have refused to their callers, for `bulkhead status`. Plain values.

use std::collections::BTreeMap;

use clock::UnixNanos;
use ipc::{Refusal, RefusalKind};
use topology::{Identities, Process};

/// What one server has refused one caller, of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    /// The latest: whom, and what.
    pub(crate) refusal: Refusal,
    /// The process whose user it was; of root, as which several run, only one that ran.
    pub(crate) caller: Option<Process>,
    /// All of them since the supervisor started.
    pub(crate) total: u64,
    /// When the latest was reported.
    pub(crate) last: UnixNanos,
}

/// All of them. It has a row for each server, user that may call it, and kind, and one
/// for each server and all who may not: what else a server tells is left out. So a server
/// that lies fills nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RefusedTable(BTreeMap<(Process, Option<u32>, RefusalKind), Refused>);

impl RefusedTable {
    /// Adds what a server has reported, of `caller` if that process ran. Whether it is a
    /// report that counts.
    pub(crate) fn add(
        &mut self,
        server: Process,
        refusal: Refusal,
        caller: Option<Process>,
        now: UnixNanos,
        identities: &Identities,
    ) -> bool {
        let may_call = identities.may_call(refusal.uid, server);
        if may_call == (refusal.kind == RefusalKind::Connection) {
            return false;
        }
        let caller = caller.or_else(|| identities.process_of(refusal.uid));
        let user = may_call.then_some(refusal.uid);
        let row = self.0.entry((server, user, refusal.kind));
        let total = row.or_insert(Refused {
            refusal,
            caller,
            total: 0,
            last: now,
        });
        *total = Refused {
            refusal,
            caller,
            total: total.total.saturating_add(refusal.count),
            last: now,
        };
        true
    }

    /// By server, caller and kind.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Process, &Refused)> {
        self.0
            .iter()
            .map(|((server, _, _), refused)| (*server, refused))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_process_is_named_by_its_user_and_root_by_its_pid() {
        let identities = Identities::from_base(64_000).unwrap();
        let user = |process| identities.uid(process);
        let (pool, pleg) = (Process::PodWorkerPool, Process::Pleg);
        for (uid, running, kind, expected) in [
            (
                user(pleg),
                Some(pleg),
                RefusalKind::ForeignService,
                Some(pleg),
            ),
            // It has ended by now, or another program runs as its user.
            (user(pleg), None, RefusalKind::ForeignService, Some(pleg)),
            (
                user(Process::ConfigSourcer),
                None,
                RefusalKind::Connection,
                Some(Process::ConfigSourcer),
            ),
            (0, Some(pool), RefusalKind::UnknownService, Some(pool)),
            (0, None, RefusalKind::UnknownService, None),
            (1000, None, RefusalKind::Connection, None),
        ] {
            let refusal = Refusal {
                uid,
                pid: 1,
                kind,
                count: 1,
            };
            let mut table = RefusedTable::default();
            table.add(pool, refusal, running, UnixNanos(1), &identities);
            let named: Vec<_> = table.iter().map(|(_, refused)| refused.caller).collect();
            assert_eq!(named, [expected], "uid {uid}");
        }
    }

    #[test]
    fn a_server_that_lies_fills_nothing_and_accuses_only_its_callers() {
        let identities = Identities::from_base(64_000).unwrap();
        let mut table = RefusedTable::default();
        let mut counted = 0;
        // The users of the agent are a few from the base on.
        for uid in (0..1_000).chain(63_000..66_000).chain([u32::MAX]) {
            for kind in RefusalKind::ALL {
                let refusal = Refusal {
                    uid,
                    pid: 1,
                    kind,
                    count: 1,
                };
                let server = Process::PodWorkerPool;
                let adds = table.add(server, refusal, None, UnixNanos(1), &identities);
                let is_caller = identities.may_call(uid, server);
                assert_eq!(adds, is_caller != (kind == RefusalKind::Connection));
                counted += u64::from(adds);
            }
        }
        let callers = identities.callers(Process::PodWorkerPool).len() + 1;
        let rows = callers * (RefusalKind::ALL.len() - 1) + 1;
        assert_eq!(table.iter().count(), rows);
        let total: u64 = table.iter().map(|(_, refused)| refused.total).sum();
        assert_eq!(total, counted);
    }
}
