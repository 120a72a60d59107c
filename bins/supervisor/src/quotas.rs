//! Quotas of the processes' users on the file system of their state directories, where that
//! has them: then not even a process that was broken into takes more of the disk, in no
//! second, also by files that it has removed and holds open. Set before the supervisor is
//! sealed; the watch over state directories looks on beside it, since it also clears away.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::Path;

use confine::UserQuota;
use node_config::NodeConfig;
use topology::{Identities, Process, ProcessRow, row};

use crate::state_watch::MAX_ENTRIES;

/// What a user may have beyond its process's bound: its directories, and so much that the
/// watch sees that the bound was passed, and clears away, before the quota is reached.
const MARGIN_BYTES: u64 = 4 << 20;

/// The same of files.
const MARGIN_FILES: u64 = 1_000;

/// To what the file system holds each process; of those that it holds to anything.
pub(crate) type Quotas = BTreeMap<Process, UserQuota>;

/// Sets a quota for each process that is not root, unless its user has one already. Tells
/// what is in force.
pub(crate) fn set(config: &NodeConfig, identities: &Identities) -> Quotas {
    let mut quotas = Quotas::new();
    for process in Process::ALL.into_iter().filter(|it| config.runs(*it)) {
        let (row, uid) = (row(process), identities.uid(process));
        if row.root || uid == 0 {
            continue;
        }
        match set_one(&config.directories.state(process), uid, row) {
            Ok(Some(quota)) => {
                quotas.insert(process, quota);
            }
            Ok(None) => {}
            Err(error) => tracing::warn!(%process, %error, "cannot set a quota for its user"),
        }
    }
    quotas
}

fn set_one(directory: &Path, uid: u32, row: &ProcessRow) -> io::Result<Option<UserQuota>> {
    let directory = File::open(directory)?;
    if !confine::holds_users_to_quotas(&directory) {
        return Ok(None);
    }
    let found = confine::user_quota(&directory, uid)?;
    let quota = completed(found, row);
    if quota != found {
        confine::set_user_quota(&directory, uid, quota)?;
    }
    Ok(Some(quota))
}

/// What somebody has set stays, whether it is more or less.
fn completed(found: UserQuota, row: &ProcessRow) -> UserQuota {
    let or = |found, own| if found == 0 { own } else { found };
    UserQuota {
        bytes: or(found.bytes, row.state_max_bytes() + MARGIN_BYTES),
        files: or(found.files, u64::from(MAX_ENTRIES) + MARGIN_FILES),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_is_beyond_the_bound_and_one_that_is_there_stays() {
        let quota = |bytes, files| UserQuota { bytes, files };
        let (sync_loop, pleg) = (row(Process::SyncLoop), row(Process::Pleg));
        let (bound, little) = ((160 + 4) << 20, (1 + 4) << 20);
        for (found, row, expected) in [
            (quota(0, 0), sync_loop, quota(bound, 21_000)),
            (quota(0, 0), pleg, quota(little, 21_000)),
            (quota(1 << 40, 0), pleg, quota(1 << 40, 21_000)),
            (quota(4096, 0), sync_loop, quota(4096, 21_000)),
            (quota(0, 7), sync_loop, quota(bound, 7)),
            (quota(1, 1), sync_loop, quota(1, 1)),
        ] {
            assert_eq!(completed(found, row), expected, "{found:?}");
        }
        for row in topology::PROCESSES {
            assert!(completed(quota(0, 0), row).bytes > row.state_max_bytes());
        }
    }
}
