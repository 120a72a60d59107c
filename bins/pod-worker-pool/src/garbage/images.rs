//! Which images nobody needs: pure. Those used longest ago go first, until enough
//! is free; what is in use, pinned, or new on the node stays.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use clock::UnixNanos;
use cri::v1;
use node_layout::DiskUsage;

/// Images that are kept track of; far more than any node has.
const MAX_IMAGES: usize = 10_000;

/// Last part of the usual name of the image of sandboxes, for runtimes that do not
/// [tell](super::needed_images) what it is.
const SANDBOX_IMAGE: &str = "pause";

/// When images are collected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Thresholds {
    /// Percentage of the disk at which collection starts.
    pub(super) high_percent: u8,
    /// Percentage at which it ends.
    pub(super) low_percent: u8,
    /// Images younger than this on the node stay.
    pub(super) minimum_age: Duration,
    /// Images that nobody has used for longer than this go; zero for never.
    pub(super) maximum_age: Duration,
}

impl Thresholds {
    /// How many bytes are to be freed; `None` while the disk is not too full.
    pub(super) fn excess(&self, usage: DiskUsage) -> Option<u64> {
        let DiskUsage {
            capacity_bytes,
            available_bytes,
        } = usage;
        let free_percent = |percent: u8| {
            let free = u128::from(100 - percent.min(100)) * u128::from(capacity_bytes) / 100;
            u64::try_from(free).unwrap_or(u64::MAX)
        };
        // At 100 collection is switched off, as by the kubelet: what is available
        // to others than root can be 0 on a disk that is not full.
        let is_off = self.high_percent >= 100;
        let is_unknown = capacity_bytes == 0;
        if is_off || is_unknown || available_bytes > free_percent(self.high_percent) {
            return None;
        }
        Some(free_percent(self.low_percent).saturating_sub(available_bytes))
    }
}

/// What is known of an image beside what the runtime says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct History {
    /// `None` for what the first look of this process found: it came at an unknown time
    /// before.
    first_seen: Option<UnixNanos>,
    last_used: UnixNanos,
}

/// When images were first seen and last used. Lost with the process: what its next run
/// finds at once is old enough to go, as with a kubelet. Were it new, a node short of disk
/// would end pods after each restart, beside images that nobody uses.
#[derive(Debug, Default)]
pub(super) struct ImageHistory {
    images: BTreeMap<String, History>,
    has_looked: bool,
}

/// An image that may go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct UnusedImage {
    pub(super) id: String,
    names: Vec<String>,
    pub(super) size: u64,
}

impl UnusedImage {
    /// What people call it.
    pub(super) fn name(&self) -> &str {
        self.names.first().unwrap_or(&self.id)
    }

    /// Whether it is among what is in use, unlike before.
    pub(super) fn is_used(&self, used: &BTreeSet<String>) -> bool {
        used.contains(&self.id) || self.names.iter().any(|name| used.contains(name))
    }
}

impl ImageHistory {
    /// Takes in what the node has now and what is in use: ids or names, as
    /// containers carry them.
    pub(super) fn look(&mut self, now: UnixNanos, images: &[v1::Image], used: &BTreeSet<String>) {
        self.images
            .retain(|id, _| images.iter().any(|image| image.id == *id));
        let first_seen = self.has_looked.then_some(now);
        self.has_looked = true;
        for image in images.iter().take(MAX_IMAGES) {
            let history = self.images.entry(image.id.clone()).or_insert(History {
                first_seen,
                last_used: UnixNanos(0),
            });
            if is_used(image, used) {
                history.last_used = now;
            }
        }
    }

    /// Images that may go, in the order in which they should.
    pub(super) fn unused(
        &self,
        now: UnixNanos,
        images: &[v1::Image],
        used: &BTreeSet<String>,
        minimum_age: Duration,
    ) -> Vec<UnusedImage> {
        let unused = self.idle(images, used);
        listed(unused, |history| {
            let first_seen = history.first_seen;
            first_seen.is_none_or(|seen| now.since(seen) >= minimum_age)
        })
    }

