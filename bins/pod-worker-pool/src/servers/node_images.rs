//! The images of the node, as its Node tells them.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;

use bulkhead_api::v1;
use cri::{RuntimeReads, v1 as runtime};
use tokio::sync::Mutex;
use tokio::time::Instant;

/// The kubelet's `nodeStatusMaxImages`.
const MAX_IMAGES: usize = 50;

/// The kubelet's `MaxNamesPerImageInNodeStatus`.
const MAX_NAMES: usize = 5;

/// Longest name that is told: a repository has 255 characters, a digest some hundred.
const MAX_NAME_BYTES: usize = 768;

/// How often the runtime is asked. The scheduler, for which they are, does not mind.
const PERIOD: Duration = Duration::from_secs(60);

/// How long the runtime may take, within the caller's 5 s.
const DEADLINE: Duration = Duration::from_secs(1);

/// The images as they were known last, and when the runtime was asked. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct NodeImages(Arc<Mutex<(Option<Instant>, Vec<v1::NodeImage>)>>);

impl NodeImages {
    /// What is known without asking.
    pub(super) async fn known(&self) -> Vec<v1::NodeImage> {
        self.0.lock().await.1.clone()
    }

    /// What the runtime says, if it has not been asked for a while.
    pub(super) async fn get(&self, runtime: &dyn RuntimeReads) -> Vec<v1::NodeImage> {
        let mut held = self.0.lock().await;
        let (asked, images) = &mut *held;
        if asked.is_none_or(|asked| asked.elapsed() >= PERIOD) {
            *asked = Some(Instant::now());
            let listed = tokio::time::timeout(DEADLINE, runtime.list_images()).await;
            if let Ok(Ok(listed)) = listed {
                *images = told(listed);
            }
        }
        images.clone()
    }
}

/// The largest first, and of each its digests before its tags.
fn told(mut listed: Vec<runtime::Image>) -> Vec<v1::NodeImage> {
    listed.sort_unstable_by(|one, other| {
        let key = |image: &runtime::Image| Reverse((image.size, image.id.clone()));
        key(one).cmp(&key(other))
    });
    let largest = listed.into_iter().take(MAX_IMAGES);
    largest
        .map(|image| {
            let names = image.repo_digests.into_iter().chain(image.repo_tags);
            let names = names.filter(|name| name.len() <= MAX_NAME_BYTES);
            v1::NodeImage {
                names: names.take(MAX_NAMES).collect(),
                size_bytes: image.size,
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_images_are_told_and_of_each_its_digests_first() {
        let image = |size: u64| {
            let name = |kind: &str, index: u64| format!("r.io/i{size}{kind}{index}");
            runtime::Image {
                id: size.to_string(),
                size,
                repo_tags: (0..4).map(|index| name(":", index)).collect(),
                repo_digests: (0..3).map(|index| name("@", index)).collect(),
                ..runtime::Image::default()
            }
        };
        let mut listed: Vec<_> = (0..60).map(image).collect();
        listed[59].repo_digests[0] = "x".repeat(1 << 20);
        let images = told(listed);
        assert_eq!((images.len(), images[0].size_bytes), (50, 59));
        assert_eq!(
            images[0].names,
            ["@1", "@2", ":0", ":1", ":2"].map(|it| format!("r.io/i59{it}"))
        );
        assert_eq!(images[49].names.len(), 5);
    }
}
