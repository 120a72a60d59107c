//! Bounds on what containers and the runtime write into a status.

use pod::core::{ContainerState, PodStatus};

use ipc::limits::truncate;

/// Termination message of one container, in bytes: the kubelet's limit.
const MAX_TERMINATION_MESSAGE_BYTES: usize = 4096;
/// Termination messages of all containers of a pod together, likewise.
const MAX_POD_TERMINATION_MESSAGE_BYTES: usize = 12 * 1024;
/// Any other message: the runtime's errors quote whole specs at times.
const MAX_MESSAGE_BYTES: usize = 4096;
/// A reason is one word.
const MAX_REASON_BYTES: usize = 256;

/// Cuts all messages of a status to their bounds.
pub(super) fn bound_messages(status: &mut PodStatus) {
    let lists = [
        &status.init_container_statuses,
        &status.container_statuses,
        &status.ephemeral_container_statuses,
    ];
    let count: usize = lists.into_iter().flatten().map(Vec::len).sum();
    let count = count.max(1);
    let share = (MAX_POD_TERMINATION_MESSAGE_BYTES / count).min(MAX_TERMINATION_MESSAGE_BYTES);
    let containers = status
        .init_container_statuses
        .iter_mut()
        .chain(&mut status.container_statuses)
        .chain(&mut status.ephemeral_container_statuses);
    for status in containers.flatten() {
        for state in [&mut status.state, &mut status.last_state]
            .into_iter()
            .flatten()
        {
            bound_state(state, share);
        }
    }
    bound(&mut status.message, MAX_MESSAGE_BYTES);
    bound(&mut status.reason, MAX_REASON_BYTES);
}

fn bound_state(state: &mut ContainerState, share: usize) {
    if let Some(terminated) = &mut state.terminated {
        bound(&mut terminated.message, share);
        bound(&mut terminated.reason, MAX_REASON_BYTES);
    }
    if let Some(waiting) = &mut state.waiting {
        bound(&mut waiting.message, MAX_MESSAGE_BYTES);
        bound(&mut waiting.reason, MAX_REASON_BYTES);
    }
}

fn bound(message: &mut Option<String>, limit: usize) {
    if let Some(text) = message {
        truncate(text, limit);
    }
}
