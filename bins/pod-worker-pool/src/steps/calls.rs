//! Calls that are kept alive beyond the step that made them.
//!
//! A step may be dropped at any await. Were a RunPodSandbox or CreateContainer
//! dropped with it, the runtime might still carry it out, and the next step would
//! look before the result shows. So these calls run beside the step, and the next
//! step of the pod waits for them first. A StopContainer runs beside it for a reason
//! of its own, see `stop`.

use std::future::{Future, poll_fn};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use cri::{RuntimeError, RuntimeErrorKind};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

/// Most calls of one pod that are under way: several for each container. Who makes
/// more has the ones before given up.
const MAX_CALLS: usize = 1000;

/// The calls of one pod that are under way. Clones share them; they end with the
/// last clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Calls(Arc<Mutex<JoinSet<()>>>);

impl Calls {
    fn lock(&self) -> MutexGuard<'_, JoinSet<()>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a call to its end, whether or not this future is dropped.
    ///
    /// # Errors
    /// Those of the call; `Unavailable` when it was given up.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        method: &'static str,
        call: impl Future<Output = Result<T, RuntimeError>> + Send + 'static,
    ) -> Result<T, RuntimeError> {
        let (answer, answered) = oneshot::channel();
        {
            let mut calls = self.lock();
            // Finished ones are dropped as we go.
            while calls.try_join_next().is_some() {}
            if calls.len() >= MAX_CALLS {
                calls.abort_all();
            }
            calls.spawn(async move {
                // Nobody waits any more when the step was dropped.
                let _ = answer.send(call.await);
            });
        }
        answered.await.unwrap_or_else(|_| {
            let kind = RuntimeErrorKind::Unavailable;
            Err(RuntimeError::new(method, kind, "the call was given up"))
        })
    }

    /// Whether any call is under way.
    pub(crate) fn are_under_way(&self) -> bool {
        let mut calls = self.lock();
        while calls.try_join_next().is_some() {}
        !calls.is_empty()
    }

    /// Waits until no call is under way, at most so long; then the rest is given
    /// up, which tells the runtime to undo it.
    pub(crate) async fn settle(&self, at_most: Duration) {
        let all = poll_fn(|context| {
            let mut calls = self.lock();
            loop {
                match calls.poll_join_next(context) {
                    Poll::Ready(Some(_)) => {}
                    Poll::Ready(None) => return Poll::Ready(()),
                    Poll::Pending => return Poll::Pending,
                }
            }
        });
        if tokio::time::timeout(at_most, all).await.is_err() {
            // Dropping them aborts them.
            drop(std::mem::take(&mut *self.lock()));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_call_goes_on_when_its_step_is_dropped_and_is_waited_for() {
        let calls = Calls::default();
        let done = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&done);
        let call = calls.run("Test", async move {
            tokio::time::sleep(Duration::from_secs(1)).await;
            flag.store(true, Ordering::Relaxed);
            Ok(())
        });
        let dropped = tokio::time::timeout(Duration::from_millis(10), call).await;
        assert!(dropped.is_err() && !done.load(Ordering::Relaxed));
        calls.settle(Duration::from_secs(5)).await;
        assert!(done.load(Ordering::Relaxed));
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_hangs_is_given_up() {
        let calls = Calls::default();
        let waiter = calls.clone();
        let call = tokio::spawn(async move {
            waiter
                .run("Test", std::future::pending::<Result<(), RuntimeError>>())
                .await
        });
        tokio::task::yield_now().await;
        calls.settle(Duration::from_secs(2)).await;
        let error = call.await.unwrap().unwrap_err();
        assert_eq!(error.kind, RuntimeErrorKind::Unavailable);
    }
}
