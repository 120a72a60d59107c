//! What containers wait for or fail of: since when, and what to do about it. Pure.

use clock::UnixNanos;
use pod::accessors::sidecar_index;
use pod::core::{Container, ContainerState, ContainerStateTerminated, ContainerStatus, PodStatus};
use pod::meta::Time;
use pod::{Pod, PodExt as _};

use crate::pod_row::ending_word;
use crate::pulls::UnderWay;
use crate::words::nanos;

/// A container that is not as it should be.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Trouble {
    pub(super) container: String,
    /// What is waited for or failed, in one line.
    pub(super) what: String,
    /// Since when, where that is known.
    pub(super) since: Option<UnixNanos>,
    /// What to do.
    pub(super) remedy: String,
}

/// Of each container that waits or fails. `pulls` are those of the pod that go on.
pub(super) fn of(pod: &Pod, status: &PodStatus, pulls: &[UnderWay]) -> Vec<Trouble> {
    let init = status.init_container_statuses.as_deref();
    let ordinary = status.container_statuses.as_deref();
    let statuses = || {
        init.unwrap_or_default()
            .iter()
            .chain(ordinary.unwrap_or_default())
    };
    let containers = pod.init_containers().iter().chain(pod.containers());
    let troubles = containers.filter_map(|container| {
        let own = statuses().find(|status| status.name == container.name)?;
        let view = View {
            pod,
            pod_status: status,
            container,
            status: own,
            pull: pulls.iter().find(|pull| pull.container == container.name),
        };
        view.trouble()
    });
    troubles.collect()
}

/// One container and what became of it.
struct View<'a> {
    pod: &'a Pod,
    pod_status: &'a PodStatus,
    container: &'a Container,
    status: &'a ContainerStatus,
    pull: Option<&'a UnderWay>,
}

