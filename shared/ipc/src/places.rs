//! Places for connections: so many for each user that may call the server, and none for
//! anybody else. Nobody can take the places of somebody else.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use topology::{Identities, Process};

use crate::limits::max_connections;
use crate::peer::Peer;
use crate::refusals::Refusals;

/// Connections by the user that made them. Only of who may call, so there are few.
type Users = BTreeMap<u32, u16>;

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

    /// A place for a connection of `peer`; `None` when it may call nothing here, or has none
    /// left.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub(crate) fn take(&self, peer: Peer) -> Option<Place> {
        if !self.identities.may_call(peer.uid, self.server) {
            self.refusals.note(peer, "a connection");
            return None;
        }
        {
            let mut users = self.users.lock().unwrap_or_else(PoisonError::into_inner);
            let connections = users.entry(peer.uid).or_default();
            if *connections < max_connections(peer.uid) {
                *connections += 1;
                return Some(Place {
                    uid: peer.uid,
                    users: Arc::clone(&self.users),
                });
            }
        }
        self.refusals
            .note(peer, "one connection more than it may have");
        None
    }
}

/// A place; dropping it frees it.
#[derive(Debug)]
pub(crate) struct Place {
    uid: u32,
    users: Arc<Mutex<Users>>,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut users = self.users.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(connections) = users.get_mut(&self.uid) {
            *connections -= 1;
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
        let refusals = Refusals::new(server, Arc::clone(&identities));
        let places = Places::new(server, identities, refusals);
        let greedy: Vec<_> = (0..100).filter_map(|_| places.take(peer(pleg))).collect();
        let most = max_connections(pleg);
        assert_eq!(greedy.len(), usize::from(most));
        assert!(places.take(peer(0)).is_some(), "root is not locked out");
        drop(greedy);
        assert!(
            places.take(peer(pleg)).is_some(),
            "a place that is left is free again"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn exactly_the_callers_of_a_server_get_places() {
        let identities = Arc::new(Identities::from_base(64_000).unwrap());
        for server in Process::ALL {
            let refusals = Refusals::new(server, Arc::clone(&identities));
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
                let got = places.take(peer(uid)).is_some();
                assert_eq!(got, of_table.contains(&uid), "uid {uid} of {server}");
            }
        }
    }
}
