//! The volumes of a pod as they are to be on its node, and as they are there. Pure: the
//! plan compares the two (`pod-lifecycle`), the node makes what is missing (`node-host`).
//!
//! A kind of volume is one variant of [`VolumeSpec`], made by [`wanted`] from the pod, and
//! one builder in `node-host`. A spec says all that the volume is made from. For a kind
//! whose content comes from elsewhere (a Secret, say) that is the content itself, which is
//! fetched before: so other content is another spec, and a volume that was made from the
//! old one has to be refreshed.
//!
//! `spec` has the kinds; `sources` says what files a volume of files has, `files` what such
//! a file is.

mod files;
mod sources;
mod spec;

use std::path::PathBuf;

use clock::UnixNanos;

pub use files::{Files, FilesKind, VolumeFile};
pub use sources::Content;
pub use spec::{EmptyDir, HostPath, Medium, Volume, VolumeSpec, passes_back, wanted, wanted_files};

/// A volume that is set up on the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountedVolume {
    /// Where it is.
    pub host_path: PathBuf,
    /// Whether its kind allows no writing, whatever the mount says.
    pub read_only: bool,
}

/// A part of a volume that a container mounts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubPath {
    /// Which of the container's mounts it is.
    pub index: usize,
    /// The volume's name.
    pub volume: String,
    /// Where the volume is.
    pub volume_path: PathBuf,
    /// The path below it: relative, and without `..`.
    pub path: String,
    /// Whether directories that are missing on the way are made.
    pub makes_missing: bool,
    /// Whether what the container mounts in it shows on the node.
    pub passes_back: bool,
}

/// A volume that was made, or found made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadyVolume {
    /// What it was made from.
    pub spec: VolumeSpec,
    /// Where it is.
    pub mounted: MountedVolume,
}

/// The files of a volume as they were last written, or found written, on the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrittenFiles {
    /// What is in them.
    pub spec: VolumeSpec,
    /// When that was so.
    pub seen_at: UnixNanos,
}
