//! What a simulated registry lets pull, and by what.

use cri::{RuntimeError, RuntimeErrorKind, v1};

use super::{SimulatedRuntime, lock};

impl SimulatedRuntime {
    /// From now on an image can be pulled by this password only.
    pub fn set_pull_password(&self, reference: &str, password: &str) {
        lock(&self.0.pull_passwords).insert(reference.to_owned(), password.to_owned());
    }

    /// From now on pulls of an image are refused in these words.
    pub fn set_pull_refusal(&self, reference: &str, words: &str) {
        lock(&self.0.pull_refusals).insert(reference.to_owned(), words.to_owned());
    }

    /// By what pulls were tried so far, in this order.
    #[must_use]
    pub fn pull_auths(&self) -> Vec<Option<v1::AuthConfig>> {
        lock(&self.0.pull_auths).clone()
    }

    /// Whether the registry lets pull an image by this.
    pub(super) fn authorize_pull(
        &self,
        reference: &str,
        auth: Option<v1::AuthConfig>,
    ) -> Result<(), RuntimeError> {
        let password = lock(&self.0.pull_passwords).get(reference).cloned();
        let given = auth.as_ref().map(|auth| auth.password.clone());
        lock(&self.0.pull_auths).push(auth);
        if let Some(words) = lock(&self.0.pull_refusals).get(reference) {
            return Err(RuntimeError::refused("PullImage", words.as_str()));
        }
        if password.is_none() || password == given {
            return Ok(());
        }
        let message = format!("pull access denied for {reference}: authorization failed");
        let kind = RuntimeErrorKind::Other;
        Err(RuntimeError::new("PullImage", kind, message))
    }
}
