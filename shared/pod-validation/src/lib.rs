//! pod-validation.
