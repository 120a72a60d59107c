//! How pods cross between processes: a small header, the JSON bytes of what is wished, and
//! beside them those of the status.
//!
//! A `PodDocument` is checked when it is made: bounded, its hash right, its
//! header well formed. `decode` also checks the header against the JSON. What its hash covers
//! is in `wish`.

use std::fmt;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use sha2::{Digest, Sha256};
use thiserror::Error;

use crate::identity::{IdentityError, PodIdentity, PodSource};
use crate::items::{ItemBudget, LARGE, MAX_ITEMS};
use crate::metadata::CONFIG_SOURCE_ANNOTATION;
use crate::wish::{Parts, wish_hash};

/// Largest pod as JSON. The API server stores at most 1.5 MiB an object, and
/// nearly all of a pod beyond some 100 KiB is annotations.
pub const MAX_POD_BYTES: usize = 1 << 20;

/// Bytes of SHA-256 in a [`content_hash`]: 128 bits, far beyond accidents, and that
/// hash authenticates nothing.
const HASH_BYTES: usize = 16;

/// Why bytes or a message are not a pod.
#[derive(Debug, Error)]
pub enum WireError {
    /// The JSON is larger than any pod may be.
    #[error("pod has {length} bytes, more than {MAX_POD_BYTES}")]
    TooLarge {
        /// Its size in bytes.
        length: usize,
    },
    /// Its lists have more items than those of any pod may.
    #[error(
        "pod has more than {MAX_ITEMS} items in its lists, where a container or volume counts as {LARGE}"
    )]
    TooManyItems,
    /// The message has no reference.
    #[error("pod message has no reference")]
    NoReference,
    /// The reference cannot identify a pod.
    #[error("pod reference is invalid")]
    Identity(#[from] IdentityError),
    /// The source is none that exists.
    #[error("pod source {source_name:?} is unknown")]
    UnknownSource {
        /// The word in the message, shortened.
        source_name: String,
    },
    /// The hash in the header is not the hash of what is wished.
    #[error("pod {pod} has a hash that is not the hash of what its JSON wishes")]
    HashMismatch {
        /// The pod that the header names.
        pod: PodIdentity,
    },
    /// The bytes are not a core/v1 Pod.
    #[error("pod is not valid JSON of a core/v1 Pod")]
    Json(#[from] serde_json::Error),
    /// Header and JSON name different pods.
    #[error("header names pod {header}, its JSON is of {json}")]
    HeaderMismatch {
        /// The pod that the header names.
        header: Box<PodIdentity>,
        /// The pod in the JSON.
        json: Box<PodIdentity>,
    },
}

/// A pod as JSON bytes with its header. Clones share the bytes.
#[derive(Clone, PartialEq, Eq)]
pub struct PodDocument {
    identity: PodIdentity,
    source: PodSource,
    hash: String,
    json: Arc<[u8]>,
    /// Empty without a status.
    status: Arc<[u8]>,
}

impl PodDocument {
    /// Encodes a pod.
    pub fn encode(pod: &Pod, source: PodSource) -> Result<Self, WireError> {
        let identity = PodIdentity::of(pod)?;
        let json = serde_json::to_vec(pod)?;
        Self::checked(identity, source, json)
    }

    /// Takes the bytes that a source gave, and decodes them once.
    pub fn from_json(json: Vec<u8>, source: PodSource) -> Result<(Self, Pod), WireError> {
        check_size(&json)?;
        let mut pod: Pod = serde_json::from_slice(&json)?;
        let identity = PodIdentity::of(&pod)?;
        note_source(&mut pod, source);
        Ok((Self::checked(identity, source, json)?, pod))
    }

    /// Checks a message from another process. The JSON is not decoded; `decode`
    /// does that and compares it with the header.
    pub fn from_message(message: bulkhead_api::v1::Pod) -> Result<Self, WireError> {
        check_size(&message.json)?;
        if !message.status.is_empty() {
            check_size(&message.status)?;
        }
        let identity: PodIdentity = message
            .reference
            .ok_or(WireError::NoReference)?
            .try_into()?;
        let source = PodSource::parse(&message.source).ok_or_else(|| WireError::UnknownSource {
            source_name: message.source.chars().take(16).collect(),
        })?;
        if version(&message.json)? != message.hash {
            return Err(WireError::HashMismatch { pod: identity });
        }
        Ok(Self {
            identity,
            source,
            hash: message.hash,
            json: message.json.into(),
            status: message.status.into(),
        })
    }

    /// The message that carries this pod.
    pub fn to_message(&self) -> bulkhead_api::v1::Pod {
        bulkhead_api::v1::Pod {
            reference: Some((&self.identity).into()),
            source: self.source.as_str().to_owned(),
            hash: self.hash.clone(),
            json: self.json.to_vec(),
            status: self.status.to_vec(),
        }
    }

    /// Decodes the JSON and refuses a pod that is not the one in the header. The pod has the
    /// annotation of its source, whatever its own JSON says: as a kubelet sets it
    /// (pkg/kubelet/config/config.go).
    pub fn decode(&self) -> Result<Pod, WireError> {
        let mut pod: Pod = serde_json::from_slice(&self.json)?;
        note_source(&mut pod, self.source);
        if !self.status.is_empty() {
            pod.status = serde_json::from_slice(&self.status)?;
        }
        let json = PodIdentity::of(&pod)?;
        if json != self.identity {
            return Err(WireError::HeaderMismatch {
                header: Box::new(self.identity.clone()),
                json: Box::new(json),
            });
        }
        Ok(pod)
    }

    /// Which pod this is.
    pub fn identity(&self) -> &PodIdentity {
        &self.identity
    }

    /// Where it came from.
    pub fn source(&self) -> PodSource {
        self.source
    }

    /// SHA-256 of what is wished, in lower-case hexadecimal: it names this version of
    /// the pod where the bytes themselves are not sent. A change of the status, or of what an
    /// API server notes for itself, makes no other version.
    pub fn hash(&self) -> &str {
        &self.hash
    }

    /// The JSON bytes, without the status.
    pub fn json(&self) -> &[u8] {
        &self.json
    }

    /// The JSON bytes of the status that came with it; empty without one.
    pub fn status(&self) -> &[u8] {
        &self.status
    }

    /// The JSON of the pod with its status.
    pub fn to_json(&self) -> Result<Vec<u8>, WireError> {
        Ok(Parts::join(&self.json, &self.status)?)
    }

    fn checked(identity: PodIdentity, source: PodSource, json: Vec<u8>) -> Result<Self, WireError> {
        check_size(&json)?;
        let Parts { wish, status } = Parts::of(json)?;
        Ok(Self {
            identity,
            source,
            hash: version(&wish)?,
            json: wish.into(),
            status: status.into(),
        })
    }
}

/// Without the bytes: they may hold secrets and are long.
impl fmt::Debug for PodDocument {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("PodDocument")
            .field("identity", &self.identity)
            .field("source", &self.source)
            .field("hash", &self.hash)
            .finish_non_exhaustive()
    }
}

