//! What is to be reported of a pod now. Pure.
//!
//! A pod that is deleted goes from the API server once it holds the pod as ended and nothing of
//! it is left here (`pkg/kubelet/status/status_manager.go`, canBeDeleted).
//!
//! A static pod is shown by its mirror, which is created, and created again when it is of
//! another version of the pod or somebody deletes it (`pkg/kubelet/kubelet.go`,
//! tryReconcileMirrorPods). It goes after the static pod.

use bulkhead_api::v1::report_request::Report;
use bulkhead_api::v1::{PodStatusPatch, WorkerPhase};
use pod::core::PodStatus;

use super::held::HeldPod;
use super::mirror::StaticPod;
use super::status_patch::status_patch;
use crate::status::is_rejected;

/// What is known here of a pod.
#[derive(Debug, Clone)]
pub(crate) struct OwnPod {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) status: PodStatus,
    pub(crate) phase: WorkerPhase,
    /// Its source has dropped it.
    pub(crate) is_deleted: bool,
    pub(crate) origin: Origin,
}

/// Where a pod comes from.
#[derive(Debug, Clone)]
pub(crate) enum Origin {
    Api,
    /// The pod, once it is known.
    Static(Option<StaticPod>),
}

/// This node as the API server knows it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NodeIdentity<'a> {
    pub(crate) name: &'a str,
    /// None while there is no Node.
    pub(crate) uid: Option<&'a str>,
}

/// The next report; none where the API server holds what is published. `held` is the pod
/// itself, or the mirror of its name.
pub(crate) fn next(own: &OwnPod, held: Option<&HeldPod>, node: NodeIdentity<'_>) -> Option<Report> {
    match (&own.origin, held) {
        (Origin::Api, held) => of_api_pod(own, held?),
        (Origin::Static(None), _) => None,
        (Origin::Static(Some(pod)), None) => {
            let is_shown =
                own.phase == WorkerPhase::Syncing && !own.is_deleted && !is_rejected(&own.status);
            let mirror = is_shown.then(|| Some(pod.mirror(node.name, node.uid?)));
            Some(Report::MirrorPod(mirror??.to_string().into_bytes()))
        }
        (Origin::Static(Some(pod)), Some(mirror)) => of_mirror(own, pod, mirror),
    }
}

fn of_api_pod(own: &OwnPod, held: &HeldPod) -> Option<Report> {
    let patch = patch(own, held);
    if patch.is_some() {
        return patch;
    }
    // Of a pod that was rejected nothing was ever made.
    let is_gone = own.phase == WorkerPhase::Finished || is_rejected(&own.status);
    let has_ended = held.is_terminal() && is_gone;
    (held.is_deleted && has_ended).then(|| end(held))
}

fn of_mirror(own: &OwnPod, pod: &StaticPod, mirror: &HeldPod) -> Option<Report> {
    if mirror.mirror_of.as_ref() != Some(&pod.hash) {
        // Until the pod of before has ended the mirror is its own.
        return (own.phase != WorkerPhase::Waiting).then(|| end(mirror));
    }
    let has_gone = own.is_deleted && own.phase == WorkerPhase::Finished;
    match mirror.is_deleted || has_gone {
        true => Some(end(mirror)),
        false => patch(own, mirror),
    }
}

fn patch(own: &OwnPod, held: &HeldPod) -> Option<Report> {
    let uid = &held.reference.uid;
    let patch = status_patch(uid, &own.status, &held.status, held.is_terminal())?;
    Some(Report::PodStatus(PodStatusPatch {
        pod: Some(held.reference.clone()),
        patch: patch.to_string().into_bytes(),
    }))
}

fn end(held: &HeldPod) -> Report {
    Report::PodEnd(held.reference.clone())
}

/// When a report that the API server refused is made again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Again {
    /// At once: api-gateway has the pause that the API server asks for.
    Now,
    /// When all pods are looked at next.
    Soon,
    /// Much later, or when something is new.
    Late,
}

/// See [`Again`]; by the HTTP status.
pub(crate) fn again(code: u32) -> Again {
    match code {
        429 => Again::Now,
        500.. => Again::Soon,
        _ => Again::Late,
    }
}

#[cfg(test)]
mod tests {
    use pod::{PodDocument, PodSource};
    use serde_json::json;

    use super::*;

