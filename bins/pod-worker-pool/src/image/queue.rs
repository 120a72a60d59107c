//! The queue of pulls: so many begin at a time, and each image is pulled only once for
//! all who wait for it and have the same credentials.
//!
//! A pull has its turn for a while only. One that takes longer, or hangs, goes on
//! without it, so that it does not hold up the pulls of other pods. One that finds the
//! rate of pulls exceeded when its turn comes fails, as in the kubelet.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cri::{RuntimeChanges, RuntimeError, RuntimeErrorKind, v1};
use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared, WeakShared};
use pull_credentials::Credential;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

use super::credentials::auth;
use super::rate::TokenBucket;

/// How long a pull has its turn: most have ended by then, and pods that wait for a
/// turn behind hung ones do not wait much longer than for one big image.
pub(super) const TURN: Duration = Duration::from_secs(60);

/// Pulls that go on without a turn. By default five turns are given back a minute, and
/// containerd since 1.7 gives up a pull after five minutes without progress: twice as
/// many as may hang then, and still few enough for the runtime's memory and sockets.
pub(super) const MAX_LONG_PULLS: usize = 50;

/// How many pulls there may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PullLimits {
    /// So many begin at a time (at least one).
    pub at_once: u32,
    /// So many begin in a second, over time; 0 for no limit.
    pub per_second: u32,
    /// So many begin at once after a pause.
    pub burst: u32,
}

/// A pull that others can wait for too. It goes on while anybody does, and is given up
/// when the last one has.
pub(super) type Pull = Shared<PullFuture>;

type PullFuture = BoxFuture<'static, Result<Pulled, RuntimeError>>;

/// What a pull came to.
#[derive(Debug, Clone)]
pub(super) struct Pulled {
    pub(super) reference: String,
    /// By what, if by anything.
    pub(super) by: Option<Credential>,
    /// Without the time that it waited for its turn.
    pub(super) took: Duration,
}

fn too_many() -> RuntimeError {
    // The kubelet's words.
    RuntimeError::new("PullImage", RuntimeErrorKind::Other, "pull QPS exceeded")
}

/// An image, and what it is pulled by.
type Wanted = (String, Vec<Credential>);

/// Whether the runtime has been asked for a pull: before that it waits for its turn.
pub(super) type HasBegun = Arc<AtomicBool>;

/// Pulls of all pods.
pub(super) struct PullQueue {
    runtime: Arc<dyn RuntimeChanges>,
    turns: Arc<Semaphore>,
    /// For each pull that is under way, with or without its turn.
    places: Arc<Semaphore>,
    rate: Option<Arc<Mutex<TokenBucket>>>,
    begun: Instant,
    pulls: Mutex<HashMap<Wanted, (WeakShared<PullFuture>, HasBegun)>>,
}

impl PullQueue {
    /// A queue with these limits.
    pub(super) fn new(runtime: Arc<dyn RuntimeChanges>, limits: PullLimits) -> PullQueue {
        let turns = usize::try_from(limits.at_once).unwrap_or(usize::MAX);
        let rate = TokenBucket::new(limits.per_second, limits.burst);
        let turns = turns.clamp(1, Semaphore::MAX_PERMITS - MAX_LONG_PULLS);
        PullQueue {
            runtime,
            turns: Arc::new(Semaphore::new(turns)),
            places: Arc::new(Semaphore::new(turns + MAX_LONG_PULLS)),
            rate: rate.map(|bucket| Arc::new(Mutex::new(bucket))),
            begun: Instant::now(),
            pulls: Mutex::default(),
        }
    }

    /// Joins the pull of this image by these credentials that is under way, or begins one.
    pub(super) fn join(
        &self,
        spec: &v1::ImageSpec,
        credentials: Vec<Credential>,
        sandbox: Option<v1::PodSandboxConfig>,
    ) -> (Pull, HasBegun) {
        let wanted = (spec.image.clone(), credentials.clone());
        let mut pulls = locked(&self.pulls);
        pulls.retain(|_, (pull, _)| pull.upgrade().is_some_and(|pull| pull.peek().is_none()));
        if let Some((pull, has_begun)) = pulls.get(&wanted)
            && let Some(pull) = pull.upgrade()
        {
            return (pull, Arc::clone(has_begun));
        }
        let has_begun = HasBegun::default();
        let begins = Arc::clone(&has_begun);
        let runtime = Arc::clone(&self.runtime);
        let (turns, places) = (Arc::clone(&self.turns), Arc::clone(&self.places));
        let (rate, queue_begun) = (self.rate.clone(), self.begun);
        let spec = spec.clone();
        let pull = async move {
            // The semaphores are never closed; without them the pull would just not
            // wait.
            let turn = turns.acquire_owned().await;
            let _place = places.acquire_owned().await;
            let begun = Instant::now();
            if let Some(rate) = rate
                && !locked(&rate).take(begun - queue_begun)
            {
                return Err(too_many());
            }
            begins.store(true, Ordering::Relaxed);
            let mut call = pin!(pull_by(&*runtime, spec, credentials, sandbox));
            let in_time = timeout(TURN, &mut call).await;
            drop(turn);
            let (reference, by) = match in_time {
                Ok(answer) => answer?,
                Err(_) => call.await?,
            };
            Ok(Pulled {
                reference,
                by,
                took: begun.elapsed(),
            })
        };
        let pull = pull.boxed().shared();
        let weak = pull.downgrade();
        pulls.extend(weak.map(|weak| (wanted, (weak, Arc::clone(&has_begun)))));
        (pull, has_begun)
    }
}

/// Pulls by the first credential that lets; without any, as somebody unknown. As a
/// kubelet, which does not try that after a credential that was refused.
async fn pull_by(
    runtime: &dyn RuntimeChanges,
    spec: v1::ImageSpec,
    credentials: Vec<Credential>,
    sandbox: Option<v1::PodSandboxConfig>,
) -> Result<(String, Option<Credential>), RuntimeError> {
    if credentials.is_empty() {
        let pulled = runtime.pull_image(spec, None, sandbox).await;
        return Ok((pulled?, None));
    }
    let mut failures: Vec<RuntimeError> = Vec::new();
    for credential in credentials {
        let auth = Some(auth(credential.clone()));
        let pulled = runtime.pull_image(spec.clone(), auth, sandbox.clone());
        match pulled.await {
            Ok(reference) => return Ok((reference, Some(credential))),
            // The next one would not be heard either.
            Err(error) if error.is_no_answer() => return Err(error),
            Err(error) => failures.push(error),
        }
    }
    Err(all_of(failures))
}

/// The kubelet's words: each message once.
fn all_of(failures: Vec<RuntimeError>) -> RuntimeError {
    let mut messages: Vec<String> = Vec::new();
    let mut kind = RuntimeErrorKind::Other;
    for failure in failures {
        kind = failure.kind;
        if !messages.contains(&failure.message) {
            messages.push(failure.message);
        }
    }
    let message = match messages.len() {
        1 => messages.remove(0),
        _ => format!("[{}]", messages.join(", ")),
    };
    RuntimeError::new("PullImage", kind, message)
}

/// What is guarded stays usable if a holder panicked: it is only ever changed whole.
pub(super) fn locked<Value>(mutex: &Mutex<Value>) -> MutexGuard<'_, Value> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
