//! What the container runtime is told of the own Node: the networks of its pods, as
//! config-sourcer has them from the API server. A runtime may need them to configure its
//! network plugin.
//!
//! It is told when they are known or change, and when it is heard again, since it may have been
//! restarted; it need not keep them.

use std::convert::Infallible;
use std::future;
use std::sync::Arc;
use std::time::Duration;

use backoff::{Backoff, Curve};
use bulkhead_api::v1;
use bulkhead_api::v1::services_client::ServicesClient;
use cri::{RuntimeChanges, RuntimeError, RuntimeErrorKind};
use ipc::limits::MAX_NODE_MESSAGE_BYTES;
use ipc::{Channel, SubscriptionEvent};
use node_config::are_pod_cidrs;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::servers::Shared;

/// A runtime that refuses is told again.
const AGAIN: Curve = Curve {
    base: Duration::from_secs(1),
    cap: Duration::from_secs(60),
    immediate: 0,
};

/// Passes on to a runtime what is known of the Node.
pub(crate) struct NodeSource {
    runtime: Arc<dyn RuntimeChanges>,
    /// Whether the runtime's events are heard, by which it shows that it is back.
    is_heard: watch::Receiver<bool>,
    /// In the form of the CRI; empty while none are known.
    pod_cidrs: watch::Sender<String>,
}

impl NodeSource {
    /// Nothing is known yet.
    #[must_use]
    pub(crate) fn new(shared: &Shared) -> Self {
        NodeSource {
            runtime: Arc::clone(&shared.runtime.changes),
            is_heard: shared.hints.are_available(),
            pod_cidrs: watch::Sender::default(),
        }
    }

    /// Follows config-sourcer, and tells the runtime, for ever.
    pub(crate) async fn run(self, channel: Channel) -> Infallible {
        let told = tell(self.runtime, self.pod_cidrs.subscribe(), self.is_heard);
        tokio::select! {
            biased;
            never = follow(channel, &self.pod_cidrs) => never,
            never = told => never,
        }
    }
}

async fn follow(channel: Channel, pod_cidrs: &watch::Sender<String>) -> Infallible {
    let client = ServicesClient::new(channel).max_decoding_message_size(MAX_NODE_MESSAGE_BYTES);
    let mut changes = ipc::subscribe("node", move || {
        let mut client = client.clone();
        async move { client.watch_node(v1::WatchNodeRequest {}).await }
    });
    loop {
        if let SubscriptionEvent::Message(node) = changes.next().await
            && let Some(joined) = joined(&node.pod_cidrs)
        {
            pod_cidrs.send_if_modified(|known| {
                let is_new = *known != joined;
                *known = joined;
                is_new
            });
        }
    }
}

/// The kubelet's form; none where they cannot be the networks of pods.
fn joined(pod_cidrs: &[String]) -> Option<String> {
    are_pod_cidrs(pod_cidrs).then(|| pod_cidrs.join(","))
}

async fn tell(
    runtime: Arc<dyn RuntimeChanges>,
    mut pod_cidrs: watch::Receiver<String>,
    mut is_heard: watch::Receiver<bool>,
) -> Infallible {
    let mut backoff = Backoff::new(AGAIN);
    is_heard.mark_unchanged();
    loop {
        let pod_cidr = pod_cidrs.borrow_and_update().clone();
        let again = match is_settled(&*runtime, &pod_cidr).await {
            true => {
                backoff.reset();
                None
            }
            false => Some(Instant::now() + backoff.failed()),
        };
        tokio::select! {
            biased;
            // Cancel-safe: a change that is not seen stays unseen. Its sender outlives this.
            _ = pod_cidrs.changed() => {}
            // Cancel-safe: what it has seen is that the runtime is away.
            () = is_back(&mut is_heard) => {}
            // Cancel-safe: a sleep has no state that could be lost.
            () = clock::sleep_until(again) => {}
        }
    }
}

