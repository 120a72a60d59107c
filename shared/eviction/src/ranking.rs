//! Which pod goes first: one that uses more than it requested, then the one of the lower
//! priority, then the one that uses most beyond its request.

use std::cmp::Reverse;

use crate::candidate::Candidate;
use crate::disks::DiskLayout;
use crate::signal::{Resource, Signal};
use crate::usage::PodUsage;

/// The order among pods that are short of one thing; what is smaller goes first.
type Rank<'a> = (Option<(bool, i32, Reverse<i128>)>, &'a str);

/// Orders pods, who goes first before the others, for a shortage of what the signal is
/// about. A pod whose usage nobody knows goes before all others, as in a kubelet, and so
/// does one whose files are too many or too deep to be measured where files matter; what
/// is equal goes by UID.
pub fn rank(pods: &mut [(Candidate, Option<PodUsage>)], signal: Signal, layout: DiskLayout) {
    pods.sort_by(|(first, first_usage), (second, second_usage)| {
        let first = place(first, first_usage.as_ref(), signal, layout);
        first.cmp(&place(second, second_usage.as_ref(), signal, layout))
    });
}

fn place<'a>(
    pod: &'a Candidate,
    usage: Option<&PodUsage>,
    signal: Signal,
    layout: DiskLayout,
) -> Rank<'a> {
    let resource = signal.resource();
    let of_known = |usage: &PodUsage| {
        let (used, requested) = match resource {
            Resource::Memory => (usage.memory(), pod.memory_request),
            Resource::EphemeralStorage => {
                let used = usage.on_disk(layout.parts(signal), resource);
                (used, pod.storage_request)
            }
            // Nobody can request these.
            Resource::Inodes => (usage.on_disk(layout.parts(signal), resource), 0),
            Resource::Pids => (usage.processes, 0),
        };
        let beyond = i128::from(used) - i128::from(requested);
        // Process ids are nobody's by request, so only priority and use decide.
        let is_within = resource != Resource::Pids && beyond <= 0;
        (is_within, pod.priority, Reverse(beyond))
    };
    let are_files = matches!(resource, Resource::EphemeralStorage | Resource::Inodes);
    let known = usage.filter(|usage| !(are_files && usage.is_partial));
    (known.map(of_known), &pod.uid)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{candidate, usage};
    use crate::usage::ContainerUsage;
    use node_layout::TreeSize;

    fn order(mut pods: Vec<(Candidate, Option<PodUsage>)>, signal: Signal) -> Vec<String> {
        rank(&mut pods, signal, DiskLayout::SeparateImages);
        pods.into_iter().map(|(pod, _)| pod.uid).collect()
    }

    /// A pod by priority, request and use of memory.
    fn memory(uid: &str, priority: i32, request: i64, used: u64) -> (Candidate, Option<PodUsage>) {
        let pod = Candidate {
            priority,
            memory_request: request,
            ..candidate(uid)
        };
        let of_c = ContainerUsage {
            memory: used,
            ..ContainerUsage::default()
        };
        (pod, Some(usage(of_c)))
    }

    #[test]
    fn memory_goes_by_excess_then_priority_then_use_beyond_the_request() {
        let pods = vec![
            memory("within-low-priority", -5, 400, 300),
            memory("over-high-priority", 10, 100, 900),
            memory("over-by-much", 0, 100, 600),
            memory("over-by-little", 0, 500, 900),
            memory("best-effort", 0, 0, 450),
            memory("within", 0, 900, 800),
            memory("exactly", -9, 300, 300),
            (candidate("unknown"), None),
        ];
        assert_eq!(
            order(pods, Signal::MemoryAvailable),
            [
                "unknown",
                "over-by-much",
                "best-effort",
                "over-by-little",
                "over-high-priority",
                "exactly",
                "within-low-priority",
                "within",
            ]
        );
    }

    /// A pod by its layer, logs and volume.
    fn disk(
        uid: &str,
        request: i64,
        [layer, logs, volume]: [u64; 3],
    ) -> (Candidate, Option<PodUsage>) {
        let tree = |amount| TreeSize {
            bytes: amount,
            inodes: 1000 - amount,
        };
        let of_c = ContainerUsage {
            layer: tree(layer),
            logs: tree(logs),
            ..ContainerUsage::default()
        };
        let mut used = usage(of_c);
        used.volumes.insert("v".to_owned(), tree(volume));
        let pod = Candidate {
            storage_request: request,
            ..candidate(uid)
        };
        (pod, Some(used))
    }

    #[test]
    fn only_what_lies_on_the_full_disk_counts() {
        let pods = || {
            vec![
                disk("layer", 0, [900, 1, 1]),
                disk("logs", 0, [1, 500, 1]),
                disk("volume", 0, [2, 1, 800]),
                disk("requested", 900, [3, 1, 850]),
            ]
        };
        assert_eq!(
            order(pods(), Signal::NodefsAvailable),
            ["volume", "logs", "layer", "requested"]
        );
        assert_eq!(
            order(pods(), Signal::ImagefsAvailable),
            ["layer", "volume", "logs", "requested"]
        );
        let mut hosts_file = disk("hosts-file", 0, [1, 1, 1]);
        if let Some(usage) = &mut hosts_file.1 {
            usage.other.bytes = 900;
        }
        let mut with_it = pods();
        with_it.push(hosts_file);
        let order_of = |signal| order(with_it.clone(), signal);
        assert_eq!(order_of(Signal::NodefsAvailable)[0], "hosts-file");
        assert_eq!(order_of(Signal::ImagefsAvailable)[0], "layer");
        // Inodes: those with fewer bytes have more of them here.
        assert_eq!(
            order(pods(), Signal::NodefsInodesFree),
            ["layer", "logs", "volume", "requested"]
        );
    }

    /// Or a pod could make itself the last to go, with files that take long to measure.
    #[test]
    fn a_pod_whose_files_could_not_all_be_measured_goes_first_when_a_disk_is_full() {
        let pods = || {
            let mut partial = disk("partial", 0, [1, 1, 1]);
            if let Some(usage) = &mut partial.1 {
                usage.is_partial = true;
            }
            vec![disk("large", 0, [1, 900, 1]), partial]
        };
        for signal in [Signal::NodefsAvailable, Signal::NodefsInodesFree] {
            assert_eq!(order(pods(), signal), ["partial", "large"], "{signal}");
        }
        let by_processes = order(pods(), Signal::PidAvailable);
        assert_eq!(by_processes, ["large", "partial"]);
    }

    #[test]
    fn process_ids_go_by_priority_then_use() {
        let pod = |uid: &str, priority, processes| {
            let pod = Candidate {
                priority,
                ..candidate(uid)
            };
            let used = PodUsage {
                processes,
                ..PodUsage::default()
            };
            (pod, Some(used))
        };
        let pods = vec![pod("high", 5, 900), pod("few", 0, 3), pod("many", 0, 40)];
        assert_eq!(order(pods, Signal::PidAvailable), ["many", "few", "high"]);
    }
}
