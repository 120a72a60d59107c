//! Stopping single instances while their pod lives on.

use std::time::Duration;

use futures_util::future::join_all;
use pod::PodIdentity;

use super::{Memory, StepError, Steps};
use crate::plan::{Kill, KillReason};
use crate::record::KillRecord;

impl Steps {
    /// Stops instances, each within what is left of its grace, all at once.
    pub(super) async fn kill(
        &self,
        identity: &PodIdentity,
        kills: &[Kill],
        memory: &mut Memory,
    ) -> Result<(), StepError> {
        if kills.is_empty() {
            return Ok(());
        }
        let now = self.clock.now();
        let mut begun = false;
        for kill in kills {
            if !memory.record.kills.contains_key(&kill.container_id) {
                let record = KillRecord::new(kill.reason, now, kill.grace);
                memory
                    .record
                    .kills
                    .insert(kill.container_id.clone(), record);
                self.events
                    .normal(identity, &kill.name, "Killing", &kill.message);
                begun = true;
            }
        }
        if begun {
            self.save_record(identity, memory);
        }
        let stops = kills.iter().map(|kill| {
            let record = memory.record.kills.get(&kill.container_id);
            let grace = record.map_or(kill.grace, |record| record.stop_timeout(now));
            self.kill_one(kill, grace, memory.unstoppable.contains(&kill.container_id))
        });
        let results = join_all(stops).await;
        let mut failure: Option<StepError> = None;
        for (kill, result) in kills.iter().zip(results) {
            match result {
                Ok(()) if kill.reason == KillReason::StateUnknown => {
                    memory.unstoppable.insert(kill.container_id.clone());
                }
                Ok(()) => {}
                Err(error) => {
                    failure = Some(match failure {
                        Some(other) => other.and(error),
                        None => error,
                    });
                }
            }
        }
        failure.map_or(Ok(()), Err)
    }

    async fn kill_one(
        &self,
        kill: &Kill,
        grace: Duration,
        is_unstoppable: bool,
    ) -> Result<(), StepError> {
        let id = &kill.container_id;
        let result = if is_unstoppable {
            // It was stopped and is still unknown: what the runtime cannot stop
            // it may be able to remove.
            self.runtime.remove_container(id).await
        } else {
            self.runtime.stop_container(id, grace).await
        };
        match result {
            Err(error) if !error.is_not_found() => {
                Err(StepError::from(error)
                    .while_doing(&format!("cannot stop container {}", kill.name)))
            }
            _ => Ok(()),
        }
    }
}
