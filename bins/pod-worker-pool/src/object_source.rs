//! The way to config-sourcer for ConfigMaps and Secrets: which there are is told by a
//! stream, and the content of those that pods refer to is fetched beside all steps. Their
//! content is held in memory and never written but into the volumes of their pods.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bulkhead_api::v1;
use bulkhead_api::v1::objects_client::ObjectsClient;
use ipc::limits::{MAX_OBJECT_LIST_BYTES, MAX_OBJECT_MESSAGE_BYTES};
use ipc::{Channel, SubscriptionEvent};
use local_objects::{LocalObject, MAX_OBJECT_KEYS, ObjectKind, ObjectRef, Objects};
use pod::{Pod, PodExt as _};
use tokio::sync::{Notify, watch};

use crate::doorbell::Doorbell;
use crate::object_table::{ObjectList, ObjectTable};

/// Deadline of GetObject, as the interface says.
const DEADLINE: Duration = Duration::from_secs(2);

/// How long a fetch that failed waits.
const RETRY: Duration = Duration::from_secs(1);

/// How long a pod that is about to start waits for its objects: as long as for itself.
const WAIT: Duration = Duration::from_secs(2);

/// The objects that pods refer to. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct ObjectSource(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    table: Mutex<ObjectTable>,
    /// Something is to be fetched.
    wanted: Notify,
    /// Counts what was learnt.
    learnt: watch::Sender<u64>,
    doorbell: Doorbell,
}

impl ObjectSource {
    /// Nothing is known. `doorbell` rings for pods whose objects have changed.
    #[must_use]
    pub(crate) fn new(doorbell: Doorbell) -> ObjectSource {
        ObjectSource(Arc::new(Inner {
            table: Mutex::default(),
            wanted: Notify::new(),
            learnt: watch::Sender::new(0),
            doorbell,
        }))
    }

    fn table(&self) -> MutexGuard<'_, ObjectTable> {
        self.0.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is known now of the objects that a pod refers to.
    pub(crate) fn known(&self, pod: &Pod) -> Objects {
        let mut table = self.table();
        if table.want(pod.uid(), local_objects::references(pod)) {
            self.0.wanted.notify_one();
        }
        table.known(pod.uid())
    }

    /// The same when all of it is known; or what is known, after a while.
    pub(crate) async fn settled(&self, pod: &Pod) -> Objects {
        let mut learnt = self.0.learnt.subscribe();
        let all_known = async {
            while self.known(pod).has_unknown() {
                if learnt.changed().await.is_err() {
                    return;
                }
            }
        };
        // What is known by then has to do.
        let _ = tokio::time::timeout(WAIT, all_known).await;
        self.known(pod)
    }

    /// A pod is gone.
    pub(crate) fn forget(&self, pod_uid: &str) {
        self.table().forget(pod_uid);
    }

    /// Takes over what config-sourcer has.
    pub(crate) fn listed(&self, list: ObjectList) {
        let pods = self.table().listed(list);
        self.learnt(pods);
        self.0.wanted.notify_one();
    }

    /// Holds an object.
    pub(crate) fn fetched(&self, object: LocalObject) {
        let pods = self.table().fetched(object);
        self.learnt(pods);
    }

    fn learnt(&self, pods: Vec<String>) {
        for uid in pods {
            self.0.doorbell.ring(&uid);
        }
        self.0.learnt.send_modify(|count| *count += 1);
    }

    /// Follows config-sourcer for ever.
    pub(crate) async fn run(self, channel: Channel) -> Infallible {
        let watching =
            ObjectsClient::new(channel.clone()).max_decoding_message_size(MAX_OBJECT_LIST_BYTES);
        let client =
            ObjectsClient::new(channel).max_decoding_message_size(MAX_OBJECT_MESSAGE_BYTES);
        let mut lists = ipc::subscribe("objects", move || {
            let mut client = watching.clone();
            async move { client.watch_objects(v1::WatchObjectsRequest {}).await }
        });
        loop {
            tokio::select! {
                // A whole node must run the same way for the same seed of
                // `tests/simulation`.
                biased;
                // Cancel-safe: a subscription only receives from a channel.
                event = lists.next() => {
                    if let SubscriptionEvent::Message(list) = event && list.is_read {
                        self.listed(object_list(list));
                    }
                }
                // What is dropped half-way is fetched again.
                () = self.fetch_next(&client) => {}
            }
        }
    }

