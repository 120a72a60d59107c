//! What is used at one moment, and what two moments together tell. Pure.

use std::collections::BTreeMap;

use bulkhead_api::v1;

/// Longest name of a pod.
const MAX_NAME_BYTES: usize = 253;

/// What a pod uses; absent is what is not known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) name: String,
    /// Thousandths of a processor, over the time between two readings.
    pub(super) cpu_millis: Option<u64>,
    pub(super) memory_bytes: Option<u64>,
    /// What containers wrote in their own layers.
    pub(super) disk_bytes: Option<u64>,
    /// Bytes a second, over the time between two readings.
    pub(super) received: Option<u64>,
    pub(super) sent: Option<u64>,
}

/// By what rows are sorted, the largest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum SortBy {
    /// Processor time.
    Cpu,
    /// Memory.
    Memory,
    /// Disk.
    Disk,
    /// Network, both ways together.
    Network,
}

/// The rows of pods, sorted.
pub(super) fn pods(before: &[v1::PodUsage], now: &[v1::PodUsage], by: SortBy) -> Vec<Row> {
    let earlier: BTreeMap<&str, &v1::PodUsage> = before.iter().map(|pod| (uid(pod), pod)).collect();
    let rows = now.iter();
    sorted(
        rows.map(|pod| of_pod(earlier.get(uid(pod)).copied(), pod)),
        by,
    )
}

/// All rows in one.
pub(super) fn total(rows: &[Row]) -> Row {
    let sum = |value: fn(&Row) -> Option<u64>| {
        let values = rows.iter().filter_map(value);
        values.reduce(u64::saturating_add)
    };
    Row {
        name: String::new(),
        cpu_millis: sum(|row| row.cpu_millis),
        memory_bytes: sum(|row| row.memory_bytes),
        disk_bytes: sum(|row| row.disk_bytes),
        received: sum(|row| row.received),
        sent: sum(|row| row.sent),
    }
}

fn sorted(rows: impl Iterator<Item = Row>, by: SortBy) -> Vec<Row> {
    let key = |row: &Row| match by {
        SortBy::Cpu => row.cpu_millis,
        SortBy::Memory => row.memory_bytes,
        SortBy::Disk => row.disk_bytes,
        SortBy::Network => row
            .received
            .map(|received| received.saturating_add(row.sent.unwrap_or(0))),
    };
    let mut rows: Vec<Row> = rows.collect();
    rows.sort_by(|left, right| {
        let larger_first = key(right).cmp(&key(left));
        larger_first.then_with(|| left.name.cmp(&right.name))
    });
    rows
}

fn uid(pod: &v1::PodUsage) -> &str {
    pod.pod.as_ref().map_or("", |pod| &pod.uid)
}

fn of_pod(earlier: Option<&v1::PodUsage>, pod: &v1::PodUsage) -> Row {
    let name = pod.pod.as_ref().map_or_else(String::new, |pod| {
        let [namespace, name] = [&pod.namespace, &pod.name].map(|it| shortened(it));
        format!("{namespace}/{name}")
    });
    let containers = || pod.containers.iter();
    let sum = |value: fn(&v1::ContainerUsage) -> Option<u64>| {
        containers().filter_map(value).reduce(u64::saturating_add)
    };
    let cpu = containers().filter_map(|container| {
        let mut earlier = earlier?.containers.iter();
        let earlier = earlier.find(|it| it.id == container.id)?;
        per_second(
            (earlier.cpu_nanos?, earlier.cpu_at_unix_nanos),
            (container.cpu_nanos?, container.cpu_at_unix_nanos),
        )
    });
    let network = |bytes: fn(&v1::NetworkUsage) -> u64| {
        let (earlier, now) = (earlier?.network.as_ref()?, pod.network.as_ref()?);
        per_second(
            (bytes(earlier), earlier.at_unix_nanos),
            (bytes(now), now.at_unix_nanos),
        )
    };
    Row {
        name,
        cpu_millis: cpu.reduce(u64::saturating_add).map(millis),
        memory_bytes: sum(|container| container.memory_bytes),
        disk_bytes: sum(|container| container.layer_bytes),
        received: network(|network| network.received_bytes),
        sent: network(|network| network.sent_bytes),
    }
}

/// As much of a name as one may have.
fn shortened(name: &str) -> &str {
    &name[..name.floor_char_boundary(MAX_NAME_BYTES)]
}

/// What was added in a second, of a counter and the time at which it was read; none
/// where no time has passed, or the counter began anew.
fn per_second(before: (u64, i64), now: (u64, i64)) -> Option<u64> {
    let added = now.0.checked_sub(before.0)?;
    let nanos = u128::try_from(now.1.checked_sub(before.1)?).ok()?;
    let per_second = (u128::from(added) * 1_000_000_000).checked_div(nanos)?;
    u64::try_from(per_second).ok()
}

