//! The process: relists as the schedule says, hears the runtime's doorbell and
//! publishes what follows. Decisions live in `relist`, `schedule` and `health`.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bulkhead_api::v1;
use bulkhead_api::v1::pleg_server::PlegServer;
use bulkhead_api::v1::runtime_pods_client::RuntimePodsClient;
use bulkhead_api::v1::watch_hints_response::Message as Hint;
use ipc::{CallError, Channel, SubscriptionEvent};
use process::{Context, Lifecycle};
use tokio::time::{Instant, MissedTickBehavior};
use tonic::service::Routes;
use topology::Process;

use crate::health::Health;
use crate::relist::{Event, Records};
use crate::schedule::{Moment, Outcome, Schedule, Scope, Step};
use crate::server::{Publication, Published};
use crate::wire;

/// Deadline of one relist, as the interface says. A runtime that takes longer is
/// asked again.
const RELIST_DEADLINE: Duration = Duration::from_secs(120);

/// Largest message that rings: a UID and a boot id.
const MAX_HINT_BYTES: usize = 4 << 10;

/// Watchdog and health are looked after this often.
const TICK: Duration = Duration::from_secs(1);

/// Why the process ended.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The socket failed.
    #[error("cannot go on serving")]
    Serve(#[from] ipc::ServeError),
}

/// Serves until shutdown. It opens nothing but connections.
///
/// # Errors
/// When the listening socket fails.
pub async fn serve(context: Context) -> Result<(), Error> {
    let publication = Publication::new(context.boot_id.clone());
    let relister = Relister {
        pool: RuntimePodsClient::new(context.network.channel(Process::PodWorkerPool))
            .max_decoding_message_size(ipc::limits::MAX_RELIST_BYTES),
        publication: publication.clone(),
        lifecycle: context.lifecycle.clone(),
        started: Instant::now(),
        records: Records::default(),
        schedule: Schedule::new(),
        last_relist: None,
        pod_uids: Arc::default(),
        failing: false,
        runtime_has_events: None,
        pool_boot_id: Arc::default(),
        status: String::new(),
    };
    let serving = ipc::serve(
        context.process,
        context.identities,
        context.listener,
        Routes::new(PlegServer::new(publication)),
        context.lifecycle.shutdown(),
    );
    context.lifecycle.ready();
    tokio::select! {
        result = serving => Ok(result?),
        never = relister.run() => match never {},
    }
}

/// A successful relist.
struct Listed {
    /// When the attempt that succeeded began.
    asked: Instant,
    boot_id: String,
    pods: Vec<v1::RuntimePod>,
}

/// A relist under way.
type InFlight = Pin<Box<dyn Future<Output = (Scope, Result<Listed, CallError>)> + Send>>;

struct Relister {
    pool: RuntimePodsClient<Channel>,
    publication: Publication,
    lifecycle: Lifecycle,
    started: Instant,
    records: Records,
    schedule: Schedule,
    /// When the last successful relist of all pods was asked for.
    last_relist: Option<Instant>,
    pod_uids: Arc<[String]>,
    failing: bool,
    runtime_has_events: Option<bool>,
    /// The pool that was last heard.
    pool_boot_id: Arc<str>,
    /// The line for `bulkhead status`.
    status: String,
}

impl Relister {
    async fn run(mut self) -> Infallible {
        let pool = self.pool.clone().max_decoding_message_size(MAX_HINT_BYTES);
        let mut hints = ipc::subscribe("runtime hints", move || {
            let mut pool = pool.clone();
            async move { pool.watch_hints(v1::WatchHintsRequest {}).await }
        });
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut in_flight: Option<InFlight> = None;
        loop {
            let wake = match self.schedule.next(self.now()) {
                Step::Relist(scope) => {
                    in_flight = Some(self.list(scope));
                    None
                }
                Step::WaitUntil(moment) => Some(self.started + moment),
                Step::WaitForRelist => None,
            };
            tokio::select! {
                // In this order, so that no flood of hints starves the rest.
                biased;
                // Cancel-safe: a tick that is not taken stays due.
                _ = tick.tick() => {
                    self.lifecycle.beat();
                    self.publish(Vec::new());
                }
                // Cancel-safe: the relist lives outside the loop.
                (scope, result) = finish(&mut in_flight) => {
                    in_flight = None;
                    self.relisted(&scope, result);
                }
                // Cancel-safe: the deadline is absolute.
                () = clock::sleep_until(wake) => {}
                // Cancel-safe: a subscription only receives from a channel.
                event = hints.next() => self.hinted(event),
            }
        }
    }

    fn now(&self) -> Moment {
        self.started.elapsed()
    }

