//! What a pod may say: the defaults and rules of an API server, and the refusal of what
//! Bulkhead does not implement.
//!
//! Everything here is a pure function of a typed pod. [`judge`] is all of it, for whoever
//! gets a pod from somebody else. Manifests are decoded in `pod-manifest`.

mod defaults;
mod field;
mod formats;
mod judge;
mod optional;
mod profile_annotations;
mod runtime_class;
mod support;
mod validate;
mod warnings;

pub use defaults::apply as apply_defaults;
pub use field::{Errors, FieldError, MAX_ERRORS, Path, Reason};
pub use judge::{judge, uid_error, unmet};
pub use runtime_class::{apply_runtime_class, runtime_class_config_errors, runtime_class_errors};
pub use support::{
    static_pod_restrictions, static_pod_restrictions_at, unsupported_fields, unsupported_fields_at,
};
pub use validate::{validate, validate_at};
pub use warnings::warnings;
