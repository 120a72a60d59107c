//! Every verdict by container instance, so that a restart of this process, or of
//! all, turns none of them. Pure; written to a state file by the shell before
//! anybody is told, so that nobody knows more than the file, unless the disk refuses.
//!
//! ```text
//!   (state file) --> Restored --+--> Present --> (forgotten: the pool says so)
//!                               |      ^  |
//!                               |      |  v
//!                               +--> Missing --> (forgotten: for too long, once the
//!                                                   pool has named all that it has)
//! ```
//!
//! - Restored -> Present, Missing -> Present: the pool names the instance;
//! - Restored -> Missing, Present -> Missing: a complete snapshot does not name
//!   it, which right after a restart of the pool may only mean "not yet".

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ipc::limits::truncate;

use crate::worker::Verdict;
use crate::{Kind, Moment};

/// How long the verdicts of an instance stand that the pool does not name, although it has
/// looked at every pod that there is to be. Until it has, they stand without end: where the
/// sources of pods are away, it has nothing to look at.
pub(crate) const MISSING_FOR: Duration = Duration::from_secs(120);

/// Container instances with probes that are accepted: ten for each of 250 pods,
/// and as many again that just ended.
pub(crate) const MAX_INSTANCES: usize = 5000;

/// Longest id or name that is accepted from a file, longer than any that exists.
const MAX_NAME_BYTES: usize = 512;

/// Longest message that is accepted from a file, longer than any try gives.
const MAX_MESSAGE_BYTES: usize = 16 << 10;

/// Whose container it is.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Owner {
    /// The pod.
    pub pod_uid: String,
    /// The container's name in it.
    pub container_name: String,
}

/// The state file's content.
pub(crate) type Saved = BTreeMap<String, SavedInstance>;

/// What the state file keeps of one container instance.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct SavedInstance {
    /// Whose.
    #[serde(flatten)]
    pub owner: Owner,
    /// What is known.
    pub verdicts: BTreeMap<Kind, Verdict>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Presence {
    Restored,
    Present,
    Missing { since: Moment },
}

#[derive(Clone, Debug)]
struct Entry {
    instance: SavedInstance,
    presence: Presence,
}

/// There is no room for the verdicts of another instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooMany;

/// All verdicts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ledger {
    entries: BTreeMap<String, Entry>,
    changed: bool,
}

impl Ledger {
    /// What an earlier process knew, within the bounds of what this one could have
    /// written: each of it is told to others.
    #[must_use]
    pub(crate) fn restore(saved: Saved) -> Ledger {
        let names = |id: &str, owner: &Owner| {
            let names = [id, &owner.pod_uid, &owner.container_name];
            names.into_iter().map(str::len).max()
        };
        let entries = saved
            .into_iter()
            .filter(|(id, instance)| names(id, &instance.owner) <= Some(MAX_NAME_BYTES))
            .take(MAX_INSTANCES)
            .map(|(id, mut instance)| {
                for verdict in instance.verdicts.values_mut() {
                    truncate(&mut verdict.message, MAX_MESSAGE_BYTES);
                }
                let presence = Presence::Restored;
                (id, Entry { instance, presence })
            })
            .collect();
        Ledger {
            entries,
            changed: true,
        }
    }

    /// What is known of an instance already, if it is the same container's.
    #[must_use]
    pub(crate) fn known(
        &self,
        container_id: &str,
        owner: &Owner,
    ) -> Option<&BTreeMap<Kind, Verdict>> {
        self.entries
            .get(container_id)
            .filter(|entry| entry.instance.owner == *owner)
            .map(|entry| &entry.instance.verdicts)
    }

    /// The pool names this instance, and this is known of it now. Returns the instance that
    /// was forgotten to make room for it, if there is one.
    ///
    /// # Errors
    /// When there are too many instances.
    pub(crate) fn record(
        &mut self,
        container_id: &str,
        instance: SavedInstance,
    ) -> Result<Option<String>, TooMany> {
        if let Some(entry) = self.entries.get_mut(container_id) {
            entry.presence = Presence::Present;
            if entry.instance != instance {
                entry.instance = instance;
                self.changed = true;
            }
            return Ok(None);
        }
        let forgotten = match self.entries.len() >= MAX_INSTANCES {
            true => Some(self.make_room().ok_or(TooMany)?),
            false => None,
        };
        let presence = Presence::Present;
        let entry = Entry { instance, presence };
        self.entries.insert(container_id.to_owned(), entry);
        self.changed = true;
        Ok(forgotten)
    }

    /// Forgets the instance that has been missing longest, if there is one, and returns it.
    fn make_room(&mut self) -> Option<String> {
        let entries = self.entries.iter();
        let missing = entries.filter_map(|(id, entry)| match entry.presence {
            Presence::Missing { since } => Some((since, id.clone())),
            Presence::Restored | Presence::Present => None,
        });
        let (_, id) = missing.min()?;
        self.entries.remove(&id);
        Some(id)
    }

    /// The instance is gone.
    pub(crate) fn forget(&mut self, container_id: &str) {
        self.changed |= self.entries.remove(container_id).is_some();
    }

    /// The pool named all its instances. Returns those that were named before and
    /// are not now.
    pub(crate) fn snapshot_complete(
        &mut self,
        named: &BTreeSet<String>,
        now: Moment,
    ) -> Vec<String> {
        let mut missing = Vec::new();
        for (id, entry) in &mut self.entries {
            let unnamed = !named.contains(id);
            if unnamed && !matches!(entry.presence, Presence::Missing { .. }) {
                entry.presence = Presence::Missing { since: now };
                missing.push(id.clone());
            }
        }
        missing
    }

    /// The pool has looked at every pod that there is to be. What it has not named by now
    /// counts as missing from now on.
    pub(crate) fn all_are_named(&mut self, now: Moment) {
        for entry in self.entries.values_mut() {
            if let Presence::Missing { since } = &mut entry.presence {
                *since = now;
            }
        }
    }

    /// Forgets what has been missing for too long, and returns it.
    pub(crate) fn expire(&mut self, now: Moment) -> Vec<String> {
        let entries = self.entries.iter();
        let expired = entries.filter(|(_, entry)| match entry.presence {
            Presence::Missing { since } => now.saturating_sub(since) >= MISSING_FOR,
            Presence::Restored | Presence::Present => false,
        });
        let expired: Vec<String> = expired.map(|(id, _)| id.clone()).collect();
        for id in &expired {
            self.forget(id);
        }
        expired
    }

    /// Whether something changed since [`Ledger::take_snapshot`] was called last.
    #[must_use]
    pub(crate) fn has_changed(&self) -> bool {
        self.changed
    }

    /// All verdicts, to be saved and told; [`Ledger::has_changed`] is false after it.
    pub(crate) fn take_snapshot(&mut self) -> Saved {
        self.changed = false;
        self.entries
            .iter()
            .map(|(id, entry)| (id.clone(), entry.instance.clone()))
            .collect()
    }
}

#[cfg(test)]
mod tests;