impl View<'_> {
    fn trouble(&self) -> Option<Trouble> {
        let default = ContainerState::default();
        let state = self.status.state.as_ref().unwrap_or(&default);
        if let Some(pull) = self.pull {
            return Some(self.pulling(pull));
        }
        if let Some(waiting) = &state.waiting {
            let message = waiting.message.as_deref().unwrap_or_default();
            return Some(self.waiting(waiting.reason.as_deref().unwrap_or_default(), message));
        }
        if let Some(ended) = &state.terminated {
            return self.ended(ended);
        }
        let running = state.running.as_ref()?;
        self.not_ready(running.started_at.as_ref())
    }

    fn found(&self, what: String, since: Option<UnixNanos>, remedy: String) -> Trouble {
        Trouble {
            container: self.container.name.clone(),
            what,
            since,
            remedy,
        }
    }

    /// A pull that goes on is what is waited for, whatever failed before.
    fn pulling(&self, pull: &UnderWay) -> Trouble {
        let what = format!("its image {} is being pulled", pull.image);
        let remedy = "wait; the runtime does not say how far a pull is".to_owned();
        self.found(what, Some(pull.since), remedy)
    }

    fn waiting(&self, reason: &str, message: &str) -> Trouble {
        let image = self.container.image.as_deref().unwrap_or_default();
        let told = |what: &str| match message {
            "" => format!("{reason}: {what}"),
            message => format!("{reason}: {what}: {message}"),
        };
        let events = "read the events below".to_owned();
        let (what, remedy) = match reason {
            "CrashLoopBackOff" => {
                let last = self.last_ending();
                let ended = last.map_or_else(|| "ended".to_owned(), ended_with);
                let what = format!("it {ended}, and waits before its next start");
                (told(&what), self.logs("--previous "))
            }
            "ErrImagePull" | "ImagePullBackOff" | "RegistryUnavailable" => (
                told(&format!("the image {image} cannot be pulled")),
                "check the image's name, the registry, the way to it and the pod's \
                 imagePullSecrets; it is tried again by itself"
                    .to_owned(),
            ),
            "SignatureValidationFailed" => (
                told(&format!("the runtime does not trust the image {image}")),
                "sign the image as the runtime's policy for signatures asks for, or change that \
                 policy; it is tried again by itself"
                    .to_owned(),
            ),
            "ErrImageNeverPull" => (
                told(&format!("the node has no image {image} for this pod")),
                "import the image, or let imagePullPolicy be other than Never; one that is there \
                 was pulled by the Secret of another pod: give this one the same imagePullSecrets"
                    .to_owned(),
            ),
            "InvalidImageName" => (
                told(&format!("{image:?} is no name of an image")),
                "correct the image in the manifest".to_owned(),
            ),
            "CreateContainerConfigError" => (
                told("it cannot be made as its spec says"),
                "do what the message asks for: add the object or key that it names, change the \
                 field, or upgrade the runtime"
                    .to_owned(),
            ),
            "CreateContainerError" | "RunContainerError" | "StartError" => (
                told("the runtime refuses it"),
                "check command, mounts and limits against the message".to_owned(),
            ),
            "PostStartHookError" => (told("its postStart hook failed"), self.logs("--previous ")),
            "RefusedByNodePolicy" => (
                told("the node policy does not allow the pod"),
                "bulkhead policy check MANIFEST tells which grant would".to_owned(),
            ),
            "PodInitializing" => match self.init_in_the_way() {
                Some(name) => (
                    format!("PodInitializing: init container {name} comes first"),
                    format!("see what {name} waits for or does"),
                ),
                None => (told("init containers come first"), events),
            },
            "ContainerCreating" | "" => (
                "ContainerCreating: sandbox, volumes and image come first".to_owned(),
                "wait; if it lasts, read the sync error and the events below".to_owned(),
            ),
            _ => (told("it is not started"), events),
        };
        let since = match reason {
            "CrashLoopBackOff" | "PostStartHookError" => self
                .last_ending()
                .and_then(|ended| ended.finished_at.as_ref()),
            _ => self.pod_status.start_time.as_ref(),
        };
        self.found(what, since.map(nanos), remedy)
    }

    fn last_ending(&self) -> Option<&ContainerStateTerminated> {
        self.status.last_state.as_ref()?.terminated.as_ref()
    }

    /// The first init container that the others wait for.
    fn init_in_the_way(&self) -> Option<&str> {
        let statuses = self.pod_status.init_container_statuses.iter().flatten();
        let mut in_the_way = statuses.filter(|status| {
            let state = status.state.as_ref();
            let ended = state.and_then(|state| state.terminated.as_ref());
            let done = ended.is_some_and(|ended| ended.exit_code == 0);
            let is_sidecar = sidecar_index(self.pod, &status.name).is_some();
            let runs_on = is_sidecar && status.started == Some(true);
            !done && !runs_on && status.name != self.container.name
        });
        in_the_way.next().map(|status| status.name.as_str())
    }

    /// An ending is trouble unless it is a good one.
    fn ended(&self, ended: &ContainerStateTerminated) -> Option<Trouble> {
        if ended.exit_code == 0 {
            return None;
        }
        let remedy = match ended.reason.as_deref() {
            Some("OOMKilled") => {
                let limits = self.container.resources.as_ref();
                let limits = limits.and_then(|it| it.limits.as_ref());
                let limit = limits.and_then(|limits| limits.get("memory"));
                let limit = limit.map_or_else(String::new, |limit| format!(" ({})", limit.0));
                format!("raise its limit of memory{limit}, or have it use less")
            }
            _ => self.logs(""),
        };
        let since = ended.finished_at.as_ref().map(nanos);
        let message = ended.message.as_deref().unwrap_or_default().trim();
        let mut what = format!("it {}", ended_with(ended));
        if !message.is_empty() {
            what += &format!(": {message}");
        }
        Some(self.found(what, since, remedy))
    }

    /// A container that runs and is not ready, or not started as its probe sees it.
    fn not_ready(&self, started_at: Option<&Time>) -> Option<Trouble> {
        let events = "read the events Unhealthy below; the probe is shown with its container";
        if self.container.startup_probe.is_some() && self.status.started == Some(false) {
            let what = "its startup probe has not succeeded yet".to_owned();
            return Some(self.found(what, started_at.map(nanos), events.to_owned()));
        }
        if self.status.ready || self.container.readiness_probe.is_none() {
            return None;
        }
        let conditions = self.pod_status.conditions.iter().flatten();
        let mut since = conditions
            .filter(|it| it.type_ == "ContainersReady" && it.status == "False")
            .filter_map(|it| it.last_transition_time.as_ref());
        let since = since.next().or(started_at).map(nanos);
        let what = "its readiness probe does not succeed".to_owned();
        Some(self.found(what, since, events.to_owned()))
    }

    /// To read what it wrote.
    fn logs(&self, options: &str) -> String {
        let (namespace, pod) = (self.pod.namespace(), self.pod.name());
        let container = &self.container.name;
        format!("bulkhead logs {options}{namespace}/{pod} -c {container}")
    }
}

