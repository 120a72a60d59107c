//! What a session is with: the pod, and its container or sandbox, as they are observed. Pure.

use bulkhead_api::v1;
use tonic::Status;

/// The pod that is meant: by UID, or by namespace and name where the UID is empty. Of several
/// of one name it is the one that runs.
pub(super) fn pod<'a>(
    observations: impl IntoIterator<Item = &'a v1::PodObservation>,
    asked: &v1::PodReference,
) -> Result<&'a v1::PodObservation, Status> {
    let is_meant = |observation: &&v1::PodObservation| {
        observation.pod.as_ref().is_some_and(|pod| {
            let is_named = pod.namespace == asked.namespace && pod.name == asked.name;
            match asked.uid.is_empty() {
                true => is_named,
                false => pod.uid == asked.uid,
            }
        })
    };
    let observations = observations.into_iter().filter(is_meant);
    let runs = |observation: &&v1::PodObservation| {
        observation.sandboxes.iter().any(|sandbox| sandbox.ready)
    };
    let found = observations.max_by_key(runs);
    found.ok_or_else(|| match asked.uid.as_str() {
        "" => Status::not_found(format!("no pod {}/{}", asked.namespace, asked.name)),
        uid => Status::not_found(format!("no pod {uid}")),
    })
}

/// The id of the container's running instance.
pub(super) fn container<'a>(
    observation: &'a v1::PodObservation,
    name: &str,
) -> Result<&'a str, Status> {
    let mut instances = observation.containers.iter();
    // The newest comes first.
    if let Some(newest) = instances.find(|instance| instance.name == name) {
        return match newest.state() {
            v1::RuntimeState::Running => Ok(&newest.id),
            _ => Err(does_not_run(name)),
        };
    }
    let mut waiting = observation.waiting.iter();
    match waiting.any(|waiting| waiting.name == name) {
        true => Err(does_not_run(name)),
        false => Err(Status::not_found(format!("container not found ({name:?})"))),
    }
}

fn does_not_run(name: &str) -> Status {
    Status::failed_precondition(format!("container {name:?} does not run"))
}

/// The id of the sandbox that the pod lives in.
pub(super) fn sandbox(observation: &v1::PodObservation) -> Result<&str, Status> {
    let mut sandboxes = observation.sandboxes.iter();
    let ready = sandboxes.find(|sandbox| sandbox.ready);
    let ready = ready.ok_or_else(|| Status::failed_precondition("the pod does not run"))?;
    Ok(&ready.id)
}

#[cfg(test)]
mod tests {
    use tonic::Code;

    use super::*;

    fn reference(uid: &str, name: &str) -> v1::PodReference {
        v1::PodReference {
            uid: uid.to_owned(),
            namespace: "ns".to_owned(),
            name: name.to_owned(),
        }
    }

    fn observed(uid: &str, name: &str, ready: bool) -> v1::PodObservation {
        let sandbox = |id: &str, ready| v1::SandboxObservation {
            id: format!("{uid}-{id}"),
            ready,
            ..v1::SandboxObservation::default()
        };
        v1::PodObservation {
            pod: Some(reference(uid, name)),
            sandboxes: vec![sandbox("new", ready), sandbox("old", false)],
            ..v1::PodObservation::default()
        }
    }

    #[test]
    fn a_pod_is_found_by_uid_or_by_the_name_of_the_one_that_runs() {
        let pods = [
            observed("1", "a", false),
            observed("2", "a", true),
            observed("3", "a", false),
            observed("4", "b", false),
        ];
        for (uid, name, expected) in [
            ("1", "", Ok("1")),
            ("3", "a", Ok("3")),
            ("", "a", Ok("2")),
            ("", "b", Ok("4")),
            ("", "c", Err(Code::NotFound)),
            ("5", "a", Err(Code::NotFound)),
            ("", "", Err(Code::NotFound)),
        ] {
            let found = pod(&pods, &reference(uid, name));
            let found = found.map(|found| found.pod.as_ref().unwrap().uid.as_str());
            let found = found.map_err(|status| status.code());
            assert_eq!(found, expected, "{uid:?} {name:?}");
        }
        assert_eq!(sandbox(&pods[1]).unwrap(), "2-new");
        let none = sandbox(&pods[0]).unwrap_err();
        assert_eq!(none.code(), Code::FailedPrecondition);
    }

    #[test]
    fn only_the_newest_instance_counts_and_only_while_it_runs() {
        let instance = |name: &str, id: &str, state| v1::ContainerObservation {
            name: name.to_owned(),
            id: id.to_owned(),
            state: state as i32,
            ..v1::ContainerObservation::default()
        };
        let (running, exited) = (v1::RuntimeState::Running, v1::RuntimeState::Exited);
        let observation = v1::PodObservation {
            containers: vec![
                instance("a", "a1", running),
                instance("a", "a0", exited),
                instance("b", "b1", exited),
                instance("b", "b0", running),
            ],
            waiting: vec![v1::ContainerWaiting {
                name: "c".to_owned(),
                ..v1::ContainerWaiting::default()
            }],
            ..v1::PodObservation::default()
        };
        for (name, expected) in [
            ("a", Ok("a1")),
            ("b", Err(Code::FailedPrecondition)),
            ("c", Err(Code::FailedPrecondition)),
            ("d", Err(Code::NotFound)),
        ] {
            let found = container(&observation, name).map_err(|status| status.code());
            assert_eq!(found, expected, "{name}");
        }
    }
}
