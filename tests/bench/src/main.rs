//! The same work by direct CRI calls (the floor) and by Bulkhead, in one run, as
//! ratios. No threshold here is a test: the table shows the budget beside what
//! was measured.

mod burst;
mod cluster_node;
mod direct;
mod dispatch;
mod idle;
mod kills;
mod latency;
mod processes;
mod restart;
mod sessions;
mod statistics;
mod world;

use anyhow::Result;
use clap::{Parser, ValueEnum};

use statistics::{Row, say};
use test_support::disk::Disk;
use world::World;

/// Measures Bulkhead against direct calls to the container runtime.
#[derive(Parser)]
struct Arguments {
    /// Only these measurements.
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Measurement>,
    /// Repetitions of the short measurements.
    #[arg(long, default_value_t = 15)]
    repetitions: usize,
    /// Pods of the burst, and pods that are removed before a start.
    #[arg(long, default_value_t = 100)]
    burst: usize,
    /// Numbers of direct calls at a time that are tried, beside all at once; the best
    /// of them is the floor of a burst.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 2, 3, 4, 5, 6, 8])]
    at_a_time: Vec<usize>,
    /// Pods of the idle nodes, one after the other.
    #[arg(long, value_delimiter = ',', default_values_t = [100, 250])]
    idle_pods: Vec<usize>,
    /// Seconds over which the idle node is watched.
    #[arg(long, default_value_t = 60)]
    idle_seconds: u64,
    /// Pods that come and go before memory is looked at.
    #[arg(long, default_value_t = 1000)]
    memory_pods: usize,
    /// How many of them are there at once.
    #[arg(long, default_value_t = 50)]
    memory_batch: usize,
    /// Kills of each process, for `--only kills`; a node makes one of each in little more than
    /// a second.
    #[arg(long, default_value_t = 1000)]
    kills: usize,
    /// Nodes that share these kills, at the same time.
    #[arg(long, default_value_t = 2)]
    kill_nodes: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Measurement {
    /// One pod, from its manifest to its process.
    Start,
    /// From the manifest's removal to a stopped sandbox.
    Stop,
    /// From a container's exit to its next start.
    Exit,
    /// Many pods at once.
    Burst,
    /// One pod right after many were removed.
    AfterRemovals,
    /// From the kill of a process to its next answer.
    Restart,
    /// The same over many kills of each process; only when asked for.
    Kills,
    /// From an event into sync-loop to UpdatePod out of it.
    Dispatch,
    /// Pods of a cluster, against a kubelet; where KUBEBUILDER_ASSETS names a control plane.
    Cluster,
    /// Commands, logs and ports of containers, against a kubelet; where there is a control plane.
    Sessions,
    /// Processor time and memory of an idle node.
    Idle,
    /// Memory after many pods have come and gone.
    Memory,
}

const ALL: &[Measurement] = &[
    Measurement::Dispatch,
    Measurement::Start,
    Measurement::Stop,
    Measurement::Exit,
    Measurement::Burst,
    Measurement::AfterRemovals,
    Measurement::Restart,
    Measurement::Kills,
    Measurement::Cluster,
    Measurement::Sessions,
    Measurement::Idle,
    Measurement::Memory,
];

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let mut rows = Vec::new();
    for &measurement in ALL {
        let is_wanted = match arguments.only.as_slice() {
            // That takes long.
            [] => measurement != Measurement::Kills,
            only => only.contains(&measurement),
        };
        if !is_wanted {
            continue;
        }
        say(&format!("measuring: {measurement:?}"));
        let _disk = Disk::mount()?;
        let measured = match measurement {
            Measurement::Start => latency::start(&World::create()?, arguments.repetitions),
            Measurement::Stop => latency::stop(&World::create()?, arguments.repetitions),
            Measurement::Exit => latency::exit_to_restart(&World::create()?, arguments.repetitions),
            Measurement::Burst => {
                let world = World::create()?;
                burst::burst(&world, arguments.burst, &arguments.at_a_time)
            }
            Measurement::AfterRemovals => {
                let world = World::create()?;
                burst::after_removals(&world, arguments.burst, arguments.repetitions)
            }
            Measurement::Restart => restart::each_part(arguments.repetitions.min(10)),
            Measurement::Kills => kills::measure(arguments.kills, arguments.kill_nodes),
            Measurement::Dispatch => dispatch::measure(),
            Measurement::Cluster => cluster_node::measure(arguments.repetitions),
            Measurement::Sessions => sessions::measure(arguments.repetitions),
            Measurement::Idle => {
                let nodes = arguments.idle_pods.iter();
                nodes
                    .map(|pods| idle::measure(*pods, arguments.idle_seconds))
                    .collect::<Result<Vec<_>>>()
                    .map(|rows| rows.concat())
            }
            Measurement::Memory => {
                idle::measure_memory_after(arguments.memory_pods, arguments.memory_batch)
            }
        };
        match measured {
            Ok(more) => {
                say(&statistics::table(&more));
                rows.extend(more);
            }
            Err(error) => rows.push(Row::failed(&format!("{measurement:?}"), &error)),
        }
    }
    say(&statistics::table(&rows));
    Ok(())
}
