//! Rules for hostPath volumes, for the tests of this crate.

use std::sync::Arc;

use node_policy::{HostPathRules, Mode, NodePath, Policy, Protected, Subject};
use pod::{Pod, PodExt as _, PodSource};

/// Those of a policy's text; `/proc` and `/dev` are protected.
pub(crate) fn of(policy: &str, pod: &Pod) -> HostPathRules {
    let policy = Policy::parse(policy, Protected::default()).unwrap();
    let subject = Subject::of(PodSource::File, pod, "n");
    let only_audits = policy.mode() == Mode::Audit;
    HostPathRules::new(Arc::new(policy.permit_for(&subject)), only_audits)
}

/// Those by which a pod may have everything that is not protected, what it names in
/// `/dev`, and the disks that it names.
pub(crate) fn any(pod: &Pod) -> HostPathRules {
    let paths = pod.volumes().iter().filter_map(|it| it.host_path.as_ref());
    let devices: Vec<_> = paths.map(|source| &source.path).collect();
    let devices: Vec<_> = devices
        .iter()
        .filter(|it| NodePath::parse(it).is_ok())
        .collect();
    let policy = format!(
        "[sources]\nfile = \"privileged\"\n[[grants]]\npods = [\"*/*\"]\n\
         hostPaths = [{{ prefix = \"/dev\" }}]\ndevices = {devices:?}"
    );
    of(&policy, pod)
}
