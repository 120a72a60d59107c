//! HTTP lifecycle hooks that wait for the prober: this process connects to nothing but the
//! runtime and config-sourcer, and the prober already speaks HTTP to pods, without any
//! privileges. It is told each hook once; of one whose prober went away before it reported
//! nobody can tell whether it was carried out: it is lost. It is also told when nobody waits
//! for a hook any more, so that none outlives its container there.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bulkhead_api::v1;
use tokio::sync::{Notify, oneshot};

/// Why a hook has not ended well.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum HookError {
    #[error("{0}")]
    Failed(String),
    /// Nobody can tell what it came to, through no fault of the container.
    #[error("the prober went away before it had an answer")]
    Lost,
}

/// Hooks that wait or are under way. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct HttpHooks(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    inner: Mutex<Inner>,
    /// Something waits, or another stream was opened.
    changed: Notify,
}

#[derive(Debug, Default)]
struct Inner {
    last_id: u64,
    /// The stream that is told; older ones end.
    stream: u64,
    /// Hooks, and the ends of waits for hooks that this stream was told.
    untold: VecDeque<v1::HttpHook>,
    /// Who waits for the end of a hook, by its id.
    waiting: BTreeMap<u64, oneshot::Sender<Result<(), HookError>>>,
}

/// A hook that nobody waits for any more is not told, and is cut off if it was.
struct Waits<'a>(&'a HttpHooks, u64);

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        let inner = &mut *self.0.lock();
        let id = self.1;
        let has_not_ended = inner.waiting.remove(&id).is_some();
        let hooks = inner.untold.len();
        inner.untold.retain(|hook| hook.id != id);
        if has_not_ended && inner.untold.len() == hooks {
            inner.untold.push_back(v1::HttpHook {
                id,
                is_cancelled: true,
                ..v1::HttpHook::default()
            });
            self.0.0.changed.notify_waiters();
        }
    }
}

impl HttpHooks {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the prober carry out a hook, and waits for its end.
    pub(crate) async fn carry_out(&self, hook: v1::HttpHook) -> Result<(), HookError> {
        let (answer, answered) = oneshot::channel();
        let id = {
            let inner = &mut *self.lock();
            inner.last_id += 1;
            let id = inner.last_id;
            inner.waiting.insert(id, answer);
            inner.untold.push_back(v1::HttpHook { id, ..hook });
            id
        };
        let _waits = Waits(self, id);
        self.0.changed.notify_waiters();
        answered.await.unwrap_or(Err(HookError::Lost))
    }

    /// A prober begins to listen. Whoever listened before does not any more.
    pub(crate) fn listen(&self) -> HookStream {
        let inner = &mut *self.lock();
        inner.stream += 1;
        inner.give_up_told();
        self.0.changed.notify_waiters();
        HookStream {
            hooks: self.clone(),
            stream: inner.stream,
        }
    }

    /// A hook has ended.
    pub(crate) fn report(&self, id: u64, result: Result<(), String>) {
        let waiting = self.lock().waiting.remove(&id);
        if let Some(waiting) = waiting {
            // Nobody waits any more when the grace is over.
            let _ = waiting.send(result.map_err(HookError::Failed));
        }
    }
}

impl Inner {
    /// Those that were told to somebody who is gone are lost.
    fn give_up_told(&mut self) {
        self.untold.retain(|hook| !hook.is_cancelled);
        let untold = &self.untold;
        let is_untold = |id: u64| untold.iter().any(|hook| hook.id == id);
        self.waiting.retain(|id, _| is_untold(*id));
    }
}

/// The hooks that one prober is told.
#[derive(Debug)]
pub(crate) struct HookStream {
    hooks: HttpHooks,
    stream: u64,
}