    /// Asks the pool; goes on asking while it restarts.
    fn list(&self, scope: Scope) -> InFlight {
        let pool = self.pool.clone();
        let pod_uid = match &scope {
            Scope::All => String::new(),
            Scope::Pod(uid) => uid.clone(),
        };
        Box::pin(async move {
            let result = ipc::call(RELIST_DEADLINE, || {
                let mut pool = pool.clone();
                let request = v1::ListPodsRequest {
                    pod_uid: pod_uid.clone(),
                };
                let asked = Instant::now();
                async move {
                    let response = pool.list_pods(request).await?;
                    Ok(response.map(|list| Listed {
                        asked,
                        boot_id: list.boot_id,
                        pods: list.pods,
                    }))
                }
            })
            .await;
            (scope, result)
        })
    }

    fn relisted(&mut self, scope: &Scope, result: Result<Listed, CallError>) {
        let listed = result.map_err(|error| telemetry::chain(&error));
        let usable = listed.and_then(|mut listed| {
            let pods = wire::pods(std::mem::take(&mut listed.pods));
            let pods = pods.map_err(|error| error.to_string())?;
            Ok((listed, pods))
        });
        let (listed, mut pods) = match usable {
            Ok(usable) => usable,
            Err(error) => {
                self.schedule.ended(self.now(), Outcome::Failed);
                if !std::mem::replace(&mut self.failing, true) {
                    tracing::warn!(?scope, error, "cannot relist; what is known stands");
                }
                return;
            }
        };
        if std::mem::replace(&mut self.failing, false) {
            tracing::info!("relisting again");
        }
        self.heard_pool(listed.boot_id);
        let events = match scope {
            Scope::All => self.records.apply_all(pods),
            Scope::Pod(uid) => {
                let pod = pods.remove(uid);
                self.records.apply_one(uid, pod)
            }
        };
        self.schedule.ended(self.now(), Outcome::Listed);
        for event in &events {
            tracing::debug!(pod = event.pod_uid, kind = ?event.kind, id = event.id, "event");
        }
        // A relist of one pod proves that listing works, but only a list of all
        // tells that nothing is missed.
        if *scope == Scope::All {
            self.last_relist = Some(listed.asked);
        }
        if !self.records.pod_uids().eq(self.pod_uids.iter()) {
            self.pod_uids = self.records.pod_uids().cloned().collect();
        }
        self.publish(events);
    }

    /// Publishes the state as it is now, then `events`.
    fn publish(&mut self, events: Vec<Event>) {
        let health = Health::assess(self.last_relist.map(|asked| asked.elapsed()));
        let reason = health.reason();
        let healthy = health == Health::Healthy;
        let state = Published {
            health,
            pod_uids: Arc::clone(&self.pod_uids),
            pool_boot_id: Arc::clone(&self.pool_boot_id),
        };
        if self.publication.publish(state, events) {
            if healthy {
                tracing::info!("healthy");
            } else {
                tracing::warn!(reason, "unhealthy");
            }
        }
        let status = match healthy {
            true => self.schedule.describe_interval(),
            false => reason.to_owned(),
        };
        if status != self.status {
            if healthy {
                tracing::info!("{status}");
            }
            self.lifecycle.set_status(&status);
            self.status = status;
        }
    }

    fn hinted(&mut self, event: SubscriptionEvent<v1::WatchHintsResponse>) {
        let now = self.now();
        match event {
            SubscriptionEvent::Message(message) => {
                if self.heard_pool(message.boot_id) {
                    self.publish(Vec::new());
                }
                self.hint(now, message.message);
            }
            // The first message of the new stream makes us look at everything.
            SubscriptionEvent::Connected => {}
            SubscriptionEvent::Lost { .. } => self.schedule.events_broke(now),
        }
    }

    /// Notes which pool was heard; whether it is another than before.
    fn heard_pool(&mut self, boot_id: String) -> bool {
        let boot_id = wire::boot_id(boot_id);
        let another = *boot_id != *self.pool_boot_id;
        if another {
            self.pool_boot_id = boot_id.into();
        }
        another
    }

    fn hint(&mut self, now: Moment, hint: Option<Hint>) {
        match hint {
            Some(Hint::PodUid(uid)) => self.schedule.hint(now, uid),
            Some(Hint::Lost(true)) => self.schedule.hints_lost(now),
            Some(Hint::EventsAvailable(available)) => {
                if self.runtime_has_events.replace(available) != Some(available) {
                    tracing::info!(available, "events of the runtime");
                }
                self.schedule.events(now, available);
            }
            Some(Hint::Lost(false)) | None => {}
        }
    }
}

async fn finish(in_flight: &mut Option<InFlight>) -> (Scope, Result<Listed, CallError>) {
    match in_flight {
        Some(relist) => relist.await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;
