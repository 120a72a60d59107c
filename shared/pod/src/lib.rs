//! The pod model that every process shares: identity, wire form, quantities,
//! resources, container hashing, names of images and small accessors over `core/v1`
//! types.
//!
//! What does not live here: decoding of manifests, defaults and validation
//! (`pod-validation`), and anything that does I/O.

pub mod accessors;
pub mod addresses;
pub mod capability;
pub mod container_hash;
pub mod downward;
pub mod ephemeral;
pub mod hook;
pub mod huge_pages;
pub mod identity;
pub mod image_reference;
pub mod items;
pub mod metadata;
pub mod node_shutdown;
pub mod phase;
pub mod probe;
pub mod quantity;
pub mod resize_event;
pub mod resources;
pub mod restart;
pub mod runtime_class;
pub mod stop_signal;
pub mod sysctl;
pub mod update;
pub mod wire;
mod wish;

pub use accessors::PodExt;
pub use container_hash::ContainerHash;
pub use identity::{PodIdentity, PodSource};
pub use image_reference::ImageReference;
/// The generated `core/v1` types; processes name them through this crate.
pub use k8s_openapi::api::core::v1 as core;
/// The generated `meta/v1` types.
pub use k8s_openapi::apimachinery::pkg::apis::meta::v1 as meta;
/// A number or a name, as ports of probes are given.
pub use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
pub use phase::{EVICTED, PodPhase, RestartPolicy};
pub use quantity::Quantity;
pub use resources::QosClass;
pub use wire::PodDocument;

pub use k8s_openapi::ByteString;
pub use k8s_openapi::api::core::v1::Pod;
pub use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
