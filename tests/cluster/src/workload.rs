//! The objects that the cases create.

use serde_json::{Value, json};
use test_support::images::TESTAPP;

/// A pod's template: one container that is ready when it answers, without a token, which
/// ends at once when it is stopped.
#[must_use]
pub fn web_template(app: &str) -> Value {
    let mut template = template(app, &["--http", "8080"]);
    template["spec"]["containers"][0]["readinessProbe"] =
        json!({"httpGet": {"path": "/", "port": 8080}, "periodSeconds": 1});
    template
}

/// A pod's template: one container with these words, without a token. It uses the node's DNS:
/// of a pod that asks for the cluster's, a node without one reports so.
#[must_use]
pub fn template(app: &str, words: &[&str]) -> Value {
    json!({
        "metadata": {"labels": {"app": app}},
        "spec": {
            "automountServiceAccountToken": false,
            "dnsPolicy": "Default",
            "terminationGracePeriodSeconds": 5,
            "containers": [{"name": "app", "image": TESTAPP, "args": words}],
        },
    })
}

/// An object of `apps/v1` that makes pods of a template.
#[must_use]
pub fn controller(kind: &str, app: &str, template: &Value, replicas: Option<u64>) -> Value {
    json!({
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": app, "namespace": "default"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": app}},
            "template": template,
        },
    })
}

/// A Deployment of pods that can be ready.
#[must_use]
pub fn deployment(app: &str, replicas: u64) -> Value {
    controller("Deployment", app, &web_template(app), Some(replicas))
}

/// A pod of its own.
#[must_use]
pub fn pod(name: &str, template: &Value) -> Value {
    let mut pod = template.clone();
    pod["apiVersion"] = json!("v1");
    pod["kind"] = json!("Pod");
    pod["metadata"]["name"] = json!(name);
    pod["metadata"]["namespace"] = json!("default");
    pod
}
