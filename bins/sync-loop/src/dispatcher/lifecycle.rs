//! What pleg says: something happened to pods, and how it is itself.

use bulkhead_api::v1;
use bulkhead_api::v1::watch_pod_lifecycle_events_response::Message;
use ipc::limits::{MAX_CONTAINER_ID_BYTES, truncate};
use v1::PodLifecycleEventType as Kind;

use super::cause::Cause;

/// Longest reason of bad health that is kept, in bytes.
const MAX_REASON_BYTES: usize = 1 << 10;

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
}

impl Lifecycle {
    /// Takes a message in.
    pub(crate) fn on(&mut self, message: Message) -> Vec<LifecycleEffect> {
        match message {
            Message::Snapshot(snapshot) => {
                let sync = LifecycleEffect::Sync {
                    pod_uids: snapshot.pod_uids,
                    cause: Cause::LifecycleSnapshot,
                };
                vec![self.set_health(snapshot.health.unwrap_or_default()), sync]
            }
            Message::Health(health) => {
                vec![self.set_health(health)]
            }
            Message::Event(event) => effects_of(event),
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
