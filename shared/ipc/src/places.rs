//! Places for connections: so many for each user that the topology knows, a few
//! for all others together and not for long. Nobody can take the places of
//! somebody else, and a refusal still reaches who asks.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Context;

use tokio::time::Sleep;
use topology::{Identities, Process};

use crate::authorize::Peer;
use crate::limits::{MAX_CONNECTIONS_OF_STRANGERS, MAX_CONNECTIONS_PER_USER, STRANGER_TIME};

/// Who shares places.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Group {
    User(u32),
    Strangers,
}

/// The places of one server.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    server: Process,
    identities: Arc<Identities>,
    taken: Arc<Mutex<BTreeMap<Group, usize>>>,
}

impl Places {
    pub(crate) fn new(server: Process, identities: Arc<Identities>) -> Places {
        Places {
            server,
            identities,
            taken: Arc::default(),
        }
    }

    /// A place for a connection of `peer`, unless its group has none left.
    pub(crate) fn take(&self, peer: Peer) -> Option<Place> {
        let known = self.identities.may_call(peer.uid, self.server);
        let (group, limit) = if known {
            (Group::User(peer.uid), MAX_CONNECTIONS_PER_USER)
        } else {
            (Group::Strangers, MAX_CONNECTIONS_OF_STRANGERS)
        };
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let count = taken.entry(group).or_default();
        if *count >= limit {
            return None;
        }
        *count += 1;
        let over = (!known).then(|| Box::pin(tokio::time::sleep(STRANGER_TIME)));
        Some(Place {
            group,
            taken: Arc::clone(&self.taken),
            over,
        })
    }
}

/// A place; dropping it frees it.
#[derive(Debug)]
pub(crate) struct Place {
    group: Group,
    taken: Arc<Mutex<BTreeMap<Group, usize>>>,
    over: Option<Pin<Box<Sleep>>>,
}

impl Place {
    /// Whether its time is over; wakes the task when it will be.
    pub(crate) fn is_over(&mut self, context: &mut Context<'_>) -> bool {
        self.over
            .as_mut()
            .is_some_and(|over| over.as_mut().poll(context).is_ready())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = taken.get_mut(&self.group) {
            *count -= 1;
            if *count == 0 {
                taken.remove(&self.group);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(uid: u32) -> Peer {
        Peer { uid, pid: None }
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_takes_the_places_of_somebody_else() {
        let identities = Arc::new(Identities::from_base(64_000).unwrap());
        let pleg = identities.uid(Process::Pleg);
        let places = Places::new(Process::PodWorkerPool, identities);
        let strangers: Vec<_> = (0..100)
            .filter_map(|uid| places.take(peer(70_000 + uid)))
            .collect();
        assert_eq!(strangers.len(), MAX_CONNECTIONS_OF_STRANGERS);
        let greedy: Vec<_> = (0..100).filter_map(|_| places.take(peer(pleg))).collect();
        assert_eq!(greedy.len(), MAX_CONNECTIONS_PER_USER);
        assert!(places.take(peer(0)).is_some(), "root is not locked out");
        drop(strangers);
        assert!(
            places.take(peer(70_000)).is_some(),
            "a place that is left is free again"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_stranger_stays_for_a_moment_only() {
        let identities = Arc::new(Identities::from_base(64_000).unwrap());
        let places = Places::new(Process::PodWorkerPool, identities);
        let mut stranger = places.take(peer(70_000)).unwrap();
        let mut root = places.take(peer(0)).unwrap();
        std::future::poll_fn(|context| {
            if stranger.is_over(context) {
                std::task::Poll::Ready(())
            } else {
                std::task::Poll::Pending
            }
        })
        .await;
        let over =
            std::future::poll_fn(|context| std::task::Poll::Ready(root.is_over(context))).await;
        assert!(!over);
    }
}