    async fn fetch_next(&self, client: &ObjectsClient<Channel>) {
        let next = self.table().to_fetch();
        let Some((reference, version)) = next else {
            self.0.wanted.notified().await;
            return;
        };
        let request = v1::GetObjectRequest {
            kind: reference.kind.name().to_owned(),
            namespace: reference.namespace.clone(),
            name: reference.name.clone(),
            version: version.clone(),
        };
        let answer = ipc::call(DEADLINE, || {
            let mut client = client.clone();
            let request = request.clone();
            async move { client.get_object(request).await }
        });
        let fetched = match answer.await {
            Ok(answer) => object(answer, &reference, &version),
            Err(error) => Err(telemetry::chain(&error)),
        };
        match fetched {
            Ok(object) => self.fetched(object),
            Err(reason) => {
                // Another version by now is told by the next list.
                tracing::warn!(object = %reference, reason, "an object cannot be fetched yet");
                tokio::time::sleep(RETRY).await;
            }
        }
    }
}

fn object_list(list: v1::WatchObjectsResponse) -> ObjectList {
    let versions = list.objects.into_iter().filter_map(|object| {
        let reference = ObjectRef {
            kind: ObjectKind::parse(&object.kind)?,
            namespace: object.namespace,
            name: object.name,
        };
        Some((reference, object.version))
    });
    ObjectList {
        incomplete: list.incomplete,
        versions: versions.collect(),
    }
}

/// The object of an answer, if it is the one that was asked for.
fn object(
    answer: v1::GetObjectResponse,
    asked: &ObjectRef,
    version: &str,
) -> Result<LocalObject, String> {
    let object = answer.object.ok_or("the answer has no object")?;
    let is_asked = object.kind == asked.kind.name()
        && object.namespace == asked.namespace
        && object.name == asked.name
        && object.version == version;
    if !is_asked {
        return Err("the answer is another object, or another version".to_owned());
    }
    let mut data = BTreeMap::new();
    let mut binary_keys = BTreeSet::new();
    if object.data.len() > MAX_OBJECT_KEYS {
        return Err("the object has more keys than any may have".to_owned());
    }
    for v1::ObjectValue { key, value, binary } in object.data {
        if binary {
            binary_keys.insert(key.clone());
        }
        data.insert(key, value.into());
    }
    Ok(LocalObject {
        reference: asked.clone(),
        version: object.version,
        data,
        binary_keys,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked() -> ObjectRef {
        ObjectRef {
            kind: ObjectKind::Secret,
            namespace: "d".to_owned(),
            name: "s".to_owned(),
        }
    }

    #[test]
    fn only_the_object_and_the_version_that_was_asked_for_is_taken() {
        let good = v1::LocalObject {
            kind: "Secret".to_owned(),
            namespace: "d".to_owned(),
            name: "s".to_owned(),
            version: "1".to_owned(),
            data: vec![v1::ObjectValue {
                key: "k".to_owned(),
                value: b"hunter2".to_vec(),
                binary: false,
            }],
        };
        let answered = |object: v1::LocalObject| {
            let answer = v1::GetObjectResponse {
                object: Some(object),
            };
            object_of(answer)
        };
        assert_eq!(
            answered(good.clone()).unwrap().data["k"].as_slice(),
            b"hunter2"
        );
        type Change = fn(&mut v1::LocalObject);
        let changes: [Change; 4] = [
            |it| it.kind = "ConfigMap".to_owned(),
            |it| it.namespace = "other".to_owned(),
            |it| it.name = "other".to_owned(),
            |it| it.version = "2".to_owned(),
        ];
        for change in changes {
            let mut object = good.clone();
            change(&mut object);
            assert!(answered(object).is_err());
        }
        assert!(object_of(v1::GetObjectResponse::default()).is_err());
    }

    fn object_of(answer: v1::GetObjectResponse) -> Result<LocalObject, String> {
        object(answer, &asked(), "1")
    }

    #[test]
    fn no_log_of_a_message_shows_a_secret() {
        let value = v1::ObjectValue {
            key: "k".to_owned(),
            value: b"hunter2".to_vec(),
            binary: false,
        };
        let text = format!("{value:?}");
        assert!(text.contains("7 bytes") && !text.contains("104"), "{text}");
    }
}
