//! The files of a volume that is made of files: which there are, and what is in them.

use std::collections::BTreeMap;

use local_objects::ObjectBytes;

/// Most bytes that the files of all volumes of a pod may take: most of them are in memory,
/// which counts as pod-worker-pool's. An object of the API has 1 MiB at most.
pub(crate) const MAX_BYTES: usize = 16 << 20;

/// A file takes whole pages of memory, or blocks of a disk.
const PAGE_BYTES: usize = 4096;

/// A volume of files that are all replaced at once when any of them changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Files {
    /// Of which kind the volume is.
    pub kind: FilesKind,
    /// The files by their paths below the volume, which have neither `..` nor links.
    pub files: BTreeMap<String, VolumeFile>,
}

impl Files {
    /// What all files take, in bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        self.files.values().map(VolumeFile::size).sum()
    }
}

/// The kinds of volumes that are made of files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FilesKind {
    /// `configMap`.
    ConfigMap,
    /// `downwardAPI`.
    DownwardApi,
    /// `projected`.
    Projected,
    /// `secret`.
    Secret,
}

impl FilesKind {
    /// Whether the files are kept in memory, so that no disk has them once the pod is
    /// gone. As in the kubelet.
    #[must_use]
    pub fn is_in_memory(self) -> bool {
        match self {
            FilesKind::ConfigMap => false,
            FilesKind::DownwardApi | FilesKind::Projected | FilesKind::Secret => true,
        }
    }
}

/// One file of a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeFile {
    /// What is in it.
    pub content: ObjectBytes,
    /// Its permissions.
    pub mode: u32,
    /// The user that owns it; absent: root.
    pub user: Option<u32>,
    /// The group that it belongs to: `fsGroup`; absent: root's.
    pub group: Option<u32>,
}

impl VolumeFile {
    /// What it takes, in bytes.
    pub(crate) fn size(&self) -> usize {
        let bytes = self.content.as_slice().len();
        bytes.max(1).next_multiple_of(PAGE_BYTES)
    }
}
