//! `RuntimePods`: what pleg asks for.

use std::pin::Pin;
use std::sync::Arc;

use bulkhead_api::v1;
use futures_util::stream;
use pod::identity::check_uid;
use tokio_stream::Stream;
use tonic::{Request, Response, Status};

use super::shared::Shared;
use super::status;

pub(super) struct Service(pub(super) Shared);

#[tonic::async_trait]
impl v1::runtime_pods_server::RuntimePods for Service {
    type WatchHintsStream =
        Pin<Box<dyn Stream<Item = Result<v1::WatchHintsResponse, Status>> + Send>>;

    async fn list_pods(
        &self,
        request: Request<v1::ListPodsRequest>,
    ) -> Result<Response<v1::ListPodsResponse>, Status> {
        let uid = request.into_inner().pod_uid;
        let listed = if uid.is_empty() {
            self.0.relister.all().await
        } else {
            check_uid(&uid).map_err(|error| status::of_identity(&error))?;
            self.0.relister.one(&uid).await.map(Arc::new)
        };
        let relist = listed.map_err(|error| status::of_runtime(&error))?;
        Ok(Response::new(v1::ListPodsResponse {
            boot_id: self.0.boot_id.clone(),
            pods: relist.pods.values().map(Into::into).collect(),
        }))
    }

    async fn watch_hints(
        &self,
        _request: Request<v1::WatchHintsRequest>,
    ) -> Result<Response<Self::WatchHintsStream>, Status> {
        let boot_id = self.0.boot_id.clone();
        let watch = self.0.hints.watch();
        let messages = stream::unfold((watch, boot_id), |(mut watch, boot_id)| async move {
            let message = watch.next().await?;
            let response = v1::WatchHintsResponse {
                boot_id: boot_id.clone(),
                message: Some(message),
            };
            Some((Ok(response), (watch, boot_id)))
        });
        Ok(Response::new(Box::pin(messages)))
    }
}
