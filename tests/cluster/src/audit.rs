//! What the audit log of the API server says of a pod's life. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result};
use jiff::Timestamp;
use serde_json::Value;

/// A request and its answer, as a line of the log.
pub struct Request(pub Value);

/// A pod's life as the API server saw it.
#[derive(Debug, Clone, Copy)]
pub struct Life {
    /// From the scheduler's binding to a status that says Running.
    pub start: Duration,
    /// From a person's DELETE to the node's last one.
    pub end: Duration,
    /// Of the node about this pod, its events among them.
    pub requests: usize,
}

impl Request {
    fn text(&self, pointer: &str) -> &str {
        let found = self.0.pointer(pointer).and_then(Value::as_str);
        found.unwrap_or_default()
    }

    fn is_of_node(&self) -> bool {
        self.text("/user/username").starts_with("system:node:")
    }

    fn is(&self, verb: &str, resource: &str, subresource: &str) -> bool {
        self.text("/verb") == verb
            && self.text("/objectRef/resource") == resource
            && self.text("/objectRef/subresource") == subresource
    }

    fn is_about(&self, pod: &str) -> bool {
        let name = self.text("/objectRef/name");
        match self.text("/objectRef/resource") {
            "pods" => name == pod,
            "events" => {
                let of_name = name.rsplit_once('.').map(|(object, _)| object);
                of_name == Some(pod) || self.text("/requestObject/involvedObject/name") == pod
            }
            _ => false,
        }
    }

    fn time(&self, field: &str) -> Result<Timestamp> {
        Ok(self.text(field).parse()?)
    }
}

/// How many requests of the node there were, by verb and resource.
#[must_use]
pub fn by_verb(log: &[Request]) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for request in log.iter().filter(|it| it.is_of_node()) {
        let words = ["/verb", "/objectRef/resource", "/objectRef/subresource"];
        let words = words.map(|pointer| request.text(pointer));
        *counts.entry(words.join(" ").trim().to_owned()).or_default() += 1;
    }
    counts
}

/// The life of a pod that is gone.
///
/// # Errors
/// When a part of it is not in the log.
pub fn life(log: &[Request], pod: &str) -> Result<Life> {
    let own: Vec<&Request> = log.iter().filter(|it| it.is_about(pod)).collect();
    let first = |what: &str, found: &dyn Fn(&Request) -> bool| {
        let request = own.iter().find(|it| found(it)).copied();
        request.with_context(|| format!("{pod}: no {what}"))
    };
    let bound = first("binding", &|it| it.is("create", "pods", "binding"))?;
    let running = first("status Running", &|it| {
        it.is_of_node()
            && it.is("patch", "pods", "status")
            && it.text("/requestObject/status/phase") == "Running"
    })?;
    let deleted = first("deletion", &|it| {
        !it.is_of_node() && it.is("delete", "pods", "")
    })?;
    let gone = first("last DELETE", &|it| {
        it.is_of_node() && it.is("delete", "pods", "")
    })?;
    let (received, done) = ("/requestReceivedTimestamp", "/stageTimestamp");
    let between = |from: Timestamp, to: Timestamp| {
        Duration::try_from(to.duration_since(from)).unwrap_or_default()
    };
    Ok(Life {
        start: between(bound.time(done)?, running.time(done)?),
        end: between(deleted.time(received)?, gone.time(done)?),
        requests: own.iter().filter(|it| it.is_of_node()).count(),
    })
}

/// From the first of some pods' bindings to the last of their statuses that say Running.
///
/// # Errors
/// When one is not in the log.
pub fn all_running(log: &[Request], pods: &[String]) -> Result<Duration> {
    let of_pods = |it: &&Request| pods.iter().any(|pod| it.is_about(pod));
    let mut bound = Vec::new();
    let mut running = Vec::new();
    for request in log.iter().filter(of_pods) {
        let is_status = request.is("patch", "pods", "status");
        if request.is("create", "pods", "binding") {
            bound.push(request.time("/stageTimestamp")?);
        } else if is_status && request.text("/requestObject/status/phase") == "Running" {
            running.push(request.time("/stageTimestamp")?);
        }
    }
    let first = bound.into_iter().min().context("none was bound")?;
    let last = running.into_iter().max().context("none runs")?;
    Ok(Duration::try_from(last.duration_since(first)).unwrap_or_default())
}
