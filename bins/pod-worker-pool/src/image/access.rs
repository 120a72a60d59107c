//! Which pods may have an image that is on the node: who has shown a registry that it may
//! pull it, and whoever has the same credential (KEP-2535). Pure.

use std::collections::BTreeMap;

use node_config::ImageVerification;
use pod::wire::hexadecimal;
use pull_credentials::Credential;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// Most credentials that are known of one image by one name. One more takes the place of
/// that which was shown first: who has that one pulls again.
const MAX_PROOFS: usize = 32;

/// Most names, without their tags, by which one image was pulled.
const MAX_REPOSITORIES: usize = 4;

/// What proofs are made with: random bytes of this node.
pub(super) type Key = [u8; 32];

/// Stands for a credential: a hash with the node's key, which tells who has shown the
/// same one and is none itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Proof(String);

impl Proof {
    pub(super) fn of(key: &Key, credential: &Credential) -> Proof {
        let parts = match credential {
            Credential::Password { username, password } => ["password", username, password],
            Credential::IdentityToken(token) => ["token", token, ""],
        };
        let mut inner = Sha256::new();
        for part in parts {
            // Where a part ends is part of it.
            inner.update(part.len().to_le_bytes());
            inner.update(part);
        }
        let mut outer = Sha256::new();
        outer.update(key);
        outer.update(inner.finalize());
        Proof(hexadecimal(&outer.finalize()))
    }
}

/// Who may have an image by a name of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Access {
    /// Every pod of the node: it was pulled by the node's credentials or by none.
    Everybody,
    /// Who has one of these, the newest last: it was pulled by Secrets of pods.
    Holders(Vec<Proof>),
}

/// What is known of an image that was pulled for a pod, by the repositories that it was
/// pulled from. An empty one is of a pull of which nobody knows by what it was made.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ImageRecord(BTreeMap<String, Access>);

impl ImageRecord {
    /// Notes a pull by a pod's credential, or by one of the node or by none.
    pub(super) fn learn(&mut self, repository: &str, by: Option<Proof>) {
        if self.0.len() >= MAX_REPOSITORIES && !self.0.contains_key(repository) {
            self.0.pop_first();
        }
        let access = self.0.entry(repository.to_owned());
        let access = access.or_insert_with(|| Access::Holders(Vec::new()));
        match (by, access) {
            (_, Access::Everybody) => {}
            (None, access) => *access = Access::Everybody,
            (Some(proof), Access::Holders(holders)) => {
                holders.retain(|held| *held != proof);
                holders.push(proof);
                let surplus = holders.len().saturating_sub(MAX_PROOFS);
                holders.drain(..surplus);
            }
        }
    }

    /// Whether it keeps an image from nobody.
    pub(super) fn is_open(&self) -> bool {
        let mut all = self.0.values();
        !self.0.is_empty() && all.all(|access| *access == Access::Everybody)
    }
}

