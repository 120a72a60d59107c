//! What pleg says: something happened to pods, and how it is itself.

use std::time::Duration;

use bulkhead_api::v1;
use bulkhead_api::v1::watch_pod_lifecycle_events_response::Message;
use ipc::limits::{MAX_CONTAINER_ID_BYTES, truncate};
use v1::PodLifecycleEventType as Kind;

use super::cause::Cause;

/// Longest reason of bad health that is kept, in bytes.
const MAX_REASON_BYTES: usize = 1 << 10;

/// pleg calls itself unhealthy when it had no list for longer than this.
const UNHEALTHY_AFTER: Duration = Duration::from_secs(3 * 60);

/// When pleg last had a list of all pods, as far as is known.
///
/// - Unknown, Until -> Now: it says that it is healthy.
/// - Now -> Until: it says that it is not, which it does after three minutes; or it is not
///   heard of any more, or is another one that had no list yet.
#[derive(Clone, Copy, Debug, Default)]
enum Activity {
    /// Never since sync-loop started.
    #[default]
    Unknown,
    /// It goes on having them.
    Now,
    /// At this time since the start of the process.
    Until(Duration),
}

/// What a message leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LifecycleEffect {
    /// pleg last heard the pool with this boot id; empty before it heard any.
    PoolHeard {
        /// The boot id.
        boot_id: String,
    },
    /// These pods are to be looked at, those of them that are desired.
    Sync {
        /// The pods; as many as pleg likes.
        pod_uids: Vec<String>,
        /// Why.
        cause: Cause,
    },
    /// A container of this pod died, so that there may be dead ones to remove.
    CleanUpContainers {
        /// The pod.
        pod_uid: String,
    },
}

/// pleg, as last heard of.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lifecycle {
    health: v1::PlegHealth,
    activity: Activity,
}

impl Lifecycle {
    /// Takes a message in. `now` is the time since the start of the process.
    pub(crate) fn on(&mut self, message: Message, now: Duration) -> Vec<LifecycleEffect> {
        match message {
            Message::Snapshot(snapshot) => {
                self.lost(now);
                let sync = LifecycleEffect::Sync {
                    pod_uids: snapshot.pod_uids,
                    cause: Cause::LifecycleSnapshot,
                };
                vec![self.set_health(snapshot.health.unwrap_or_default()), sync]
            }
            Message::Health(health) => {
                self.lost(now.saturating_sub(UNHEALTHY_AFTER));
                vec![self.set_health(health)]
            }
            Message::Event(event) => effects_of(event),
        }
    }

    /// pleg is not heard of any more, or has had no list since then.
    pub(crate) fn lost(&mut self, since: Duration) {
        if matches!(self.activity, Activity::Now) {
            self.activity = Activity::Until(since);
        }
    }

    /// For how long pleg has had no list, if it ever had one.
    #[must_use]
    pub(crate) fn inactive_for(&self, now: Duration) -> Option<Duration> {
        match self.activity {
            Activity::Unknown => None,
            Activity::Now => Some(Duration::ZERO),
            Activity::Until(since) => Some(now.saturating_sub(since)),
        }
    }

    /// What pleg last said of itself.
    #[must_use]
    pub(crate) fn health(&self) -> &v1::PlegHealth {
        &self.health
    }

    fn set_health(&mut self, mut health: v1::PlegHealth) -> LifecycleEffect {
        truncate(&mut health.reason, MAX_REASON_BYTES);
        if health.healthy != self.health.healthy {
            tracing::info!(healthy = health.healthy, reason = health.reason, "pleg");
        }
        if health.healthy {
            self.activity = Activity::Now;
        }
        self.health = health;
        LifecycleEffect::PoolHeard {
            boot_id: self.health.pool_boot_id.clone(),
        }
    }
}

fn effects_of(event: v1::PodLifecycleEvent) -> Vec<LifecycleEffect> {
    let name = match event.r#type() {
        // A container that is removed changes nothing that a worker would act on.
        Kind::Unspecified | Kind::ContainerRemoved => return Vec::new(),
        Kind::ContainerStarted => "ContainerStarted",
        Kind::ContainerDied => "ContainerDied",
        Kind::ContainerChanged => "ContainerChanged",
        Kind::PodSync => "PodSync",
    };
    let died = event.r#type() == Kind::ContainerDied;
    let pod_uid = event.pod_uid;
    let mut container_id = event.container_id;
    truncate(&mut container_id, MAX_CONTAINER_ID_BYTES);
    let mut effects = vec![LifecycleEffect::Sync {
        pod_uids: vec![pod_uid.clone()],
        cause: Cause::LifecycleEvent {
            event: name,
            container_id,
        },
    }];
    if died {
        effects.push(LifecycleEffect::CleanUpContainers { pod_uid });
    }
    effects
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pleg_is_active_until_it_says_otherwise_or_is_not_heard_of() {
        let at = Duration::from_secs;
        let health = |healthy: bool| v1::PlegHealth {
            healthy,
            ..v1::PlegHealth::default()
        };
        let snapshot = |healthy: bool| {
            Message::Snapshot(v1::PlegSnapshot {
                health: Some(health(healthy)),
                ..v1::PlegSnapshot::default()
            })
        };
        let mut lifecycle = Lifecycle::default();
        lifecycle.on(snapshot(false), at(1));
        assert_eq!(lifecycle.inactive_for(at(2)), None);
        lifecycle.on(Message::Health(health(true)), at(3));
        assert_eq!(lifecycle.inactive_for(at(400)), Some(at(0)));
        // It says so when the threshold is over.
        lifecycle.on(Message::Health(health(false)), at(400));
        assert_eq!(lifecycle.inactive_for(at(401)), Some(at(181)));
        lifecycle.on(Message::Health(health(false)), at(402));
        assert_eq!(lifecycle.inactive_for(at(402)), Some(at(182)));
        lifecycle.on(Message::Health(health(true)), at(403));
        lifecycle.lost(at(404));
        assert_eq!(lifecycle.inactive_for(at(410)), Some(at(6)));
        // A new run of it has no list yet.
        lifecycle.on(snapshot(false), at(411));
        assert_eq!(lifecycle.inactive_for(at(412)), Some(at(8)));
        lifecycle.on(snapshot(true), at(413));
        lifecycle.on(snapshot(false), at(414));
        assert_eq!(lifecycle.inactive_for(at(415)), Some(at(1)));
    }
}
