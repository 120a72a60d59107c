//! The way to credential-provider: credentials that programs of the node give for an image.
//! It is asked just before a pull, and only for images that the configuration names.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bulkhead_api::v1;
use bulkhead_api::v1::credential_provider_client::CredentialProviderClient;
use ipc::limits::truncate;
use ipc::{CallError, Channel, Network};
use node_config::CredentialProviders;
use process::Context;
use pull_credentials::{Credential, ImagePattern};
use topology::Process;

/// Deadline of GetCredentials, as the interface says.
const DEADLINE: Duration = Duration::from_secs(65);

/// Largest answer, as the interface says.
const MAX_ANSWER_BYTES: usize = 1 << 20;

/// Most failures of an answer that are told.
const MAX_FAILURES: usize = 8;

/// Longest text about one of them.
const MAX_REASON_BYTES: usize = 512;

/// Programs that give credentials. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct CredentialPrograms(Option<Arc<Inner>>);

#[derive(Debug)]
struct Inner {
    client: CredentialProviderClient<Channel>,
    /// Those of all programs.
    images: Vec<ImagePattern>,
    /// Whether the last that was heard of credential-provider is that it does not answer.
    is_away: AtomicBool,
}

/// What is known for an image.
#[derive(Default)]
pub(super) struct Given {
    /// In the order in which they are to be tried.
    pub(super) credentials: Vec<Credential>,
    /// For people: what gave nothing, and why.
    pub(super) problems: Vec<String>,
}

impl CredentialPrograms {
    /// Those of this node.
    pub(crate) fn of(context: &Context) -> CredentialPrograms {
        let configured = context.config.credential_providers.as_ref();
        CredentialPrograms::new(configured, &context.network)
    }

    /// Those of a configuration, if it has any. The connection to credential-provider is
    /// made when it is first used.
    fn new(configured: Option<&CredentialProviders>, network: &Network) -> CredentialPrograms {
        let Some(configured) = configured else {
            return CredentialPrograms::default();
        };
        let channel = network.channel(Process::CredentialProvider);
        let images = configured.providers.iter().flat_map(|it| &it.match_images);
        CredentialPrograms(Some(Arc::new(Inner {
            client: CredentialProviderClient::new(channel)
                .max_decoding_message_size(MAX_ANSWER_BYTES),
            // The supervisor has refused a configuration with others.
            images: images
                .filter_map(|it| ImagePattern::parse(it).ok())
                .collect(),
            is_away: AtomicBool::new(false),
        })))
    }

    /// What the programs give for the images of a repository. Takes at most [`DEADLINE`].
    pub(super) async fn ask(&self, repository: &str) -> Given {
        match &self.0 {
            Some(inner) if inner.images.iter().any(|it| it.matches(repository)) => {
                inner.ask(repository).await
            }
            _ => Given::default(),
        }
    }
}

impl Inner {
    async fn ask(&self, repository: &str) -> Given {
        let answer = ipc::call(DEADLINE, || {
            let mut client = self.client.clone();
            let repository = repository.to_owned();
            async move {
                let request = v1::GetCredentialsRequest { repository };
                client.get_credentials(request).await
            }
        });
        let answer = answer.await;
        self.note(answer.as_ref().err());
        match answer {
            Ok(answer) => given(answer),
            Err(error) => Given {
                credentials: Vec::new(),
                problems: vec![format!("credential-provider: {}", telemetry::chain(&error))],
            },
        }
    }

    /// Logs when credential-provider goes away and comes back, once for all pulls.
    fn note(&self, error: Option<&CallError>) {
        match error.map(|error| telemetry::chain(error)) {
            Some(error) => {
                if !self.is_away.swap(true, Ordering::Relaxed) {
                    tracing::warn!(error, "credential-provider gives no credentials");
                }
            }
            None => {
                if self.is_away.swap(false, Ordering::Relaxed) {
                    tracing::info!("credential-provider answers again");
                }
            }
        }
    }
}

