//! The service.

use bulkhead_api::v1;
use ipc::limits::truncate;
use pull_credentials::Credential;
use tonic::{Request, Response, Status};

use crate::programs::{FoundCredentials, Programs};

/// Longest name of an image that is asked for.
const MAX_REPOSITORY_BYTES: usize = 1 << 10;

/// Most credentials of an answer: pod-worker-pool tries as many.
const MAX_CREDENTIALS: usize = 16;

/// Longest reason of a failure.
const MAX_REASON_BYTES: usize = 1 << 10;

/// Answers by the programs.
pub(crate) struct Server(pub(crate) Programs);

#[tonic::async_trait]
impl v1::credential_provider_server::CredentialProvider for Server {
    async fn get_credentials(
        &self,
        request: Request<v1::GetCredentialsRequest>,
    ) -> Result<Response<v1::GetCredentialsResponse>, Status> {
        let repository = request.into_inner().repository;
        if repository.is_empty()
            || repository.len() > MAX_REPOSITORY_BYTES
            || !repository.chars().all(|it| it.is_ascii_graphic())
        {
            return Err(Status::invalid_argument("repository is no image's name"));
        }
        Ok(Response::new(message(self.0.ask(&repository).await)))
    }
}

fn message(found: FoundCredentials) -> v1::GetCredentialsResponse {
    let credentials = found.credentials.into_iter();
    let credentials = credentials.filter_map(|credential| match credential {
        Credential::Password { username, password } => {
            Some(v1::PullCredential { username, password })
        }
        // Programs cannot give one.
        Credential::IdentityToken(_) => None,
    });
    let failures = found.failures.into_iter().map(|(provider, mut reason)| {
        truncate(&mut reason, MAX_REASON_BYTES);
        v1::ProviderFailure { provider, reason }
    });
    v1::GetCredentialsResponse {
        credentials: credentials.take(MAX_CREDENTIALS).collect(),
        failures: failures.collect(),
    }
}
