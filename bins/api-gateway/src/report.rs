//! Which request of the API server a report is, if it is one that this node may make. Pure.
//!
//! The caller gives names and bodies, never a path or a method. A body is looked at as far as
//! it says what it is about; what is in a status is the caller's to know, and the API
//! server's to judge.

use bulkhead_api::v1;
use bulkhead_api::v1::report_request::Report;
use http::Method;
use pod::metadata::CONFIG_MIRROR_ANNOTATION;
use serde_json::{Map, Value, json};

use crate::client::ApiRequest;
use crate::object::Object;
use crate::pace::Lane;

const JSON: &str = "application/json";
const STRATEGIC_MERGE: &str = "application/strategic-merge-patch+json";
const MERGE: &str = "application/merge-patch+json";

/// Where the Leases of nodes are.
const LEASE_NAMESPACE: &str = "kube-node-lease";

/// Why a report is not made.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(crate) enum ReportError {
    /// There is nothing in it.
    #[error("the report is empty")]
    Empty,
    /// The API server holds no such pod of this node.
    #[error("the API server holds no pod {namespace}/{name} with UID {uid} for this node")]
    UnknownPod {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
        /// Its UID.
        uid: String,
    },
    /// The body is not what it should be.
    #[error("the {what} {problem}")]
    Body {
        /// What it should be.
        what: &'static str,
        /// What is wrong with it.
        problem: &'static str,
    },
}

/// What is known of this node.
pub(crate) struct Node<'a, Find> {
    pub(crate) name: &'a str,
    /// The pod of a UID that is bound to it.
    pub(crate) find: Find,
}

impl<Find, Found> Node<'_, Find>
where
    Find: Fn(&str) -> Option<Found>,
    Found: AsRef<Object>,
{
    /// The request that a report is.
    ///
    /// # Errors
    /// When it is none that this node may make.
    pub(crate) fn request(&self, report: Option<Report>) -> Result<ApiRequest, ReportError> {
        let node = self.name;
        match report.ok_or(ReportError::Empty)? {
            Report::PodStatus(v1::PodStatusPatch { pod, patch }) => {
                let (path, uid) = self.pod(pod)?;
                let what = "patch of a pod's status";
                let body = object(what, &patch)?;
                has_only(what, &body, &["metadata", "status"])?;
                let metadata = body.get("metadata").unwrap_or(&Value::Null);
                is_so(
                    what,
                    *metadata == json!({"uid": uid}),
                    "has not the pod's UID alone",
                )?;
                Ok(request(
                    Method::PATCH,
                    path + "/status",
                    STRATEGIC_MERGE,
                    patch,
                ))
            }
            Report::PodEnd(pod) => {
                let (path, uid) = self.pod(Some(pod))?;
                let body = json!({
                    "apiVersion": "v1",
                    "kind": "DeleteOptions",
                    "gracePeriodSeconds": 0,
                    "preconditions": {"uid": uid},
                });
                let body = body.to_string().into_bytes();
                Ok(request(Method::DELETE, path, JSON, body))
            }
            Report::MirrorPod(body) => self.mirror_pod(body),
            Report::Node(body) => {
                let what = "Node";
                let found = object(what, &body)?;
                is_so(what, name_of(&found) == node, "is another one")?;
                Ok(request(
                    Method::POST,
                    "/api/v1/nodes".to_owned(),
                    JSON,
                    body,
                ))
            }
            Report::NodeStatus(patch) => {
                let what = "patch of the Node's status";
                let found = object(what, &patch)?;
                has_only(what, &found, &["metadata", "status"])?;
                if let Some(metadata) = found.get("metadata") {
                    let metadata = metadata.as_object().cloned().unwrap_or_default();
                    has_only(what, &metadata, &["labels", "annotations"])?;
                }
                let path = format!("/api/v1/nodes/{node}/status");
                Ok(request(Method::PATCH, path, STRATEGIC_MERGE, patch))
            }
            Report::Lease(body) => {
                let what = "Lease";
                let found = object(what, &body)?;
                is_so(what, name_of(&found) == node, "is of another node")?;
                Ok(request(Method::POST, leases(), JSON, body))
            }
            Report::LeaseRenewal(patch) => {
                let what = "renewal of the Lease";
                has_only(what, &object(what, &patch)?, &["spec"])?;
                let path = format!("{}/{node}", leases());
                Ok(request(Method::PATCH, path, MERGE, patch))
            }
            Report::Event(body) => self.event(body),
            Report::EventRepeat(repeat) => repeated_event(repeat),
        }
    }

    fn mirror_pod(&self, body: Vec<u8>) -> Result<ApiRequest, ReportError> {
        let what = "mirror pod";
        let found: Value = serde_json::from_slice(&body).unwrap_or_default();
        let metadata = &found["metadata"];
        let is_mirror = metadata["annotations"][CONFIG_MIRROR_ANNOTATION].is_string();
        is_so(what, is_mirror, "is no mirror")?;
        let is_own = found["spec"]["nodeName"] == self.name;
        is_so(what, is_own, "is of another node")?;
        let namespace = metadata["namespace"].as_str().unwrap_or_default();
        let is_name = pod::identity::is_dns1123_label(namespace);
        is_so(what, is_name, "has no namespace")?;
        let path = format!("/api/v1/namespaces/{namespace}/pods");
        Ok(request(Method::POST, path, JSON, body))
    }

    fn event(&self, body: Vec<u8>) -> Result<ApiRequest, ReportError> {
        let what = "Event";
        let found = object(what, &body)?;
        let host = found.get("source").and_then(|it| it.get("host"));
        let is_own = host.and_then(Value::as_str) == Some(self.name);
        is_so(what, is_own, "is of another node")?;
        let namespace = found.get("metadata").and_then(|it| it.get("namespace"));
        let namespace = namespace.and_then(Value::as_str).unwrap_or_default();
        let is_name = pod::identity::is_dns1123_label(namespace);
        is_so(what, is_name, "has no namespace")?;
        let path = format!("/api/v1/namespaces/{namespace}/events");
        Ok(request(Method::POST, path, JSON, body))
    }

    /// Path and UID of a pod that the API server holds for this node.
    fn pod(&self, pod: Option<v1::PodReference>) -> Result<(String, String), ReportError> {
        let v1::PodReference {
            uid,
            namespace,
            name,
        } = pod.unwrap_or_default();
        let found = (self.find)(&uid);
        let is_known = found.is_some_and(|found| {
            let found = found.as_ref();
            found.namespace == namespace && found.name == name
        });
        match is_known {
            true => Ok((format!("/api/v1/namespaces/{namespace}/pods/{name}"), uid)),
            false => Err(ReportError::UnknownPod {
                namespace,
                name,
                uid,
            }),
        }
    }
}

