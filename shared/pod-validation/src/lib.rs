//! From the bytes of a manifest to pods that an API server would accept:
//! strict decoding, defaults, validation, and the refusal of what Bulkhead does
//! not implement.
//!
//! Everything here is a pure function. [`static_pods`] is the whole way; reading
//! files and asking URLs is config-sourcer's work.

mod decode;
mod defaults;
mod document;
mod field;
mod formats;
mod manifest;
mod normalize;
mod optional;
mod static_pod;
mod support;
mod validate;

pub use decode::MAX_PODS;
pub use defaults::apply as apply_defaults;
pub use document::{MAX_DEPTH, MAX_DOCUMENTS, MAX_MANIFEST_BYTES, MAX_VALUES};
pub use field::{FieldError, MAX_ERRORS, Reason};
pub use manifest::{DecodedPod, ManifestError, decode};
pub use static_pod::{Origin, static_pods};
pub use support::{static_pod_restrictions, unsupported_fields};
pub use validate::validate;
