//! Which version of a pod runs. A running pod keeps what `pod::update` says, so a newer
//! version that differs in that is not applied before nothing of the pod runs any more: the
//! worker goes on with the version that it knows (`DesiredPod::updated`). Where that changed
//! while pod-worker-pool was away, nobody knows the version that runs, and nothing new is made.

use pod::update::may_go_on;

use super::facts::{NOT_APPLIED_REASON, Refused};
use crate::observation::{Observation, Sandbox};

/// Whether something of the pod runs, or may, and was started as this version.
#[must_use]
pub fn keeps_version(observation: &Observation, started_with: &str) -> bool {
    runs(observation) && !is_of_another_version(observation, started_with)
}

/// Why nothing new is made for a pod of which another version runs.
#[must_use]
pub fn held(observation: &Observation, started_with: &str) -> Option<Refused> {
    let is_held = runs(observation) && is_of_another_version(observation, started_with);
    is_held.then(|| not_applied(&[]))
}

/// What people are told of a version that is not applied for these fields, if they are known.
#[must_use]
pub fn not_applied(fields: &[String]) -> Refused {
    let what = match fields {
        [] => "its spec, which was changed while nobody watched".to_owned(),
        fields => fields.join(", "),
    };
    let message = format!(
        "A running pod keeps {what}: the new spec is not applied. Give its manifest another \
         metadata.uid, or remove the manifest and put it back"
    );
    Refused {
        reason: NOT_APPLIED_REASON,
        message,
        ends_what_runs: false,
    }
}

fn runs(observation: &Observation) -> bool {
    observation.possibly_running().next().is_some()
}

fn is_of_another_version(observation: &Observation, started_with: &str) -> bool {
    let current = observation.current_sandbox();
    current.is_some_and(|sandbox| is_for_another_version(sandbox, started_with))
}

/// Whether a sandbox was made for a version of the pod that may not become this one.
pub(super) fn is_for_another_version(sandbox: &Sandbox, started_with: &str) -> bool {
    let noted = sandbox.started_with.as_deref();
    sandbox.ready && noted.is_some_and(|noted| !may_go_on(noted, started_with))
}
