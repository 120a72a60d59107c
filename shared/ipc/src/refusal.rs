//! What a server refuses, as it is told to the supervisor.

use std::fmt;
use std::str::FromStr;

/// What somebody sent that a server refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RefusalKind {
    /// A connection of a user that may call nothing there.
    Connection,
    /// One connection more than the caller may have.
    TooManyConnections,
    /// One call more than may wait.
    TooManyCalls,
    /// A call of a service that the server does not have. A newer version may have it.
    UnknownService,
    /// A call of a service that the server has for others.
    ForeignService,
    /// A message that is larger than its service receives.
    OversizedMessage,
    /// Bytes that are no message, or none where one has to be.
    MalformedMessage,
    /// What HTTP/2 does not permit, or more resets than it should have.
    ProtocolError,
}

impl RefusalKind {
    /// All of them.
    pub const ALL: [RefusalKind; 8] = [
        RefusalKind::Connection,
        RefusalKind::TooManyConnections,
        RefusalKind::TooManyCalls,
        RefusalKind::UnknownService,
        RefusalKind::ForeignService,
        RefusalKind::OversizedMessage,
        RefusalKind::MalformedMessage,
        RefusalKind::ProtocolError,
    ];

    /// One word that names it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            RefusalKind::Connection => "connection",
            RefusalKind::TooManyConnections => "too-many-connections",
            RefusalKind::TooManyCalls => "too-many-calls",
            RefusalKind::UnknownService => "unknown-service",
            RefusalKind::ForeignService => "foreign-service",
            RefusalKind::OversizedMessage => "oversized-message",
            RefusalKind::MalformedMessage => "malformed-message",
            RefusalKind::ProtocolError => "protocol-error",
        }
    }

    /// Whether the connection is closed for it: no program of this project sends that,
    /// in whatever version.
    #[must_use]
    pub fn cuts_off(self) -> bool {
        match self {
            RefusalKind::ForeignService
            | RefusalKind::OversizedMessage
            | RefusalKind::MalformedMessage
            | RefusalKind::ProtocolError => true,
            RefusalKind::Connection
            | RefusalKind::TooManyConnections
            | RefusalKind::TooManyCalls
            | RefusalKind::UnknownService => false,
        }
    }
}

/// What a server refused somebody. Written and read as `UID PID KIND COUNT`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The user that sent it; of several that may call nothing, the latest.
    pub uid: u32,
    /// The process that sent it; of several that may call nothing, the latest. 0 where the
    /// kernel does not tell.
    pub pid: i32,
    /// What it was.
    pub kind: RefusalKind,
    /// How often since the last report. Of what cuts off: how many connections.
    pub count: u64,
}

impl fmt::Display for Refusal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Refusal {
            uid,
            pid,
            kind,
            count,
        } = self;
        write!(formatter, "{uid} {pid} {} {count}", kind.name())
    }
}

/// A text is no [`Refusal`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a refusal: user, process, kind and count, with a space between them")]
pub struct NoRefusal;

impl FromStr for Refusal {
    type Err = NoRefusal;

    fn from_str(text: &str) -> Result<Refusal, NoRefusal> {
        let fields: Vec<&str> = text.splitn(5, ' ').collect();
        let [uid, pid, kind, count] = fields.as_slice() else {
            return Err(NoRefusal);
        };
        let mut kinds = RefusalKind::ALL.into_iter();
        Ok(Refusal {
            uid: uid.parse().map_err(|_| NoRefusal)?,
            pid: pid.parse().map_err(|_| NoRefusal)?,
            kind: kinds.find(|known| known.name() == *kind).ok_or(NoRefusal)?,
            count: count.parse().map_err(|_| NoRefusal)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_read_as_it_was_written_and_nothing_else_is() {
        for kind in RefusalKind::ALL {
            let refusal = Refusal {
                uid: u32::MAX,
                pid: i32::MAX,
                kind,
                count: u64::MAX,
            };
            assert_eq!(refusal.to_string().parse(), Ok(refusal));
        }
        for text in [
            "",
            "1 2 connection",
            "1 2 connection 3 4",
            "1 2 connection 3\n",
            "-1 2 connection 3",
            "1 2 other 3",
            "1 99999999999 connection 3",
            "1 2 connection -3",
            "1  2 connection 3",
        ] {
            assert_eq!(text.parse::<Refusal>(), Err(NoRefusal), "{text:?}");
        }
    }
}
