//! The users of the processes, as the node's configuration names them.

use std::cell::Cell;

use nix::errno::Errno;
use nix::unistd::User;
use node_config::NodeConfig;
use topology::{Account, Identities, IdentityError};

/// Why the users cannot be given.
#[derive(Debug, thiserror::Error)]
pub enum UsersError {
    /// Whether there is such a user is not known. That passes: the machine is short of
    /// memory or descriptors, or a service of names is away.
    #[error("the user {user} cannot be looked up")]
    LookUp {
        /// Its name.
        user: String,
        /// The cause.
        source: Errno,
    },
    /// They are not as they have to be.
    #[error(transparent)]
    Identity(#[from] IdentityError),
}

/// Finds the users.
///
/// # Errors
/// See [`UsersError`].
pub fn identities(config: &NodeConfig) -> Result<Identities, UsersError> {
    match config.uid_base {
        Some(base) => Ok(Identities::from_base(base)?),
        None => by_name(User::from_name),
    }
}

/// Some modules of the name service answer with an error for a user that they do not have.
/// Trying again is of no use then, and does no harm.
fn by_name(find: impl Fn(&str) -> Result<Option<User>, Errno>) -> Result<Identities, UsersError> {
    let failed = Cell::new(None);
    let found = Identities::from_users(|name| match find(name) {
        Ok(user) => user.map(|user| Account {
            uid: user.uid.as_raw(),
            gid: user.gid.as_raw(),
        }),
        Err(source) => {
            let user = name.to_owned();
            failed.set(Some(UsersError::LookUp { user, source }));
            None
        }
    });
    match failed.take() {
        Some(error) => Err(error),
        None => Ok(found?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_up_that_fails_is_no_missing_user() {
        for errno in [Errno::EIO, Errno::ENOMEM, Errno::ENOENT] {
            let failed = by_name(|_| Err(errno)).unwrap_err();
            let UsersError::LookUp { source, .. } = failed else {
                panic!("{failed:?}");
            };
            assert_eq!(source, errno);
        }
        let missing = by_name(|_| Ok(None)).unwrap_err();
        let is_missing = |error| {
            matches!(
                error,
                UsersError::Identity(IdentityError::MissingUser { .. })
            )
        };
        assert!(is_missing(missing));
        // As the name service of this machine tells of one.
        assert_eq!(User::from_name("bulkhead-nobody-has-this"), Ok(None));
    }
}
