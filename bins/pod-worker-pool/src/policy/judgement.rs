//! What the policy in force means for one pod. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use cri_requests::probe_command;
use node_policy::{Denial, Mode, RunningPods, Subject};
use pod::core::{Lifecycle, LifecycleHandler, Probe};
use pod::{Pod, PodExt};
use pod_lifecycle::plan::{REFUSED_REASON, Refused};
use runtime_gate::{CommandDigest, HeldVolume, HeldVolumes, Standing};

use super::in_force::InForce;

/// Most refusals of one pod that are told in full.
const MAX_TOLD: usize = 3;

/// The audit line's words for what is not permitted.
pub(super) const REFUSED: &str = "refused";
pub(super) const ONLY_AUDITED: &str = "permitted because the policy only audits";

/// The decision about a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Judgement {
    Permitted,
    /// It would be refused, and the policy only audits.
    Audited(String),
    Refused(Refused),
}

impl Judgement {
    pub(super) fn refused(&self) -> Option<&Refused> {
        match self {
            Judgement::Refused(refused) => Some(refused),
            Judgement::Permitted | Judgement::Audited(_) => None,
        }
    }

    /// What people should know.
    pub(super) fn message(&self) -> Option<&str> {
        match self {
            Judgement::Permitted => None,
            Judgement::Audited(message) => Some(message),
            Judgement::Refused(refused) => Some(&refused.message),
        }
    }

    /// In a word, for the audit line.
    pub(super) fn word(&self) -> &'static str {
        match self {
            Judgement::Permitted => "permitted",
            Judgement::Audited(_) => ONLY_AUDITED,
            Judgement::Refused(_) => REFUSED,
        }
    }
}

/// Judges a pod: what the gate is told of it, and what people are told.
pub(super) fn judge(in_force: &InForce, subject: &Subject, pod: &Pod) -> (Standing, Judgement) {
    let Some(policy) = &in_force.policy else {
        let problem = in_force.problem.as_deref().unwrap_or_default();
        return refused(format!("no node policy is in force: {problem}"), false);
    };
    match policy.judge(subject, pod) {
        Ok(permit) => (Standing::Permitted(Arc::new(permit)), Judgement::Permitted),
        Err(denials) if policy.mode() == Mode::Audit => {
            let permit = Arc::new(policy.permit_for(subject));
            (
                Standing::Audited(permit),
                Judgement::Audited(told(&denials)),
            )
        }
        Err(denials) => {
            let ends_what_runs = policy.running_pods() == RunningPods::End;
            refused(told(&denials), ends_what_runs)
        }
    }
}

fn refused(message: String, ends_what_runs: bool) -> (Standing, Judgement) {
    let judgement = Judgement::Refused(Refused {
        reason: REFUSED_REASON,
        message: message.clone(),
        ends_what_runs,
    });
    (Standing::Refused(message), judgement)
}

/// The first refusals in full, and how many there are beside.
fn told(denials: &[Denial]) -> String {
    let shown = denials.iter().take(MAX_TOLD).map(ToString::to_string);
    let mut text = shown.collect::<Vec<_>>().join("; ");
    if let Some(more) = denials.len().checked_sub(MAX_TOLD).filter(|&more| more > 0) {
        text += &format!("; and {more} more (bulkhead policy check tells all)");
    }
    text
}

/// The volumes of a pod. A claim may turn out to be a path of the node: until it is known
/// it is none.
pub(super) fn volumes(pod: &Pod) -> HeldVolumes {
    let volumes = pod.volumes().iter();
    let known = volumes.filter(|volume| volume.persistent_volume_claim.is_none());
    let known = known.map(|volume| {
        let path = volume.host_path.as_ref().map(|source| source.path.clone());
        let held = path.map_or(HeldVolume::PodsAlone, HeldVolume::HostPath);
        (volume.name.clone(), held)
    });
    known.collect()
}

/// The commands that a pod has run in its containers, by container. Those of probes are among
/// them as they are written too: versions before had them run like that, and may come back.
pub(super) fn commands(pod: &Pod) -> BTreeMap<String, BTreeSet<CommandDigest>> {
    let of_probe = |probe: Option<&Probe>| probe?.exec.as_ref()?.command.clone();
    let of_hook = |hook: Option<&LifecycleHandler>| hook?.exec.as_ref()?.command.clone();
    let containers = pod.all_containers().map(|(_, spec)| {
        let hooks = spec.lifecycle.as_ref();
        let hook = |which: fn(&Lifecycle) -> Option<&LifecycleHandler>| hooks.and_then(which);
        let probes = [
            &spec.liveness_probe,
            &spec.readiness_probe,
            &spec.startup_probe,
        ];
        let written = probes.map(|probe| of_probe(probe.as_ref()));
        // One that is too long is not run.
        let run = written
            .clone()
            .map(|command| probe_command(spec, &command?).ok());
        let hooks = [
            of_hook(hook(|hooks| hooks.post_start.as_ref())),
            of_hook(hook(|hooks| hooks.pre_stop.as_ref())),
        ];
        let commands = written.into_iter().chain(run).chain(hooks).flatten();
        let commands = commands.filter(|command| !command.is_empty());
        let digests = commands.map(|command| CommandDigest::of(&command));
        (spec.name.clone(), digests.collect())
    });
    containers.collect()
}

