//! What an API server does that is broken or hostile. Pure.

use serde_json::{Value, json};

use super::request::Request;
use super::store::Refusal;

/// Bytes of an object that is larger than any may be.
const HUGE_BYTES: usize = 100 << 20;

/// A list that comes instead of one of pods; no version is newer.
const LIST_OF_NODES: &str =
    r#"{"kind":"NodeList","metadata":{"resourceVersion":"999999999"},"items":[]}"#;

/// A list of before there were pods.
const OLD_LIST: &str = r#"{"kind":"PodList","metadata":{"resourceVersion":"1"},"items":[]}"#;

/// One way to be broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Each version is too old, in lists and watches.
    Expired,
    /// A pod of another node is in each list of pods, and comes in watches.
    ForeignPod,
    /// The same with a pod of this node whose UID is a path.
    PathAsUid,
    /// The same with a pod of 100 MB.
    HugePod,
    /// A Secret comes in watches of pods, and each list of them is one of Nodes.
    OtherKind,
    /// Watches say again that each pod is gone, and lists are those of an empty cluster: all
    /// of an old version.
    Replay,
    /// Lists and watches are no JSON.
    Garbage,
    /// Watches end at once.
    ShortWatches,
    /// All requests are answered with a redirect.
    Redirect,
    /// The certificate of the node is not accepted.
    Unauthorized,
    /// The certificate of the API server is too old.
    ExpiredCertificate,
    /// All requests but those of Leases are too many, and those with `hung` in their path are
    /// never answered.
    TooManyRequests,
    /// The first patch of a pod's status is never answered.
    HungStatus,
}

/// How a request is answered.
#[derive(Debug, PartialEq)]
pub(super) enum Reply {
    /// As without a fault.
    Usual,
    Refused(Refusal),
    /// With this text.
    Text(&'static str),
    /// With a redirect to this address.
    Redirect(&'static str),
    Never,
    /// A list with this pod beside its own, or a watch of it alone.
    With(Box<Value>),
    /// A watch by which each pod that there is is gone, at an old version.
    Gone,
}

impl Fault {
    /// The answer to the request of this number, counted from 0, that the fault concerns.
    pub(super) fn reply(self, request: &Request, number: u64, node: &str) -> Reply {
        let is_list = request.method == "GET" && request.path != "/version";
        let is_of_pods = is_list && request.path == "/api/v1/pods";
        let is_status = request.method == "PATCH" && request.path.ends_with("/status");
        match self {
            Fault::Expired if is_list => Reply::Refused(Refusal::expired()),
            // A watch has it and ends, the next one does not go on, so that a list has it.
            Fault::ForeignPod
            | Fault::PathAsUid
            | Fault::HugePod
            | Fault::OtherKind
            | Fault::Replay
                if is_of_pods && request.is_watch() && number % 3 == 1 =>
            {
                Reply::Refused(Refusal::expired())
            }
            Fault::ForeignPod if is_of_pods => Reply::With(lie("Pod", "other", "u-1", 0)),
            Fault::PathAsUid if is_of_pods => Reply::With(lie("Pod", node, "../../up", 0)),
            Fault::HugePod if is_of_pods => Reply::With(lie("Pod", node, "u-2", HUGE_BYTES)),
            Fault::OtherKind if is_of_pods && request.is_watch() => {
                Reply::With(lie("Secret", node, "u-3", 0))
            }
            Fault::OtherKind if is_of_pods => Reply::Text(LIST_OF_NODES),
            Fault::Replay if is_of_pods && request.is_watch() => Reply::Gone,
            Fault::Replay if is_of_pods => Reply::Text(OLD_LIST),
            Fault::Garbage if is_list => Reply::Text("<html>Welcome!</html>\n"),
            Fault::ShortWatches if request.is_watch() => Reply::Text(""),
            Fault::Redirect => Reply::Redirect("https://127.0.0.1:1/elsewhere"),
            Fault::Unauthorized => Reply::Refused(Refusal {
                code: 401,
                reason: "Unauthorized",
                message: "Unauthorized".to_owned(),
            }),
            Fault::TooManyRequests if request.path.contains("hung") => Reply::Never,
            Fault::TooManyRequests if !request.path.contains("/leases") => {
                Reply::Refused(Refusal {
                    code: 429,
                    reason: "TooManyRequests",
                    message: "too many requests".to_owned(),
                })
            }
            Fault::HungStatus if is_status && request.path.contains("/pods/") && number == 0 => {
                Reply::Never
            }
            _ => Reply::Usual,
        }
    }
}

fn lie(kind: &str, node: &str, uid: &str, bytes: usize) -> Box<Value> {
    Box::new(json!({
        "apiVersion": "v1",
        "kind": kind,
        "metadata": {
            "name": "lie",
            "namespace": "default",
            "uid": uid,
            "resourceVersion": "1",
            "annotations": {"filling": "x".repeat(bytes)},
        },
        "spec": {
            "nodeName": node,
            "restartPolicy": "Always",
            "containers": [{"name": "lie", "image": "localhost/none"}],
        },
        "status": {"phase": "Pending"},
    }))
}