/// How a container ended, in words that follow "it".
fn ended_with(ended: &ContainerStateTerminated) -> String {
    format!(
        "ended with exit code {} ({})",
        ended.exit_code,
        ending_word(ended)
    )
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(state: Value, last: Value, container: Value) -> Pod {
        let mut spec = json!({"name": "c", "image": "web:1"});
        for (key, value) in container.as_object().unwrap() {
            spec[key] = value.clone();
        }
        serde_json::from_value(json!({
            "metadata": {"name": "web", "namespace": "ns", "uid": "u"},
            "spec": {"containers": [spec], "initContainers": [{"name": "i"}]},
            "status": {
                "startTime": "1970-01-01T00:00:05Z",
                "conditions": [{
                    "type": "ContainersReady", "status": "False",
                    "lastTransitionTime": "1970-01-01T00:00:09Z",
                }],
                "initContainerStatuses": [{
                    "name": "i", "image": "i", "imageID": "", "ready": true, "restartCount": 0,
                    "state": {"terminated": {"exitCode": 0}},
                }],
                "containerStatuses": [{
                    "name": "c", "image": "web:1", "imageID": "", "ready": false,
                    "started": false, "restartCount": 3, "state": state, "lastState": last,
                }],
            },
        }))
        .unwrap()
    }

    fn found(pod: &Pod) -> Option<(String, i64, String)> {
        let mut found = of(pod, pod.status.as_ref().unwrap(), &[]);
        assert!(found.len() <= 1, "{found:?}");
        let trouble = found.pop()?;
        assert_eq!(trouble.container, "c");
        let since = trouble.since.map_or(-1, |since| since.0 / 1_000_000_000);
        Some((trouble.what, since, trouble.remedy))
    }

    /// Reason, message, what is told, since when in seconds, and a word of what to do.
    const WAITING: &[(&str, &str, &str, i64, &str)] = &[
        (
            "CrashLoopBackOff",
            "back-off 40s",
            "exit code 3 (Error), and waits",
            7,
            "bulkhead logs --previous ns/web -c c",
        ),
        (
            "ErrImagePull",
            "no such host",
            "web:1 cannot be pulled: no such host",
            5,
            "registry",
        ),
        (
            "ImagePullBackOff",
            "",
            "web:1 cannot be pulled",
            5,
            "registry",
        ),
        (
            "RegistryUnavailable",
            "connection refused",
            "web:1 cannot be pulled: connection refused",
            5,
            "registry",
        ),
        (
            "SignatureValidationFailed",
            "no signature exists",
            "does not trust the image web:1: no signature exists",
            5,
            "policy for signatures",
        ),
        (
            "ErrImageNeverPull",
            "",
            "has no image web:1 for this pod",
            5,
            "imagePullSecrets",
        ),
        (
            "InvalidImageName",
            "",
            "\"web:1\" is no name",
            5,
            "manifest",
        ),
        (
            "CreateContainerConfigError",
            "no secret s",
            "cannot be made as its spec says: no secret s",
            5,
            "object or key",
        ),
        (
            "CreateContainerConfigError",
            "spec.containers[0].lifecycle.stopSignal: the runtime is too old",
            "spec says: spec.containers[0].lifecycle.stopSignal",
            5,
            "upgrade the runtime",
        ),
        (
            "CreateContainerError",
            "no such file",
            "refuses it: no such file",
            5,
            "mounts",
        ),
        (
            "PostStartHookError",
            "exit 1",
            "postStart hook failed: exit 1",
            7,
            "--previous",
        ),
        (
            "RefusedByNodePolicy",
            "rule",
            "does not allow the pod: rule",
            5,
            "policy check",
        ),
        (
            "PodInitializing",
            "",
            "init containers come first",
            5,
            "events",
        ),
        (
            "ContainerCreating",
            "",
            "sandbox, volumes and image",
            5,
            "wait",
        ),
        (
            "Surprise",
            "why",
            "Surprise: it is not started: why",
            5,
            "events",
        ),
    ];

    #[test]
    fn what_a_container_waits_for_is_told_with_what_to_do() {
        let last = json!({"terminated": {
            "exitCode": 3, "reason": "Error", "finishedAt": "1970-01-01T00:00:07Z",
        }});
        for (reason, message, what, since, remedy) in WAITING {
            let state = json!({"waiting": {"reason": reason, "message": message}});
            let found = found(&pod(state, last.clone(), json!({}))).unwrap();
            assert!(found.0.contains(what), "{reason}: {found:?}");
            assert_eq!(found.1, *since, "{reason}");
            assert!(found.2.contains(remedy), "{reason}: {found:?}");
        }
    }

    #[test]
    fn a_pull_that_goes_on_is_what_is_waited_for() {
        for reason in ["ContainerCreating", "ErrImagePull"] {
            let pod = pod(json!({"waiting": {"reason": reason}}), json!({}), json!({}));
            let pull = UnderWay {
                container: "c".to_owned(),
                image: "web:1".to_owned(),
                since: UnixNanos(6_000_000_000),
            };
            let found = of(&pod, pod.status.as_ref().unwrap(), &[pull]);
            let [trouble] = &found[..] else {
                panic!("{found:?}")
            };
            assert_eq!(trouble.what, "its image web:1 is being pulled", "{reason}");
            assert_eq!(trouble.since, Some(UnixNanos(6_000_000_000)));
            assert!(trouble.remedy.contains("wait"), "{found:?}");
        }
    }

    #[test]
    fn an_init_container_in_the_way_is_named() {
        let mut pod = pod(
            json!({"waiting": {"reason": "PodInitializing"}}),
            json!({}),
            json!({}),
        );
        let status = pod.status.as_mut().unwrap();
        let init = &mut status.init_container_statuses.as_mut().unwrap()[0];
        init.state = serde_json::from_value(json!({"running": {}})).unwrap();
        init.started = Some(true);
        let found = found(&pod).unwrap();
        assert!(
            found.0.ends_with("init container i comes first"),
            "{found:?}"
        );
    }

    #[test]
    fn a_bad_ending_is_trouble_and_a_good_one_is_not() {
        let ended = |code: i32, reason: &str| {
            let finished = "1970-01-01T00:00:08Z";
            let ended = json!({"exitCode": code, "reason": reason, "finishedAt": finished});
            json!({"terminated": ended})
        };
        let limits = json!({"resources": {"limits": {"memory": "64Mi"}}});
        assert_eq!(
            found(&pod(ended(0, "Completed"), json!({}), json!({}))),
            None
        );
        let error = found(&pod(ended(2, "Error"), json!({}), json!({}))).unwrap();
        assert_eq!(error.0, "it ended with exit code 2 (Error)");
        assert_eq!(
            (error.1, error.2.as_str()),
            (8, "bulkhead logs ns/web -c c")
        );
        let killed = found(&pod(ended(137, "OOMKilled"), json!({}), limits)).unwrap();
        assert!(killed.2.contains("limit of memory (64Mi)"), "{killed:?}");
    }

    #[test]
    fn a_container_that_runs_is_in_trouble_only_where_a_probe_says_so() {
        let running = json!({"running": {"startedAt": "1970-01-01T00:00:06Z"}});
        let probe = json!({"tcpSocket": {"port": 1}});
        for (container, expected) in [
            (json!({}), None),
            (json!({"livenessProbe": probe}), None),
            (json!({"readinessProbe": probe}), Some(("readiness", 9))),
            (
                json!({"startupProbe": probe, "readinessProbe": probe}),
                Some(("startup", 6)),
            ),
        ] {
            let found = found(&pod(running.clone(), json!({}), container));
            let found = found.as_ref();
            assert_eq!(found.map(|it| it.1), expected.map(|it| it.1));
            let words = expected.map_or("", |it| it.0);
            assert!(found.is_none_or(|it| it.0.contains(words)), "{found:?}");
        }
    }
}
