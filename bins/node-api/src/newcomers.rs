//! Connections that have shown no credentials yet: so many at once, and each for so long.
//!
//! When one more comes, one has to go: the oldest of the address from which most came. So
//! a client that holds connections without showing credentials does not keep out clients at
//! other addresses.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

/// Most of them.
const MAX: usize = 64;

/// How long one may take: a TLS handshake and the head of a request.
pub(crate) const TIME: Duration = Duration::from_secs(10);

/// All of them.
#[derive(Clone, Default)]
pub(crate) struct Newcomers(Arc<Mutex<Waiting>>);

#[derive(Default)]
struct Waiting {
    next: u64,
    oldest_first: VecDeque<Place>,
}

struct Place {
    number: u64,
    from: IpAddr,
    has_to_go: CancellationToken,
}

/// A place among them, given back when dropped.
pub(crate) struct Newcomer {
    all: Newcomers,
    number: u64,
    /// Cancelled when it has to go.
    pub(crate) has_to_go: CancellationToken,
}

impl Newcomers {
    /// A place for one more that comes from this address.
    pub(crate) fn admit(&self, from: IpAddr) -> Newcomer {
        let mut waiting = self.lock();
        if waiting.oldest_first.len() >= MAX
            && let Some(place) = waiting.make_room()
        {
            place.has_to_go.cancel();
        }
        let (number, has_to_go) = (waiting.next, CancellationToken::new());
        waiting.next += 1;
        waiting.oldest_first.push_back(Place {
            number,
            from,
            has_to_go: has_to_go.clone(),
        });
        Newcomer {
            all: self.clone(),
            number,
            has_to_go,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting {
    /// Takes away the place of the one that has to go.
    fn make_room(&mut self) -> Option<Place> {
        let mut counts: HashMap<IpAddr, usize> = HashMap::new();
        for place in &self.oldest_first {
            *counts.entry(place.from).or_default() += 1;
        }
        let most = counts.values().max()?;
        let mut places = self.oldest_first.iter();
        let index = places.position(|place| counts.get(&place.from) == Some(most))?;
        self.oldest_first.remove(index)
    }
}

impl Drop for Newcomer {
    fn drop(&mut self) {
        let mut waiting = self.all.lock();
        waiting
            .oldest_first
            .retain(|place| place.number != self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    const NEAR: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
    const FAR: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));

    fn gone(waiting: &[Newcomer]) -> Vec<usize> {
        let gone = waiting.iter().enumerate();
        let gone = gone.filter(|(_, it)| it.has_to_go.is_cancelled());
        gone.map(|(index, _)| index).collect()
    }

    #[test]
    fn the_oldest_has_to_go_when_one_more_comes() {
        let all = Newcomers::default();
        let mut waiting: Vec<Newcomer> = (0..MAX).map(|_| all.admit(NEAR)).collect();
        // It has shown who it is.
        drop(waiting.remove(0));
        waiting.push(all.admit(NEAR));
        assert!(gone(&waiting).is_empty());
        waiting.push(all.admit(NEAR));
        assert_eq!(gone(&waiting), [0]);
    }

    #[test]
    fn it_goes_for_what_comes_from_its_own_address() {
        let all = Newcomers::default();
        let mut waiting = vec![all.admit(FAR), all.admit(FAR)];
        waiting.extend((2..MAX + 8).map(|_| all.admit(NEAR)));
        assert_eq!(gone(&waiting), (2..10).collect::<Vec<_>>());
        waiting.push(all.admit(FAR));
        assert_eq!(gone(&waiting), (2..11).collect::<Vec<_>>());
    }
}
