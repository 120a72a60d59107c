//! A simulated registry: what it lets pull, and by what.

use std::collections::BTreeMap;

use cri::{RuntimeError, RuntimeErrorKind, v1};

/// Lets everything be pulled that nobody forbids.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    /// The password by which an image is pulled, by image.
    pub(crate) passwords: BTreeMap<String, String>,
    /// In which words the pull of an image is refused, by image.
    pub(crate) refusals: BTreeMap<String, String>,
    /// By what pulls were tried, in this order.
    pub(crate) tried: Vec<Option<v1::AuthConfig>>,
}

impl Registry {
    /// Whether it lets pull an image by this.
    pub(crate) fn authorize(
        &mut self,
        reference: &str,
        auth: Option<v1::AuthConfig>,
    ) -> Result<(), RuntimeError> {
        let password = self.passwords.get(reference);
        let is_right =
            password.is_none_or(|it| auth.as_ref().is_some_and(|auth| auth.password == *it));
        self.tried.push(auth);
        if let Some(words) = self.refusals.get(reference) {
            return Err(RuntimeError::refused("PullImage", words.as_str()));
        }
        if is_right {
            return Ok(());
        }
        let message = format!("pull access denied for {reference}: authorization failed");
        let kind = RuntimeErrorKind::Other;
        Err(RuntimeError::new("PullImage", kind, message))
    }
}
