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
use ipc::limits::MAX_PROBE_TARGET_MESSAGE_BYTES;
use ipc::{Channel, SubscriptionEvent};

use crate::agenda::{Lane, Slots};
use crate::probe::Prober;
use crate::spec::{HttpGet, Scheme};

/// Hooks that wait for a place: more than containers of a full node may stop together. One
/// more fails.
const MAX_WAITING: usize = 1024;

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
    let carry_out = |key: Key, hook, is_cut_off, has_place| {
        let hook = one(&prober, &pool, hook, has_place);
        Abortable::new(hook, is_cut_off).map(move |_| key)
    };
    loop {
        for (key, hook, is_cut_off) in places.begin(stream) {
            under_way.push(carry_out(key, hook, is_cut_off, true));
        }
        tokio::select! {
            // Cancel-safe: a hook stays in the set until it is returned.
            Some(key) = under_way.next(), if !under_way.is_empty() => places.end(key),
            // Cancel-safe: a subscription only receives from a channel.
            event = hooks.next() => match event {
                SubscriptionEvent::Message(hook) if hook.is_cancelled => {
                    places.cancel((stream, hook.id));
                }
                SubscriptionEvent::Message(hook) if places.waiting.len() < MAX_WAITING => {
                    places.waiting.push_back(hook);
                }
                SubscriptionEvent::Message(hook) => {
                    let (_, never) = AbortHandle::new_pair();
                    under_way.push(carry_out((stream, hook.id), hook, never, false));
                }
                SubscriptionEvent::Connected => stream += 1,
                // Nobody waits for them any more, and none of these was begun.
                SubscriptionEvent::Lost { .. } => places.waiting.clear(),
            },
        }
    }
}

/// Which hooks are under way, and which wait for a place.
#[derive(Default)]
struct Places {
    slots: Slots,
    running: BTreeMap<Key, (String, AbortHandle)>,
    waiting: VecDeque<v1::HttpHook>,
}

impl Places {
    /// The hooks that have a place now, in the order in which they came.
    fn begin(&mut self, stream: u64) -> Vec<(Key, v1::HttpHook, AbortRegistration)> {
        let mut begun = Vec::new();
        for hook in std::mem::take(&mut self.waiting) {
            let uid = uid_of(&hook).to_owned();
            if !self.slots.is_free(Lane::Hook, &uid) {
                self.cut_off_earlier(stream);
            }
            if !self.slots.take(Lane::Hook, &uid) {
                self.waiting.push_back(hook);
                continue;
            }
            let (handle, is_cut_off) = AbortHandle::new_pair();
            let key = (stream, hook.id);
            self.running.insert(key, (uid, handle));
            begun.push((key, hook, is_cut_off));
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
        self.waiting.retain(|hook| hook.id != key.1);
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
    hook: v1::HttpHook,
    has_place: bool,
) {
    let uid = uid_of(&hook);
    let result = match (has_place, request(&hook)) {
        (true, Ok(get)) => {
            let timeout = Duration::from_secs(hook.timeout_seconds.into());
            prober.hook(&get, (uid, &hook.pod_ip), timeout).await
        }
        (true, Err(reason)) => Err(reason),
        (false, _) => Err(format!("{MAX_WAITING} hooks wait")),
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

    fn hook(uid: &str, id: u64) -> v1::HttpHook {
        v1::HttpHook {
            id,
            pod: Some(v1::PodReference {
                uid: uid.to_owned(),
                ..v1::PodReference::default()
            }),
            ..v1::HttpHook::default()
        }
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
