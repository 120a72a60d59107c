//! The API server as a source of pods, by api-gateway. Whatever happens to either leaves the
//! pods that were seen last as they are: only a whole snapshot says what is gone.

use std::collections::BTreeMap;
use std::convert::Infallible;

use bulkhead_api::v1;
use bulkhead_api::v1::api_objects_client::ApiObjectsClient;
use bulkhead_api::v1::watch_api_pods_response::Message;
use ipc::limits::{MAX_POD_MESSAGE_BYTES, MAX_PODS};
use ipc::{Network, SubscriptionEvent, subscribe};
use pod::{PodDocument, PodSource};
use tokio::sync::watch;
use topology::Process;

use crate::publication::Publication;
use crate::snapshot::{PodSet, Problem, no_room};

/// What the source is called where something is wrong with it.
const SUBJECT: &str = "API server";

/// The pods that are bound to this node.
#[derive(Debug)]
pub(crate) struct ApiSource {
    network: Network,
    publication: Publication,
    pods: Pods,
}

/// The pods as they are known, and a snapshot that is arriving.
#[derive(Debug, Default)]
struct Pods {
    known: PodSet,
    arriving: Option<PodSet>,
    /// Whether a snapshot was complete.
    ready: bool,
    /// Pods that cannot be taken, by UID.
    problems: BTreeMap<String, Problem>,
    /// The last version seen.
    version: String,
}

impl ApiSource {
    /// Nothing is known yet.
    #[must_use]
    pub(crate) fn new(network: Network, publication: Publication) -> Self {
        Self {
            network,
            publication,
            pods: Pods::default(),
        }
    }

    /// Follows for ever.
    pub(crate) async fn run(mut self) -> Infallible {
        let client = ApiObjectsClient::new(self.network.channel(Process::ApiGateway))
            .max_decoding_message_size(MAX_POD_MESSAGE_BYTES);
        let (version, last_version) = watch::channel(String::new());
        let mut stream = subscribe("pods of the API server", move || {
            let mut client = client.clone();
            let request = v1::WatchApiPodsRequest {
                resource_version: last_version.borrow().clone(),
            };
            async move { client.watch_api_pods(request).await }
        });
        loop {
            let has_changed = match stream.next().await {
                SubscriptionEvent::Connected | SubscriptionEvent::Lost { .. } => {
                    self.pods.arriving = None;
                    false
                }
                SubscriptionEvent::Message(v1::WatchApiPodsResponse {
                    message: Some(Message::Node(node)),
                }) => {
                    self.publication.set_node(PodSource::Api, node);
                    false
                }
                SubscriptionEvent::Message(v1::WatchApiPodsResponse { message }) => {
                    message.is_some_and(|message| self.pods.on(message))
                }
            };
            version.send_replace(self.pods.version.clone());
            if has_changed {
                let problems = self.pods.problems.values().cloned().collect();
                let pods = self.pods.known.clone();
                self.publication
                    .set(PodSource::Api, self.pods.ready, Some(pods), problems);
            }
        }
    }
}

impl Pods {
    /// Takes a message in; whether something is to be published.
    fn on(&mut self, message: Message) -> bool {
        match message {
            Message::SnapshotBegin(_) => {
                self.arriving = Some(PodSet::new());
                self.problems.clear();
                false
            }
            Message::Pod(pod) => {
                self.reach(&pod.resource_version);
                self.take(pod);
                self.arriving.is_none()
            }
            Message::SnapshotEnd(v1::ApiSnapshotEnd { resource_version }) => {
                self.reach(&resource_version);
                if let Some(arrived) = self.arriving.take() {
                    self.known = arrived;
                    self.ready = true;
                }
                true
            }
            Message::RemovedPodUid(uid) => {
                self.problems.remove(&uid);
                let set = self.arriving.as_mut().unwrap_or(&mut self.known);
                set.remove(&uid);
                self.arriving.is_none()
            }
            Message::Node(_) => false,
        }
    }

