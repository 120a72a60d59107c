//! What tests of where pods come from share: manifests, the second source, and what
//! is told of both.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context as _, Result};
use bulkhead_api::v1::Event;
use serde_json::{Value, json};
use test_support::observe::container_id;
use test_support::{BulkheadOptions, ManifestServer, wait_for};

use crate::Ground;
use crate::ground::TIMEOUT;

/// How long something has to go well before it counts as going well: several
/// looks at a source.
pub const WHILE: Duration = Duration::from_secs(3);

/// A pod's manifest. Its containers have two seconds to stop.
#[must_use]
pub fn manifest(name: &str, mut spec: Value) -> Value {
    spec["terminationGracePeriodSeconds"] = json!(2);
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})
}

/// The second source is this server, which is asked twice a second.
#[must_use]
pub fn with_url(server: &ManifestServer) -> BulkheadOptions {
    let configuration = json!({
        "staticPodURL": server.url(),
        "staticPodURLHeader": {"X-Token": ["secret"]},
        "httpCheckFrequency": "500ms",
    });
    BulkheadOptions {
        kubelet_configuration: configuration.as_object().cloned().unwrap_or_default(),
        ..BulkheadOptions::default()
    }
}

/// What tells whether a pod and its container `app` are still the same ones.
///
/// # Errors
/// When the container never ran.
pub fn identity(pod: &Value) -> Result<(String, String)> {
    let uid = pod["metadata"]["uid"].as_str().context("no uid")?;
    let container = container_id(pod, "app").with_context(|| format!("no container in {pod}"))?;
    Ok((uid.to_owned(), container.to_owned()))
}

/// The pods of the node, by the names in their manifests.
///
/// # Errors
/// When nobody answers.
pub fn pods_of(ground: &Ground) -> Result<BTreeSet<String>> {
    let suffix = format!("-{}", ground.bulkhead.node_name());
    let pods = ground.bulkhead.pods()?.into_iter();
    let name = |pod: Value| {
        let name = pod["metadata"]["name"].as_str()?.to_owned();
        Some(name.strip_suffix(&suffix).unwrap_or(&name).to_owned())
    };
    Ok(pods.filter_map(name).collect())
}

/// These names, to compare with [`pods_of`].
#[must_use]
pub fn names(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

/// Waits for an event about this subject, a file or URL, and returns it.
///
/// # Errors
/// When there is none in time; with what was told of the subject.
pub fn told(ground: &Ground, subject: &str, is_it: impl Fn(&Event) -> bool) -> Result<Event> {
    let found = wait_for(&format!("an event about {subject}"), TIMEOUT, || {
        let events = ground.bulkhead.events();
        let events = events.map_err(|error| format!("{error:#}"))?;
        let of_subject = events.into_iter().filter(|event| event.subject == subject);
        let of_subject: Vec<_> = of_subject.collect();
        let found = of_subject.iter().find(|event| is_it(event)).cloned();
        found.ok_or_else(|| format!("{of_subject:?}"))
    });
    Ok(found?)
}
