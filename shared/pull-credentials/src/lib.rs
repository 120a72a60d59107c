//! Credentials of registries as Docker keeps them (`config.json`), and which of them are
//! for an image, as a kubelet decides it. Pure.
//!
//! Reading the file and giving what is in it to the runtime is pod-worker-pool's work.

mod credential;
mod docker_config;
mod keyring;
mod pod_secrets;
mod registry;

pub use credential::Credential;
pub use docker_config::CredentialsError;
pub use keyring::Keyring;
pub use pod_secrets::{PodSecrets, SecretError};
pub use registry::ImagePattern;

/// Most bytes of a file with credentials: as many as an API server takes for a Secret.
pub const MAX_CREDENTIALS_BYTES: usize = 1 << 20;
