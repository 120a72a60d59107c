//! What is known of a pod beside itself and its status, and what is found to be wrong.

use bulkhead_api::v1;
use clock::UnixNanos;

use super::repeats::Seen;

/// What is known of a pod beside itself and its status.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Beside<'a> {
    /// Its events.
    pub(super) events: &'a [v1::Event],
    /// What its worker last did and why, or empty.
    pub(super) last_plan: &'a str,
    /// The error of its last sync, or empty.
    pub(super) sync_error: &'a str,
    /// The report that the API server has not taken yet, or empty.
    pub(super) awaited_report: &'a str,
    /// What was decided about it.
    pub(super) desired: Option<&'a v1::DesiredPod>,
    /// The UID of another pod of the same name.
    pub(super) namesake: Option<&'a str>,
}

/// A container, or a pod, that is not as it should be.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Trouble {
    /// The container's name, or that it is the pod.
    pub(super) subject: String,
    /// What is waited for or failed, in one line.
    pub(super) what: String,
    /// Since when, where that is known.
    pub(super) since: Option<UnixNanos>,
    /// How often, where that is known.
    pub(super) seen: Option<Seen>,
    /// What to do.
    pub(super) remedy: String,
}