/// Whether a pod may have an image that is on the node, by a name with this repository.
/// `record` is what is known of the image, if it was pulled for a pod; `shown` what the pod
/// has for that repository, which is asked for only where it matters.
pub(super) fn may_have(
    policy: &ImageVerification,
    repository: &str,
    record: Option<&ImageRecord>,
    shown: impl FnOnce() -> Vec<Proof>,
) -> bool {
    if !policy.is_about(repository, record.is_some()) {
        return true;
    }
    match record.and_then(|record| record.0.get(repository)) {
        None => false,
        Some(Access::Everybody) => true,
        Some(Access::Holders(holders)) => shown().iter().any(|proof| holders.contains(proof)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: Key = [7; 32];

    fn credential(password: &str) -> Credential {
        Credential::Password {
            username: "joe".to_owned(),
            password: password.to_owned(),
        }
    }

    fn proof(password: &str) -> Proof {
        Proof::of(&KEY, &credential(password))
    }

    /// Of pulls from these repositories, by these passwords of pods.
    fn record(pulls: &[(&str, Option<&str>)]) -> ImageRecord {
        let mut record = ImageRecord::default();
        for (repository, by) in pulls {
            record.learn(repository, by.map(proof));
        }
        record
    }

    #[test]
    fn a_pod_has_what_everybody_may_pull_what_it_has_shown_and_what_nobody_pulled() {
        use ImageVerification::{AllBut, Always, Never, NotOfPreloaded};
        let listed = AllBut(vec!["a.io/web".to_owned()]);
        let by_one = record(&[("a.io/web", Some("1"))]);
        let by_two = record(&[("a.io/web", Some("1")), ("a.io/web", Some("2"))]);
        let by_all = record(&[("a.io/web", Some("1")), ("a.io/web", None)]);
        let elsewhere = record(&[("b.io/web", None)]);
        let by_whom = ImageRecord::default();
        // With the credentials 1, 2, and none at all.
        for (known, policy, expected) in [
            (None, &NotOfPreloaded, [true, true, true]),
            (Some(&by_one), &NotOfPreloaded, [true, false, false]),
            (Some(&by_two), &NotOfPreloaded, [true, true, false]),
            (Some(&by_all), &NotOfPreloaded, [true, true, true]),
            (Some(&elsewhere), &NotOfPreloaded, [false, false, false]),
            (Some(&by_whom), &NotOfPreloaded, [false, false, false]),
            (None, &Never, [true, true, true]),
            (Some(&by_one), &Never, [true, true, true]),
            (Some(&by_whom), &Never, [true, true, true]),
            (None, &listed, [true, true, true]),
            (Some(&by_one), &listed, [true, true, true]),
            (None, &AllBut(Vec::new()), [false, false, false]),
            (Some(&by_one), &AllBut(Vec::new()), [true, false, false]),
            (Some(&by_all), &AllBut(Vec::new()), [true, true, true]),
            (None, &Always, [false, false, false]),
            (Some(&by_one), &Always, [true, false, false]),
            (Some(&by_all), &Always, [true, true, true]),
        ] {
            let shown = [vec![proof("1")], vec![proof("2")], Vec::new()];
            let found = shown.map(|shown| may_have(policy, "a.io/web", known, || shown));
            assert_eq!(found, expected, "{known:?} {policy:?}");
        }
    }

    #[test]
    fn what_a_pod_has_is_asked_for_only_where_it_matters() {
        let by_all = record(&[("a.io/web", None)]);
        for known in [None, Some(&by_all)] {
            let policy = ImageVerification::default();
            let asked = || panic!("it does not matter");
            assert!(may_have(&policy, "a.io/web", known, asked));
        }
    }

    #[test]
    fn what_everybody_may_pull_stays_so() {
        let record = record(&[("a.io/web", None), ("a.io/web", Some("1"))]);
        assert!(record.is_open());
        assert!(!self::record(&[("a.io/web", None), ("b.io/web", Some("1"))]).is_open());
        assert!(!ImageRecord::default().is_open());
    }

    #[test]
    fn a_record_is_bounded_and_forgets_what_came_first() {
        let passwords: Vec<String> = (0..40).map(|number| number.to_string()).collect();
        let pulls = passwords.iter().map(|it| ("a.io/web", Some(it.as_str())));
        let pulls: Vec<_> = pulls.chain([("a.io/web", Some("20"))]).collect();
        let record = record(&pulls);
        let policy = ImageVerification::default();
        let has =
            |password: &str| may_have(&policy, "a.io/web", Some(&record), || vec![proof(password)]);
        assert!(!has("7") && has("8") && has("20") && has("39"));
        let names = ["a", "b", "c", "d", "e", "f"].map(|name| (name, Some("1")));
        assert_eq!(self::record(&names).0.len(), MAX_REPOSITORIES);
    }

    #[test]
    fn a_proof_is_of_one_credential_and_one_node_and_shows_nothing() {
        let token = Credential::IdentityToken("hunter2".to_owned());
        let swapped = Credential::Password {
            username: "joeh".to_owned(),
            password: "unter2".to_owned(),
        };
        let hunter = proof("hunter2");
        assert_eq!(hunter, proof("hunter2"));
        for other in [
            proof("hunter3"),
            Proof::of(&KEY, &token),
            Proof::of(&KEY, &swapped),
            Proof::of(&[8; 32], &credential("hunter2")),
        ] {
            assert_ne!(hunter, other);
        }
        let text = format!("{hunter:?}");
        assert!(!text.contains("hunter") && !text.contains("joe"), "{text}");
    }
}