    /// Versions of one API server are numbers that grow (KEP 5504).
    fn reach(&mut self, version: &str) {
        let number = |version: &str| version.parse::<u128>().ok();
        if number(version) > number(&self.version) {
            version.clone_into(&mut self.version);
        }
    }

    /// Takes a pod in. Of one that cannot be read the last version stands.
    fn take(&mut self, pod: v1::ApiPod) {
        let uid = pod.pod.map(|pod| pod.uid).unwrap_or_default();
        let refusal = match PodDocument::from_json(pod.json, PodSource::Api) {
            Ok((document, _)) if document.identity().uid() == uid => {
                return self.insert(uid, document);
            }
            Ok(_) => "api-gateway sent it under another UID".to_owned(),
            Err(error) => telemetry::chain(&error),
        };
        if let Some(last) = self.known.get(&uid).cloned() {
            self.insert(uid.clone(), last);
        }
        let problem = Problem::new(SUBJECT, format!("pod {uid}: {refusal}"));
        self.problems.insert(uid, problem);
    }

    fn insert(&mut self, uid: String, pod: PodDocument) {
        let set = self.arriving.as_mut().unwrap_or(&mut self.known);
        if set.len() < MAX_PODS || set.contains_key(&uid) {
            self.problems.remove(&uid);
            set.insert(uid, pod);
        } else {
            self.problems.insert(uid, no_room(SUBJECT));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(uid: &str, version: &str, image: &str) -> Message {
        let json = json!({"metadata": {"uid": uid, "name": uid, "namespace": "d"},
            "spec": {"containers": [{"name": "c", "image": image}]}});
        let json = match image {
            "broken" => b"{".to_vec(),
            _ => json.to_string().into_bytes(),
        };
        Message::Pod(v1::ApiPod {
            pod: Some(v1::PodReference {
                uid: uid.to_owned(),
                ..v1::PodReference::default()
            }),
            resource_version: version.to_owned(),
            json,
        })
    }

    fn begin() -> Message {
        Message::SnapshotBegin(v1::ApiSnapshotBegin {})
    }

    fn end(version: &str) -> Message {
        Message::SnapshotEnd(v1::ApiSnapshotEnd {
            resource_version: version.to_owned(),
        })
    }

    #[test]
    fn only_a_whole_snapshot_says_what_is_gone() {
        let mut pods = Pods::default();
        let uids = |pods: &Pods| pods.known.keys().cloned().collect::<Vec<_>>();
        assert!(!pods.on(begin()) && !pods.on(pod("a", "3", "i")));
        assert!(!pods.ready && uids(&pods).is_empty());
        assert!(pods.on(end("9")) && pods.ready);
        assert!(pods.on(pod("b", "10", "i")));
        assert_eq!(
            (uids(&pods), &*pods.version),
            (vec!["a".into(), "b".into()], "10")
        );
        // One that breaks off says nothing.
        pods.on(begin());
        pods.arriving = None;
        assert_eq!(uids(&pods), ["a", "b"]);
        pods.on(begin());
        pods.on(pod("b", "10", "i"));
        assert!(pods.on(end("8")));
        assert_eq!((uids(&pods), &*pods.version), (vec!["b".into()], "10"));
        assert!(pods.on(Message::RemovedPodUid("b".to_owned())));
        assert!(uids(&pods).is_empty() && pods.ready);
    }

    #[test]
    fn the_last_version_stands_of_a_pod_that_cannot_be_read() {
        let mut pods = Pods::default();
        for message in [
            begin(),
            pod("a", "1", "i"),
            pod("b", "1", "broken"),
            end("1"),
        ] {
            pods.on(message);
        }
        for message in [begin(), pod("a", "2", "broken"), end("2")] {
            pods.on(message);
        }
        assert_eq!(pods.known.keys().collect::<Vec<_>>(), ["a"]);
        assert_eq!(pods.problems.keys().collect::<Vec<_>>(), ["a"]);
        pods.on(pod("a", "3", "i"));
        assert!(pods.problems.is_empty());
    }
}
