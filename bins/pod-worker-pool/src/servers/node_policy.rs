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
        let boot_id = self.0.boot_id.clone();
        Ok(Response::new(self.0.policy.report(boot_id)))
    }
}
