//! The process: the service until shutdown.

use bulkhead_api::v1::credential_provider_server::CredentialProviderServer;
use node_config::CredentialProviders;
use process::Context;
use tonic::service::Routes;

use crate::programs::Programs;
use crate::server::Server;

/// Largest request that is only a question.
const MAX_QUESTION_BYTES: usize = 4096;

/// Largest answer: sixteen credentials of 32 KiB, and reasons.
const MAX_ANSWER_BYTES: usize = 1 << 20;

/// Root: the programs are its own.
const OWNER: u32 = 0;

/// Why the process ended.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The socket failed.
    #[error("cannot go on serving")]
    Serve(#[from] ipc::ServeError),
}

/// Serves until shutdown. Nothing is opened before: programs are looked at when they are
/// run.
///
/// # Errors
/// When the listening socket fails.
pub async fn serve(context: Context) -> Result<(), Error> {
    let configured = context.config.credential_providers.clone();
    let configured = configured.unwrap_or_else(|| CredentialProviders {
        bin_dir: context.config.directories.bin_dir.clone(),
        providers: Vec::new(),
    });
    let names: Vec<&str> = configured
        .providers
        .iter()
        .map(|it| it.name.as_str())
        .collect();
    context
        .lifecycle
        .set_status(&format!("programs: {}", names.join(", ")));
    let server = CredentialProviderServer::new(Server(Programs::new(configured, OWNER)))
        .max_decoding_message_size(MAX_QUESTION_BYTES)
        .max_encoding_message_size(MAX_ANSWER_BYTES);
    let serving = ipc::serve(
        context.process,
        context.identities,
        context.listener,
        Routes::new(server),
        context.lifecycle.shutdown(),
    );
    context.lifecycle.ready();
    // All in one task, so that a beat proves that nothing blocks.
    tokio::select! {
        result = serving => Ok(result?),
        never = context.lifecycle.keep_beating() => match never {},
    }
}
