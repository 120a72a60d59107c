//! The programs that are asked for credentials of registries, as a
//! `CredentialProviderConfig` of a kubelet names them.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// All programs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CredentialProviders {
    /// `--image-credential-provider-bin-dir`.
    pub bin_dir: PathBuf,
    /// `providers`, in their order.
    pub providers: Vec<CredentialProvider>,
}

/// One program. Its Debug form shows no value of its environment and no argument.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CredentialProvider {
    /// `name`: the program's file in the directory.
    pub name: String,
    /// `matchImages`: the images that it is asked for.
    pub match_images: Vec<String>,
    /// `defaultCacheDuration`: how long an answer counts that does not say so itself.
    pub default_cache_duration: Duration,
    /// `args`.
    pub args: Vec<String>,
    /// `env`; may hold secrets.
    pub env: BTreeMap<String, String>,
}

impl fmt::Debug for CredentialProvider {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("CredentialProvider")
            .field("name", &self.name)
            .field("match_images", &self.match_images)
            .finish_non_exhaustive()
    }
}

impl CredentialProviders {
    /// The same without what may be secret, for whoever does not run the programs.
    #[must_use]
    pub fn without_secrets(&self) -> CredentialProviders {
        let mut public = self.clone();
        for provider in &mut public.providers {
            provider.args.clear();
            provider.env.clear();
        }
        public
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_and_environment_are_neither_public_nor_in_debug() {
        let secret = || "hunter2".to_owned();
        let all = CredentialProviders {
            bin_dir: "/bin".into(),
            providers: vec![CredentialProvider {
                name: "ecr".to_owned(),
                match_images: vec!["a.io".to_owned()],
                default_cache_duration: Duration::ZERO,
                args: vec![secret()],
                env: [("TOKEN".to_owned(), secret())].into(),
            }],
        };
        assert!(!format!("{all:?}").contains("hunter2"));
        let public = serde_json::to_string(&all.without_secrets()).unwrap();
        assert!(
            public.contains("ecr") && !public.contains("hunter2"),
            "{public}"
        );
    }
}
