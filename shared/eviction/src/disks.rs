//! [`DiskLayout`]: which disk holds what, and so whose files count when it is full.

use crate::signal::Signal;

/// Files of a pod, by where they lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// What its containers wrote in their own layers.
    Layers,
    /// Logs.
    Logs,
    /// What is in its directory: `emptyDir` volumes on disk, and what else its containers
    /// may write there.
    Directory,
}

/// Which disk holds what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskLayout {
    /// Images and containers lie on the disk of the pods' directories.
    Shared,
    /// Images and containers have a disk of their own.
    SeparateImages,
}

impl DiskLayout {
    /// From the devices of the pods' directories and of the images.
    #[must_use]
    pub fn of(pods: u64, images: u64) -> DiskLayout {
        match pods == images {
            true => DiskLayout::Shared,
            false => DiskLayout::SeparateImages,
        }
    }

    /// Which files of a pod are on the disk that a signal is about; none for a signal
    /// that is about no disk.
    #[must_use]
    pub fn parts(self, signal: Signal) -> &'static [Part] {
        let is_images = match signal {
            Signal::MemoryAvailable | Signal::PidAvailable => return &[],
            Signal::NodefsAvailable | Signal::NodefsInodesFree => false,
            Signal::ImagefsAvailable
            | Signal::ImagefsInodesFree
            | Signal::ContainerfsAvailable
            | Signal::ContainerfsInodesFree => true,
        };
        match (self, is_images) {
            (DiskLayout::Shared, _) => &[Part::Layers, Part::Logs, Part::Directory],
            (DiskLayout::SeparateImages, false) => &[Part::Logs, Part::Directory],
            (DiskLayout::SeparateImages, true) => &[Part::Layers],
        }
    }

    /// Whether removing dead containers and unused images frees what the signal is about.
    #[must_use]
    pub fn is_freed_by_collection(self, signal: Signal) -> bool {
        self.parts(signal).contains(&Part::Layers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_on_the_disk_in_question_count() {
        use Signal::{ContainerfsInodesFree, ImagefsAvailable, MemoryAvailable, NodefsAvailable};
        let (shared, separate) = (DiskLayout::of(1, 1), DiskLayout::of(1, 2));
        for (layout, signal, parts, is_freed) in [
            (shared, NodefsAvailable, 3, true),
            (shared, ImagefsAvailable, 3, true),
            (separate, NodefsAvailable, 2, false),
            (separate, ImagefsAvailable, 1, true),
            (separate, ContainerfsInodesFree, 1, true),
            (shared, MemoryAvailable, 0, false),
        ] {
            assert_eq!(layout.parts(signal).len(), parts, "{layout:?} {signal}");
            let freed = layout.is_freed_by_collection(signal);
            assert_eq!(freed, is_freed, "{layout:?} {signal}");
        }
    }
}
