//! What a registry is told to let somebody pull.

use std::fmt;

/// A credential. Its Debug form shows nothing of it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Credential {
    /// A user and a password.
    Password {
        /// The user's name.
        username: String,
        /// The password.
        password: String,
    },
    /// A token that the registry exchanges for one that lets pull (OAuth 2).
    IdentityToken(String),
}

impl fmt::Debug for Credential {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Credential::Password { .. } => "Password(..)",
            Credential::IdentityToken(_) => "IdentityToken(..)",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_shows_no_secret() {
        let secret = || "hunter2".to_owned();
        let password = Credential::Password {
            username: secret(),
            password: secret(),
        };
        let text = format!("{password:?} {:?}", Credential::IdentityToken(secret()));
        assert_eq!(text, "Password(..) IdentityToken(..)");
    }
}
