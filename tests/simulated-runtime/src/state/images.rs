//! The images of a simulated runtime: those that are there, and those that can be
//! pulled.

use cri::v1::{Image, Int64Value};
use cri::{RuntimeError, RuntimeErrorKind};

use super::State;

/// The number of a user that nobody has added.
const DEFAULT_USER: i64 = 1000;

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

    pub(crate) fn add_user(&mut self, name: &str, uid: u32) {
        self.users.insert(name.to_owned(), uid);
    }

    pub(crate) fn set_image_user(&mut self, reference: &str, user: &str) {
        let (reference, user) = (reference.to_owned(), user.to_owned());
        self.image_users.insert(reference, user);
    }

    /// Whom a container runs as, found as a runtime finds it when it makes one.
    pub(crate) fn user_of(&self, container: &str) -> Option<i64> {
        let config = &self.containers.get(container)?.config;
        let linux = config.linux.clone().unwrap_or_default();
        let security = linux.security_context.unwrap_or_default();
        if let Some(user) = security.run_as_user {
            return Some(user.value);
        }
        let of_image = config
            .image
            .as_ref()
            .and_then(|spec| self.image(&spec.image));
        let of_image = of_image.unwrap_or_default();
        let name = match security.run_as_username.as_str() {
            "" => of_image.username.as_str(),
            name => name,
        };
        Some(match (self.users.get(name), of_image.uid) {
            (Some(&uid), _) => i64::from(uid),
            (None, Some(uid)) => uid.value,
            (None, None) if name.is_empty() => 0,
            (None, None) => DEFAULT_USER,
        })
    }

    fn image_message(&self, reference: &str) -> Image {
        let user = self.image_users.get(reference).map_or("", String::as_str);
        let uid = user.parse().ok().map(|value| Int64Value { value });
        Image {
            id: image_id(reference),
            repo_tags: vec![reference.to_owned()],
            username: if uid.is_none() {
                user.to_owned()
            } else {
                String::new()
            },
            uid,
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