/// The hash of what the JSON of a pod wishes, in lower-case hexadecimal.
fn version(json: &[u8]) -> Result<String, WireError> {
    Ok(hexadecimal(&wish_hash(json)?))
}

/// Notes where the pod came from, as the stream says that brought it.
fn note_source(pod: &mut Pod, source: PodSource) {
    let annotations = pod.metadata.annotations.get_or_insert_default();
    let (key, word) = (CONFIG_SOURCE_ANNOTATION.to_owned(), source.as_str());
    annotations.insert(key, word.to_owned());
}

/// SHA-256 of the bytes, cut to 16 bytes, in lower-case hexadecimal.
pub fn content_hash(bytes: &[u8]) -> String {
    hexadecimal(&Sha256::digest(bytes)[..HASH_BYTES])
}

/// Lower-case hexadecimal digits of `bytes`.
pub fn hexadecimal(bytes: &[u8]) -> String {
    use fmt::Write as _;
    bytes
        .iter()
        .fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
            // Writing to a String cannot fail.
            let _ = write!(text, "{byte:02x}");
            text
        })
}

/// Both bounds: on what it takes as JSON, and on what it takes as a typed pod.
fn check_size(json: &[u8]) -> Result<(), WireError> {
    let length = json.len();
    if length > MAX_POD_BYTES {
        return Err(WireError::TooLarge { length });
    }
    let mut value = serde_json::Deserializer::from_slice(json);
    match ItemBudget::new(MAX_ITEMS).has_room_for(&mut value)? {
        true => Ok(()),
        false => Err(WireError::TooManyItems),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{PodExt as _, PodPhase};

    fn pod(name: &str) -> Pod {
        let mut pod = Pod::default();
        pod.metadata.name = Some(name.to_owned());
        pod.metadata.namespace = Some("default".to_owned());
        pod.metadata.uid = Some("0123456789abcdef0123456789abcdef".to_owned());
        note_source(&mut pod, PodSource::File);
        pod
    }

    #[test]
    fn a_pod_survives_the_way_to_another_process() {
        let document = PodDocument::encode(&pod("a"), PodSource::File).unwrap();
        let received = PodDocument::from_message(document.to_message()).unwrap();
        assert_eq!(received, document);
        assert_eq!(received.decode().unwrap(), pod("a"));
    }

    #[test]
    fn the_source_is_what_the_stream_says_and_not_what_the_pod_says() {
        let json = br#"{"metadata":{"uid":"u1","namespace":"d","name":"n","annotations":{"kubernetes.io/config.source":"file"}}}"#;
        let (document, pod) = PodDocument::from_json(json.to_vec(), PodSource::Api).unwrap();
        for pod in [pod, document.decode().unwrap()] {
            assert_eq!(pod.annotation(CONFIG_SOURCE_ANNOTATION), Some("api"));
            assert!(!pod.is_static() && !pod.is_critical());
        }
    }

    #[test]
    fn a_status_travels_beside_the_pod() {
        let json =
            br#"{"metadata":{"uid":"u1","namespace":"d","name":"n"},"status":{"phase":"Failed"}}"#;
        let (document, _) = PodDocument::from_json(json.to_vec(), PodSource::Api).unwrap();
        assert_eq!(document.status(), br#"{"phase":"Failed"}"#);
        let received = PodDocument::from_message(document.to_message()).unwrap();
        assert_eq!(received.decode().unwrap().status_phase(), PodPhase::Failed);
    }

    #[test]
    fn bytes_of_a_source_are_kept_unchanged() {
        let json = br#"{"apiVersion":"v1","kind":"Pod","metadata":{"uid":"u1","namespace":"d","name":"n"},"spec":{"containers":[],"newField":1}}"#;
        let (document, _) = PodDocument::from_json(json.to_vec(), PodSource::Api).unwrap();
        assert_eq!(document.json(), json);
    }

    #[test]
    fn a_header_that_disagrees_with_the_json_is_refused() {
        let document = PodDocument::encode(&pod("a"), PodSource::File).unwrap();
        let mut message = document.to_message();
        message.reference.as_mut().unwrap().name = "b".to_owned();
        let received = PodDocument::from_message(message).unwrap();
        assert!(matches!(
            received.decode(),
            Err(WireError::HeaderMismatch { .. })
        ));
    }

    #[test]
    fn a_wrong_hash_source_or_reference_is_refused() {
        let good = PodDocument::encode(&pod("a"), PodSource::File)
            .unwrap()
            .to_message();
        let mut message = good.clone();
        message.hash = "0".repeat(64);
        assert!(matches!(
            PodDocument::from_message(message),
            Err(WireError::HashMismatch { .. })
        ));
        let mut message = good.clone();
        message.source = "moon".to_owned();
        assert!(matches!(
            PodDocument::from_message(message),
            Err(WireError::UnknownSource { .. })
        ));
        let mut message = good.clone();
        message.reference.as_mut().unwrap().uid = "../..".to_owned();
        assert!(matches!(
            PodDocument::from_message(message),
            Err(WireError::Identity(_))
        ));
        let mut message = good;
        message.reference = None;
        assert!(matches!(
            PodDocument::from_message(message),
            Err(WireError::NoReference)
        ));
    }

    #[test]
    fn a_pod_over_the_limit_is_refused_before_it_is_parsed() {
        let mut message = PodDocument::encode(&pod("a"), PodSource::File)
            .unwrap()
            .to_message();
        message.json = vec![b' '; MAX_POD_BYTES + 1];
        assert!(matches!(
            PodDocument::from_message(message),
            Err(WireError::TooLarge { .. })
        ));
        assert!(matches!(
            PodDocument::from_json(vec![b' '; MAX_POD_BYTES + 1], PodSource::Api),
            Err(WireError::TooLarge { .. })
        ));
    }

    #[test]
    fn a_pod_with_too_many_items_is_refused_before_it_is_a_typed_one() {
        let with = |volumes: usize| {
            let volumes = vec![r#"{"name":"v"}"#; volumes].join(",");
            let metadata = r#""metadata":{"uid":"u1","namespace":"d","name":"n"}"#;
            let spec = format!(r#""spec":{{"containers":[],"volumes":[{volumes}]}}"#);
            format!("{{{metadata},{spec}}}").into_bytes()
        };
        let of_source = |json| PodDocument::from_json(json, PodSource::Api);
        let (good, _) = of_source(with(1000)).unwrap();
        assert!(PodDocument::from_message(good.to_message()).is_ok());
        let many = of_source(with(1001));
        assert!(matches!(many, Err(WireError::TooManyItems)));
        let mut message = good.to_message();
        message.json = with(1001);
        message.hash = version(&message.json).unwrap();
        let many = PodDocument::from_message(message);
        assert!(matches!(many, Err(WireError::TooManyItems)));
    }

    #[test]
    fn nesting_cannot_exhaust_the_stack() {
        let json = "[".repeat(100_000).into_bytes();
        assert!(matches!(
            PodDocument::from_json(json, PodSource::Api),
            Err(WireError::Json(_))
        ));
    }
}
