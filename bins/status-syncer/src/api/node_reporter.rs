//! Reports the Node: registers it, keeps its status, and renews its Lease.
//!
//! ```text
//!   the API server has no Node of this name --> it is created
//!   it has one --> its status is patched when it says something new, or every 5 minutes;
//!                  the Lease is renewed every 10 s (both unless configured otherwise)
//! ```

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bulkhead_api::v1;
use bulkhead_api::v1::observations_client::ObservationsClient;
use bulkhead_api::v1::report_request::Report;
use clock::{UnixNanos, WallClock};
use ipc::{CallError, Channel};
use jiff::Timestamp;
use node_config::NodeConfig;
use serde_json::Value;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, MissedTickBehavior};
use topology::Process;

use super::gateway::Gateway;
use super::held::HeldNode;
use super::not_ready::{self, Health, NotReady};
use super::reporting::{ReportedHealth, Reporting};
use super::{node, node_events};
use crate::command::Command;

/// Until the Node is ready it is looked at as often as this.
const FIRST_LOOK_PERIOD: Duration = Duration::from_millis(500);

/// A renewal that failed is tried again after so long.
const LEASE_RETRY: Duration = Duration::from_secs(1);

/// Deadline of the question what the node is.
const FACTS_DEADLINE: Duration = Duration::from_secs(5);

const NOT_FOUND: u32 = 404;
const CONFLICT: u32 = 409;

struct Reporter {
    config: Arc<NodeConfig>,
    clock: WallClock,
    gateway: Gateway,
    pool: ObservationsClient<Channel>,
    held: HeldNode,
    commands: mpsc::Sender<Command>,
    /// The last status that was made here.
    last: Option<Value>,
    is_cordoned: bool,
    health: watch::Receiver<ReportedHealth>,
    started: Instant,
    /// When the runtime last said how it is; at first, when this process started.
    runtime_answered: Instant,
    last_facts: Option<v1::NodeFacts>,
}

/// Reports for ever.
pub(crate) async fn run(
    context: &Reporting,
    gateway: Gateway,
    held: HeldNode,
    commands: mpsc::Sender<Command>,
) -> Infallible {
    let channel = context.network.channel(Process::PodWorkerPool);
    let reporter = || Reporter {
        config: Arc::clone(&context.config),
        clock: context.clock.clone(),
        gateway: gateway.clone(),
        pool: ObservationsClient::new(channel.clone()),
        held: held.clone(),
        commands: commands.clone(),
        last: None,
        is_cordoned: false,
        health: context.health.clone(),
        started: Instant::now(),
        runtime_answered: Instant::now(),
        last_facts: None,
    };
    tokio::select! {
        never = reporter().keep_status() => never,
        never = reporter().keep_lease() => never,
    }
}

