//! What is logged of refused callers: the first refusal of a user at once, and how many
//! followed once a minute. So a user that is refused again and again does not push the rest
//! out of the log.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use topology::{Identities, Process};

use crate::peer::Peer;

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
}

impl Refusals {
    pub(crate) fn new(server: Process, identities: Arc<Identities>) -> Refusals {
        Refusals {
            server,
            identities,
            counts: Arc::default(),
        }
    }

    /// Notes that a call or a connection was refused; `what` says which.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub(crate) fn note(&self, peer: Peer, what: &str) {
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
        Refusals::new(Process::Pleg, identities)
    }

    /// What is logged.
    #[derive(Clone, Debug, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);

    impl std::io::Write for Log {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn sixty_thousand_refused_calls_of_a_stranger_cost_a_few_kib_of_log() {
        let log = Log::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt().with_writer(move || writer.clone());
        let _logged = tracing::subscriber::set_default(subscriber.finish());
        let refusals = refusals();
        let peer = Peer { uid: 7, pid: None };
        // Within ten minutes.
        for _ in 0..60_000 {
            refusals.note(peer, "/bulkhead.v1.PodWorkers/UpdatePod");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        tokio::time::sleep(QUIET).await;
        let log = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
        assert!(log.contains("times more"), "{log}");
        assert!(log.len() < 8 << 10, "{} bytes", log.len());
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
        refusals.note(peer, "a connection");
        refusals.note(peer, "a connection");
        assert_eq!(refusals.counts.lock().unwrap().len(), 1);
        tokio::time::sleep(QUIET * 2).await;
        assert!(refusals.counts.lock().unwrap().is_empty());
    }
}