/// Tells the runtime, if there is anything to tell; whether it need not be told again.
async fn is_settled(runtime: &dyn RuntimeChanges, pod_cidr: &str) -> bool {
    if pod_cidr.is_empty() {
        return true;
    }
    let network_config = Some(cri::v1::NetworkConfig {
        pod_cidr: pod_cidr.to_owned(),
    });
    let config = cri::v1::RuntimeConfig { network_config };
    let answer = runtime.update_runtime_config(config).await;
    match &answer {
        Ok(()) => tracing::info!(pod_cidr, "the runtime was told of the networks of pods"),
        Err(error) if error.kind == RuntimeErrorKind::Unimplemented => {
            tracing::info!(pod_cidr, "the runtime takes no networks of pods");
        }
        Err(error) => {
            tracing::warn!(pod_cidr, %error, "cannot tell the runtime of the networks of pods");
        }
    }
    settles(&answer)
}

fn settles(answer: &Result<(), RuntimeError>) -> bool {
    match answer {
        Ok(()) => true,
        // It has no use for it.
        Err(error) => error.kind == RuntimeErrorKind::Unimplemented,
    }
}

/// Returns when the runtime's events are heard that were not.
async fn is_back(is_heard: &mut watch::Receiver<bool>) {
    while is_heard.changed().await.is_ok() {
        if *is_heard.borrow_and_update() {
            return;
        }
    }
    future::pending().await
}

#[cfg(test)]
mod tests {
    use clock::{UnixNanos, WallClock};
    use cri::Runtime;
    use simulated_runtime::SimulatedRuntime;
    use tokio_util::task::AbortOnDropHandle;

    use super::*;

    #[test]
    fn two_networks_have_a_comma_between_them_and_what_is_none_is_not_passed_on() {
        for (given, expected) in [
            (&[][..], Some("")),
            (&["10.1.0.0/24"], Some("10.1.0.0/24")),
            (&["10.1.0.0/24", "fd00::/64"], Some("10.1.0.0/24,fd00::/64")),
            (&["{{.}}"], None),
        ] {
            let given: Vec<_> = given.iter().map(|it| (*it).to_owned()).collect();
            assert_eq!(joined(&given).as_deref(), expected);
        }
    }

    #[test]
    fn a_runtime_without_the_call_is_left_alone_and_others_are_told_again() {
        let error = |kind| Err(RuntimeError::new("UpdateRuntimeConfig", kind, "words"));
        for (answer, expected) in [
            (Ok(()), true),
            (error(RuntimeErrorKind::Unimplemented), true),
            (error(RuntimeErrorKind::Unavailable), false),
            (error(RuntimeErrorKind::DeadlineExceeded), false),
            (error(RuntimeErrorKind::Other), false),
        ] {
            assert_eq!(settles(&answer), expected, "{answer:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_runtime_is_told_of_changes_after_failures_and_when_it_is_back() {
        let simulated = SimulatedRuntime::new(1, WallClock::simulated(UnixNanos(1)), true);
        let runtime = Runtime::from(simulated.clone());
        let (pod_cidrs, known) = watch::channel(String::new());
        let (is_heard, heard) = watch::channel(false);
        let _told = AbortOnDropHandle::new(tokio::spawn(async move {
            match tell(runtime.changes, known, heard).await {}
        }));
        let times_told = async |after: Duration| {
            tokio::time::sleep(after).await;
            let calls = simulated.calls();
            calls.get("UpdateRuntimeConfig").copied().unwrap_or(0)
        };
        let soon = Duration::from_millis(100);
        // Nothing is known yet.
        is_heard.send_replace(true);
        assert_eq!(times_told(soon).await, 0);
        let both = "10.1.0.0/24,fd00::/64";
        simulated.set_call_fails("UpdateRuntimeConfig", both, true);
        pod_cidrs.send_replace(both.to_owned());
        assert_eq!(times_told(soon).await, 1);
        assert_eq!(times_told(AGAIN.wait(1)).await, 2);
        simulated.set_call_fails("UpdateRuntimeConfig", both, false);
        let hour = Duration::from_secs(3600);
        assert_eq!(times_told(hour).await, 3);
        is_heard.send_replace(false);
        assert_eq!(times_told(soon).await, 3);
        is_heard.send_replace(true);
        assert_eq!(times_told(hour).await, 4);
        pod_cidrs.send_replace("10.2.0.0/24".to_owned());
        assert_eq!(times_told(hour).await, 5);
    }
}
