//! The images of a simulated runtime: those that are there, and those that can be
//! pulled.

use clock::UnixNanos;
use cri::v1::{Image, Int64Value};
use cri::{RuntimeError, RuntimeErrorKind};

use std::collections::{BTreeMap, BTreeSet};

/// What each image takes of the disk.
pub const IMAGE_BYTES: u64 = 1 << 30;

/// The images, and the users that containers of them run as.
#[derive(Debug, Default)]
pub(crate) struct Images {
    /// Those that are there, and since when they are.
    present: BTreeMap<String, UnixNanos>,
    pullable: BTreeSet<String>,
    /// Users that images want to run as, by their references.
    image_users: BTreeMap<String, String>,
    /// Numbers of users, by their names.
    users: BTreeMap<String, u32>,
    /// Groups of users, by their numbers, as an image's own files say it.
    groups: BTreeMap<i64, Vec<i64>>,
}

impl Images {
    pub(crate) fn add(&mut self, reference: &str, present: bool) {
        self.pullable.insert(reference.to_owned());
        if present {
            self.present.insert(reference.to_owned(), UnixNanos(0));
        }
    }

    /// Since when an image is there.
    pub(crate) fn present_since(&self, reference: &str) -> Option<UnixNanos> {
        self.present.get(reference).copied()
    }

    pub(crate) fn pull(&mut self, now: UnixNanos, reference: &str) -> Result<String, RuntimeError> {
        if !self.pullable.contains(reference) {
            let message = format!("{reference}: not found");
            return Err(RuntimeError::new(
                "PullImage",
                RuntimeErrorKind::NotFound,
                message,
            ));
        }
        self.present.entry(reference.to_owned()).or_insert(now);
        Ok(image_id(reference))
    }

    pub(crate) fn get(&self, reference: &str) -> Option<Image> {
        let found = self
            .present
            .keys()
            .find(|known| known.as_str() == reference || image_id(known) == reference)?;
        Some(self.image_message(found))
    }

    pub(crate) fn all(&self) -> Vec<Image> {
        self.present
            .keys()
            .map(|reference| self.image_message(reference))
            .collect()
    }

    pub(crate) fn add_user(&mut self, name: &str, uid: u32) {
        self.users.insert(name.to_owned(), uid);
    }

    pub(crate) fn set_user(&mut self, reference: &str, user: &str) {
        let (reference, user) = (reference.to_owned(), user.to_owned());
        self.image_users.insert(reference, user);
    }

    pub(crate) fn set_groups(&mut self, uid: i64, groups: &[i64]) {
        self.groups.insert(uid, groups.to_vec());
    }

    /// The groups of a user, its own one first.
    pub(crate) fn groups_of(&self, uid: i64) -> &[i64] {
        self.groups.get(&uid).map_or(&[], Vec::as_slice)
    }

    /// The number of a user by its name, where somebody has added it.
    pub(crate) fn number_of_user(&self, name: &str) -> Option<u32> {
        self.users.get(name).copied()
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

    pub(crate) fn remove(&mut self, reference: &str) {
        self.present
            .retain(|known, _| known != reference && image_id(known) != reference);
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
