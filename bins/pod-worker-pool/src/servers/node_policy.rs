//! `NodePolicy`: what the operator asks about the policy in force.

use bulkhead_api::v1;
use tonic::{Request, Response, Status};

use super::shared::Shared;

pub(super) struct Service(pub(super) Shared);

#[tonic::async_trait]
impl v1::node_policy_server::NodePolicy for Service {
    async fn get_policy(
        &self,
        _request: Request<v1::GetPolicyRequest>,
    ) -> Result<Response<v1::PolicyReport>, Status> {
        Ok(Response::new(self.0.policy.report()))
    }
}
