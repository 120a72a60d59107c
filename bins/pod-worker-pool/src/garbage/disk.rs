//! Removing images that nobody has used for long, and more when their disk is too full.

use std::collections::BTreeSet;
use std::path::Path;

use clock::UnixNanos;
use cri::v1;
use tokio::time::Instant;
use turns::{Call, Purpose};

use super::collection::Collection;
use super::files::attempt;
use super::images::{ImageHistory, Thresholds, UnusedImage};
use super::needed_images::NeededImages;
use crate::turns::Turn;

/// How often the disk is looked at (the kubelet's image GC period).
const PERIOD: std::time::Duration = std::time::Duration::from_secs(300);

/// What image collection remembers.
pub(super) struct ImageCollection {
    history: ImageHistory,
    thresholds: Thresholds,
    last_look: Option<Instant>,
    began: Instant,
}

impl ImageCollection {
    pub(super) fn new(settings: &node_config::ImageSettings) -> ImageCollection {
        ImageCollection {
            history: ImageHistory::default(),
            thresholds: Thresholds {
                high_percent: settings.gc_high_threshold_percent,
                low_percent: settings.gc_low_threshold_percent,
                minimum_age: settings.minimum_gc_age,
                maximum_age: settings.maximum_gc_age,
            },
            last_look: None,
            began: Instant::now(),
        }
    }

    /// The time since this process began, for ages of images: a step of the node's clock
    /// makes no image old. Never 0, which is "never used".
    fn now(&self) -> UnixNanos {
        UnixNanos(1).plus(self.began.elapsed())
    }

    /// Notes what is there when the process starts.
    pub(super) async fn begin(&mut self, with: &Collection) {
        // Without an answer the first look is that of the first round.
        let _ = self.look(with).await;
    }

    /// Notes what is in use, and once in a while frees what the disk needs.
    pub(super) async fn run(&mut self, with: &Collection) {
        let Some((mut images, used)) = self.look(with).await else {
            return;
        };
        if self.last_look.is_some_and(|last| last.elapsed() < PERIOD) {
            return;
        }
        self.last_look = Some(Instant::now());
        let maximum_age = self.thresholds.maximum_age;
        let too_old = self
            .history
            .too_old(self.now(), &images, &used, maximum_age);
        let why = "it was not used for imageMaximumGCAge";
        let gone = remove_all(with, too_old, u64::MAX, why).await;
        images.retain(|image| gone.iter().all(|it| it.id != image.id));
        let Some(to_free) = self.excess(with).await else {
            return;
        };
        let freed = self.free(with, &images, &used, to_free).await;
        if freed < to_free {
            let message = format!(
                "Failed to garbage collect required amount of images. Attempted to free \
                 {to_free} bytes, but only found {freed} bytes eligible to free."
            );
            tracing::warn!(to_free, freed, "the disk of the images stays too full");
            with.events.node_warning("FreeDiskSpaceFailed", &message);
        }
    }

    /// Removes every image that no container uses and that is not new on the node.
    pub(super) async fn remove_unused(&mut self, with: &Collection) {
        if let Some((images, used)) = self.look(with).await {
            self.free(with, &images, &used, u64::MAX).await;
        }
    }

    /// Notes which images there are and which are in use now: removals before may have
    /// taken minutes, in which pods start with other images, and removed containers use
    /// none any more.
    async fn look(&mut self, with: &Collection) -> Option<(Vec<v1::Image>, BTreeSet<String>)> {
        let before = with.pulled.before_list();
        let images = with.runtime.reads.list_images().await.ok()?;
        with.pulled.listed(before, &images);
        let used = used(with).await?;
        self.history.look(self.now(), &images, &used);
        Some((images, used))
    }

    /// The most that is to be freed on any of the file systems with images.
    async fn excess(&self, with: &Collection) -> Option<u64> {
        let filesystems = match with.runtime.reads.image_fs_info().await {
            Ok(filesystems) => filesystems,
            Err(error) => {
                tracing::warn!(%error, "the disk of the images cannot be found out");
                return None;
            }
        };
        let mut most = None;
        for filesystem in filesystems {
            let mountpoint = filesystem.fs_id.unwrap_or_default().mountpoint;
            let usage = with.host.disk_usage(Path::new(&mountpoint));
            match attempt(with, "images", usage).await {
                Some(usage) => most = most.max(self.thresholds.excess(usage)),
                None => tracing::warn!(mountpoint, "the disk of the images cannot be read"),
            }
        }
        most
    }

    async fn free(
        &self,
        with: &Collection,
        images: &[v1::Image],
        used: &BTreeSet<String>,
        to_free: u64,
    ) -> u64 {
        let minimum_age = self.thresholds.minimum_age;
        let unused = self.history.unused(self.now(), images, used, minimum_age);
        let why = "the disk of the images is too full";
        size(&remove_all(with, unused, to_free, why).await)
    }
}

/// What images containers have now, by their ids and names.
async fn used(with: &Collection) -> Option<BTreeSet<String>> {
    let relist = with.relister.all().await;
    let relist = relist
        .inspect_err(|error| tracing::debug!(%error, "nobody knows what images are used"))
        .ok()?;
    let containers = relist.pods.values().flat_map(|pod| &pod.containers);
    let images = containers.flat_map(|container| container.images.iter().cloned());
    Some(images.collect())
}

fn size(images: &[UnusedImage]) -> u64 {
    let sizes = images.iter().map(|image| image.size);
    sizes.fold(0, u64::saturating_add)
}

/// Removes unused images until so many bytes are free; those that are gone.
async fn remove_all(
    with: &Collection,
    unused: Vec<UnusedImage>,
    to_free: u64,
    why: &str,
) -> Vec<UnusedImage> {
    let mut gone = Vec::new();
    if unused.is_empty() {
        return gone;
    }
    let Some(mut needed) = NeededImages::find(with).await else {
        return gone;
    };
    for image in unused {
        if size(&gone) >= to_free {
            break;
        }
        // The turn first: pods may come while it is waited for, and while earlier images
        // are removed.
        let turn = with.turns.take(Call::RemoveImage, None, Some(Purpose::End));
        let Ok(turn) = turn.await else {
            break;
        };
        match needed.renewed(with).await {
            Some(renewed) => needed = renewed,
            None => break,
        }
        if !image.is_used(needed.names()) && remove(with, &image, turn, why).await {
            gone.push(image);
        }
    }
    gone
}

/// Removes an unused image in this turn; whether it is gone. A pod may have begun to use it.
async fn remove(with: &Collection, image: &UnusedImage, turn: Turn, why: &str) -> bool {
    match used(with).await {
        Some(used) if !image.is_used(&used) => {}
        _ => return false,
    }
    let spec = v1::ImageSpec {
        image: image.id.clone(),
        ..v1::ImageSpec::default()
    };
    let removed = with.runtime_at_once.changes.remove_image(spec).await;
    drop(turn);
    match removed {
        Ok(()) => {
            let (name, bytes) = (image.name(), image.size);
            tracing::info!(image = name, bytes, why, "unused image removed");
            true
        }
        Err(error) => {
            tracing::warn!(image = image.name(), %error, "image not removed");
            false
        }
    }
}
