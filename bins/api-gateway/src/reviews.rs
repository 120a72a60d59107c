//! The service of reviews.

use std::sync::Arc;

use bulkhead_api::v1;
use bulkhead_api::v1::api_reviews_server::ApiReviews;
use tonic::{Request, Response, Status};

use crate::client::{Answer, ApiRequest, Client};
use crate::pace::Lane;
use crate::review::{self, ReviewError};

/// Asks the API server about the clients of the node.
pub(crate) struct Reviews {
    pub(crate) node_name: Arc<str>,
    pub(crate) requests: Arc<Client>,
}

impl Reviews {
    async fn ask(&self, request: &ApiRequest) -> Result<Answer, Status> {
        let answered = self.requests.send(Lane::Review, request).await;
        answered.map_err(|error| Status::unavailable(telemetry::chain(&error)))
    }
}

#[tonic::async_trait]
impl ApiReviews for Reviews {
    async fn review_token(
        &self,
        request: Request<v1::ReviewTokenRequest>,
    ) -> Result<Response<v1::ReviewTokenResponse>, Status> {
        let request = review::token_request(&request.into_inner().token)?;
        let answer = self.ask(&request).await?;
        Ok(Response::new(review::token_verdict(&answer)?))
    }

    async fn review_access(
        &self,
        request: Request<v1::ReviewAccessRequest>,
    ) -> Result<Response<v1::ReviewAccessResponse>, Status> {
        let request = review::access_request(request.into_inner(), &self.node_name)?;
        let answer = self.ask(&request).await?;
        Ok(Response::new(review::access_verdict(&answer)?))
    }
}

impl From<ReviewError> for Status {
    fn from(error: ReviewError) -> Status {
        let text = error.to_string();
        match error {
            ReviewError::Question(_) => Status::invalid_argument(text),
            ReviewError::Answer { .. } => Status::unavailable(text),
        }
    }
}
