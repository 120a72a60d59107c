//! From the bytes of a manifest to static pods: YAML or JSON, strict decoding, defaults,
//! and the identity that a node gives to pods of its own.
//!
//! Everything here is a pure function. [`static_pods`] is the whole way. What a pod may
//! say is judged in `pod-validation`; reading files and asking URLs is config-sourcer's
//! work. No process with privileges links this crate: it parses what strangers write.

mod decode;
mod known_fields;
mod manifest;
mod normalize;
mod object_manifest;
mod persistent_volume;
mod static_pod;
mod strict;

pub use decode::MAX_PODS;
pub use documents::MAX_MANIFEST_BYTES;
pub use manifest::{DecodedPod, ManifestError, decode};
pub use object_manifest::{DecodedObject, MAX_OBJECT_BYTES, local_objects};
pub use static_pod::{ManifestNode, Origin, static_pods};
