//! Bounds on what containers and the runtime write into a status.

use bulkhead_api::v1::PodObservation;
use ipc::Message as _;
use ipc::limits::truncate;
use pod::core::{ContainerState, PodStatus};

/// Termination message of one container, in bytes: the kubelet's limit.
const MAX_TERMINATION_MESSAGE_BYTES: usize = 4096;
/// Termination messages of all containers of a pod together, likewise.
const MAX_POD_TERMINATION_MESSAGE_BYTES: usize = 12 * 1024;
/// Any other message: the runtime's errors quote whole specs at times.
const MAX_MESSAGE_BYTES: usize = 4096;
/// A reason is one word.
const MAX_REASON_BYTES: usize = 256;

/// Texts of an observation that has very many, so that it has at most
/// [`MAX_OBSERVATION_BYTES`] beside what each instance has in any case.
const MAX_TEXT_OF_MANY_BYTES: usize = 128;
/// What is kept of an observation with all its texts: a pod has some containers.
const MAX_OBSERVATION_BYTES: usize = 64 << 10;

/// Cuts the texts of what is observed to what a status shows of them, and where they are
/// very many, further.
pub(crate) fn bound_observation(observation: &mut PodObservation) {
    bound_texts(observation, MAX_MESSAGE_BYTES);
    if observation.encoded_len() > MAX_OBSERVATION_BYTES {
        bound_texts(observation, MAX_TEXT_OF_MANY_BYTES);
    }
    // What is decoded has room for up to twice as many.
    observation.sandboxes.shrink_to_fit();
    observation.containers.shrink_to_fit();
    observation.waiting.shrink_to_fit();
}

fn bound_texts(observation: &mut PodObservation, limit: usize) {
    let ended = observation.containers.iter_mut().map(|it| &mut it.message);
    let waiting = observation.waiting.iter_mut().map(|it| &mut it.message);
    let resize = observation.resize.iter_mut().map(|it| &mut it.error);
    let own = [
        &mut observation.failed_message,
        &mut observation.sync_error,
        &mut observation.last_plan,
    ];
    for text in ended.chain(waiting).chain(resize).chain(own) {
        truncate(text, limit);
    }
}

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
