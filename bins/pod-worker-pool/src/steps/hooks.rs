//! Lifecycle hooks that run: beside the step that has them begun, and once per instance.
//!
//! That a hook is to be begun is in the pod's record before it is. The next process finds
//! it there, and cannot know whether the hook has ended.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pod_lifecycle::observation::Observation;
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};

use crate::http_hooks::HookError;

/// Which hook of an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum HookKind {
    PostStart,
    PreStop,
}

/// What a hook came to.
pub(super) type HookResult = Result<(), HookError>;

/// The hooks of one pod. Clones share them; they end with the last clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hooks(Arc<Mutex<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    /// By the instance's id.
    runs: BTreeMap<(String, HookKind), Run>,
    tasks: JoinSet<()>,
}

#[derive(Clone, Debug)]
enum Run {
    /// It is being recorded that it is to be begun.
    Intended,
    Begun(watch::Receiver<Option<HookResult>>, AbortHandle),
}

impl Hooks {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// This process is about to record that it begins a hook.
    pub(super) fn intend(&self, id: &str, kind: HookKind) {
        let key = (id.to_owned(), kind);
        self.lock().runs.entry(key).or_insert(Run::Intended);
    }

    /// Whether this process has begun a hook, or is about to.
    pub(super) fn has(&self, id: &str, kind: HookKind) -> bool {
        self.lock().runs.contains_key(&(id.to_owned(), kind))
    }

    /// Begins a hook that was intended, unless that was done; `then` is called when it
    /// has ended.
    pub(super) fn begin(
        &self,
        (id, kind): (&str, HookKind),
        hook: impl Future<Output = HookResult> + Send + 'static,
        then: impl FnOnce() + Send + 'static,
    ) {
        let inner = &mut *self.lock();
        let Some(run) = inner.runs.get_mut(&(id.to_owned(), kind)) else {
            return;
        };
        if matches!(run, Run::Begun(..)) {
            return;
        }
        let (ended, end) = watch::channel(None);
        while inner.tasks.try_join_next().is_some() {}
        let task = inner.tasks.spawn(async move {
            let result = hook.await;
            ended.send_replace(Some(result));
            then();
        });
        *run = Run::Begun(end, task);
    }

    /// Waits for the end of a hook that was begun.
    pub(super) async fn ended(&self, id: &str, kind: HookKind) -> HookResult {
        let run = self.lock().runs.get(&(id.to_owned(), kind)).cloned();
        let Some(Run::Begun(mut end, _)) = run else {
            return Ok(());
        };
        match end.wait_for(Option::is_some).await {
            Ok(result) => result.clone().unwrap_or(Ok(())),
            Err(_) => Err(HookError::Failed("it was given up".to_owned())),
        }
    }

    /// The postStart hooks that were intended and not begun: the step was cut short.
    pub(super) fn take_intended_post_starts(&self) -> Vec<String> {
        let runs = &mut self.lock().runs;
        let mut intended = Vec::new();
        runs.retain(|(id, kind), run| {
            let is_left = *kind == HookKind::PostStart && matches!(run, Run::Intended);
            if is_left {
                intended.push(id.clone());
            }
            !is_left
        });
        intended
    }

    /// The postStart hooks that have ended since the last call.
    pub(super) fn take_ended_post_starts(&self) -> Vec<(String, HookResult)> {
        let runs = &mut self.lock().runs;
        let mut ended = Vec::new();
        runs.retain(|(id, kind), run| {
            if let (HookKind::PostStart, Run::Begun(end, _)) = (kind, run)
                && let Some(result) = &*end.borrow()
            {
                ended.push((id.clone(), result.clone()));
                return false;
            }
            true
        });
        ended
    }

    /// Cuts off the hooks of instances that are gone, and postStart hooks of those that have
    /// ended: nothing comes of them any more, and one over HTTP holds a connection.
    pub(super) fn observed(&self, observation: &Observation) {
        let runs = &mut self.lock().runs;
        runs.retain(|(id, kind), run| {
            let shown = observation.container(id);
            let is_of_use =
                shown.is_some_and(|it| *kind == HookKind::PreStop || it.state.may_run());
            if let (false, Run::Begun(_, task)) = (is_of_use, run) {
                task.abort();
            }
            is_of_use
        });
    }
}
