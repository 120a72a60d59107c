//! Ephemeral containers: each is started once, whatever the others do, and left alone.

use pod::accessors::ContainerKind;
use pod::ephemeral;

use super::actions::Work;
use super::facts::Inputs;
use super::restart;
use crate::observation::Container;

/// Puts the starts of those that have never run before all others, as in the kubelet.
pub(super) fn start(inputs: &Inputs<'_>, sandbox_id: &str, work: &mut Work) {
    let mut first = Work::default();
    for spec in ephemeral::containers(inputs.pod) {
        if !has_run(inputs, &spec.name) {
            let kind = ContainerKind::Ephemeral;
            restart::start(inputs, sandbox_id, &spec, kind, &mut first);
        }
    }
    work.starts.splice(..0, first.starts);
    work.pulls.splice(..0, first.pulls);
}

/// Also where its instance was collected: its log shows that there was one.
fn has_run(inputs: &Inputs<'_>, name: &str) -> bool {
    let observation = inputs.observation;
    let is_one = |it: &Container| it.name == name && it.state.has_run();
    observation.containers.iter().any(is_one) || observation.starts_in_logs.contains_key(name)
}
