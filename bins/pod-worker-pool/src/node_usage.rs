//! What the whole machine uses. Nothing is decided by it: it is for people and statistics.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bulkhead_api::v1 as api;
use clock::WallClock;
use cri::RuntimeReads;
use node_host::{NodeError, NodeHost};
use node_layout::{FilesystemUsage, MachineCounters, MachineUsage};

use crate::eviction::{ImagesAt, ask_where_images_are};

/// How long a look at one thing may take: what hangs is absent.
const MAY_TAKE: Duration = Duration::from_secs(2);

const NANOS: i64 = 1_000_000_000;

/// Looks at the machine.
pub(crate) struct NodeUsageReader {
    runtime: Arc<dyn RuntimeReads>,
    host: Arc<dyn NodeHost>,
    images_at: ImagesAt,
    clock: WallClock,
}

impl NodeUsageReader {
    pub(crate) fn new(
        runtime: Arc<dyn RuntimeReads>,
        host: Arc<dyn NodeHost>,
        clock: WallClock,
    ) -> NodeUsageReader {
        NodeUsageReader {
            runtime,
            host,
            images_at: ImagesAt::default(),
            clock,
        }
    }

    /// What can be found out now.
    pub(crate) async fn read(&self) -> api::NodeUsage {
        let (usage, counters, pods, images) = tokio::join!(
            within(self.host.machine_usage()),
            within(self.host.machine_counters()),
            within(self.host.filesystem_usage(None)),
            self.of_images(),
        );
        api::NodeUsage {
            at_unix_nanos: self.clock.now().0,
            filesystem: pods.map(of_filesystem),
            image_filesystem: images.map(of_filesystem),
            ..of_machine(usage, counters)
        }
    }

    async fn of_images(&self) -> Option<FilesystemUsage> {
        let asking = ask_where_images_are(&*self.runtime, MAY_TAKE);
        let path = self.images_at.or_ask(asking).await?;
        within(self.host.filesystem_usage(Some(Path::new(&path)))).await
    }
}

async fn within<T>(look: impl Future<Output = Result<T, NodeError>>) -> Option<T> {
    tokio::time::timeout(MAY_TAKE, look).await.ok()?.ok()
}

fn of_machine(usage: Option<MachineUsage>, counters: Option<MachineCounters>) -> api::NodeUsage {
    let memory = api::MemoryUsage {
        available_bytes: usage.map(|it| it.memory_available_bytes),
        usage_bytes: counters.map(|it| it.memory_used_bytes),
        working_set_bytes: usage.map(|it| {
            let (all, available) = (it.memory_capacity_bytes, it.memory_available_bytes);
            all.saturating_sub(available)
        }),
        rss_bytes: counters.map(|it| it.memory_anonymous_bytes),
        page_faults: counters.map(|it| it.page_faults),
        major_page_faults: counters.map(|it| it.major_page_faults),
    };
    let booted_at = counters.and_then(|it| i64::try_from(it.booted_at).ok());
    api::NodeUsage {
        cpu_nanos: counters.map(|it| it.cpu_nanos),
        memory: Some(memory),
        max_pids: usage.map(|it| it.max_processes),
        pids: usage.map(|it| it.processes),
        booted_at_unix_nanos: booted_at.unwrap_or_default().saturating_mul(NANOS),
        ..api::NodeUsage::default()
    }
}

fn of_filesystem(usage: FilesystemUsage) -> api::FilesystemUsage {
    let FilesystemUsage {
        device: _,
        capacity_bytes,
        available_bytes,
        inodes,
        inodes_free,
    } = usage;
    api::FilesystemUsage {
        available_bytes: Some(available_bytes),
        capacity_bytes: Some(capacity_bytes),
        used_bytes: Some(capacity_bytes.saturating_sub(available_bytes)),
        inodes_free: Some(inodes_free),
        inodes: Some(inodes),
        inodes_used: Some(inodes.saturating_sub(inodes_free)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_read_is_absent() {
        let usage = MachineUsage {
            memory_capacity_bytes: 100,
            memory_available_bytes: 40,
            max_processes: 1000,
            processes: 7,
        };
        let counters = MachineCounters {
            cpu_nanos: 5,
            booted_at: 3,
            memory_used_bytes: 80,
            memory_anonymous_bytes: 20,
            page_faults: 9,
            major_page_faults: 1,
        };
        let all = of_machine(Some(usage), Some(counters));
        let memory = all.memory.unwrap();
        assert_eq!(memory.working_set_bytes, Some(60));
        assert_eq!(memory.usage_bytes, Some(80));
        assert_eq!((all.cpu_nanos, all.pids), (Some(5), Some(7)));
        assert_eq!(all.booted_at_unix_nanos, 3 * NANOS);
        let half = of_machine(Some(usage), None);
        assert_eq!((half.cpu_nanos, half.pids), (None, Some(7)));
        assert_eq!(half.memory.unwrap().usage_bytes, None);
        let none = of_machine(None, None);
        assert_eq!((none.cpu_nanos, none.pids), (None, None));
    }
}