    /// Images that have not been used for longer than `maximum_age`, in the order in which
    /// they should go. `now` counts from the start of this process, which counts as a use of
    /// all of them, as with a kubelet.
    pub(super) fn too_old(
        &self,
        now: UnixNanos,
        images: &[v1::Image],
        used: &BTreeSet<String>,
        maximum_age: Duration,
    ) -> Vec<UnusedImage> {
        if maximum_age.is_zero() {
            return Vec::new();
        }
        listed(self.idle(images, used), |history| {
            let first_seen = history.first_seen.unwrap_or_default();
            now.since(first_seen.max(history.last_used)) > maximum_age
        })
    }

    /// What nobody uses and may be removed, used longest ago first.
    fn idle<'a>(
        &self,
        images: &'a [v1::Image],
        used: &BTreeSet<String>,
    ) -> Vec<(History, &'a v1::Image)> {
        let mut unused: Vec<(History, &v1::Image)> = images
            .iter()
            .filter(|image| !image.pinned && !is_used(image, used) && !is_sandbox_image(image))
            .filter_map(|image| Some((*self.images.get(&image.id)?, image)))
            .collect();
        unused.sort_by_key(|(history, image)| {
            (history.last_used, history.first_seen, image.id.clone())
        });
        unused
    }
}

fn listed(images: Vec<(History, &v1::Image)>, goes: impl Fn(&History) -> bool) -> Vec<UnusedImage> {
    let going = images.into_iter().filter(|(history, _)| goes(history));
    going
        .map(|(_, image)| UnusedImage {
            id: image.id.clone(),
            names: names(image).map(str::to_owned).collect(),
            size: image.size,
        })
        .collect()
}

fn names(image: &v1::Image) -> impl Iterator<Item = &str> {
    let tags = image.repo_tags.iter().chain(&image.repo_digests);
    tags.map(String::as_str)
}

fn is_used(image: &v1::Image, used: &BTreeSet<String>) -> bool {
    used.contains(&image.id) || names(image).any(|name| used.contains(name))
}

