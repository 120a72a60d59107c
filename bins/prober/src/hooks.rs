//! HTTP lifecycle hooks: pod-worker-pool tells each once, gets told what it came to, and says
//! when it waits for one no more. One that this process does not live to report is lost there.
//!
//! So many are under way at once, and so many of one pod, as there are places; the others wait.

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bulkhead_api::v1;
use bulkhead_api::v1::probe_targets_client::ProbeTargetsClient;
use futures_util::future::{AbortHandle, AbortRegistration, Abortable};
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use ipc::limits::{MAX_BOOT_ID_BYTES, MAX_PROBE_TARGET_MESSAGE_BYTES, truncate};
use ipc::{Channel, Message as _, SubscriptionEvent};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::agenda::{Lane, MAX_HOOKS, Slots};
use crate::probe::Prober;
use crate::spec::{HttpGet, Scheme};

/// Hooks that wait for a place: more than containers of a full node may stop together. One
/// more fails.
const MAX_WAITING: usize = 1024;

/// Memory that hooks may take together, those under way and those that wait, as
/// [`memory_of`] tells: so many have 3 KiB each. One more fails.
const MAX_BYTES: usize = 4 << 20;

/// Hooks that failed for want of a place or of room and are not reported yet. Of one more
/// nobody is told: the pool counts it as failed when its time is over.
const MAX_REFUSED: usize = 1024;

/// How long the pool is told what a hook came to.
const REPORT_MAY_TAKE: Duration = Duration::from_secs(30);

/// Names a hook: which of the pool's streams told it, and its id there.
type Key = (u64, u64);

/// Carries out hooks.
pub(crate) async fn run(prober: Arc<Prober>, pool: Channel) -> Infallible {
    let pool =
        ProbeTargetsClient::new(pool).max_decoding_message_size(MAX_PROBE_TARGET_MESSAGE_BYTES);
    let asked = pool.clone();
    let mut hooks = ipc::subscribe("HTTP hooks", move || {
        let mut pool = asked.clone();
        async move {
            let request = v1::WatchHttpHooksRequest {};
            pool.watch_http_hooks(request).await
        }
    });
    let mut stream = 0;
    let mut places = Places::default();
    let mut under_way = FuturesUnordered::new();
    let carry_out = |key: Key, received, is_cut_off, has_place| {
        let hook = one(&prober, &pool, received, has_place);
        Abortable::new(hook, is_cut_off).map(move |_| key)
    };
    let room = Arc::new(Semaphore::new(MAX_BYTES));
    loop {
        for (key, received, is_cut_off) in places.begin(stream) {
            under_way.push(carry_out(key, received, is_cut_off, true));
        }
        tokio::select! {
            // Cancel-safe: a hook stays in the set until it is returned.
            Some(key) = under_way.next(), if !under_way.is_empty() => places.end(key),
            // Cancel-safe: a subscription only receives from a channel.
            event = hooks.next() => match event {
                SubscriptionEvent::Message(hook) if hook.is_cancelled => {
                    places.cancel((stream, hook.id));
                }
                SubscriptionEvent::Message(hook) => match take_in(&room, hook, &places) {
                    Ok(received) => places.waiting.push_back(received),
                    Err((boot_id, id)) if under_way.len() < MAX_HOOKS + MAX_REFUSED => {
                        let (_, never) = AbortHandle::new_pair();
                        let hook = v1::HttpHook { boot_id, id, ..v1::HttpHook::default() };
                        let received = ReceivedHook { hook, _room: None };
                        under_way.push(carry_out((stream, id), received, never, false));
                    }
                    Err((_, id)) => tracing::debug!(id, "a hook is left out"),
                },
                SubscriptionEvent::Connected => stream += 1,
                // Nobody waits for them any more, and none of these was begun.
                SubscriptionEvent::Lost { .. } => places.waiting.clear(),
            },
        }
    }
}

/// A hook, with the room that it takes.
struct ReceivedHook {
    hook: v1::HttpHook,
    _room: Option<OwnedSemaphorePermit>,
}

/// What a hook takes in memory, twice: what is sent is made of it.
fn memory_of(hook: &v1::HttpHook) -> usize {
    2 * (hook.encoded_len() + size_of_val(hook) + size_of_val(hook.headers.as_slice()))
}