fn repeated_event(repeat: v1::EventRepeat) -> Result<ApiRequest, ReportError> {
    let v1::EventRepeat {
        namespace,
        name,
        patch,
    } = repeat;
    let what = "patch of an Event";
    let fields = ["count", "message", "lastTimestamp"];
    has_only(what, &object(what, &patch)?, &fields)?;
    let are_names =
        pod::identity::is_dns1123_label(&namespace) && pod::identity::is_dns1123_subdomain(&name);
    is_so(what, are_names, "has no name")?;
    let path = format!("/api/v1/namespaces/{namespace}/events/{name}");
    Ok(request(Method::PATCH, path, MERGE, patch))
}

/// Which others the report waits for.
pub(crate) fn lane(report: Option<&Report>) -> Lane {
    match report {
        Some(Report::Lease(_) | Report::LeaseRenewal(_)) => Lane::Lease,
        Some(Report::PodStatus(_) | Report::PodEnd(_) | Report::NodeStatus(_)) => Lane::Status,
        Some(Report::Event(_) | Report::EventRepeat(_)) => Lane::Event,
        Some(Report::Node(_) | Report::MirrorPod(_)) | None => Lane::Other,
    }
}

fn leases() -> String {
    format!("/apis/coordination.k8s.io/v1/namespaces/{LEASE_NAMESPACE}/leases")
}

fn request(method: Method, path: String, content_type: &'static str, body: Vec<u8>) -> ApiRequest {
    ApiRequest {
        method,
        path,
        content_type,
        body,
    }
}

fn object(what: &'static str, body: &[u8]) -> Result<Map<String, Value>, ReportError> {
    let problem = "is no JSON of an object";
    serde_json::from_slice(body).map_err(|_| ReportError::Body { what, problem })
}

fn has_only(
    what: &'static str,
    body: &Map<String, Value>,
    fields: &[&str],
) -> Result<(), ReportError> {
    let is_known = |field: &String| fields.contains(&field.as_str());
    is_so(
        what,
        body.keys().all(is_known),
        "has a field that it must not have",
    )
}

fn is_so(what: &'static str, holds: bool, problem: &'static str) -> Result<(), ReportError> {
    match holds {
        true => Ok(()),
        false => Err(ReportError::Body { what, problem }),
    }
}

