//! Users of processes: numbers counted up from a base where one is given, so that
//! tests and demos neither need users nor depend on those that exist; else users by
//! their names, and without them there is no start.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use crate::process_row::Caller;
use crate::table::{PROCESSES, row};
use crate::{Edge, Process, edges};

/// Lowest base that is accepted: below lie system and ordinary users.
pub const MIN_UID_BASE: u32 = 1000;

/// The numbers of the users that the package makes: a range of their own, so that no image
/// has a user of ours by accident, since a pod that would run as one is refused. Images have
/// system users (below 1000), ordinary ones and `nobody`. systemd leaves 60706 to 61183 to
/// nobody: below are users of homed and greeters, above are dynamic ones. Debian has
/// assigned nothing below 63434.
pub const STATIC_IDS: RangeInclusive<u32> = 60_800..=60_815;

/// A user of this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Account {
    /// The user's number.
    pub uid: u32,
    /// The number of the user's primary group.
    pub gid: u32,
}

/// User and group of each process on this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identities {
    accounts: BTreeMap<Process, Account>,
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
    /// The user, or its primary group, is root's.
    #[error("the user {user} of {process} has uid {uid} and gid {gid}: give it numbers of its own")]
    Root {
        /// The user's name.
        user: &'static str,
        /// Whose user.
        process: Process,
        /// Its uid.
        uid: u32,
        /// The gid of its primary group.
        gid: u32,
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
    /// Two processes would share a group, which would let one read what only the
    /// other may.
    #[error(
        "{first} and {second} would both run with gid {gid}: give each user a primary group \
         of its own (systemd-sysusers does)"
    )]
    SharedGroup {
        /// One.
        first: Process,
        /// The other.
        second: Process,
        /// The gid.
        gid: u32,
    },
}

impl Identities {
    /// Numbers counted up from `base`, one for each process that is not root, as
    /// user and as group.
    ///
    /// # Errors
    /// When the base is out of range.
    pub fn from_base(base: u32) -> Result<Identities, IdentityError> {
        if !(MIN_UID_BASE..u32::MAX - 100).contains(&base) {
            return Err(IdentityError::BaseOutOfRange { base });
        }
        let accounts = PROCESSES
            .iter()
            .zip(0..)
            .map(|(row, index)| {
                let number = if row.root { 0 } else { base + index };
                let account = Account {
                    uid: number,
                    gid: number,
                };
                (row.process, account)
            })
            .collect();
        Ok(Identities { accounts })
    }

    /// The named users and their primary groups, as `lookup` finds them.
    ///
    /// # Errors
    /// When a user is missing or root, or two processes would share a user or a
    /// group.
    pub fn from_users(
        lookup: impl Fn(&str) -> Option<Account>,
    ) -> Result<Identities, IdentityError> {
        let mut accounts: BTreeMap<Process, Account> = BTreeMap::new();
        for row in PROCESSES.iter().filter(|row| !row.root) {
            let (user, process) = (row.user, row.process);
            let account = lookup(user).ok_or(IdentityError::MissingUser { user, process })?;
            let Account { uid, gid } = account;
            if uid == 0 || gid == 0 {
                return Err(IdentityError::Root {
                    user,
                    process,
                    uid,
                    gid,
                });
            }
            for (&first, other) in &accounts {
                if other.uid == uid {
                    return Err(IdentityError::Shared {
                        first,
                        second: process,
                        uid,
                    });
                }
                if other.gid == gid {
                    return Err(IdentityError::SharedGroup {
                        first,
                        second: process,
                        gid,
                    });
                }
            }
            accounts.insert(process, account);
        }
        let root = Account { uid: 0, gid: 0 };
        let of_root = PROCESSES.iter().filter(|row| row.root);
        accounts.extend(of_root.map(|row| (row.process, root)));
        Ok(Identities { accounts })
    }

    /// Uid of a process.
    #[must_use]
    pub fn uid(&self, process: Process) -> u32 {
        self.accounts.get(&process).map_or(0, |account| account.uid)
    }

    /// Gid of a process.
    #[must_use]
    pub fn gid(&self, process: Process) -> u32 {
        self.accounts.get(&process).map_or(0, |account| account.gid)
    }

    /// Users and groups of all processes.
    #[must_use]
    pub fn ids(&self) -> Vec<u32> {
        let accounts = self.accounts.values();
        accounts
            .flat_map(|account| [account.uid, account.gid])
            .collect()
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

    /// The users other than root that may call anything of `server`: who has to be let
    /// through to its socket.
    #[must_use]
    pub fn callers(&self, server: Process) -> BTreeSet<u32> {
        let uids = self.accounts.values().map(|account| account.uid);
        uids.filter(|&uid| uid != 0 && self.may_call(uid, server))
            .collect()
    }

    /// The process that runs as `uid`, for messages; `None` for root, which
    /// several share, and for strangers.
    #[must_use]
    pub fn process_of(&self, uid: u32) -> Option<Process> {
        self.accounts
            .iter()
            .find(|(_, other)| other.uid == uid && uid != 0)
            .map(|(process, _)| *process)
    }

    /// A user in a message for people: the process that runs as it, or `uid 1000` of a user
    /// of no process and of root, as which several run.
    #[must_use]
    pub fn name_of(&self, uid: u32) -> String {
        match self.process_of(uid) {
            Some(process) => process.name().to_owned(),
            None => format!("uid {uid}"),
        }
    }
}