impl HookStream {
    /// The next hook; `None` when another prober listens.
    pub(crate) async fn next(&self) -> Option<v1::HttpHook> {
        loop {
            let changed = self.hooks.0.changed.notified();
            {
                let inner = &mut *self.hooks.lock();
                if inner.stream != self.stream {
                    return None;
                }
                if let Some(hook) = inner.untold.pop_front() {
                    return Some(hook);
                }
            }
            changed.await;
        }
    }
}

impl Drop for HookStream {
    fn drop(&mut self) {
        let inner = &mut *self.hooks.lock();
        if inner.stream == self.stream {
            inner.give_up_told();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn hook(path: &str) -> v1::HttpHook {
        v1::HttpHook {
            path: path.to_owned(),
            ..v1::HttpHook::default()
        }
    }

    fn begin(hooks: &HttpHooks, path: &str) -> tokio::task::JoinHandle<Result<(), HookError>> {
        let (hooks, hook) = (hooks.clone(), hook(path));
        tokio::spawn(async move { hooks.carry_out(hook).await })
    }

    #[tokio::test(start_paused = true)]
    async fn a_hook_waits_for_a_prober_is_told_once_and_ends_with_its_report() {
        let hooks = HttpHooks::default();
        let one = begin(&hooks, "/1");
        tokio::time::sleep(Duration::from_secs(60)).await;
        let told = hooks.listen();
        let other = begin(&hooks, "/2");
        let first = told.next().await.unwrap();
        let second = told.next().await.unwrap();
        assert_eq!((first.path.as_str(), second.path.as_str()), ("/1", "/2"));
        hooks.report(second.id, Err("refused".to_owned()));
        hooks.report(second.id, Ok(()));
        hooks.report(first.id, Ok(()));
        hooks.report(99, Ok(()));
        assert_eq!(one.await.unwrap(), Ok(()));
        let refused = HookError::Failed("refused".to_owned());
        assert_eq!(other.await.unwrap(), Err(refused));
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_prober_was_told_that_went_away_is_lost_and_is_not_told_again() {
        for by_another in [false, true] {
            let hooks = HttpHooks::default();
            let one = begin(&hooks, "/1");
            let told = hooks.listen();
            assert_eq!(told.next().await.unwrap().path, "/1");
            let next = begin(&hooks, "/2");
            tokio::task::yield_now().await;
            let again = match by_another {
                true => hooks.listen(),
                false => {
                    drop(told);
                    hooks.listen()
                }
            };
            assert_eq!(one.await.unwrap(), Err(HookError::Lost));
            let hook = again.next().await.unwrap();
            assert_eq!(hook.path, "/2");
            hooks.report(hook.id, Ok(()));
            assert_eq!(next.await.unwrap(), Ok(()));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_hook_that_nobody_waits_for_is_not_told() {
        let hooks = HttpHooks::default();
        let late = begin(&hooks, "/1");
        tokio::task::yield_now().await;
        late.abort();
        assert!(late.await.is_err());
        let told = hooks.listen();
        let next = tokio::time::timeout(Duration::from_secs(1), told.next()).await;
        assert!(next.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_prober_is_told_once_that_nobody_waits_for_a_hook_that_it_was_told() {
        let hooks = HttpHooks::default();
        let told = hooks.listen();
        let ended = begin(&hooks, "/1");
        hooks.report(told.next().await.unwrap().id, Ok(()));
        assert_eq!(ended.await.unwrap(), Ok(()));
        let cancelled = begin(&hooks, "/2");
        let id = told.next().await.unwrap().id;
        cancelled.abort();
        let next = told.next().await.unwrap();
        assert_eq!((next.id, next.is_cancelled), (id, true));
        // Another prober was not told the hook.
        let cancelled = begin(&hooks, "/3");
        told.next().await.unwrap();
        cancelled.abort();
        assert!(cancelled.await.is_err());
        let told = hooks.listen();
        let next = tokio::time::timeout(Duration::from_secs(1), told.next()).await;
        assert!(next.is_err(), "{next:?}");
    }
}
