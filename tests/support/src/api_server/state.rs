//! The objects with the rules by which they change, and answers to requests.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::controllers::{Action, Cluster};
use super::fault::{Fault, Reply};
use super::patch;
use super::request::{Request, Target};
use super::rules;
use super::selector::Selector;
use super::store::{Key, Refusal, Store, seconds};

/// What the version of an API server is that this stands for.
const VERSION: &str = "v1.35.0";

/// All of the API server but its connections.
#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) store: Store,
    fault: Option<Fault>,
    /// Answers that a fault has changed, since there is one.
    faulty: u64,
    /// Counts faults: a watch ends when there is another, or none any more.
    pub(super) epoch: u64,
    /// Counts what was created.
    created: u64,
    node_name: String,
}

impl State {
    /// What there is on a new cluster; the node is not there yet.
    pub(super) fn new(node_name: &str) -> Result<State, Refusal> {
        let mut state = State {
            node_name: node_name.to_owned(),
            ..State::default()
        };
        state.create(
            "services",
            json!({
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": {"name": "kubernetes", "namespace": "default"},
                "spec": {"ports": [{"name": "https", "port": 443}]},
            }),
        )?;
        Ok(state)
    }

    pub(super) fn set_fault(&mut self, fault: Option<Fault>) {
        self.fault = fault;
        self.faulty = 0;
        self.epoch += 1;
    }

    pub(super) fn faulty(&self) -> u64 {
        self.faulty
    }

    /// A client has ended a connection before its first request.
    pub(super) fn has_no_client(&mut self) {
        self.faulty += u64::from(self.has_expired());
    }

    /// Whether its certificate is too old.
    pub(super) fn has_expired(&self) -> bool {
        self.fault == Some(Fault::ExpiredCertificate)
    }

    /// How the fault, if there is one, has a request answered.
    pub(super) fn reply(&mut self, request: &Request) -> Reply {
        let reply = match self.fault {
            Some(fault) => fault.reply(request, self.faulty, &self.node_name),
            None => Reply::Usual,
        };
        self.faulty += u64::from(reply != Reply::Usual);
        reply
    }

    /// The answer to a request that is no watch.
    pub(super) fn answer(&mut self, request: &Request) -> Result<(u16, Value), Refusal> {
        if request.path == "/version" {
            return Ok((200, json!({"gitVersion": VERSION})));
        }
        let Target { key, subresource } = request.target()?;
        let body = request.json()?;
        if let Some(status) = rules::review(&key.resource, &body) {
            return Ok((201, json!({"status": status})));
        }
        match &*request.method {
            "GET" if key.name.is_empty() => {
                let selector = Selector::parse(request.asked("fieldSelector"));
                Ok((200, self.listed(&key.resource, &selector)))
            }
            "GET" => Ok((200, (**self.store.get(&key)?).clone())),
            "POST" => {
                let mut object = body;
                if !key.namespace.is_empty() {
                    object["metadata"]["namespace"] = json!(key.namespace);
                }
                Ok((201, (*self.create(&key.resource, object)?).clone()))
            }
            "PATCH" => {
                let is_strategic = request.content_type.contains("strategic");
                let new = self.patch(&key, &subresource, &body, is_strategic)?;
                Ok((200, (*new).clone()))
            }
            "DELETE" => Ok((200, (*self.delete(&key, &body)?).clone())),
            method => Err(Refusal {
                code: 405,
                reason: "MethodNotAllowed",
                message: format!("{method} of {}", request.path),
            }),
        }
    }

    fn listed(&self, resource: &str, selector: &Selector) -> Value {
        let items = self.store.list(resource).into_iter();
        let items = items.filter(|object| selector.matches(object));
        let items: Vec<Value> = items.map(|object| (*object).clone()).collect();
        json!({
            "kind": list_kind(resource),
            "apiVersion": "v1",
            "metadata": {"resourceVersion": self.store.version().to_string()},
            "items": items,
        })
    }

    fn create(&mut self, resource: &str, object: Value) -> Result<Arc<Value>, Refusal> {
        let created = self.add(resource, object)?;
        self.settle()?;
        Ok(created)
    }

    fn add(&mut self, resource: &str, mut object: Value) -> Result<Arc<Value>, Refusal> {
        rules::admit(resource, &mut object, self.created)?;
        self.created += 1;
        self.store.create(resource, object, Timestamp::now())
    }

    /// Creates an object, or merges it into the one that there is.
    pub(super) fn apply(&mut self, resource: &str, object: Value) -> Result<(), Refusal> {
        let key = Key::of(resource, &object);
        match self.store.get(&key).is_ok() {
            true => self.patch(&key, "", &object, false).map(drop),
            false => self.create(resource, object).map(drop),
        }
    }

    /// Merges a patch into an object, or into its status alone. A UID in it is a precondition.
    pub(super) fn patch(
        &mut self,
        key: &Key,
        subresource: &str,
        patch: &Value,
        is_strategic: bool,
    ) -> Result<Arc<Value>, Refusal> {
        let old = Arc::clone(self.store.get(key)?);
        let mut new = (*old).clone();
        match is_strategic {
            true => patch::strategic_merge(&mut new, patch),
            false => patch::merge(&mut new, patch),
        }
        if new["metadata"]["uid"] != old["metadata"]["uid"] {
            return Err(Refusal::conflict("the UID in the precondition is another"));
        }
        if subresource == "status" {
            new["spec"] = old["spec"].clone();
            // Labels and annotations of a Node are changed with its status.
            if key.resource != "nodes" {
                new["metadata"] = old["metadata"].clone();
            }
        }
        let new = self.store.update(key, new)?;
        self.settle()?;
        Ok(new)
    }

