//! The files of a volume that is made of files: which there are, and what is in them.

use std::collections::BTreeMap;

use local_objects::ObjectBytes;

/// Most bytes in the files of all volumes of a pod: most of them are in memory.
pub(crate) const MAX_BYTES: usize = 64 << 20;

/// A volume of files that are all replaced at once when any of them changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Files {
    /// Of which kind the volume is.
    pub kind: FilesKind,
    /// The files by their paths below the volume, which have neither `..` nor links.
    pub files: BTreeMap<String, VolumeFile>,
}

impl Files {
    /// The bytes of all files.
    #[must_use]
    pub fn size(&self) -> usize {
        let files = self.files.values();
        files.map(|file| file.content.as_slice().len()).sum()
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
