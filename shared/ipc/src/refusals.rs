//! What is logged of refused callers: the first refusal of a user at once, and how many
//! followed once a minute. Whoever is refused again and again cannot push the rest out of
//! the log. Whoever supervises this process is told of them as well.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use topology::{Identities, Process};

use crate::limits::REFUSED_CALL_BYTES;
use crate::peer::{Caller, Peer};
use crate::refusal::{Refusal, RefusalKind};
use crate::reports::Reports;

/// How long refusals are only counted after one was logged.
const QUIET: Duration = Duration::from_secs(60);

/// Users that are counted apart; all others are counted together.
const MAX_USERS: usize = 8;

/// Who is counted: a user, or all for whom there is no count of their own.
type Counted = Option<u32>;

/// Refusals of one server.
#[derive(Clone, Debug)]
pub(crate) struct Refusals {
    server: Process,
    identities: Arc<Identities>,
    counts: Arc<Mutex<BTreeMap<Counted, u64>>>,
    reports: Option<Reports>,
}

impl Refusals {
    pub(crate) fn new(
        server: Process,
        identities: Arc<Identities>,
        reports: Option<Reports>,
    ) -> Refusals {
        Refusals {
            server,
            identities,
            counts: Arc::default(),
            reports,
        }
    }

    /// Notes that a call was refused, or a message of it; `what` was asked for. The
    /// connection is closed where the kind asks for that, and then only told of once.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub(crate) fn note_call(&self, caller: &Caller, kind: RefusalKind, what: &str) {
        caller.intake.charge(REFUSED_CALL_BYTES);
        if !kind.cuts_off() || caller.cut_off() {
            self.report(caller.peer, kind);
        }
        self.log(caller.peer, what);
    }

    /// Notes that a connection was refused; `what` says which.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub(crate) fn note_connection(&self, peer: Peer, kind: RefusalKind, what: &str) {
        self.report(peer, kind);
        self.log(peer, what);
    }

    fn report(&self, peer: Peer, kind: RefusalKind) {
        if let Some(reports) = &self.reports {
            reports.add(Refusal {
                uid: peer.uid,
                pid: peer.pid.unwrap_or(0),
                kind,
                count: 1,
            });
        }
    }

    fn log(&self, peer: Peer, what: &str) {
        let Some(counted) = self.count(peer.uid) else {
            return;
        };
        tracing::warn!(
            uid = peer.uid,
            pid = peer.pid,
            process = self.identities.process_of(peer.uid).map(Process::name),
            what,
            "refused what the topology does not permit"
        );
        let refusals = self.clone();
        tokio::spawn(async move {
            tokio::time::sleep(QUIET).await;
            let more = refusals.close(counted);
            let server = refusals.server;
            match counted {
                _ if more == 0 => {}
                Some(uid) => {
                    let caller = refusals.identities.name_of(uid);
                    tracing::warn!(uid, "{server} refused {caller} {more} times more");
                }
                None => tracing::warn!("{server} refused other users {more} times more"),
            }
        });
    }

    /// Counts one more; as whom, if it is the first since a summary.
    fn count(&self, uid: u32) -> Option<Counted> {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let has_own = counts.contains_key(&Some(uid)) || counts.len() < MAX_USERS;
        let counted = has_own.then_some(uid);
        let count = counts.entry(counted).or_default();
        *count += 1;
        (*count == 1).then_some(counted)
    }

    /// Forgets a count; how many came after the first.
    fn close(&self, counted: Counted) -> u64 {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.remove(&counted).unwrap_or(1) - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusals() -> Refusals {
        let identities = Arc::new(Identities::from_base(64_000).unwrap());
        Refusals::new(Process::Pleg, identities, None)
    }

    #[test]
    fn of_one_user_the_first_refusal_is_told_and_the_others_are_counted() {
        let refusals = refusals();
        assert_eq!(refusals.count(7), Some(Some(7)));
        let told = (0..42_000).filter(|_| refusals.count(7).is_some());
        assert_eq!(told.count(), 0);
        assert_eq!(refusals.close(Some(7)), 42_000);
        assert_eq!(refusals.count(7), Some(Some(7)), "told again");
        assert_eq!(refusals.close(Some(7)), 0);
    }

    #[test]
    fn many_users_are_counted_together() {
        let refusals = refusals();
        let told: Vec<Counted> = (0..50_000).filter_map(|uid| refusals.count(uid)).collect();
        assert_eq!(told.len(), MAX_USERS + 1);
        assert_eq!(told.last(), Some(&None));
        assert_eq!(refusals.count(3), None, "it has a count of its own");
        assert_eq!(refusals.counts.lock().unwrap()[&Some(3)], 2);
    }

    #[tokio::test(start_paused = true)]
    async fn counts_are_forgotten_after_a_while() {
        let refusals = refusals();
        let peer = Peer { uid: 7, pid: None };
        refusals.log(peer, "a connection");
        refusals.log(peer, "a connection");
        assert_eq!(refusals.counts.lock().unwrap().len(), 1);
        tokio::time::sleep(QUIET * 2).await;
        assert!(refusals.counts.lock().unwrap().is_empty());
    }
}
