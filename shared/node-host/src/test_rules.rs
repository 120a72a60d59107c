//! Rules for hostPath volumes, and wanted volumes, for the tests of this crate.

use std::collections::BTreeMap;
use std::sync::Arc;

use local_objects::Objects;
use node_policy::{HostPathRules, Mode, NodePath, Policy, Protected, Subject};
use pod::{Pod, PodExt as _, PodSource};
use pod_volumes::{Content, Volume};

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

/// The volumes of a pod that refers to no objects.
pub(crate) fn wanted(pod: &Pod) -> Vec<Volume> {
    let content = Content {
        objects: &Objects::default(),
        allocatable: &BTreeMap::new(),
    };
    pod_volumes::wanted(pod, &content)
}
