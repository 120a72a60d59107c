//! The node's own credentials of registries: read from their file, which is root's alone,
//! and read again when it changes.
//!
//! Which of them are for an image is decided in the crate `pull-credentials`.

use std::convert::Infallible;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cri::v1;
use pull_credentials::{Credential, Keyring, MAX_CREDENTIALS_BYTES};

use crate::events::Events;
use crate::root_file::{self, Rules, Stamp};

const RULES: Rules = Rules {
    max_bytes: MAX_CREDENTIALS_BYTES,
    is_secret: true,
};

/// The node's credentials. Clones share them.
#[derive(Clone)]
pub(crate) struct NodeCredentials(Arc<Inner>);

struct Inner {
    path: PathBuf,
    events: Events,
    state: Mutex<State>,
}

struct State {
    /// As the file was when it was read last.
    stamp: Stamp,
    keyring: Keyring,
    /// Why the file does not count; empty where it does, or where there is none.
    problem: String,
}

impl fmt::Debug for NodeCredentials {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let registries = &self.state().keyring;
        formatter
            .debug_tuple("NodeCredentials")
            .field(registries)
            .finish()
    }
}

impl NodeCredentials {
    /// Reads the file. Without one there are no credentials.
    pub(crate) fn open(path: &Path, events: Events) -> NodeCredentials {
        let credentials = NodeCredentials(Arc::new(Inner {
            path: path.to_owned(),
            events,
            state: Mutex::new(State {
                stamp: Stamp::Absent,
                keyring: Keyring::default(),
                problem: String::new(),
            }),
        }));
        credentials.look();
        credentials
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is to be tried for the images of a repository, in this order.
    pub(crate) fn lookup(&self, repository: &str) -> Vec<Credential> {
        self.state().keyring.lookup(repository)
    }

    /// Reads the file again whenever it changes. Never ends.
    pub(crate) async fn run(self) -> Infallible {
        root_file::keep_looking("the file with credentials", move || self.look()).await
    }

    /// Reads the file if it has changed. What is wrong counts as a whole for nothing:
    /// credentials that others could read or write are nobody's any more.
    fn look(&self) {
        let stamp = Stamp::of(&self.0.path);
        // One that cannot be looked at is tried again each time.
        if stamp == self.state().stamp && stamp != Stamp::Unreadable {
            return;
        }
        let (keyring, problem) = match read(&self.0.path) {
            Ok(keyring) => (keyring, String::new()),
            Err(problem) => (Keyring::default(), problem),
        };
        let (registries, is_news) = {
            let mut state = self.state();
            let is_news = state.problem != problem || state.keyring != keyring;
            *state = State {
                stamp,
                keyring,
                problem: problem.clone(),
            };
            (state.keyring.len(), is_news)
        };
        let path = self.0.path.display();
        match (is_news, problem.is_empty()) {
            (false, _) => {}
            (true, true) => tracing::info!(%path, registries, "credentials of registries"),
            (true, false) => {
                tracing::warn!(%path, problem, "credentials of registries are not used");
                let message = format!("{path}: {problem}");
                let events = &self.0.events;
                events.node_warning("PullCredentialsInvalid", &message);
            }
        }
    }

    /// A line for `bulkhead status`; empty when there is nothing to worry about.
    pub(crate) fn status_line(&self) -> String {
        match self.state().problem.as_str() {
            "" => String::new(),
            problem => format!("pull credentials: {}: {problem}", self.0.path.display()),
        }
    }
}

fn read(path: &Path) -> Result<Keyring, String> {
    let read = root_file::read(path, RULES).map_err(|error| telemetry::chain(&error))?;
    let keyring = read.map(|bytes| Keyring::of_config(&bytes)).transpose();
    let keyring = keyring.map_err(|error| telemetry::chain(&error))?;
    Ok(keyring.unwrap_or_default())
}

/// What the runtime is given of a credential: the same as a kubelet gives it.
pub(super) fn auth(credential: Credential) -> v1::AuthConfig {
    match credential {
        Credential::Password { username, password } => v1::AuthConfig {
            username,
            password,
            ..v1::AuthConfig::default()
        },
        Credential::IdentityToken(identity_token) => v1::AuthConfig {
            identity_token,
            ..v1::AuthConfig::default()
        },
    }
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt as _;

    use clock::{UnixNanos, WallClock};

    use super::*;

    const GOOD: &str = r#"{"auths":{"a.io":{"username":"joe","password":"hunter2"}}}"#;

    fn write(path: &Path, text: &str, mode: u32) {
        let new = path.with_extension("new");
        std::fs::write(&new, text).unwrap();
        std::fs::set_permissions(&new, Permissions::from_mode(mode)).unwrap();
        std::fs::rename(&new, path).unwrap();
    }

    #[test]
    fn a_file_counts_while_it_is_good_and_its_owners_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("credentials.json");
        let events = Events::new(WallClock::simulated(UnixNanos(1)));
        let credentials = NodeCredentials::open(&path, events.clone());
        let found = |credentials: &NodeCredentials| {
            credentials.look();
            let line = credentials.status_line();
            assert!(!line.contains("hunter2"), "{line}");
            let debug = format!("{credentials:?}");
            assert!(
                !debug.contains("hunter2") && !debug.contains("joe"),
                "{debug}"
            );
            (credentials.lookup("a.io/web").len(), line)
        };
        assert_eq!(found(&credentials), (0, String::new()));
        write(&path, GOOD, 0o600);
        assert_eq!(found(&credentials), (1, String::new()));
        let at = format!("pull credentials: {}", path.display());
        let mut told = Vec::new();
        for (text, mode, problem) in [
            (
                GOOD,
                0o640,
                "is open to others than root (mode 0640); chmod go=",
            ),
            (
                GOOD,
                0o604,
                "is open to others than root (mode 0604); chmod go=",
            ),
            (
                r#"{"auths":{"a.io":"hunter2"}}"#,
                0o600,
                "line 1, column 26: this is no configuration of Docker",
            ),
            (
                &"x".repeat(MAX_CREDENTIALS_BYTES + 1),
                0o600,
                "has more than 1048576 bytes",
            ),
        ] {
            write(&path, text, mode);
            // The second look finds the same file, which is no news.
            for _ in 0..2 {
                assert_eq!(found(&credentials), (0, format!("{at}: {problem}")));
            }
            told.push(format!("{}: {problem}", path.display()));
            write(&path, GOOD, 0o600);
            assert_eq!(found(&credentials), (1, String::new()));
        }
        std::fs::remove_file(&path).unwrap();
        assert_eq!(found(&credentials), (0, String::new()));
        let recent = events.feed().recent().into_iter();
        let recent = recent.map(|event| {
            assert_eq!(event.reason, "PullCredentialsInvalid");
            event.message
        });
        assert_eq!(recent.collect::<Vec<_>>(), told);
    }
}
