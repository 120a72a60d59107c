//! What a container runtime means by its words, where CRI has no code for it.
//!
//! The CRI leaves most errors without a code of their own: containerd and CRI-O answer
//! `Unknown` and say in English what they mean. Here, and nowhere else, that English
//! becomes a [`RuntimeErrorKind`], a [`FailedStart`] or a [`FailedPull`]; whoever decides anything
//! matches on those. Each sentence is looked for only in answers to the calls that it
//! belongs to. The answers that were seen are in `recorded`, with the versions.
//!
//! What a runtime says of a start may quote the pod's own words, such as the name of
//! its program. Where that can be mistaken for the runtime's, the kind says so.

use crate::error_kind::RuntimeErrorKind;
use crate::proto::runtime::v1;

/// A name that an earlier attempt holds, which is there or under way still.
/// containerd: `name "n" is reserved for "id"`. CRI-O: `error reserving pod name n for
/// id i: name is reserved`, and `ctr name` for containers.
const NAME_RESERVED: [&str; 2] = ["is reserved for", "name is reserved"];

/// How containerd begins when it refuses to start an instance that is not in the state
/// to be started.
const CANNOT_START: &str = "failed to set starting state";

/// How containerd begins when it refuses to remove an instance that it is starting.
/// What else it refuses with these words passes by itself too.
const CANNOT_REMOVE: &str = "failed to set removing state";

/// In runc's words about an instance whose creation lost its caller: containerd could
/// not learn the process of the sandbox any more, took 0 for it, and runc finds no
/// namespaces there.
const NO_SANDBOX_PROCESS: &str = "lstat /proc/0/ns/";

/// What containerd says of a start whose caller went away. The first are Go's words,
/// the second are of a program of containerd's own that it killed for that.
const CALLER_WENT_AWAY: [&str; 2] = ["context canceled", "signal: killed"];

/// Reason that containerd gives an instance whose start failed.
const START_ERROR: &str = "StartError";

/// How a runtime begins that says by a name of CRI's why a pull failed (`errors` of CRI's
/// API; CRI-O does). A kubelet looks for nothing else.
const FAILED_PULLS: [(&str, FailedPull); 2] = [
    ("RegistryUnavailable", FailedPull::RegistryUnavailable),
    ("SignatureValidationFailed", FailedPull::SignatureInvalid),
];

/// Why a pull failed that the runtime has a name for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailedPull {
    /// The registry could not be reached.
    RegistryUnavailable,
    /// The image is not signed as the runtime's policy asks for.
    SignatureInvalid,
}

/// Why a pull failed with these words, for which there is no code, and what they say beyond
/// the name of that; `None` if they name nothing.
pub(crate) fn failed_pull(message: &str) -> Option<(FailedPull, &str)> {
    let mut names = FAILED_PULLS.iter();
    names.find_map(|(name, failed)| Some((*failed, message.strip_prefix(name)?)))
}

/// How the start of an instance failed that is shown as ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailedStart {
    /// Whoever asked for the start, or for the creation of the instance, went away, and
    /// the runtime gave it up: the instance never ran and cannot be started any more.
    /// The words may also be those of a program that cannot be run: who asked for the
    /// start and got an answer knows better.
    Abandoned,
    /// The runtime could not start it: no such program, as a rule.
    Refused,
}

/// How an instance's start failed; `None` if it was started, or was not tried.
#[must_use]
pub fn failed_start(status: &v1::ContainerStatus) -> Option<FailedStart> {
    if status.started_at != 0 || status.reason != START_ERROR {
        return None;
    }
    let mut words = CALLER_WENT_AWAY.iter().chain([&NO_SANDBOX_PROCESS]);
    Some(match words.any(|words| status.message.contains(words)) {
        true => FailedStart::Abandoned,
        false => FailedStart::Refused,
    })
}

/// What a runtime means that refuses a call with no code of its own.
pub(crate) fn refusal(method: &str, message: &str) -> RuntimeErrorKind {
    match method {
        "RunPodSandbox" | "CreateContainer"
            if NAME_RESERVED.iter().any(|words| message.contains(words)) =>
        {
            RuntimeErrorKind::AlreadyExists
        }
        "StartContainer" if message.starts_with(CANNOT_START) => RuntimeErrorKind::NotStartable,
        "StartContainer" if message.contains(NO_SANDBOX_PROCESS) => {
            RuntimeErrorKind::NoSandboxProcess
        }
        "RemoveContainer" if message.starts_with(CANNOT_REMOVE) => RuntimeErrorKind::BeingStarted,
        _ => RuntimeErrorKind::Other,
    }
}

#[cfg(test)]
mod recorded;