fn given(answer: v1::GetCredentialsResponse) -> Given {
    let credentials = answer.credentials.into_iter();
    let credentials = credentials.map(|it| Credential::Password {
        username: it.username,
        password: it.password,
    });
    let failures = answer.failures.into_iter().take(MAX_FAILURES);
    let problems = failures.map(|failure| {
        let mut text = format!("{}: {}", failure.provider, failure.reason);
        truncate(&mut text, MAX_REASON_BYTES);
        text
    });
    Given {
        credentials: credentials.collect(),
        problems: problems.collect(),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::Mutex;

    use bulkhead_api::v1::credential_provider_server::{
        CredentialProvider, CredentialProviderServer,
    };
    use memory_network::MemoryHub;
    use tokio_util::sync::CancellationToken;
    use tokio_util::task::AbortOnDropHandle;
    use tonic::service::Routes;
    use tonic::{Request, Response, Status};
    use topology::Identities;

    use super::*;

    /// Gives `joe:hunter2` for every image, and tells of one failure.
    struct Fake(Arc<Mutex<Vec<String>>>);

    #[tonic::async_trait]
    impl CredentialProvider for Fake {
        async fn get_credentials(
            &self,
            request: Request<v1::GetCredentialsRequest>,
        ) -> Result<Response<v1::GetCredentialsResponse>, Status> {
            self.0.lock().unwrap().push(request.into_inner().repository);
            Ok(Response::new(v1::GetCredentialsResponse {
                credentials: vec![v1::PullCredential {
                    username: "joe".to_owned(),
                    password: "hunter2".to_owned(),
                }],
                failures: vec![v1::ProviderFailure {
                    provider: "gcr".to_owned(),
                    reason: "r".repeat(2 * MAX_REASON_BYTES),
                }],
            }))
        }
    }

    /// A credential-provider that is configured for images of `a.io`.
    pub(in super::super) struct Provider {
        pub(in super::super) programs: CredentialPrograms,
        pub(in super::super) asked: Arc<Mutex<Vec<String>>>,
        _serving: AbortOnDropHandle<()>,
    }

    pub(in super::super) fn provider() -> Provider {
        let identities = Arc::new(Identities::from_base(20_000).unwrap());
        let (hub, asked) = (MemoryHub::default(), Arc::default());
        let server = Process::CredentialProvider;
        let serving = ipc::serve(
            server,
            Arc::clone(&identities),
            hub.listener(server),
            Routes::new(CredentialProviderServer::new(Fake(Arc::clone(&asked)))),
            CancellationToken::new(),
        );
        let network = hub.network(Process::PodWorkerPool, &identities);
        let configured = CredentialProviders {
            bin_dir: "/programs".into(),
            providers: vec![node_config::CredentialProvider {
                name: "ecr".to_owned(),
                match_images: vec!["a.io".to_owned()],
                default_cache_duration: Duration::ZERO,
                args: Vec::new(),
                env: std::collections::BTreeMap::new(),
            }],
        };
        Provider {
            programs: CredentialPrograms::new(Some(&configured), &network),
            asked,
            _serving: AbortOnDropHandle::new(tokio::spawn(async move {
                serving.await.unwrap();
            })),
        }
    }

    #[tokio::test]
    async fn only_for_images_of_the_configuration_anybody_is_asked() {
        let provider = provider();
        let given = provider.programs.ask("b.io/web").await;
        assert!(given.credentials.is_empty() && given.problems.is_empty());
        assert!(provider.asked.lock().unwrap().is_empty());
        let given = provider.programs.ask("a.io/web").await;
        assert_eq!(given.credentials.len(), 1);
        assert_eq!(given.problems[0].len(), MAX_REASON_BYTES);
        assert_eq!(*provider.asked.lock().unwrap(), ["a.io/web"]);
        assert!(!format!("{:?}", given.credentials).contains("hunter2"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_credential_provider_that_is_away_is_a_problem_and_no_more() {
        let Provider {
            programs, _serving, ..
        } = provider();
        drop(_serving);
        let given = programs.ask("a.io/web").await;
        assert!(given.credentials.is_empty());
        assert!(given.problems[0].starts_with("credential-provider: "));
    }
}
