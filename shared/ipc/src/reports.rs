//! Reports of refusals to whoever supervises this process: the first at once, and what
//! follows together, once a second.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::refusal::{Refusal, RefusalKind};

/// Least time between two reports about the same process and kind.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);

type Tell = dyn Fn(&Refusal) + Send + Sync;

/// Tells refusals of one server. Cloning shares it.
#[derive(Clone)]
pub(crate) struct Reports {
    tell: Arc<Tell>,
    collected: Arc<Mutex<Collected>>,
}

/// What was refused since the last report, of each process of those who may call: the pace at
/// which connections are read bounds how many these are in a second. All others are told as
/// one.
#[derive(Debug, Default)]
struct Collected {
    refusals: BTreeMap<(Option<(u32, i32)>, RefusalKind), Refusal>,
    /// A task sends what is added.
    is_sending: bool,
}

impl fmt::Debug for Reports {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Reports")
    }
}

impl Reports {
    pub(crate) fn new(tell: Arc<Tell>) -> Reports {
        Reports {
            tell,
            collected: Arc::default(),
        }
    }

    /// Has a refusal told.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub(crate) fn add(&self, refusal: Refusal) {
        if self.collect(refusal) {
            let reports = self.clone();
            tokio::spawn(async move {
                while reports.send() {
                    tokio::time::sleep(REPORT_INTERVAL).await;
                }
            });
        }
    }

    /// Whether sending has to begin.
    fn collect(&self, refusal: Refusal) -> bool {
        let may_call = refusal.kind != RefusalKind::Connection;
        let mut collected = self.lock();
        let all = collected
            .refusals
            .entry((may_call.then_some((refusal.uid, refusal.pid)), refusal.kind))
            .or_insert(Refusal {
                count: 0,
                ..refusal
            });
        (all.uid, all.pid) = (refusal.uid, refusal.pid);
        all.count = all.count.saturating_add(refusal.count);
        !std::mem::replace(&mut collected.is_sending, true)
    }

    /// Tells what was collected; whether there was anything.
    fn send(&self) -> bool {
        let refusals = {
            let mut collected = self.lock();
            collected.is_sending = !collected.refusals.is_empty();
            std::mem::take(&mut collected.refusals)
        };
        refusals.values().for_each(|refusal| (self.tell)(refusal));
        !refusals.is_empty()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Collected> {
        self.collected
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(uid: u32, kind: RefusalKind) -> Refusal {
        Refusal {
            uid,
            pid: 1,
            kind,
            count: 1,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn no_process_pays_for_another_one_of_its_user() {
        let told = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&told);
        let reports = Reports::new(Arc::new(move |refusal: &Refusal| {
            sink.lock().unwrap().push(*refusal);
        }));
        let of = |pid, count| Refusal {
            pid,
            count,
            ..refusal(7, RefusalKind::ForeignService)
        };
        for pid in [1, 1, 2, 1, 1] {
            reports.add(of(pid, 1));
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert_eq!(*told.lock().unwrap(), [of(1, 4), of(2, 1)]);
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_is_told_at_once_and_a_flood_once_a_second() {
        let told = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&told);
        let reports = Reports::new(Arc::new(move |refusal: &Refusal| {
            sink.lock().unwrap().push(*refusal);
        }));
        let take = || std::mem::take(&mut *told.lock().unwrap());
        reports.add(refusal(7, RefusalKind::ForeignService));
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert_eq!(take(), [refusal(7, RefusalKind::ForeignService)]);
        for uid in 0..40_000 {
            reports.add(refusal(7, RefusalKind::ForeignService));
            reports.add(refusal(uid, RefusalKind::Connection));
        }
        assert_eq!(take(), []);
        tokio::time::sleep(REPORT_INTERVAL).await;
        let many = |uid, kind| Refusal {
            count: 40_000,
            ..refusal(uid, kind)
        };
        // Users that may call nothing are one, so they take no place from a caller.
        let both = [
            many(39_999, RefusalKind::Connection),
            many(7, RefusalKind::ForeignService),
        ];
        assert_eq!(take(), both);
        // After a quiet time the next is told at once again.
        tokio::time::sleep(REPORT_INTERVAL * 2).await;
        reports.add(refusal(8, RefusalKind::TooManyCalls));
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert_eq!(take(), [refusal(8, RefusalKind::TooManyCalls)]);
    }
}
