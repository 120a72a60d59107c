//! What comes before an instance's SIGTERM, within its grace: its preStop hook.

use std::time::Duration;

use clock::UnixNanos;
use pod::PodIdentity;
use pod_lifecycle::hook::{Hook, PreStop};
use pod_lifecycle::plan::ContainerStop;
use pod_lifecycle::stop::MINIMUM_SIGTERM_GRACE;
use tokio::time::Instant;

use super::context::StepContext;
use super::hook_run::{self, HookOf, Within};
use super::hooks::{HookKind, Hooks};
use super::memory::Memory;

/// What comes before the SIGTERM of an instance.
pub(super) enum BeforeSigterm {
    Nothing,
    /// The hook, which this process begins or has begun.
    Own(Hook),
    /// The end of the hook, which an earlier process began then.
    Earlier(Hook, UnixNanos),
}

/// Notes that the hook of an instance whose stop is ordered is to be begun. It is begun
/// once that is recorded.
pub(super) fn intend(
    context: &StepContext,
    stop: &ContainerStop,
    memory: &mut Memory,
) -> BeforeSigterm {
    let Some(hook) = stop.pre_stop.clone() else {
        return BeforeSigterm::Nothing;
    };
    let id = &stop.container_id;
    match memory.known.pre_stop(id) {
        Some(PreStop::Ended) => BeforeSigterm::Nothing,
        Some(PreStop::Begun(_)) if memory.hooks.has(id, HookKind::PreStop) => {
            BeforeSigterm::Own(hook)
        }
        Some(PreStop::Begun(at)) => BeforeSigterm::Earlier(hook, UnixNanos(at)),
        None => {
            let begun = PreStop::Begun(context.clock.now().0);
            memory.known.note_pre_stop(id, begun);
            memory.hooks.intend(id, HookKind::PreStop);
            BeforeSigterm::Own(hook)
        }
    }
}

/// Runs the hook, or waits for its end; `until` then at most.
pub(super) async fn run(
    context: &StepContext,
    identity: &PodIdentity,
    stop: &ContainerStop,
    before: &BeforeSigterm,
    until: Instant,
    (hooks, pod_ip): (&Hooks, &str),
) {
    let id = &stop.container_id;
    let ended = async {
        match before {
            BeforeSigterm::Nothing => Ok(()),
            BeforeSigterm::Earlier(hook, at) => {
                hook_run::await_earlier(context, id, hook, *at).await;
                Ok(())
            }
            BeforeSigterm::Own(hook) => {
                let left = until.saturating_duration_since(Instant::now());
                let of = HookOf {
                    pod: identity,
                    container: &stop.name,
                    id,
                    pod_ip,
                };
                let run = hook_run::carry_out(context, &of, hook, within_grace(left));
                hooks.begin((id, HookKind::PreStop), run, || {});
                hooks.ended(id, HookKind::PreStop).await
            }
        }
    };
    match tokio::time::timeout_at(until, ended).await {
        Ok(Ok(())) => {}
        Ok(Err(why)) => {
            let message = format!("PreStopHook failed: {why}");
            let events = &context.events;
            events.warning(identity, &stop.name, "FailedPreStopHook", &message);
        }
        Err(_) => {
            let container = &stop.name;
            tracing::warn!(pod = %identity, container, "preStop hook has not ended in the grace");
        }
    }
}

/// Beyond the grace a command goes on until its container has ended.
fn within_grace(left: Duration) -> Within {
    Within {
        begun: left,
        ended: left + MINIMUM_SIGTERM_GRACE,
    }
}
