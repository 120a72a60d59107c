//! The policy of a node: the file's content, parsed and checked.

use std::sync::Arc;

use pod::{Pod, PodSource};
use serde::{Deserialize, Serialize};
use toml::Spanned;

use crate::grant::Grant;
use crate::level::Level;
use crate::permit::{Denial, Permit};
use crate::pod_demands::demands_of;
use crate::protected::Protected;
use crate::subject::Subject;

/// Largest policy file, in bytes: a thousand grants fit.
pub const MAX_POLICY_BYTES: usize = 1 << 20;

/// Most grants of a policy. Each pod is held against each of them when it is judged.
pub const MAX_GRANTS: usize = 4096;

/// Whether refusals count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// A refused pod does not run.
    #[default]
    Enforce,
    /// Refusals are reported, and the pod runs.
    Audit,
}

/// What happens to pods that run already when a policy that refuses them comes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RunningPods {
    /// Their containers run on, and nothing new is started for them.
    #[default]
    Keep,
    /// They are ended.
    End,
}

/// The level of each source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Levels {
    /// Pods of the manifest directory.
    pub file: Level,
    /// Pods of the manifest URL.
    pub http: Level,
    /// Pods of an API server.
    pub api: Level,
}

impl Default for Levels {
    fn default() -> Levels {
        Levels {
            file: Level::Baseline,
            http: Level::Baseline,
            api: Level::Baseline,
        }
    }
}

/// Why a policy cannot be used. Lines are counted from 1.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// There is too much of it.
    #[error("the policy has {bytes} bytes, more than {MAX_POLICY_BYTES}")]
    TooLarge {
        /// Its size.
        bytes: usize,
    },
    /// There are too many grants.
    #[error("the policy has {grants} grants, more than {MAX_GRANTS}")]
    TooManyGrants {
        /// How many.
        grants: usize,
    },
    /// It is not TOML, or a key or value is not one that a policy has.
    #[error("line {line}: {message}")]
    Content {
        /// Where.
        line: usize,
        /// What is wrong.
        message: String,
    },
}

/// What pods may be on this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    mode: Mode,
    running_pods: RunningPods,
    levels: Levels,
    grants: Vec<Arc<Grant>>,
    protected: Arc<Protected>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Document {
    mode: Mode,
    running_pods: RunningPods,
    sources: Levels,
    grants: Vec<Spanned<Grant>>,
}

impl Policy {
    /// The policy of a node that has no policy file: `baseline` for every source, and
    /// no grants.
    #[must_use]
    pub fn without_file(protected: Protected) -> Policy {
        Policy {
            mode: Mode::default(),
            running_pods: RunningPods::default(),
            levels: Levels::default(),
            grants: Vec::new(),
            protected: Arc::new(protected),
        }
    }

    /// Parses a policy file.
    ///
    /// # Errors
    /// When it is too large, is not TOML, or has a key or value that no policy has.
    pub fn parse(text: &str, protected: Protected) -> Result<Policy, PolicyError> {
        if text.len() > MAX_POLICY_BYTES {
            return Err(PolicyError::TooLarge { bytes: text.len() });
        }
        let document: Document = toml::from_str(text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            let meant = value_errors::did_you_mean(error.message());
            content_error(text, at, meant.as_deref().unwrap_or(error.message()))
        })?;
        if document.grants.len() > MAX_GRANTS {
            let grants = document.grants.len();
            return Err(PolicyError::TooManyGrants { grants });
        }
        let mut grants = Vec::with_capacity(document.grants.len());
        for grant in document.grants {
            let at = grant.span().start;
            let grant = grant.into_inner();
            check(&grant).map_err(|message| content_error(text, at, message))?;
            grants.push(Arc::new(grant));
        }
        Ok(Policy {
            mode: document.mode,
            running_pods: document.running_pods,
            levels: document.sources,
            grants,
            protected: Arc::new(protected),
        })
    }

    /// The same policy with further grants.
    #[must_use]
    pub fn with_grants(mut self, grants: impl IntoIterator<Item = Grant>) -> Policy {
        self.grants.extend(grants.into_iter().map(Arc::new));
        self
    }

    /// What a pod may have.
    #[must_use]
    pub fn permit_for(&self, subject: &Subject) -> Permit {
        let grants = self.grants.iter().filter(|grant| grant.is_for_pod(subject));
        Permit {
            subject: subject.clone(),
            level: self.level(subject.source),
            grants: grants.cloned().collect(),
            protected: Arc::clone(&self.protected),
        }
    }

    /// What a pod may have, if that is all that it asks for.
    ///
    /// # Errors
    /// Everything that it asks for and may not have.
    pub fn judge(&self, subject: &Subject, pod: &Pod) -> Result<Permit, Vec<Denial>> {
        let permit = self.permit_for(subject);
        let mut denials: Vec<Denial> = Vec::new();
        for demand in demands_of(pod) {
            let image = demand.container.as_ref().map(|(_, image)| image.as_str());
            if let Err(refusal) = permit.check(&demand.demand, image) {
                denials.push(Denial {
                    field: demand.field,
                    container: demand.container.map(|(name, _)| name),
                    refusal,
                });
            }
        }
        if denials.is_empty() {
            Ok(permit)
        } else {
            Err(denials)
        }
    }

    /// Whether refusals count.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// What happens to running pods that it refuses.
    #[must_use]
    pub fn running_pods(&self) -> RunningPods {
        self.running_pods
    }

    /// The level of a source.
    #[must_use]
    pub fn level(&self, source: PodSource) -> Level {
        match source {
            PodSource::File => self.levels.file,
            PodSource::Http => self.levels.http,
            PodSource::Api => self.levels.api,
        }
    }

    /// Its grants in the order of the file.
    pub fn grants(&self) -> impl ExactSizeIterator<Item = &Grant> {
        self.grants.iter().map(AsRef::as_ref)
    }

    /// What only a grant that names it gives.
    #[must_use]
    pub fn protected(&self) -> &Protected {
        &self.protected
    }
}

fn content_error(text: &str, at: usize, message: &str) -> PolicyError {
    let before = text.get(..at).unwrap_or(text);
    PolicyError::Content {
        line: before.matches('\n').count() + 1,
        message: message.to_owned(),
    }
}

/// What the types cannot say of a grant.
fn check(grant: &Grant) -> Result<(), &'static str> {
    if grant.pods.is_empty() && grant.images.is_empty() {
        return Err("a grant says whom it is for by pods, images or both (all: pods = [\"*/*\"])");
    }
    if grant.gives_nothing() {
        return Err("this grant gives nothing");
    }
    Ok(())
}