    const NODE: NodeIdentity<'_> = NodeIdentity {
        name: "n",
        uid: Some("u"),
    };

    fn status(phase: &str) -> PodStatus {
        PodStatus {
            phase: Some(phase.to_owned()),
            ..PodStatus::default()
        }
    }

    fn own(phase: &str, worker: WorkerPhase) -> OwnPod {
        OwnPod {
            namespace: "d".to_owned(),
            name: "web".to_owned(),
            status: status(phase),
            phase: worker,
            is_deleted: false,
            origin: Origin::Api,
        }
    }

    fn named(report: Option<Report>) -> &'static str {
        match report {
            None => "",
            Some(Report::PodStatus(_)) => "patch",
            Some(Report::PodEnd(_)) => "end",
            Some(Report::MirrorPod(_)) => "create",
            Some(_) => "another",
        }
    }

    #[test]
    fn a_pod_goes_once_it_has_ended_on_both_sides() {
        use WorkerPhase::{Finished, Syncing};
        for (phase, worker, held, deleted, expected) in [
            ("Running", Syncing, "Running", false, ""),
            ("Running", Syncing, "Pending", false, "patch"),
            ("Running", Syncing, "Pending", true, "patch"),
            ("Failed", Finished, "Running", true, "patch"),
            ("Failed", Finished, "Failed", true, "end"),
            ("Failed", Syncing, "Failed", true, ""),
            ("Failed", Finished, "Failed", false, ""),
            // Others have ended it; that stands.
            ("Running", Syncing, "Failed", true, ""),
            ("Succeeded", Finished, "Failed", true, "end"),
        ] {
            let own = own(phase, worker);
            let held = HeldPod {
                is_deleted: deleted,
                status: status(held),
                ..HeldPod::default()
            };
            let found = named(next(&own, Some(&held), NODE));
            assert_eq!(found, expected, "{own:?} {held:?}");
        }
        assert_eq!(named(next(&own("Running", Syncing), None, NODE)), "");
        let mut rejected = own("Failed", WorkerPhase::Unspecified);
        rejected.status.message = Some("Pod was rejected: no room".to_owned());
        let held = HeldPod {
            is_deleted: true,
            status: rejected.status.clone(),
            ..HeldPod::default()
        };
        assert_eq!(named(next(&rejected, Some(&held), NODE)), "end");
    }

    #[test]
    fn a_static_pod_has_one_mirror_of_its_own_version() {
        use WorkerPhase::{Finished, Syncing, Terminating, Waiting};
        let json = json!({"metadata": {"name": "web", "namespace": "d", "uid": "h"}});
        let (document, _) =
            PodDocument::from_json(json.to_string().into_bytes(), PodSource::File).unwrap();
        let pod = StaticPod::of(&document);
        // Worker, dropped by its source? then the mirror's hash, deleted?
        for (worker, dropped, mirror, expected) in [
            (Syncing, false, None, "create"),
            (Waiting, false, None, ""),
            (Terminating, true, None, ""),
            (Syncing, false, Some(("h", false)), "patch"),
            (Syncing, false, Some(("h", true)), "end"),
            (Syncing, false, Some(("g", false)), "end"),
            (Waiting, false, Some(("g", false)), ""),
            (Terminating, true, Some(("h", false)), "patch"),
            (Finished, true, Some(("h", false)), "end"),
            (Finished, false, Some(("h", false)), "patch"),
        ] {
            let own = OwnPod {
                is_deleted: dropped,
                origin: Origin::Static(pod.clone()),
                ..own("Running", worker)
            };
            let mirror = mirror.map(|(hash, is_deleted)| HeldPod {
                mirror_of: Some(hash.to_owned()),
                is_deleted,
                ..HeldPod::default()
            });
            let found = named(next(&own, mirror.as_ref(), NODE));
            assert_eq!(found, expected, "{worker:?} {dropped} {mirror:?}");
        }
        let own = OwnPod {
            origin: Origin::Static(pod),
            ..own("Running", Syncing)
        };
        let no_node = NodeIdentity { uid: None, ..NODE };
        assert_eq!(named(next(&own, None, no_node)), "");
        let rejected = OwnPod {
            status: PodStatus {
                message: Some("Pod was rejected: m".to_owned()),
                ..status("Failed")
            },
            ..own
        };
        assert_eq!(named(next(&rejected, None, NODE)), "");
    }

    #[test]
    fn a_report_is_made_again_at_once_where_the_api_server_had_too_much_to_do() {
        for (code, expected) in [
            (429, Again::Now),
            (500, Again::Soon),
            (504, Again::Soon),
            (403, Again::Late),
            (409, Again::Late),
            (422, Again::Late),
        ] {
            assert_eq!(again(code), expected, "{code}");
        }
    }
}
