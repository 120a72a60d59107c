//! The service of a process: how it is started, watched, limited and started again.

use std::fmt::Write as _;

use topology::{ALLOCATOR_VARIABLES, Process, ProcessRow};

use crate::hardening;
use crate::names::{HEAD, PREPARE, PROGRAMS, RUN_DIRECTORY, TARGET, socket_name};

/// How long a process may be silent, in seconds; as with our supervisor.
const WATCHDOG_SECONDS: u32 = 5;

/// How long a process may take until it is ready, in seconds; as with our supervisor.
const START_SECONDS: u32 = 10;

/// Where a process finds its configuration: as `supervisor --prepare` writes them.
fn configuration(row: &ProcessRow) -> String {
    match row.has_secrets {
        true => format!("{RUN_DIRECTORY}/{}.node.json", row.process),
        false => format!("{RUN_DIRECTORY}/node.json"),
    }
}

/// The whole file.
pub(crate) fn service(row: &ProcessRow) -> String {
    let process = row.process;
    let socket = socket_name(process);
    let allocator = ALLOCATOR_VARIABLES.map(|(name, value)| format!("{name}={value}"));
    let allocator = allocator.join(" ");
    let mut text = String::new();
    let _ = write!(
        text,
        "{HEAD}[Unit]\n\
         Description=Bulkhead {process}: {}\n\
         Requires={PREPARE} {socket}\n\
         After={PREPARE} {socket}\n\
         PartOf={TARGET}\n\
         StartLimitIntervalSec=0\n\
         \n\
         [Service]\n\
         Type=notify\n\
         NotifyAccess=main\n\
         ExecStart={PROGRAMS}/{process} --node-config {}\n\
         Environment={allocator}\n\
         TimeoutStartSec={START_SECONDS}\n\
         WatchdogSec={WATCHDOG_SECONDS}\n\
         Restart=always\n\
         # systemd's timers have a slack of up to 250 ms more.\n\
         RestartSec=100ms\n\
         TimeoutStopSec=6\n\
         # SIGTERM goes to the process alone; what it has left behind is killed at once.\n\
         KillMode=mixed\n\
         OOMPolicy=kill\n\
         OOMScoreAdjust={}\n\
         MemoryMax={}M\n\
         TasksMax={}\n\
         CPUWeight={}\n\
         IOWeight={}\n\
         LimitCORE=0\n\
         UMask=0077\n\
         WorkingDirectory=/\n",
        row.job,
        configuration(row),
        row.oom_score_adj,
        row.memory_max_bytes >> 20,
        row.tasks_max,
        row.cpu_weight,
        row.io_weight,
    );
    if process == Process::PodWorkerPool {
        // Its last connections to the runtime, which carry calls under way, and its lock
        // that delays a shutdown of the node. It lets go of what is too old, since systemd
        // refuses the newest when there are too many.
        text.push_str("FileDescriptorStoreMax=8\n");
    }
    for (name, value) in hardening::settings(row) {
        let _ = writeln!(text, "{name}={value}");
    }
    text
}
