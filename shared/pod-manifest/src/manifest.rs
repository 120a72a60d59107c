//! A manifest's way from bytes to decoded pods with defaults.

use std::fmt;

use pod::Pod;
use pod::items::ItemBudget;
use pod_validation::{FieldError, MAX_ERRORS, Reason, apply_defaults};

use crate::decode as decoding;

/// A pod of a manifest, defaults applied, not yet validated.
#[derive(Debug, Clone)]
pub struct DecodedPod {
    /// The pod.
    pub pod: Pod,
    /// Which document of the manifest it is from; the first is 1.
    pub document: usize,
    /// The pod as it was written, without defaults and zero values, keys sorted:
    /// equal texts mean that nothing but formatting differs.
    pub canonical_json: String,
    /// What the paths of its fields begin with: empty, or `items[3].`.
    pub prefix: String,
}

impl DecodedPod {
    /// Everything that is wrong with the pod by the API server's rules.
    pub fn validate(&self) -> Vec<FieldError> {
        pod_validation::validate_at(&self.pod, &self.prefix)
    }

    /// Everything that the pod asks for and Bulkhead does not do.
    pub fn unsupported_fields(&self) -> Vec<FieldError> {
        pod_validation::unsupported_fields_at(&self.pod, &self.prefix)
    }

    /// Everything that a pod without an API server cannot have.
    pub fn static_pod_restrictions(&self) -> Vec<FieldError> {
        pod_validation::static_pod_restrictions_at(&self.pod, &self.prefix)
    }

    /// The pod's error as one of its manifest's.
    pub fn located(&self, error: FieldError) -> ManifestError {
        ManifestError {
            document: self.document,
            error,
        }
    }
}

/// What is wrong with a manifest, and in which document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ManifestError {
    /// The document; the first is 1. 0 stands for the manifest as a whole.
    pub document: usize,
    /// What is wrong with it.
    pub error: FieldError,
}

impl fmt::Display for ManifestError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.document > 1 {
            write!(formatter, "document {}: ", self.document)?;
        }
        self.error.fmt(formatter)
    }
}

impl std::error::Error for ManifestError {}

/// Decodes a manifest strictly and applies defaults. One bad document makes
/// the whole manifest bad: half of it is never what its author wrote.
///
/// # Errors
/// Everything that is wrong with it, as far as decoding shows.
pub fn decode(bytes: &[u8]) -> Result<Vec<DecodedPod>, Vec<ManifestError>> {
    let (pods, errors) = read(bytes);
    if errors.is_empty() {
        Ok(pods)
    } else {
        Err(errors)
    }
}

/// What can be decoded of a manifest, and all that is wrong with it: a pod with errors lacks
/// what is wrong in it.
pub(crate) fn read(bytes: &[u8]) -> (Vec<DecodedPod>, Vec<ManifestError>) {
    let whole = |detail: String| in_document(0, malformed("", detail));
    let documents = match documents::parse(bytes) {
        Ok(documents) => documents,
        Err(problem) => return (Vec::new(), vec![whole(problem)]),
    };
    if documents.values.is_empty() {
        // Most likely it is just being written. No pods is an empty PodList.
        return (Vec::new(), vec![whole("the manifest is empty".to_owned())]);
    }
    let repeated = documents.repeated_keys.iter();
    let repeated = repeated.map(|it| in_document(it.document, malformed(&it.field, it.message())));
    let mut errors: Vec<ManifestError> = repeated.collect();
    let mut pods = Vec::new();
    let left = ItemBudget::new(decoding::MAX_MANIFEST_ITEMS);
    for (index, document) in documents.values.into_iter().enumerate() {
        let number = index + 1;
        let (located, found) = decoding::pods(document, &left);
        pods.extend(located.into_iter().map(|located| {
            let mut pod = located.pod;
            apply_defaults(&mut pod);
            DecodedPod {
                pod,
                document: number,
                canonical_json: located.canonical_json,
                prefix: located.prefix,
            }
        }));
        errors.extend(found.into_iter().map(|error| in_document(number, error)));
        if pods.len() > decoding::MAX_PODS {
            errors.push(whole(format!("more than {} pods", decoding::MAX_PODS)));
            break;
        }
        if errors.len() >= MAX_ERRORS {
            break;
        }
    }
    (pods, errors)
}

fn malformed(field: &str, detail: String) -> FieldError {
    FieldError {
        field: field.to_owned(),
        reason: Reason::Malformed,
        detail,
    }
}

fn in_document(document: usize, error: FieldError) -> ManifestError {
    ManifestError { document, error }
}