/// Thousandths of a processor, of nanoseconds of its time in a second; more than none
/// is one at least.
fn millis(nanos_per_second: u64) -> u64 {
    nanos_per_second.div_ceil(1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000_000;

    /// Container id, processor time in milliseconds, memory.
    fn pod(name: &str, at: i64, containers: &[(&str, u64, u64)]) -> v1::PodUsage {
        let container = |&(id, cpu, memory): &(&str, u64, u64)| v1::ContainerUsage {
            id: id.to_owned(),
            cpu_nanos: Some(cpu * 1_000_000),
            cpu_at_unix_nanos: at * SECOND,
            memory_bytes: Some(memory),
            ..v1::ContainerUsage::default()
        };
        v1::PodUsage {
            pod: Some(v1::PodReference {
                uid: format!("uid-{name}"),
                namespace: "default".to_owned(),
                name: name.to_owned(),
            }),
            containers: containers.iter().map(container).collect(),
            network: None,
        }
    }

    #[test]
    fn processor_time_is_what_was_added_between_two_readings() {
        for (before, now, expected) in [
            // 500 ms of processor time in 2 s.
            (vec![("a", 1_000, 5)], vec![("a", 1_500, 5)], Some(250)),
            (
                vec![("a", 0, 5), ("b", 0, 5)],
                vec![("a", 400, 5), ("b", 200, 5)],
                Some(300),
            ),
            (vec![("a", 0, 5)], vec![("a", 0, 5)], Some(0)),
            // A container that was started in between says nothing yet.
            (vec![("a", 1_000, 5)], vec![("b", 10, 5)], None),
            (
                vec![("a", 1_000, 5)],
                vec![("a", 1_200, 5), ("b", 10, 5)],
                Some(100),
            ),
            // A counter that goes back is another one.
            (vec![("a", 1_000, 5)], vec![("a", 10, 5)], None),
        ] {
            let (first, second) = (vec![pod("web", 10, &before)], vec![pod("web", 12, &now)]);
            let rows = pods(&first, &second, SortBy::Cpu);
            assert_eq!(rows[0].cpu_millis, expected, "{before:?} {now:?}");
        }
        let same = vec![pod("web", 10, &[("a", 1, 5)])];
        assert_eq!(pods(&same, &same, SortBy::Cpu)[0].cpu_millis, None);
    }

    #[test]
    fn a_pod_uses_what_its_containers_use() {
        let mut usage = pod("web", 10, &[("a", 0, 5), ("b", 0, 7)]);
        usage.containers[0].layer_bytes = Some(3);
        let row = &pods(&[], &[usage], SortBy::Cpu)[0];
        assert_eq!(row.name, "default/web");
        assert_eq!(
            (row.memory_bytes, row.disk_bytes, row.received),
            (Some(12), Some(3), None)
        );
        let named = vec![pod(&"\u{9b}".repeat(1 << 20), 10, &[])];
        assert!(pods(&[], &named, SortBy::Cpu)[0].name.len() < 300);
        let empty = vec![pod("web", 10, &[])];
        assert_eq!(pods(&[], &empty, SortBy::Cpu)[0].memory_bytes, None);
    }

    #[test]
    fn a_network_carries_what_was_added_in_a_second() {
        let with = |received: u64, sent: u64, at: i64| {
            let mut usage = pod("web", 10, &[]);
            usage.network = Some(v1::NetworkUsage {
                received_bytes: received,
                sent_bytes: sent,
                at_unix_nanos: at * SECOND,
            });
            vec![usage]
        };
        for (before, now, expected) in [
            (with(100, 10, 10), with(300, 10, 12), (Some(100), Some(0))),
            // The sandbox is another one.
            (with(100, 10, 10), with(50, 20, 12), (None, Some(5))),
            (with(100, 10, 10), with(300, 10, 10), (None, None)),
        ] {
            let row = &pods(&before, &now, SortBy::Cpu)[0];
            assert_eq!((row.received, row.sent), expected);
        }
    }

    #[test]
    fn rows_are_sorted_with_the_largest_first_and_the_unknown_last() {
        let row = |name: &str, cpu, memory, disk, received, sent| Row {
            name: name.to_owned(),
            cpu_millis: cpu,
            memory_bytes: memory,
            disk_bytes: disk,
            received,
            sent,
        };
        let rows = [
            row("a", None, Some(1), Some(9), Some(5), Some(0)),
            row("b", Some(2), Some(3), None, Some(1), Some(9)),
            row("c", Some(2), None, Some(4), None, None),
        ];
        for (by, expected) in [
            (SortBy::Cpu, "bca"),
            (SortBy::Memory, "bac"),
            (SortBy::Disk, "acb"),
            (SortBy::Network, "bac"),
        ] {
            let names = sorted(rows.iter().cloned(), by)
                .into_iter()
                .map(|row| row.name);
            assert_eq!(names.collect::<String>(), expected, "{by:?}");
        }
        let total = total(&rows);
        assert_eq!(total, row("", Some(4), Some(4), Some(13), Some(6), Some(9)));
    }
}