fn is_sandbox_image(image: &v1::Image) -> bool {
    names(image).any(|name| {
        let last = name.rsplit('/').next().unwrap_or_default();
        let end = last.find([':', '@']).unwrap_or(last.len());
        last[..end] == *SANDBOX_IMAGE
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn at(minutes: u32) -> UnixNanos {
        UnixNanos(1).plus(MINUTE * minutes)
    }

    fn image(id: &str, name: &str) -> v1::Image {
        v1::Image {
            id: id.to_owned(),
            repo_tags: vec![name.to_owned()],
            size: 100,
            ..v1::Image::default()
        }
    }

    fn used(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    fn ids(unused: Vec<UnusedImage>) -> Vec<String> {
        unused.into_iter().map(|image| image.id).collect()
    }

    #[test]
    fn collection_starts_at_the_high_mark_and_frees_down_to_the_low_one() {
        let thresholds = Thresholds {
            high_percent: 85,
            low_percent: 80,
            minimum_age: MINUTE,
            maximum_age: Duration::ZERO,
        };
        for (available, expected) in [(20, None), (16, None), (15, Some(5)), (3, Some(17))] {
            let usage = DiskUsage {
                capacity_bytes: 100,
                available_bytes: available,
            };
            assert_eq!(thresholds.excess(usage), expected, "{available}");
        }
        let unknown = DiskUsage {
            capacity_bytes: 0,
            available_bytes: 0,
        };
        assert_eq!(thresholds.excess(unknown), None);
    }

    #[test]
    fn a_high_mark_of_100_switches_collection_off() {
        let thresholds = Thresholds {
            high_percent: 100,
            low_percent: 80,
            minimum_age: MINUTE,
            maximum_age: Duration::ZERO,
        };
        let full = DiskUsage {
            capacity_bytes: 100,
            available_bytes: 0,
        };
        assert_eq!(thresholds.excess(full), None);
    }

    #[test]
    fn images_in_use_pinned_ones_and_that_of_sandboxes_stay() {
        let mut pinned = image("p", "localhost/pinned:1");
        pinned.pinned = true;
        let images = [
            image("a", "localhost/a:1"),
            image("b", "localhost/b:1"),
            image("s", "example.com/pause:3.9"),
            image("t", "localhost/pause-tool:1"),
            pinned,
        ];
        let mut history = ImageHistory::default();
        let used = used(&["a", "localhost/b:1"]);
        history.look(at(0), &images, &used);
        assert_eq!(ids(history.unused(at(9), &images, &used, MINUTE)), ["t"]);
    }

    #[test]
    fn those_used_longest_ago_go_first_and_then_those_seen_first() {
        let images = [
            image("recent", "r"),
            image("old", "o"),
            image("never-new", "n"),
            image("never", "n2"),
        ];
        let mut history = ImageHistory::default();
        let without_newest: Vec<_> = [0, 1, 3].map(|index| images[index].clone()).into();
        history.look(at(0), &without_newest, &used(&["old", "recent"]));
        history.look(at(5), &images, &used(&["recent"]));
        let order = history.unused(at(9), &images, &used(&[]), MINUTE);
        assert_eq!(ids(order), ["never", "never-new", "old", "recent"]);
    }

    #[test]
    fn an_image_goes_when_nobody_has_used_it_for_longer_than_its_maximum_age() {
        let images = [
            image("used", "u"),
            image("idle", "i"),
            image("new", "n"),
            image("pause", "localhost/pause:1"),
        ];
        let mut history = ImageHistory::default();
        history.look(at(0), &images[..2], &used(&["idle"]));
        history.look(at(3), &images, &used(&["used"]));
        let used = used(&["used"]);
        let too_old = |minutes, age| ids(history.too_old(at(minutes), &images, &used, age));
        assert!(too_old(5, MINUTE * 5).is_empty());
        assert_eq!(too_old(6, MINUTE * 5), ["idle"]);
        assert_eq!(too_old(9, MINUTE * 5), ["new", "idle"]);
        assert!(too_old(9, Duration::ZERO).is_empty());
    }

    #[test]
    fn an_image_that_is_new_on_the_node_stays_for_a_while() {
        let images = [image("a", "a")];
        let mut history = ImageHistory::default();
        history.look(at(4), &[], &used(&[]));
        history.look(at(5), &images, &used(&[]));
        assert!(
            history
                .unused(at(6), &images, &used(&[]), MINUTE * 2)
                .is_empty()
        );
        assert_eq!(
            ids(history.unused(at(7), &images, &used(&[]), MINUTE * 2)),
            ["a"]
        );
        // Gone and back: new again.
        history.look(at(7), &[], &used(&[]));
        history.look(at(8), &images, &used(&[]));
        assert!(
            history
                .unused(at(9), &images, &used(&[]), MINUTE * 2)
                .is_empty()
        );
    }
    #[test]
    fn an_image_that_a_process_finds_when_it_starts_may_go_at_once() {
        let images = [image("a", "a"), image("b", "b")];
        let nobody = used(&[]);
        let mut history = ImageHistory::default();
        history.look(at(0), &images[..1], &nobody);
        history.look(at(1), &images, &nobody);
        let unused = history.unused(at(1), &images, &nobody, MINUTE * 2);
        assert_eq!(ids(unused), ["a"]);
        // That it came at an unknown time does not make it idle for ever.
        let too_old = |minutes| ids(history.too_old(at(minutes), &images, &nobody, MINUTE * 5));
        assert!(too_old(4).is_empty());
        assert_eq!(too_old(6), ["a"]);
    }
}