    /// Deletes an object as metav1.DeleteOptions say.
    pub(super) fn delete(&mut self, key: &Key, options: &Value) -> Result<Arc<Value>, Refusal> {
        let old = Arc::clone(self.store.get(key)?);
        let new = rules::deletion(&key.resource, &old, options, Timestamp::now())?;
        let last = self.store.update(key, new)?;
        self.settle()?;
        Ok(last)
    }

    /// Keeps new pods away from a node, and deletes those that it has, but for mirrors.
    pub(super) fn drain(&mut self, node: &str) -> Result<(), Refusal> {
        let unschedulable = json!({"spec": {"unschedulable": true}});
        self.patch(&Key::new("nodes", "", node), "", &unschedulable, false)?;
        for pod in self.store.list("pods") {
            let is_mirror = pod["metadata"]["ownerReferences"][0]["kind"] == "Node";
            if pod["spec"]["nodeName"] == node && !is_mirror {
                self.delete(&Key::of("pods", &pod), &Value::Null)?;
            }
        }
        Ok(())
    }

    /// Lets the controllers work until they have nothing to do.
    fn settle(&mut self) -> Result<(), Refusal> {
        loop {
            let list = |resource| self.store.list(resource);
            let now = Timestamp::now();
            let cluster = Cluster {
                nodes: list("nodes"),
                pods: list("pods"),
                deployments: list("deployments"),
                daemon_sets: list("daemonsets"),
                jobs: list("jobs"),
                number: self.created,
                now: seconds(now),
            };
            match cluster.next() {
                None => return Ok(()),
                Some(Action::Create(pod)) => drop(self.add("pods", pod)?),
                Some(Action::Update(resource, new)) => {
                    self.store.update(&Key::of(resource, &new), new)?;
                }
                Some(Action::Delete(pod)) => {
                    let new = rules::deletion("pods", &pod, &Value::Null, now)?;
                    self.store.update(&Key::of("pods", &pod), new)?;
                }
            }
        }
    }
}

/// The kind of a list of a resource of one word.
fn list_kind(resource: &str) -> String {
    let singular = resource.trim_end_matches('s');
    let (first, rest) = singular.split_at(singular.len().min(1));
    format!("{}{rest}List", first.to_uppercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_node() -> State {
        let mut state = State::new("n").unwrap();
        let node = json!({"metadata": {"name": "n"}});
        state.create("nodes", node).unwrap();
        state
    }

    fn ask(state: &mut State, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let kind = "application/strategic-merge-patch+json";
        let request = Request::new(method, (path, ""), kind, body.to_string().into_bytes());
        state
            .answer(&request)
            .unwrap_or_else(|refusal| (refusal.code, refusal.status()))
    }

    #[test]
    fn a_pod_of_a_deployment_is_bound_reported_drained_and_ended_by_the_node() {
        let mut state = with_node();
        let template = json!({"metadata": {"labels": {"app": "web"}}, "spec": {}});
        let deployment = json!({"kind": "Deployment", "metadata": {"name": "web",
            "namespace": "d"}, "spec": {"replicas": 1, "template": template}});
        state.apply("deployments", deployment).unwrap();
        let pod = Arc::clone(&state.store.list("pods")[0]);
        assert_eq!(pod["spec"]["nodeName"], "n");
        let uid = pod["metadata"]["uid"].clone();
        let name = pod["metadata"]["name"].as_str().unwrap();
        let path = format!("/api/v1/namespaces/d/pods/{name}");
        let status = format!("{path}/status");
        let running =
            |uid: &Value| json!({"metadata": {"uid": uid}, "status": {"phase": "Running"}});
        let (code, _) = ask(&mut state, "PATCH", &status, &running(&json!("other")));
        assert_eq!(code, 409);
        let (code, patched) = ask(&mut state, "PATCH", &status, &running(&uid));
        assert_eq!(
            (code, &patched["status"]["phase"]),
            (200, &json!("Running"))
        );
        state.drain("n").unwrap();
        let (_, found) = ask(&mut state, "GET", &path, &Value::Null);
        assert_eq!(found["metadata"]["deletionGracePeriodSeconds"], 30);
        let pods = state.store.list("pods");
        assert!(pods.iter().any(|pod| pod["spec"]["nodeName"].is_null()));
        let last = json!({"gracePeriodSeconds": 0, "preconditions": {"uid": uid}});
        let (code, _) = ask(&mut state, "DELETE", &path, &last);
        assert_eq!(code, 200);
        assert_eq!(ask(&mut state, "GET", &path, &Value::Null).0, 404);
    }

    #[test]
    fn a_job_is_complete_once_enough_pods_have_succeeded() {
        let mut state = with_node();
        let job = json!({"kind": "Job", "metadata": {"name": "job", "namespace": "d"},
            "spec": {"completions": 3, "parallelism": 2, "template": {"spec": {}}}});
        state.apply("jobs", job).unwrap();
        let key = Key::new("jobs", "d", "job");
        for expected in [2, 3, 3] {
            let pods = state.store.list("pods");
            assert_eq!(pods.len(), expected);
            let mut running = pods
                .iter()
                .filter(|pod| pod["status"]["phase"] == "Pending");
            let pod = Key::of("pods", running.next().unwrap());
            let succeeded = json!({"status": {"phase": "Succeeded"}});
            state.patch(&pod, "status", &succeeded, true).unwrap();
        }
        let job = state.store.get(&key).unwrap();
        assert_eq!(job["status"]["conditions"][0]["type"], "Complete");
        state.delete(&key, &Value::Null).unwrap();
        assert!(state.store.list("pods").is_empty());
    }
}