fn name_of(object: &Map<String, Value>) -> &str {
    let name = object.get("metadata").and_then(|it| it.get("name"));
    name.and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn asked(report: Report) -> Result<ApiRequest, ReportError> {
        let json = r#"{"metadata":{"uid":"u","namespace":"d","name":"a"}}"#;
        let held = Arc::new(Object::parse(json).unwrap());
        let node = Node {
            name: "n",
            find: |uid: &str| (uid == "u").then(|| Arc::clone(&held)),
        };
        node.request(Some(report))
    }

    fn pod(uid: &str, name: &str) -> v1::PodReference {
        v1::PodReference {
            uid: uid.to_owned(),
            namespace: "d".to_owned(),
            name: name.to_owned(),
        }
    }

    fn patch(body: &Value) -> Report {
        Report::PodStatus(v1::PodStatusPatch {
            pod: Some(pod("u", "a")),
            patch: body.to_string().into_bytes(),
        })
    }

    fn repeat(namespace: &str, name: &str, patch: Value) -> v1::EventRepeat {
        v1::EventRepeat {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            patch: bytes(patch),
        }
    }

    fn mirror_pod(node: &str) -> Value {
        json!({"metadata": {"namespace": "d", "annotations": {CONFIG_MIRROR_ANNOTATION: "h"}},
            "spec": {"nodeName": node}})
    }

    fn bytes(body: Value) -> Vec<u8> {
        body.to_string().into_bytes()
    }

    #[test]
    fn each_report_is_one_request() {
        const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
        let named = |name: &str| bytes(json!({"metadata": {"name": name}}));
        let event = json!({"metadata": {"namespace": "d"}, "source": {"host": "n"}});
        for (report, method, path) in [
            (
                patch(&json!({"metadata": {"uid": "u"}, "status": {}})),
                Method::PATCH,
                "/api/v1/namespaces/d/pods/a/status",
            ),
            (
                Report::PodEnd(pod("u", "a")),
                Method::DELETE,
                "/api/v1/namespaces/d/pods/a",
            ),
            (
                Report::MirrorPod(bytes(mirror_pod("n"))),
                Method::POST,
                "/api/v1/namespaces/d/pods",
            ),
            (Report::Node(named("n")), Method::POST, "/api/v1/nodes"),
            (
                Report::NodeStatus(bytes(json!({"status": {}}))),
                Method::PATCH,
                "/api/v1/nodes/n/status",
            ),
            (Report::Lease(named("n")), Method::POST, LEASES),
            (
                Report::LeaseRenewal(bytes(json!({"spec": {}}))),
                Method::PATCH,
                &format!("{LEASES}/n"),
            ),
            (
                Report::Event(bytes(event)),
                Method::POST,
                "/api/v1/namespaces/d/events",
            ),
            (
                Report::EventRepeat(repeat("d", "web.1", json!({"count": 2}))),
                Method::PATCH,
                "/api/v1/namespaces/d/events/web.1",
            ),
        ] {
            let request = asked(report).unwrap();
            assert_eq!((request.method, &*request.path), (method, path));
        }
    }

    #[test]
    fn what_is_not_this_nodes_to_report_is_refused() {
        let of_pod = |body: Value| patch(&body);
        for report in [
            Report::PodEnd(pod("u", "b")),
            Report::PodEnd(pod("v", "a")),
            Report::PodEnd(pod("", "")),
            of_pod(json!({"status": {}})),
            of_pod(json!({"metadata": {"uid": "v"}, "status": {}})),
            of_pod(json!({"metadata": {"uid": "u", "labels": {}}, "status": {}})),
            of_pod(json!({"metadata": {"uid": "u"}, "spec": {}})),
            of_pod(json!([])),
            Report::MirrorPod(bytes(mirror_pod("other"))),
            Report::MirrorPod(bytes(json!({"metadata": {"namespace": "d"},
                "spec": {"nodeName": "n"}}))),
            Report::Node(bytes(json!({"metadata": {"name": "other"}}))),
            Report::NodeStatus(bytes(json!({"spec": {"taints": []}}))),
            Report::NodeStatus(bytes(json!({"metadata": {"finalizers": []}}))),
            Report::Lease(bytes(json!({"metadata": {"name": "other"}}))),
            Report::LeaseRenewal(bytes(json!({"metadata": {}}))),
            Report::Event(bytes(json!({"metadata": {"namespace": "d"}}))),
            Report::Event(bytes(
                json!({"metadata": {"namespace": "../x"}, "source": {"host": "n"}}),
            )),
            Report::EventRepeat(repeat("d", "../x", json!({"count": 2}))),
            Report::EventRepeat(repeat("d", "x", json!({"reason": "r"}))),
        ] {
            assert!(asked(report.clone()).is_err(), "{report:?}");
        }
    }
}