/// The hook with room for it; or its boot id and id, which a report needs.
fn take_in(
    room: &Arc<Semaphore>,
    hook: v1::HttpHook,
    places: &Places,
) -> Result<ReceivedHook, (String, u64)> {
    let bytes = u32::try_from(memory_of(&hook)).unwrap_or(u32::MAX);
    let room = match places.waiting.len() < MAX_WAITING {
        true => Arc::clone(room).try_acquire_many_owned(bytes).ok(),
        false => None,
    };
    if room.is_some() {
        return Ok(ReceivedHook { hook, _room: room });
    }
    let mut boot_id = hook.boot_id;
    truncate(&mut boot_id, MAX_BOOT_ID_BYTES);
    Err((boot_id, hook.id))
}

/// Which hooks are under way, and which wait for a place.
#[derive(Default)]
struct Places {
    slots: Slots,
    running: BTreeMap<Key, (String, AbortHandle)>,
    waiting: VecDeque<ReceivedHook>,
}

impl Places {
    /// The hooks that have a place now, in the order in which they came.
    fn begin(&mut self, stream: u64) -> Vec<(Key, ReceivedHook, AbortRegistration)> {
        let mut begun = Vec::new();
        for received in std::mem::take(&mut self.waiting) {
            let uid = uid_of(&received.hook).to_owned();
            if !self.slots.is_free(Lane::Hook, &uid) {
                self.cut_off_earlier(stream);
            }
            if !self.slots.take(Lane::Hook, &uid) {
                self.waiting.push_back(received);
                continue;
            }
            let (handle, is_cut_off) = AbortHandle::new_pair();
            let key = (stream, received.hook.id);
            self.running.insert(key, (uid, handle));
            begun.push((key, received, is_cut_off));
        }
        begun
    }

    /// Hooks of earlier streams go on, though nobody waits for them, until another needs
    /// their place.
    fn cut_off_earlier(&mut self, stream: u64) {
        let earlier = self.running.range(..(stream, 0));
        for key in earlier.map(|(key, _)| *key).collect::<Vec<Key>>() {
            self.cancel(key);
        }
    }

    fn cancel(&mut self, key: Key) {
        self.waiting.retain(|received| received.hook.id != key.1);
        if let Some((uid, handle)) = self.running.remove(&key) {
            handle.abort();
            self.slots.give_back(Lane::Hook, &uid);
        }
    }

    /// A hook has ended; one that was cut off has given its place back already.
    fn end(&mut self, key: Key) {
        if let Some((uid, _)) = self.running.remove(&key) {
            self.slots.give_back(Lane::Hook, &uid);
        }
    }
}

fn uid_of(hook: &v1::HttpHook) -> &str {
    hook.pod.as_ref().map_or("", |pod| &pod.uid)
}

async fn one(
    prober: &Prober,
    pool: &ProbeTargetsClient<Channel>,
    received: ReceivedHook,
    has_place: bool,
) {
    let hook = &received.hook;
    let uid = uid_of(hook);
    let result = match (has_place, request(hook)) {
        (true, Ok(get)) => {
            let timeout = Duration::from_secs(hook.timeout_seconds.into());
            prober.hook(&get, (uid, &hook.pod_ip), timeout).await
        }
        (true, Err(reason)) => Err(reason),
        (false, _) => Err("too many hooks wait, or too large ones".to_owned()),
    };
    let container = &hook.container_name;
    match &result {
        Ok(()) => tracing::info!(pod = uid, container, "carried out an HTTP hook"),
        Err(reason) => tracing::warn!(pod = uid, container, reason, "an HTTP hook failed"),
    }
    let report = v1::ReportHttpHookRequest {
        boot_id: hook.boot_id.clone(),
        id: hook.id,
        error: result.err().unwrap_or_default(),
    };
    let reported = ipc::call(REPORT_MAY_TAKE, || {
        let mut pool = pool.clone();
        let report = report.clone();
        async move { pool.report_http_hook(report).await }
    });
    if let Err(error) = reported.await {
        tracing::warn!(pod = uid, container, %error, "cannot tell what a hook came to");
    }
}

