//! postStart hooks: begins them, and takes note of how they ended.

use pod_lifecycle::observation::Observation;
use pod_lifecycle::plan::PostStartHook;

use super::context::StepContext;
use super::hook_run::{self, HookOf, POST_START};
use super::hooks::HookKind;
use super::memory::Memory;
use super::target::Target;
use crate::http_hooks::HookError;

/// Begins hooks. The pod is looked at again when one has ended.
pub(super) async fn begin(
    context: &StepContext,
    target: &Target<'_>,
    hooks: &[PostStartHook],
    memory: &mut Memory,
) {
    if hooks.is_empty() {
        return;
    }
    for hook in hooks {
        let id = &hook.container_id;
        memory.known.note_begun_post_start(id);
        memory.hooks.intend(id, HookKind::PostStart);
    }
    memory.update_record();
    context.save_record(target.identity, memory).await;
    for hook in hooks {
        let id = &hook.container_id;
        let of = HookOf {
            pod: target.identity,
            container: &hook.name,
            id,
            pod_ip: &memory.pod_ip,
        };
        let run = hook_run::carry_out(context, &of, &hook.hook, POST_START);
        let doorbell = context.doorbell.clone();
        let uid = target.identity.uid().to_owned();
        let then = move || doorbell.ring(&uid);
        memory.hooks.begin((id, HookKind::PostStart), run, then);
    }
}

/// Takes note of hooks that have ended. An instance whose hook failed is stopped, and
/// waits like one that crashed.
pub(super) fn take_ended(
    context: &StepContext,
    target: &Target<'_>,
    observation: &Observation,
    memory: &mut Memory,
) {
    for id in memory.hooks.take_intended_post_starts() {
        memory.known.note_due_post_start(&id);
    }
    for (id, result) in memory.hooks.take_ended_post_starts() {
        let was_awaited = memory.known.post_start(&id).is_some();
        // As when this process dies: no container is stopped because one of ours did.
        let result = result.or_else(|error| match error {
            HookError::Lost => Ok(()),
            HookError::Failed(why) => Err(why),
        });
        memory.known.note_ended_post_start(&id, result.is_ok());
        let name = observation.container(&id).map(|shown| shown.name.clone());
        if let (true, Err(why), Some(name)) = (was_awaited, result, name) {
            let message = format!("PostStartHook failed: {why}");
            let events = &context.events;
            events.warning(target.identity, &name, "FailedPostStartHook", &message);
            let reason = ("PostStartHookError".to_owned(), message);
            memory.reasons.insert(name, reason);
        }
    }
}
