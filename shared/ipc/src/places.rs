//! Places for connections: so many for each user that may call the server, and none for
//! anybody else. Nobody can take the places of somebody else.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use topology::{ConnectionBudget, Identities, Process};

use crate::intake::Intake;
use crate::peer::Peer;
use crate::refusal::RefusalKind;
use crate::refusals::Refusals;

/// By the user that made the connections. Only of who may call, so there are few.
type Users = BTreeMap<u32, User>;

/// Connections of a user.
#[derive(Debug)]
struct User {
    connections: u16,
    intake: Intake,
}

/// The places of one server.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    server: Process,
    identities: Arc<Identities>,
    refusals: Refusals,
    users: Arc<Mutex<Users>>,
}

impl Places {
    pub(crate) fn new(server: Process, identities: Arc<Identities>, refusals: Refusals) -> Places {
        Places {
            server,
            identities,
            refusals,
            users: Arc::default(),
        }
    }

    /// A place for a connection of `peer`.
    ///
    /// # Errors
    /// When it may call nothing here, or has none left.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub(crate) fn take(&self, peer: Peer) -> Result<Place, RefusalKind> {
        if !self.identities.may_call(peer.uid, self.server) {
            self.refusals
                .note_connection(peer, RefusalKind::Connection, "a connection");
            return Err(RefusalKind::Connection);
        }
        let budget = ConnectionBudget::of(peer.uid);
        {
            let mut users = self.users.lock().unwrap_or_else(PoisonError::into_inner);
            let user = users.entry(peer.uid).or_insert_with(|| User {
                connections: 0,
                intake: Intake::new(budget.bytes_a_second),
            });
            if user.connections < budget.at_once {
                user.connections += 1;
                return Ok(Place {
                    uid: peer.uid,
                    intake: user.intake.clone(),
                    users: Arc::clone(&self.users),
                });
            }
        }
        let kind = RefusalKind::TooManyConnections;
        let what = "one connection more than it may have";
        self.refusals.note_connection(peer, kind, what);
        Err(kind)
    }
}

/// A place; dropping it frees it.
#[derive(Debug)]
pub(crate) struct Place {
    uid: u32,
    /// Of all connections of this user.
    pub(crate) intake: Intake,
    users: Arc<Mutex<Users>>,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut users = self.users.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(user) = users.get_mut(&self.uid) {
            user.connections -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use topology::{Caller, edges};

    use super::*;

    fn peer(uid: u32) -> Peer {
        Peer { uid, pid: None }
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_takes_the_places_of_somebody_else() {
        let identities = Arc::new(Identities::from_base(64_000).unwrap());
        let pleg = identities.uid(Process::Pleg);
        let server = Process::PodWorkerPool;
        let refusals = Refusals::new(server, Arc::clone(&identities), None);
        let places = Places::new(server, identities, refusals);
        let greedy: Vec<_> = (0..100)
            .filter_map(|_| places.take(peer(pleg)).ok())
            .collect();
        let most = ConnectionBudget::of(pleg).at_once;
        assert_eq!(greedy.len(), usize::from(most));
        assert!(places.take(peer(0)).is_ok(), "root is not locked out");
        drop(greedy);
        assert!(
            places.take(peer(pleg)).is_ok(),
            "a place that is left is free again"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn exactly_the_callers_of_a_server_get_places() {
        let identities = Arc::new(Identities::from_base(64_000).unwrap());
        for server in Process::ALL {
            let refusals = Refusals::new(server, Arc::clone(&identities), None);
            let places = Places::new(server, Arc::clone(&identities), refusals);
            let of_table: BTreeSet<u32> = edges()
                .filter(|edge| edge.server == server)
                .map(|edge| match edge.caller {
                    Caller::Operator => 0,
                    Caller::Process(process) => identities.uid(process),
                })
                .collect();
            let users = Process::ALL.map(|process| identities.uid(process));
            for uid in users.into_iter().chain([1, 65_534, u32::MAX]) {
                let got = places.take(peer(uid)).is_ok();
                assert_eq!(got, of_table.contains(&uid), "uid {uid} of {server}");
            }
        }
    }
}