/// The request of a hook.
fn request(hook: &v1::HttpHook) -> Result<HttpGet, String> {
    let headers = hook.headers.iter();
    Ok(HttpGet {
        scheme: match hook.tls {
            true => Scheme::Https,
            false => Scheme::Http,
        },
        host: Some(hook.host.clone()).filter(|host| !host.is_empty()),
        port: u16::try_from(hook.port).map_err(|_| format!("{} is no port", hook.port))?,
        path: hook.path.clone(),
        headers: headers
            .map(|header| (header.name.clone(), header.value.clone()))
            .collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agenda::MAX_HOOKS_PER_POD;

    fn hook(uid: &str, id: u64) -> ReceivedHook {
        let hook = v1::HttpHook {
            id,
            pod: Some(v1::PodReference {
                uid: uid.to_owned(),
                ..v1::PodReference::default()
            }),
            ..v1::HttpHook::default()
        };
        ReceivedHook { hook, _room: None }
    }

    #[test]
    fn hooks_have_so_much_room_together_until_they_have_ended() {
        let room = Arc::new(Semaphore::new(MAX_BYTES));
        let mut places = Places::default();
        let large = |id| v1::HttpHook {
            path: "x".repeat(60_000),
            boot_id: "b".repeat(1000),
            ..hook("a", id).hook
        };
        let mut taken = Vec::new();
        while let Ok(received) = take_in(&room, large(1), &places) {
            taken.push(received);
        }
        assert_eq!(taken.len(), MAX_BYTES / memory_of(&large(1)));
        let refused = take_in(&room, large(2), &places).map(|_| ()).unwrap_err();
        assert_eq!((refused.1, refused.0.len()), (2, MAX_BOOT_ID_BYTES));
        taken.clear();
        assert!(take_in(&room, large(1), &places).is_ok());
        // A header without anything in it takes no bytes of a message to speak of.
        let headers = vec![v1::HttpHeader::default(); 30_000];
        let hook_of_headers = v1::HttpHook {
            headers,
            ..hook("a", 3).hook
        };
        assert!(memory_of(&hook_of_headers) > 2_000_000);
        places
            .waiting
            .extend((0..MAX_WAITING as u64).map(|id| hook("a", id)));
        assert!(take_in(&room, hook("a", 9).hook, &places).is_err());
    }

    fn begun(places: &mut Places, stream: u64) -> Vec<u64> {
        let begun = places.begin(stream).into_iter();
        begun.map(|((_, id), ..)| id).collect()
    }

    #[test]
    fn one_pod_has_so_many_hooks_and_the_others_wait() {
        let mut places = Places::default();
        let all = 0..=MAX_HOOKS_PER_POD as u64;
        places.waiting.extend(all.clone().map(|id| hook("a", id)));
        places.waiting.push_back(hook("b", 100));
        let last = MAX_HOOKS_PER_POD as u64;
        let expected: Vec<u64> = all.filter(|id| *id != last).chain([100]).collect();
        assert_eq!(begun(&mut places, 1), expected);
        places.end((1, 100));
        assert!(begun(&mut places, 1).is_empty());
        places.end((1, 3));
        assert_eq!(begun(&mut places, 1), [last]);
        // A hook that waits can be cancelled too.
        places.waiting.push_back(hook("a", 200));
        places.cancel((1, 200));
        places.cancel((1, 0));
        assert!(begun(&mut places, 1).is_empty());
        assert_eq!(places.running.len(), MAX_HOOKS_PER_POD - 1);
    }

    #[test]
    fn hooks_of_an_earlier_stream_go_on_until_another_needs_their_place() {
        let mut places = Places::default();
        let all = 0..MAX_HOOKS_PER_POD as u64;
        places.waiting.extend(all.map(|id| hook("a", id)));
        begun(&mut places, 1);
        places.waiting.push_back(hook("b", 0));
        assert_eq!(begun(&mut places, 2), [0]);
        assert_eq!(places.running.len(), MAX_HOOKS_PER_POD + 1);
        places.waiting.push_back(hook("a", 1));
        assert_eq!(begun(&mut places, 2), [1]);
        assert_eq!(places.running.len(), 2);
    }
}
