//! Whether nobody but root can put something else where a path leads.
//!
//! What does not live here: what has to be there, and what it is for.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

/// Mode bits by which others than the owner may write.
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// The sticky bit: who may write to such a directory cannot replace what is another's.
const STICKY: u32 = 0o1000;

/// Names on the way, those that links add included.
const MAX_STEPS: usize = 256;

/// Why a path is not followed.
#[derive(Debug, thiserror::Error)]
pub enum PathError {
    /// It cannot be looked at, or its links lead nowhere else than to links.
    #[error("{path} cannot be looked at: {source}", path = path.display())]
    Io {
        /// What, on the way.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// Somebody else than root could have put something else there.
    #[error("{path} cannot be trusted: {reason}", path = path.display())]
    Untrusted {
        /// What, on the way.
        path: PathBuf,
        /// Why, and what to do.
        reason: String,
    },
}

/// Where an absolute path leads, links followed. What is there, the links that lead to it,
/// and all that any of them is in are root's (or `owner`'s), and nobody else can replace them.
///
/// # Errors
/// When that is not so, or something is not there.
pub fn follow(path: &Path, owner: u32) -> Result<PathBuf, PathError> {
    let mut reached = PathBuf::new();
    let mut rest = path.to_owned();
    for _ in 0..MAX_STEPS {
        let mut components = rest.components();
        let Some(next) = components.next() else {
            return Ok(reached);
        };
        let after = components.as_path();
        if next == Component::ParentDir {
            reached.pop();
            rest = after.to_owned();
            continue;
        }
        let place = reached.join(next);
        let failed = |source| PathError::Io {
            path: place.clone(),
            source,
        };
        let metadata = place.symlink_metadata().map_err(failed)?;
        let (uid, mode) = (metadata.uid(), metadata.mode());
        // Everybody may write to a link, says its mode, and nobody can.
        let is_closed = metadata.is_symlink() || metadata.is_dir() && mode & STICKY != 0;
        let chown = ["chown", "chown -h"][usize::from(metadata.is_symlink())];
        if let Some(reason) = distrust(uid, mode, owner, is_closed, chown) {
            return Err(PathError::Untrusted {
                path: place,
                reason,
            });
        }
        if metadata.is_symlink() {
            rest = place.read_link().map_err(failed)?.join(after);
        } else {
            rest = after.to_owned();
            reached = place;
        }
    }
    Err(PathError::Io {
        path: path.to_owned(),
        source: io::Error::other("too many links"),
    })
}

/// `is_closed`: its mode lets nobody replace anything. `chown` is the command that gives it
/// to somebody else.
fn distrust(uid: u32, mode: u32, owner: u32, is_closed: bool, chown: &str) -> Option<String> {
    if uid != 0 && uid != owner {
        return Some(format!("it belongs to uid {uid}: {chown} root it"));
    }
    let is_open = mode & WRITABLE_BY_OTHERS != 0 && !is_closed;
    is_open.then(|| {
        format!(
            "its mode {:04o} lets others change it: chmod go-w it",
            mode & 0o7777
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_root_and_the_owner_are_trusted_and_nobody_else_may_write() {
        for (uid, mode, is_closed, expected) in [
            (0, 0o755, false, None),
            (7, 0o755, false, None),
            (8, 0o755, false, Some("it belongs to uid 8: chown root it")),
            (
                0,
                0o775,
                false,
                Some("its mode 0775 lets others change it: chmod go-w it"),
            ),
            (
                0,
                0o757,
                false,
                Some("its mode 0757 lets others change it: chmod go-w it"),
            ),
            (0, 0o1777, true, None),
            (8, 0o1777, true, Some("it belongs to uid 8: chown root it")),
        ] {
            let found = distrust(uid, mode, 7, is_closed, "chown");
            assert_eq!(found.as_deref(), expected, "{uid} {mode:o} {is_closed}");
        }
    }
}
