//! Users of processes: by name where the users exist, else numbers counted up
//! from a base, so that tests and demos need no users.

use std::collections::BTreeMap;

use crate::table::{Caller, PROCESSES, row};
use crate::{Edge, Process, edges};

/// Lowest base that is accepted: below lie system and ordinary users.
pub const MIN_UID_BASE: u32 = 1000;

/// The uid (and equal gid) of each process on this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identities {
    uids: BTreeMap<Process, u32>,
}

/// Why identities cannot be given.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdentityError {
    /// The base would collide with existing users.
    #[error("--uid-base {base} is too low: give at least {MIN_UID_BASE} and below {max}", max = u32::MAX - 100)]
    BaseOutOfRange {
        /// What was given.
        base: u32,
    },
    /// A user is missing and no base was given.
    #[error(
        "there is no user {user} for {process}: create the users (systemd-sysusers) or pass --uid-base"
    )]
    MissingUser {
        /// The user's name.
        user: &'static str,
        /// Whose user.
        process: Process,
    },
    /// Two processes would share a user, which would let one pose as the other.
    #[error("{first} and {second} would both run as uid {uid}")]
    Shared {
        /// One.
        first: Process,
        /// The other.
        second: Process,
        /// The uid.
        uid: u32,
    },
}

impl Identities {
    /// Uids counted up from `base`, one for each process that is not root.
    ///
    /// # Errors
    /// When the base is out of range.
    pub fn from_base(base: u32) -> Result<Identities, IdentityError> {
        if !(MIN_UID_BASE..u32::MAX - 100).contains(&base) {
            return Err(IdentityError::BaseOutOfRange { base });
        }
        let uids = PROCESSES
            .iter()
            .zip(0..)
            .map(|(row, index)| (row.process, if row.root { 0 } else { base + index }))
            .collect();
        Ok(Identities { uids })
    }

    /// Uids of the named users, as `lookup` finds them.
    ///
    /// # Errors
    /// When a user is missing, or two processes would share one.
    pub fn from_users(lookup: impl Fn(&str) -> Option<u32>) -> Result<Identities, IdentityError> {
        let mut uids = BTreeMap::new();
        for row in PROCESSES {
            let uid = if row.root { Some(0) } else { lookup(row.user) };
            let missing = IdentityError::MissingUser {
                user: row.user,
                process: row.process,
            };
            let uid = uid.ok_or(missing)?;
            uids.insert(row.process, uid);
        }
        let unprivileged: Vec<_> = uids
            .iter()
            .filter(|(process, _)| !row(**process).root)
            .collect();
        for (index, (first, uid)) in unprivileged.iter().enumerate() {
            if let Some((second, _)) = unprivileged[index + 1..]
                .iter()
                .find(|(_, other)| other == uid)
            {
                return Err(IdentityError::Shared {
                    first: **first,
                    second: **second,
                    uid: **uid,
                });
            }
        }
        Ok(Identities { uids })
    }

    /// Uid of a process; its gid is the same number.
    #[must_use]
    pub fn uid(&self, process: Process) -> u32 {
        self.uids.get(&process).copied().unwrap_or(0)
    }

    /// Whether `uid` may call `service` of `server`. Root counts as the
    /// operator and as every process that runs as root.
    #[must_use]
    pub fn permits(&self, uid: u32, server: Process, service: &str) -> bool {
        edges().any(
            |Edge {
                 caller,
                 server: edge_server,
                 service: edge_service,
             }| {
                edge_server == server
                    && edge_service == service
                    && match caller {
                        Caller::Operator => uid == 0,
                        Caller::Process(process) => uid == self.uid(process),
                    }
            },
        )
    }

    /// Whether `uid` may call anything at all of `server`.
    #[must_use]
    pub fn may_call(&self, uid: u32, server: Process) -> bool {
        row(server)
            .services
            .iter()
            .any(|service| self.permits(uid, server, service.service))
    }

    /// The process that runs as `uid`, for messages; `None` for root, which
    /// several share, and for strangers.
    #[must_use]
    pub fn process_of(&self, uid: u32) -> Option<Process> {
        self.uids
            .iter()
            .find(|(_, other)| **other == uid && uid != 0)
            .map(|(process, _)| *process)
    }
}
