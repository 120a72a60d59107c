//! The volumes of a pod as they are to be on its node, and as they are there. Pure: the
//! plan compares the two (`pod-lifecycle`), the node makes what is missing (`node-host`).
//!
//! A kind of volume is one variant of [`VolumeSpec`], made by [`wanted`] from the pod, and
//! one builder in `node-host`. A spec says all that the volume is made from. For a kind
//! whose content comes from elsewhere (a Secret, say) that includes the version of the
//! content, which has to be fetched before: so another version is another spec, and a
//! volume that was made from the old one has to be refreshed.

mod spec;

use std::path::PathBuf;

pub use spec::{HostPath, Medium, Volume, VolumeSpec, wanted};

/// A volume that is set up on the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountedVolume {
    /// Where it is.
    pub host_path: PathBuf,
    /// Whether its kind allows no writing, whatever the mount says.
    pub read_only: bool,
}

/// A volume that was made, or found made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadyVolume {
    /// What it was made from.
    pub spec: VolumeSpec,
    /// Where it is.
    pub mounted: MountedVolume,
}
