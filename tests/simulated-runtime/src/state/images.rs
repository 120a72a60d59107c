//! The images of a simulated runtime: those that are there, and those that can be
//! pulled.

use cri::v1::Image;
use cri::{RuntimeError, RuntimeErrorKind};

use super::State;

/// What each image takes of the disk.
pub const IMAGE_BYTES: u64 = 1 << 30;

impl State {
    pub(crate) fn add_image(&mut self, reference: &str, present: bool) {
        self.pullable.insert(reference.to_owned());
        if present {
            self.images.insert(reference.to_owned());
        }
    }

    pub(crate) fn pull(&mut self, reference: &str) -> Result<String, RuntimeError> {
        if !self.pullable.contains(reference) {
            let message = format!("{reference}: not found");
            return Err(RuntimeError::new(
                "PullImage",
                RuntimeErrorKind::NotFound,
                message,
            ));
        }
        self.images.insert(reference.to_owned());
        Ok(image_id(reference))
    }

    pub(crate) fn image(&self, reference: &str) -> Option<Image> {
        let found = self
            .images
            .iter()
            .find(|known| known.as_str() == reference || image_id(known) == reference)?;
        Some(self.image_message(found))
    }

    pub(crate) fn images(&self) -> Vec<Image> {
        self.images
            .iter()
            .map(|reference| self.image_message(reference))
            .collect()
    }

    fn image_message(&self, reference: &str) -> Image {
        Image {
            id: image_id(reference),
            repo_tags: vec![reference.to_owned()],
            size: IMAGE_BYTES,
            ..Image::default()
        }
    }

    pub(crate) fn remove_image(&mut self, reference: &str) {
        self.images
            .retain(|known| known != reference && image_id(known) != reference);
    }
}

fn image_id(reference: &str) -> String {
    // Like a digest in shape, and stable.
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in reference.bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    format!("sha256:{hash:064x}")
}
