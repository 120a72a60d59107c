//! HTTP lifecycle hooks that wait for the prober: this process connects to nothing but the
//! runtime and config-sourcer, and the prober already speaks HTTP to pods, without any
//! privileges. It is told each hook once; one whose prober went away before it reported
//! may have been carried out, and counts as failed.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bulkhead_api::v1;
use tokio::sync::{Notify, oneshot};

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
    untold: VecDeque<v1::HttpHook>,
    /// Who waits for the end of a hook, by its id.
    waiting: BTreeMap<u64, oneshot::Sender<Result<(), String>>>,
}

/// A hook that nobody waits for any more is not told.
struct Waits<'a>(&'a HttpHooks, u64);

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        let inner = &mut *self.0.lock();
        inner.waiting.remove(&self.1);
        inner.untold.retain(|hook| hook.id != self.1);
    }
}

impl HttpHooks {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the prober carry out a hook, and waits for its end.
    pub(crate) async fn carry_out(&self, hook: v1::HttpHook) -> Result<(), String> {
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
        answered
            .await
            .unwrap_or_else(|_| Err("the prober went away before it had an answer".to_owned()))
    }

    /// A prober begins to listen. Whoever listened before does not any more.
    pub(crate) fn listen(&self) -> Told {
        let inner = &mut *self.lock();
        inner.stream += 1;
        inner.give_up_told();
        self.0.changed.notify_waiters();
        Told {
            hooks: self.clone(),
            stream: inner.stream,
        }
    }

    /// A hook has ended.
    pub(crate) fn report(&self, id: u64, result: Result<(), String>) {
        let waiting = self.lock().waiting.remove(&id);
        if let Some(waiting) = waiting {
            // Nobody waits any more when the grace is over.
            let _ = waiting.send(result);
        }
    }
}

impl Inner {
    /// Those that were told to somebody who is gone count as failed.
    fn give_up_told(&mut self) {
        let untold = &self.untold;
        let is_untold = |id: u64| untold.iter().any(|hook| hook.id == id);
        self.waiting.retain(|id, _| is_untold(*id));
    }
}

/// The hooks that one prober is told.
#[derive(Debug)]
pub(crate) struct Told {
    hooks: HttpHooks,
    stream: u64,
}

impl Told {
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

impl Drop for Told {
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

    fn begin(hooks: &HttpHooks, path: &str) -> tokio::task::JoinHandle<Result<(), String>> {
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
        assert_eq!(other.await.unwrap(), Err("refused".to_owned()));
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_prober_was_told_that_went_away_has_failed_and_is_not_told_again() {
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
            assert!(one.await.unwrap().unwrap_err().contains("went away"));
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
}
