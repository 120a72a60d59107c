//! Credentials of several registries, and which of them are for an image, as a kubelet's
//! `credentialprovider` decides it.

use std::collections::BTreeMap;
use std::fmt;

use crate::credential::Credential;
use crate::docker_config::{CredentialsError, of_config, of_entries};
use crate::registry::Registry;

/// Credentials by registry. Its Debug form shows no credential.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Keyring {
    credentials: BTreeMap<Registry, Vec<Credential>>,
}

impl fmt::Debug for Keyring {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_set()
            .entries(self.credentials.keys())
            .finish()
    }
}

impl Keyring {
    /// The credentials of a `config.json` of Docker.
    ///
    /// # Errors
    /// What is wrong with it. Nothing of it counts then.
    pub fn of_config(bytes: &[u8]) -> Result<Keyring, CredentialsError> {
        of_config(bytes)?.into_iter().collect()
    }

    /// The credentials of a file in Docker's older format, `.dockercfg`.
    ///
    /// # Errors
    /// As [`Keyring::of_config`].
    pub fn of_entries(bytes: &[u8]) -> Result<Keyring, CredentialsError> {
        of_entries(bytes)?.into_iter().collect()
    }

    /// The credentials of users by registry, as a program tells them. What is no
    /// registry's name is for no image.
    #[must_use]
    pub fn of_users(users: impl IntoIterator<Item = (String, String, String)>) -> Keyring {
        let users = users.into_iter();
        let found = users.filter_map(|(registry, username, password)| {
            let credential = Credential::Password { username, password };
            Some((Registry::parse(&registry).ok()?, credential))
        });
        found.collect()
    }

    /// Adds what another one has; for the same registry it is tried after what is there.
    pub fn extend(&mut self, other: Keyring) {
        for (registry, credentials) in other.credentials {
            let known = self.credentials.entry(registry).or_default();
            known.extend(credentials);
        }
    }

    /// How many registries it has credentials for.
    #[must_use]
    pub fn len(&self) -> usize {
        self.credentials.len()
    }

    /// Whether there is no credential at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.credentials.is_empty()
    }

    /// The credentials for an image, in the order in which they are to be tried. Entries
    /// that begin alike come with the longest first. One for `index.docker.io` is for all
    /// images of Docker Hub that no other entry is for.
    ///
    /// `repository` is the image's name as
    /// [`ImageReference::repository`](pod::ImageReference::repository) tells it.
    #[must_use]
    pub fn lookup(&self, repository: &str) -> Vec<Credential> {
        let entries = self.credentials.iter().rev();
        let matching = entries.filter(|(registry, _)| registry.matches(repository));
        let found: Vec<Credential> = matching
            .flat_map(|(_, credentials)| credentials.clone())
            .collect();
        if !found.is_empty() || !is_on_docker_hub(repository) {
            return found;
        }
        let mut entries = self.credentials.iter();
        let hub = entries.find(|(registry, _)| registry.is_docker_hub());
        hub.map(|(_, credentials)| credentials.clone())
            .unwrap_or_default()
    }
}

impl FromIterator<(Registry, Credential)> for Keyring {
    fn from_iter<Found: IntoIterator<Item = (Registry, Credential)>>(found: Found) -> Keyring {
        let mut credentials: BTreeMap<Registry, Vec<Credential>> = BTreeMap::new();
        for (registry, credential) in found {
            credentials.entry(registry).or_default().push(credential);
        }
        Keyring { credentials }
    }
}

/// A name without a registry in it is one of Docker Hub.
fn is_on_docker_hub(repository: &str) -> bool {
    let first = repository.split('/').next().unwrap_or_default();
    first == "docker.io" || first == "index.docker.io" || !first.contains(['.', ':'])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each entry's password is its name.
    fn keyring(keys: &[&str]) -> Keyring {
        let entry = |key: &&str| format!(r#""{key}":{{"username":"u","password":"{key}"}}"#);
        let entries: Vec<String> = keys.iter().map(entry).collect();
        let text = format!(r#"{{"auths":{{{}}}}}"#, entries.join(","));
        Keyring::of_config(text.as_bytes()).unwrap()
    }

    fn tried(keys: &[&str], repository: &str) -> Vec<String> {
        let found = keyring(keys).lookup(repository).into_iter();
        let password = |found| match found {
            Credential::Password { password, .. } => password,
            Credential::IdentityToken(token) => token,
        };
        found.map(password).collect()
    }

    #[test]
    fn the_longest_of_those_that_match_comes_first() {
        for (keys, repository, expected) in [
            (
                &["quay.io", "quay.io/coreos"][..],
                "quay.io/coreos/etcd",
                &["quay.io/coreos", "quay.io"][..],
            ),
            (
                &["quay.io", "quay.io/coreos"],
                "quay.io/other",
                &["quay.io"],
            ),
            (&["*.io", "quay.io"], "quay.io/a", &["quay.io", "*.io"]),
            (&["a.io:5000", "a.io"], "a.io:5000/x", &["a.io:5000"]),
            (&["a.io"], "b.io/x", &[]),
            (
                &["https://a.io/v1/", "a.io"],
                "a.io/x",
                &["a.io", "https://a.io/v1/"],
            ),
        ] {
            assert_eq!(tried(keys, repository), expected, "{keys:?} {repository}");
        }
    }

    #[test]
    fn docker_hub_has_the_entry_of_its_old_name() {
        let hub = "https://index.docker.io/v1/";
        for (keys, repository, expected) in [
            (&[hub][..], "docker.io/library/nginx", &[hub][..]),
            (&[hub], "docker.io/team/web", &[hub]),
            (&[hub], "a.io/team/web", &[]),
            (&[hub], "localhost:5000/web", &[]),
            (&[hub, "docker.io"], "docker.io/team/web", &["docker.io"]),
            (&[hub, "docker.io/other"], "docker.io/team/web", &[hub]),
        ] {
            assert_eq!(tried(keys, repository), expected, "{keys:?} {repository}");
        }
    }

    #[test]
    fn what_is_added_comes_after_what_is_there_for_the_same_registry() {
        let of = |password: &str| {
            let user = |registry: &str| (registry.to_owned(), "u".to_owned(), password.to_owned());
            Keyring::of_users([user("a.io"), user("a.io/team"), user("no registry")])
        };
        let mut all = of("1");
        all.extend(of("2"));
        assert_eq!(all.len(), 2);
        let passwords = all.lookup("a.io/team/web").into_iter();
        let passwords = passwords.map(|credential| match credential {
            Credential::Password { password, .. } => password,
            Credential::IdentityToken(token) => token,
        });
        assert_eq!(passwords.collect::<Vec<_>>(), ["1", "2", "1", "2"]);
    }

    #[test]
    fn debug_shows_registries_and_no_secret() {
        let text = r#"{"auths":{"a.io":{"username":"joe","password":"hunter2"}}}"#;
        let text = format!("{:?}", Keyring::of_config(text.as_bytes()).unwrap());
        assert_eq!(text, r#"{Registry("a.io")}"#);
    }
}
