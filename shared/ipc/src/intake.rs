//! How much a server reads of its callers. A connection is read a little at a time, and then
//! the others have a turn; and all connections of one user together have so many bytes a
//! second. Frames of HTTP/2 that are no calls meet no budget: a flood of them ends here, and
//! costs its server little.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use tokio::time::{Instant, Sleep};

use crate::limits::{CONNECTION_BYTES, MAX_REST, PORTION_BYTES};
use crate::pace::Pace;

/// What is read of one user.
#[derive(Clone, Debug)]
pub(crate) struct Intake(Arc<Mutex<Pace>>);

impl Intake {
    pub(crate) fn new(bytes_a_second: u32) -> Intake {
        let pace = Pace::new(bytes_a_second, bytes_a_second);
        Intake(Arc::new(Mutex::new(pace)))
    }

    /// When so many bytes that were read should have been. What follows waits for them.
    pub(crate) fn charge(&self, bytes: usize) -> Instant {
        let count = u32::try_from(bytes).unwrap_or(u32::MAX);
        let mut pace = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let due = pace.reserve(now, count);
        pace.forgive(now + MAX_REST);
        due
    }
}

/// The turns of one connection.
#[derive(Debug)]
pub(crate) struct Turns {
    intake: Intake,
    /// Until when nothing is read.
    rest: Option<Pin<Box<Sleep>>>,
    /// Whether others are to have a turn before this one.
    yields: bool,
}

impl Turns {
    /// A new connection costs its server something before a byte of it is read.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub(crate) fn new(intake: Intake) -> Turns {
        let mut turns = Turns {
            intake,
            rest: None,
            yields: false,
        };
        turns.read(CONNECTION_BYTES);
        turns
    }

    /// Ready when it has a turn: to read [`PORTION_BYTES`] at most.
    pub(crate) fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if std::mem::take(&mut self.yields) {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        if let Some(rest) = &mut self.rest {
            std::task::ready!(rest.as_mut().poll(context));
            self.rest = None;
        }
        Poll::Ready(())
    }

    /// Notes what was read in this turn.
    pub(crate) fn read(&mut self, bytes: usize) {
        if bytes == 0 {
            return;
        }
        let due = self.intake.charge(bytes);
        self.yields = bytes >= PORTION_BYTES;
        self.rest = (due > Instant::now()).then(|| Box::pin(tokio::time::sleep_until(due)));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use topology::{ConnectionBudget, Identities, Process};

    use super::*;
    use crate::listener::Accepted;
    use crate::memory::MemoryHub;
    use crate::peer::{Caller, Peer};
    use crate::places::Places;
    use crate::refusal::RefusalKind;
    use crate::refusals::Refusals;

    const SERVER: Process = Process::PodWorkerPool;

    /// Connections of these processes to the pool, each of which sends without end.
    async fn floods(callers: &[Process]) -> Vec<Accepted> {
        let hub = MemoryHub::new();
        let identities = Arc::new(Identities::from_base(64_000).unwrap());
        let refusals = Refusals::new(SERVER, Arc::clone(&identities), None);
        let places = Places::new(SERVER, Arc::clone(&identities), refusals.clone());
        let listener = hub.listener(SERVER);
        for caller in callers {
            let uid = identities.uid(*caller);
            let mut stream = hub.connect_pipe((*caller, Peer { uid, pid: None }), SERVER);
            tokio::spawn(async move { while stream.write_all(&[0; 1 << 16]).await.is_ok() {} });
        }
        let mut accepted = Vec::new();
        for _ in callers {
            accepted.push(listener.next(&places, &refusals).await.unwrap());
        }
        accepted
    }

    /// How much can be read of it within this time.
    async fn read_for(mut connection: Accepted, time: Duration) -> usize {
        let begun = Instant::now();
        let mut buffer = vec![0; 1 << 20];
        let mut all = 0;
        while begun.elapsed() < time {
            let read = connection.read(&mut buffer).await.unwrap();
            assert!((1..=PORTION_BYTES).contains(&read), "{read} at a time");
            all += read;
        }
        all
    }

    #[tokio::test(start_paused = true)]
    async fn connections_of_one_user_share_so_many_bytes_a_second() {
        let a_second = usize::try_from(ConnectionBudget::of(1).bytes_a_second).unwrap();
        for connections in [1, 4] {
            let mut reading = tokio::task::JoinSet::new();
            for flood in floods(&vec![Process::Pleg; connections]).await {
                reading.spawn(read_for(flood, Duration::from_secs(10)));
            }
            let all: usize = reading.join_all().await.iter().sum();
            // Of the second before the first there is one more.
            assert!(
                (9 * a_second..=11 * a_second + (1 << 16)).contains(&all),
                "{all}"
            );
        }
    }

    /// Reads so many bytes in the next turn.
    async fn read_next(turns: &mut Turns, bytes: usize) {
        std::future::poll_fn(|context| turns.poll_next(context)).await;
        turns.read(bytes);
    }

    /// It took ten seconds, after the first second's bytes, which come at once.
    fn assert_ten_seconds_since(begun: Instant) {
        let millis = begun.elapsed().as_millis();
        assert!((9_900..=10_100).contains(&millis), "{millis} ms");
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_counts_as_8_kib() {
        let intake = Intake::new(1 << 20);
        let begun = Instant::now();
        for _ in 0..11 * (1 << 20) / (8 << 10) {
            read_next(&mut Turns::new(intake.clone()), 1).await;
        }
        assert_ten_seconds_since(begun);
    }

    #[tokio::test(start_paused = true)]
    async fn a_refused_call_counts_as_4_kib_more() {
        let intake = Intake::new(1 << 20);
        let identities = Arc::new(Identities::from_base(64_000).unwrap());
        let caller = Caller::new(Peer { uid: 7, pid: None }, intake.clone());
        let refusals = Refusals::new(SERVER, identities, None);
        let mut turns = Turns::new(intake);
        let begun = Instant::now();
        for _ in 0..11 * (1 << 20) / (4 << 10) {
            read_next(&mut turns, 1).await;
            refusals.note_call(&caller, RefusalKind::UnknownService, "a call");
        }
        assert_ten_seconds_since(begun);
    }

    #[tokio::test(start_paused = true)]
    async fn no_debt_outlasts_the_longest_rest() {
        let intake = Intake::new(1 << 20);
        for _ in 0..100 {
            intake.charge(1 << 20);
        }
        let due = intake.charge(1);
        assert_eq!(due - Instant::now(), MAX_REST);
    }

    #[tokio::test(start_paused = true)]
    async fn others_have_a_turn_after_each_portion_and_do_not_wait_for_a_flood_to_be_paid() {
        let mut connections = floods(&[Process::Pleg, Process::SyncLoop]).await;
        let (mut other, flood) = (connections.pop().unwrap(), connections.pop().unwrap());
        let flood = tokio::spawn(read_for(flood, Duration::from_secs(60)));
        tokio::time::sleep(Duration::from_secs(10)).await;
        let begun = Instant::now();
        let mut byte = [0; 100];
        for _ in 0..100 {
            other.read_exact(&mut byte).await.unwrap();
        }
        assert_eq!(begun.elapsed(), Duration::ZERO);
        flood.abort();
    }
}