#[cfg(test)]
mod tests {
    use clock::UnixNanos;
    use node_policy::Protected;
    use pod::PodSource;
    use serde_json::{Value, json};

    use super::*;

    fn in_force(text: &str) -> InForce {
        let protected = Protected::default();
        let start = InForce::at_start(None, &protected, UnixNanos(1));
        start.after(Ok(Some(text.to_owned())), &protected, UnixNanos(2))
    }

    fn pod(spec: Value) -> Pod {
        let metadata = json!({"name": "web-n1", "namespace": "default", "uid": "u"});
        serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap()
    }

    fn of(policy: &str, pod: &Pod) -> (Standing, Judgement) {
        let subject = Subject::of(PodSource::File, pod, "n1");
        judge(&in_force(policy), &subject, pod)
    }

    fn on_the_nodes_network() -> Pod {
        pod(
            json!({"hostNetwork": true, "hostPID": true, "hostIPC": true,
            "containers": [{"name": "c", "image": "i",
                "securityContext": {"privileged": true}}]}),
        )
    }

    #[test]
    fn a_pod_is_permitted_audited_or_refused() {
        let plain = pod(json!({"containers": [{"name": "c", "image": "i"}]}));
        assert!(matches!(
            of("", &plain),
            (Standing::Permitted(_), Judgement::Permitted)
        ));
        let network = on_the_nodes_network();
        let (standing, judgement) = of("", &network);
        assert!(matches!(standing, Standing::Refused(_)));
        let message = judgement.message().unwrap();
        assert!(message.contains("spec.hostNetwork"), "{message}");
        assert!(message.contains("pods = [\"default/web\"]"), "{message}");
        assert!(
            message.ends_with("and 1 more (bulkhead policy check tells all)"),
            "{message}"
        );
        assert!(!judgement.refused().unwrap().ends_what_runs);
        let (_, judgement) = of("runningPods = \"end\"", &network);
        assert!(judgement.refused().unwrap().ends_what_runs);
        let (standing, judgement) = of("mode = \"audit\"", &network);
        assert!(matches!(standing, Standing::Audited(_)));
        assert!(judgement.refused().is_none() && judgement.message().is_some());
    }

    #[test]
    fn without_a_policy_every_pod_is_refused_and_none_is_ended() {
        let plain = pod(json!({"containers": [{"name": "c", "image": "i"}]}));
        let (standing, judgement) = of("runningPods = 7", &plain);
        assert!(matches!(standing, Standing::Refused(_)));
        let refused = judgement.refused().unwrap();
        assert!(
            refused
                .message
                .starts_with("no node policy is in force: line 1")
        );
        assert!(!refused.ends_what_runs);
    }

    #[test]
    fn a_volume_that_may_be_a_path_of_the_node_is_none_of_the_pods_own() {
        let pod = pod(json!({"volumes": [
            {"name": "own", "emptyDir": {}},
            {"name": "path", "hostPath": {"path": "/srv"}},
            {"name": "claim", "persistentVolumeClaim": {"claimName": "data"}},
        ]}));
        let expected = [
            ("own".to_owned(), HeldVolume::PodsAlone),
            ("path".to_owned(), HeldVolume::HostPath("/srv".to_owned())),
        ];
        assert_eq!(volumes(&pod), expected.into());
    }

    #[test]
    fn a_probes_command_is_the_pods_with_its_variables_and_as_it_is_written() {
        let exec = json!({"exec": {"command": ["check", "$(PORT)"]}});
        let pod = pod(json!({"containers": [{"name": "c", "image": "i",
            "env": [{"name": "PORT", "value": "80"}],
            "livenessProbe": exec, "lifecycle": {"preStop": exec}}]}));
        let digest = |port: &str| CommandDigest::of(&["check".to_owned(), port.to_owned()]);
        assert_eq!(commands(&pod)["c"], ["80", "$(PORT)"].map(digest).into());
    }

    #[test]
    fn the_commands_of_probes_and_hooks_are_those_of_their_container() {
        let exec = |word: &str| json!({"exec": {"command": [word]}});
        let pod = pod(json!({
            "initContainers": [{"name": "i", "image": "i"}],
            "containers": [
                {"name": "a", "image": "i", "livenessProbe": exec("live"),
                 "readinessProbe": exec("ready"), "startupProbe": exec("start"),
                 "lifecycle": {"postStart": exec("after"), "preStop": exec("before")}},
                {"name": "b", "image": "i", "livenessProbe": {"tcpSocket": {"port": 1}},
                 "readinessProbe": {"exec": {"command": []}}}]}));
        let digest = |word: &str| CommandDigest::of(&[word.to_owned()]);
        let all = ["live", "ready", "start", "after", "before"].map(digest);
        let commands = commands(&pod);
        assert_eq!(commands["a"], all.into());
        assert_eq!((commands["b"].len(), commands["i"].len()), (0, 0));
    }
}
