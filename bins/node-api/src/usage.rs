//! What the node and its pods use, and since when each of them has run.

use std::collections::BTreeMap;
use std::sync::Arc;

use bulkhead_api::v1;
use ipc::CallError;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::PodStatus;

use crate::node::Node;

/// One look.
pub(crate) struct Look {
    pub(crate) node: v1::NodeUsage,
    pub(crate) pods: Vec<v1::PodUsage>,
    pub(crate) starts: Starts,
}

/// When pods and containers have started.
#[derive(Default)]
pub(crate) struct Starts {
    /// By UID.
    pub(crate) pods: BTreeMap<String, Timestamp>,
    /// By the container's id.
    pub(crate) containers: BTreeMap<String, Timestamp>,
}

/// Looks once.
pub(crate) async fn look(node: &Arc<Node>) -> Result<Look, CallError> {
    let (report, statuses) = (node.usage().await?, node.statuses(None).await?);
    let mut starts = Starts::default();
    for pod in statuses {
        let status: PodStatus = serde_json::from_slice(&pod.status).unwrap_or_default();
        starts.add(pod.reference.unwrap_or_default().uid, &status);
    }
    Ok(Look {
        node: report.node.unwrap_or_default(),
        pods: report.pods,
        starts,
    })
}

/// What all containers of a pod use of something; none where nobody knows of any.
pub(crate) fn sum(
    pod: &v1::PodUsage,
    part: impl Fn(&v1::ContainerUsage) -> Option<u64>,
) -> Option<u64> {
    let known = pod.containers.iter().filter_map(part);
    known.reduce(u64::saturating_add)
}

impl Starts {
    fn add(&mut self, uid: String, status: &PodStatus) {
        if let Some(start) = &status.start_time {
            self.pods.insert(uid, start.0);
        }
        let lists = [
            &status.container_statuses,
            &status.init_container_statuses,
            &status.ephemeral_container_statuses,
        ];
        for container in lists.into_iter().flatten().flatten() {
            let running = container.state.as_ref().and_then(|it| it.running.as_ref());
            let start = running.and_then(|running| running.started_at.as_ref());
            // The runtime's name stands before the id.
            let id = container.container_id.as_deref();
            let id = id.and_then(|id| id.split_once("://"));
            if let (Some(start), Some((_, id))) = (start, id) {
                self.containers.insert(id.to_owned(), start.0);
            }
        }
    }
}
