//! What the API server holds of the pods of this node, and of the Node. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use bulkhead_api::v1;
use bulkhead_api::v1::watch_api_reports_response::Message;
use pod::PodPhase;
use pod::core::{Pod, PodCondition, PodStatus};
use pod::metadata::CONFIG_MIRROR_ANNOTATION;
use serde_json::Value;
use tokio::sync::watch;

use crate::status;

/// The Node as the API server holds it: null where there is none of this name, nothing before
/// the API server has said so.
pub(crate) type HeldNode = watch::Receiver<Option<Arc<Value>>>;

/// One pod.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct HeldPod {
    pub(crate) reference: v1::PodReference,
    /// Of a mirror: the hash of its static pod.
    pub(crate) mirror_of: Option<String>,
    pub(crate) is_deleted: bool,
    pub(crate) status: PodStatus,
}

impl HeldPod {
    /// From JSON of a pod without its spec.
    ///
    /// # Errors
    /// When it is none.
    pub(crate) fn parse(json: &[u8]) -> Result<HeldPod, serde_json::Error> {
        let pod: Pod = serde_json::from_slice(json)?;
        let mut annotations = pod.metadata.annotations.unwrap_or_default();
        Ok(HeldPod {
            reference: v1::PodReference {
                uid: pod.metadata.uid.unwrap_or_default(),
                namespace: pod.metadata.namespace.unwrap_or_default(),
                name: pod.metadata.name.unwrap_or_default(),
            },
            mirror_of: annotations.remove(CONFIG_MIRROR_ANNOTATION),
            is_deleted: pod.metadata.deletion_timestamp.is_some(),
            status: pod.status.unwrap_or_default(),
        })
    }

    /// The conditions that others have set.
    pub(crate) fn conditions_of_others(&self) -> Vec<PodCondition> {
        let all = self.status.conditions.iter().flatten();
        all.filter(|it| !status::OWNED_CONDITIONS.contains(&it.type_.as_str()))
            .cloned()
            .collect()
    }

    /// Whether the API server says that it has ended.
    pub(crate) fn is_terminal(&self) -> bool {
        let phase = self.status.phase.as_deref().and_then(PodPhase::parse);
        phase.is_some_and(PodPhase::is_terminal)
    }
}

/// Of what something is new.
#[derive(Debug, PartialEq)]
pub(crate) enum News {
    Nothing,
    Pod(v1::PodReference),
    /// Of anything.
    All,
}

/// All pods by UID, as far as they are known, and the Node.
#[derive(Debug)]
pub(crate) struct HeldPods {
    pods: BTreeMap<String, HeldPod>,
    arriving: Option<BTreeMap<String, HeldPod>>,
    /// None while there is no Node, or it is being deleted.
    node_uid: Option<String>,
    node: watch::Sender<Option<Arc<Value>>>,
}

impl HeldPods {
    /// Of which nothing is known. What becomes known of the Node goes to `node`.
    pub(crate) fn new(node: watch::Sender<Option<Arc<Value>>>) -> HeldPods {
        HeldPods {
            pods: BTreeMap::new(),
            arriving: None,
            node_uid: None,
            node,
        }
    }

    /// Takes a message in.
    pub(crate) fn on(&mut self, message: Message) -> News {
        match message {
            Message::SnapshotBegin(_) => {
                self.arriving = Some(BTreeMap::new());
                News::Nothing
            }
            Message::Pod(pod) => match HeldPod::parse(&pod.json) {
                Ok(pod) => self.take(pod),
                Err(error) => {
                    tracing::warn!(%error, "a pod of the API server cannot be read");
                    News::Nothing
                }
            },
            Message::SnapshotEnd(_) => {
                self.pods = self.arriving.take().unwrap_or_default();
                News::All
            }
            Message::RemovedPodUid(uid) => {
                let pods = self.arriving.as_mut().unwrap_or(&mut self.pods);
                match pods.remove(&uid) {
                    Some(pod) => News::Pod(pod.reference),
                    None => News::Nothing,
                }
            }
            Message::Node(json) => {
                // Absent: empty, which is no JSON.
                let node: Value = serde_json::from_slice(&json).unwrap_or_default();
                let metadata = &node["metadata"];
                let is_deleted = !metadata["deletionTimestamp"].is_null();
                let uid = metadata["uid"].as_str().filter(|_| !is_deleted);
                let uid = uid.map(str::to_owned);
                self.node.send_replace(Some(Arc::new(node)));
                match uid == self.node_uid {
                    true => News::Nothing,
                    false => {
                        self.node_uid = uid;
                        News::All
                    }
                }
            }
        }
    }

    /// An answer of the API server has the pod, newer than what was known.
    pub(crate) fn take(&mut self, pod: HeldPod) -> News {
        let reference = pod.reference.clone();
        match &mut self.arriving {
            Some(arriving) => {
                arriving.insert(reference.uid, pod);
                News::Nothing
            }
            None => {
                self.pods.insert(reference.uid.clone(), pod);
                News::Pod(reference)
            }
        }
    }

    /// The API server has taken the last DELETE of a pod. Where finalizers keep it, the next
    /// message says so.
    pub(crate) fn forget(&mut self, uid: &str) {
        self.pods.remove(uid);
    }

    /// A pod that is no mirror.
    pub(crate) fn pod(&self, uid: &str) -> Option<&HeldPod> {
        self.pods.get(uid).filter(|pod| pod.mirror_of.is_none())
    }

    /// All pods, by UID.
    pub(crate) fn uids(&self) -> impl Iterator<Item = &String> {
        self.pods.keys()
    }

    /// The mirror of this name.
    pub(crate) fn mirror(&self, namespace: &str, name: &str) -> Option<&HeldPod> {
        self.mirrors()
            .find(|mirror| mirror.reference.namespace == namespace && mirror.reference.name == name)
    }

    pub(crate) fn mirrors(&self) -> impl Iterator<Item = &HeldPod> {
        self.pods.values().filter(|pod| pod.mirror_of.is_some())
    }

    /// The Node's UID, where there is one that stays.
    pub(crate) fn node_uid(&self) -> Option<&str> {
        self.node_uid.as_deref()
    }
}
