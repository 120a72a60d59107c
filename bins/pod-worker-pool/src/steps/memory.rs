//! What is remembered of a pod from one of its steps to the next.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use local_objects::Objects;
use pod::resources::PodCgroupResources;
use pod_lifecycle::known::Known;
use pod_lifecycle::record::Record;
use pod_volumes::{ReadyVolume, WrittenFiles};
use tokio::time::Instant;

use super::calls::Calls;
use super::hooks::Hooks;
use super::pulls::PodPulls;
use crate::observe::Cache;

/// What the steps of one pod remember. All but the record can be lost.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// What the plan is made from beside what the runtime shows.
    pub(super) known: Known,
    /// What the next process needs of it.
    pub(super) record: Record,
    pub(super) cache: Cache,
    /// When the last look at the runtime began that came to its end.
    pub(super) looked_at: Option<Instant>,
    /// Whether something of the pod ran then, or might, as the version that was to run.
    pub(super) keeps_version: bool,
    /// Calls that make something and are under way.
    pub(super) calls: Calls,
    /// What this process has last given to the pod's cgroup.
    pub(super) pod_cgroup: Option<PodCgroupResources>,
    /// Where the pod answers, as of the last look; empty while that is not known.
    pub(super) pod_ip: String,
    /// Stops of containers that are under way; no step waits for those of another.
    pub(super) stop_calls: Calls,
    /// Lifecycle hooks that run, or whose end no step has handled yet.
    pub(super) hooks: Hooks,
    /// Pulls of images that are under way; no step waits for them.
    pub(super) pulls: PodPulls,
    /// Volumes that the sync under way has made or found made, by name.
    pub(super) volumes: BTreeMap<String, ReadyVolume>,
    /// Volumes of files that were written or found written, by name. Unlike others they
    /// are known from one sync to the next.
    pub(super) files: BTreeMap<String, WrittenFiles>,
    /// Whether the pod's QoS class counts what the pod requests.
    pub(super) counts_in_its_class: bool,
    /// What is known of the ConfigMaps and Secrets that the pod refers to.
    pub(super) objects: Objects,
    /// Whether the sync under way has waited for them: once is enough.
    pub(super) has_waited_for_objects: bool,
    /// Why containers do not run: reason and message by name.
    pub(super) reasons: BTreeMap<String, (String, String)>,
    /// Why the last change of what containers run with failed.
    pub(super) resize_error: Option<String>,
    /// What people were told, so that they are told once.
    pub(super) announced: BTreeSet<Announcement>,
    /// The sandboxes that it has had if it is wanted anew once it has ended.
    pub(super) sandboxes_if_begun_anew: BTreeSet<String>,
}

/// What people are told once of an instance, by its id.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Announcement {
    /// The start after its exit waits.
    BackOff(String),
    /// It is stopped with its pod.
    Stopping(String),
    /// Something of the pod is withheld, as this message says.
    Withheld(String),
    /// What containers run with is being changed.
    Resize,
}

impl Memory {
    /// A memory that knows what the pod's record holds.
    #[must_use]
    pub(crate) fn new(record: Record) -> Memory {
        Memory {
            known: Known::of_record(&record),
            record,
            ..Memory::default()
        }
    }

    /// When the last look at the runtime began that came to its end.
    pub(crate) fn looked_at(&self) -> Option<Instant> {
        self.looked_at
    }

    /// Whether something of the pod ran then, or might, as the version that was to run.
    pub(crate) fn keeps_version(&self) -> bool {
        self.keeps_version
    }

    /// Waits until the calls have ended that make or start something, at most so long.
    pub(crate) async fn finish_calls(&self, at_most: Duration) {
        self.calls.settle(at_most).await;
    }

    /// Another sync tries again what the one before could not stop, and looks at volumes
    /// anew.
    pub(super) fn sync_begins(&mut self) {
        self.known.forget_failed_stops();
        self.volumes.clear();
        self.has_waited_for_objects = false;
    }

    /// What is recorded of a pod that has ended, for when it begins anew under its UID.
    pub(crate) fn record_if_begun_anew(&self) -> Record {
        Record::begun_anew_beside(self.sandboxes_if_begun_anew.clone())
    }

    /// Puts what is known into the record; true if that changed it.
    pub(super) fn update_record(&mut self) -> bool {
        let before = self.record.clone();
        self.known.write_to(&mut self.record);
        self.record != before
    }
}
