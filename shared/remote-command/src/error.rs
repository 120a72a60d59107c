//! Why a session cannot be had, or broke.

use std::io;

/// Why a session cannot be had, or broke.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The connection failed.
    #[error("the connection of the session broke")]
    Connection(#[source] io::Error),
    /// The server does not speak HTTP.
    #[error("the server of the session does not speak HTTP")]
    Http(#[source] hyper::Error),
    /// It answered with something else than the session.
    #[error("the session was refused with status {status}: {message}")]
    Refused {
        /// The status of HTTP.
        status: u16,
        /// What it says, shortened.
        message: String,
    },
    /// It sends what the protocol does not have.
    #[error("the server of the session {0}")]
    Protocol(&'static str),
    /// The connection ended before the session did.
    #[error("the session ended without a word of how the command ended")]
    Ended,
    /// The port of the pod cannot be reached.
    #[error("{0}")]
    Port(String),
    /// The connection on this side failed.
    #[error("the local connection broke")]
    Local(#[source] io::Error),
}
