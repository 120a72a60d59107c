//! The way to config-sourcer for the Services of the cluster, of which containers are told.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bulkhead_api::v1;
use bulkhead_api::v1::services_client::ServicesClient;
use ipc::limits::MAX_SERVICE_MESSAGE_BYTES;
use ipc::{Channel, SubscriptionEvent};
use local_objects::{ServiceReader, Services, service_variables};
use pod::{Pod, PodExt as _, PodSource};
use tokio::sync::watch;

/// How long a container that is about to be made waits for the first list.
const WAIT: Duration = Duration::from_secs(2);

/// Nobody has told which Services there are, in the kubelet's words.
#[derive(Debug, thiserror::Error)]
#[error("services have not yet been read at least once, cannot construct envvars")]
pub(crate) struct NotRead;

/// The Services, as soon as all are known. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct ServiceSource(watch::Sender<Option<Arc<Services>>>);

impl ServiceSource {
    /// The variables that tell a pod's containers of Services. Where the pod came from the
    /// API server, its Services come from there too, and are waited for.
    pub(crate) async fn variables(
        &self,
        pod: &Pod,
        source: PodSource,
    ) -> Result<BTreeMap<String, String>, NotRead> {
        let mut listed = self.0.subscribe();
        if source == PodSource::Api {
            let known = tokio::time::timeout(WAIT, listed.wait_for(Option::is_some)).await;
            if !matches!(known, Ok(Ok(_))) {
                return Err(NotRead);
            }
        }
        let services = listed.borrow().clone().unwrap_or_default();
        let links = pod.spec.as_ref().and_then(|spec| spec.enable_service_links);
        let told = services.of_pod(pod.namespace(), links.unwrap_or(true));
        Ok(service_variables(&told))
    }

    /// All Services are these.
    pub(crate) fn set(&self, services: Services) {
        self.0.send_replace(Some(Arc::new(services)));
    }

    /// Follows config-sourcer for ever.
    pub(crate) async fn run(self, channel: Channel) -> Infallible {
        let client =
            ServicesClient::new(channel).max_decoding_message_size(MAX_SERVICE_MESSAGE_BYTES);
        let mut changes = ipc::subscribe("services", move || {
            let mut client = client.clone();
            async move { client.watch_services(v1::WatchServicesRequest {}).await }
        });
        let mut reader = ServiceReader::default();
        loop {
            match changes.next().await {
                SubscriptionEvent::Connected | SubscriptionEvent::Lost { .. } => {
                    reader.begin_anew();
                }
                SubscriptionEvent::Message(change) => {
                    if reader.take(change)
                        && let Some(services) = reader.services()
                    {
                        self.set(services.clone());
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn only_pods_of_the_api_server_wait_until_its_services_are_known() {
        let (source, pod) = (ServiceSource::default(), Pod::default());
        let of = |from| source.variables(&pod, from);
        assert_eq!(of(PodSource::File).await.unwrap(), BTreeMap::new());
        let message = of(PodSource::Api).await.unwrap_err().to_string();
        assert!(message.starts_with("services have not yet been read"));
        let arrives = async {
            tokio::time::sleep(WAIT / 2).await;
            source.set(Services::default());
        };
        let (variables, ()) = tokio::join!(of(PodSource::Api), arrives);
        assert_eq!(variables.unwrap(), BTreeMap::new());
    }
}
