//! ConfigMaps, Secrets and PersistentVolumes that pods refer to: what one is, which ones a
//! pod refers to, and what is known of those; and the Services that containers are told of.
//! Pure.
//!
//! Reading them from the disk is config-sourcer's work, and asking config-sourcer for them
//! that of pod-worker-pool. What a pod gets of them is decided in `pod-volumes` (files) and
//! `cri-requests` (variables).

mod object;
mod objects;
mod persistent_volume;
mod references;
mod services;

pub use object::{LocalObject, MAX_OBJECT_KEYS, ObjectBytes, ObjectKind, ObjectRef};
pub use objects::{Lookup, Objects};
pub use persistent_volume::{PersistentVolume, claimed, has_found_claim, with_claimed_volumes};
pub use references::references;
pub use services::{ServiceReader, Services, service_variables};
