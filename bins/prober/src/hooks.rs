//! HTTP lifecycle hooks: pod-worker-pool tells each once, and gets told what it came to.
//! One that this process does not live to report counts as failed there.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bulkhead_api::v1;
use bulkhead_api::v1::probe_targets_client::ProbeTargetsClient;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use ipc::limits::MAX_PROBE_TARGET_MESSAGE_BYTES;
use ipc::{Channel, SubscriptionEvent};

use crate::probe::Prober;
use crate::spec::{HttpGet, Scheme};

/// Hooks that are under way at once: as many as containers of a full node may stop
/// together. One more fails.
const MAX_HOOKS: usize = 1024;

/// How long the pool is told what a hook came to.
const REPORT_MAY_TAKE: Duration = Duration::from_secs(30);

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
    let mut under_way = FuturesUnordered::new();
    loop {
        tokio::select! {
            // Cancel-safe: a hook stays in the set until it is returned.
            Some(()) = under_way.next(), if !under_way.is_empty() => {}
            // Cancel-safe: a subscription only receives from a channel.
            event = hooks.next() => {
                let SubscriptionEvent::Message(hook) = event else { continue };
                let has_place = under_way.len() < MAX_HOOKS;
                under_way.push(one(&prober, &pool, hook, has_place));
            }
        }
    }
}

async fn one(
    prober: &Prober,
    pool: &ProbeTargetsClient<Channel>,
    hook: v1::HttpHook,
    has_place: bool,
) {
    let result = match (has_place, request(&hook)) {
        (true, Ok(get)) => {
            let timeout = Duration::from_secs(hook.timeout_seconds.into());
            prober.hook(&get, &hook.pod_ip, timeout).await
        }
        (true, Err(reason)) => Err(reason),
        (false, _) => Err(format!("{MAX_HOOKS} hooks are under way")),
    };
    let uid = hook.pod.map(|pod| pod.uid).unwrap_or_default();
    let container = &hook.container_name;
    match &result {
        Ok(()) => tracing::info!(pod = uid, container, "carried out an HTTP hook"),
        Err(reason) => tracing::warn!(pod = uid, container, reason, "an HTTP hook failed"),
    }
    let report = v1::ReportHttpHookRequest {
        boot_id: hook.boot_id,
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