/// Whether the API server holds the Node as ready.
fn is_ready(held: &Value) -> bool {
    let conditions = held["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|it| it["type"] == "Ready" && it["status"] == "True")
}

impl Reporter {
    async fn keep_status(mut self) -> Infallible {
        let object = &self.config.node_object;
        let report_period = object.status_report_frequency;
        let look_period = object.status_update_frequency;
        let mut reported_at: Option<Instant> = None;
        self.record(node_events::at_start(&self.config)).await;
        loop {
            let held = self.held().await;
            let shuts_down = |reported: &ReportedHealth| {
                reported
                    .as_ref()
                    .is_some_and(|(reported, _)| reported.shuts_down)
            };
            let did = shuts_down(&self.health.borrow());
            let is_due = reported_at.is_none_or(|at| at.elapsed() >= report_period);
            let is_first = reported_at.is_none();
            match self.report_status(&held, is_due, is_first).await {
                Ok(Some(_)) => reported_at = Some(Instant::now()),
                Ok(None) => {}
                Err(error) => {
                    tracing::warn!(error = telemetry::chain(&error), "the Node is not reported");
                }
            }
            let is_ready = is_ready(&held);
            let period = match is_ready {
                true => look_period,
                false => FIRST_LOOK_PERIOD,
            };
            let gone = self
                .held
                .wait_for(|held| held.as_ref().is_some_and(|held| held.is_null()) && !is_ready);
            let changed = self.health.wait_for(|reported| shuts_down(reported) != did);
            // A Node that was deleted is created anew at once, and a shutdown reported at once. All
            // are cancel-safe: they only wait.
            tokio::select! {
                () = tokio::time::sleep(period) => {}
                Ok(_) = gone => {}
                Ok(_) = changed => {}
            }
        }
    }

    /// Makes one report, if there is something to report.
    async fn report_status(
        &mut self,
        held: &Value,
        is_due: bool,
        is_first: bool,
    ) -> Result<Option<v1::ReportResponse>, CallError> {
        let facts = self.facts(held).await?;
        let reported = *self.health.borrow();
        let not_ready = NotReady::of(&Health {
            reported: reported.map(|(reported, at)| (reported, at.elapsed())),
            running_for: self.started.elapsed(),
            was_ready: is_ready(held),
        });
        let now = self.clock.now();
        let status = node::status(&self.config, &facts, not_ready, &held["status"], now);
        let before = self.last.as_ref().unwrap_or(&held["status"]);
        let name = &self.config.node_name;
        let mut events = node_events::of_change(name, before, &status);
        let is_cordoned = held["spec"]["unschedulable"] == true;
        if is_cordoned != self.is_cordoned {
            events.push(node_events::of_cordon(name, is_cordoned));
            self.is_cordoned = is_cordoned;
        }
        self.record(events).await;
        self.last = Some(status.clone());
        let report = if held.is_null() {
            let node = node::registration(&self.config, &status);
            node.map(|node| Report::Node(node.to_string().into_bytes()))
        } else {
            let metadata = is_first.then(|| node::metadata_patch(&self.config, held));
            let patch = node::patch(&status, held, metadata.flatten(), is_due);
            patch.map(|patch| Report::NodeStatus(patch.to_string().into_bytes()))
        };
        let Some(report) = report else {
            return Ok(None);
        };
        let answer = self.gateway.report(report).await?;
        let is_refused = answer.code >= 300 && answer.code != CONFLICT && answer.code != NOT_FOUND;
        if is_refused {
            let reason = String::from_utf8_lossy(&answer.body);
            tracing::warn!(code = answer.code, %reason, "the API server refused the Node");
        }
        Ok(Some(answer))
    }

    /// What the node is. Those that were known last stand while the pool is away: that it is
    /// away for long shows in the health of what asks it.
    async fn facts(&mut self, held: &Value) -> Result<v1::NodeFacts, CallError> {
        let answered = ipc::call(FACTS_DEADLINE, || {
            let mut pool = self.pool.clone();
            async move { pool.get_node_facts(v1::GetNodeFactsRequest {}).await }
        })
        .await;
        let mut facts = match (answered, &self.last_facts) {
            (Ok(facts), _) => facts,
            (Err(_), Some(last)) => return Ok(last.clone()),
            (Err(error), None) => return Err(error),
        };
        if facts.runtime_answers {
            self.runtime_answered = Instant::now();
        } else if not_ready::is_given_time(self.runtime_answered.elapsed(), is_ready(held))
            && let Some(capacity) = &mut facts.capacity
        {
            capacity.runtime_error.clear();
        }
        self.last_facts = Some(facts.clone());
        Ok(facts)
    }

    /// Records events with all others.
    async fn record(&self, events: Vec<v1::Event>) {
        if !events.is_empty() {
            let (answer, _) = oneshot::channel();
            let events = v1::ReportEventsRequest { events };
            let command = Command::ReportEvents(events, answer);
            // The main loop outlives this; at its end nobody waits for events.
            drop(self.commands.send(command).await);
        }
    }

    async fn keep_lease(mut self) -> Infallible {
        let period = Duration::from_secs(self.config.node_object.lease_seconds.into()) / 4;
        let mut tick = tokio::time::interval(period.max(LEASE_RETRY));
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tick.tick().await;
            // A Lease has an owner, which must be there first.
            let registered = self
                .held
                .wait_for(|held| held.as_ref().is_some_and(|held| !held.is_null()));
            let held = registered.await.ok().and_then(|held| held.clone());
            let held = held.unwrap_or_default();
            match self.renew_lease(&held).await {
                Ok(code) if code < 300 => {}
                Ok(code) => {
                    tracing::warn!(code, "the API server refused the Lease");
                    tick.reset_after(LEASE_RETRY);
                }
                Err(error) => {
                    tracing::warn!(error = telemetry::chain(&error), "the Lease is not renewed");
                    tick.reset_after(LEASE_RETRY);
                }
            }
        }
    }

    /// Renews the Lease, or creates it; the HTTP status of the answer.
    async fn renew_lease(&self, held: &Value) -> Result<u32, CallError> {
        let now = self.microseconds();
        let renewal = node::renewal(&self.config, &now).to_string().into_bytes();
        let answer = self.gateway.report(Report::LeaseRenewal(renewal)).await?;
        if answer.code != NOT_FOUND {
            return Ok(answer.code);
        }
        let uid = held["metadata"]["uid"].as_str().unwrap_or_default();
        let lease = node::lease(&self.config, uid, &now)
            .to_string()
            .into_bytes();
        Ok(self.gateway.report(Report::Lease(lease)).await?.code)
    }

    /// What the API server holds, as soon as it is known.
    async fn held(&mut self) -> Arc<Value> {
        let held = self.held.wait_for(Option::is_some).await;
        held.ok().and_then(|held| held.clone()).unwrap_or_default()
    }

    /// Now, as a Lease has it.
    fn microseconds(&self) -> String {
        let UnixNanos(now) = self.clock.now();
        let at = Timestamp::from_microsecond(now / 1000).unwrap_or(Timestamp::UNIX_EPOCH);
        format!("{at:.6}")
    }
}
