//! The service of a process: how it is started, watched, limited and started again.

use std::fmt::Write as _;

use topology::{
    ALLOCATOR_VARIABLES, BOOT_VARIABLE, EXIT_SOCKET_HARMED, Process, ProcessRow, RESTARTS_VARIABLE,
    WATCH_DIRECTORY_NAME,
};

use crate::hardening;
use crate::names::{HEAD, PREPARE, PROGRAMS, RUN_DIRECTORY, TARGET, repair_name, socket_name};

/// How long a process may be silent, in seconds; as with our supervisor.
const WATCHDOG_SECONDS: u32 = 5;

/// How long a process may take until it is ready, in seconds: as long as it may wait for its
/// turn, and then as long as with our supervisor.
pub(crate) const START_SECONDS: u64 = 25;

/// Names the socket where a process tells what it has refused; `process` reads it.
const REFUSALS_VARIABLE: &str = "BULKHEAD_REFUSALS";

/// Where a process finds its configuration: as `supervisor --prepare` writes them.
fn configuration(process: Process) -> String {
    match process {
        Process::ConfigSourcer | Process::CredentialProvider => {
            format!("{RUN_DIRECTORY}/{process}.node.json")
        }
        _ => format!("{RUN_DIRECTORY}/node.json"),
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
         # Who ends before it waits by itself is started again after a pause.\n\
         StartLimitIntervalSec=20\n\
         StartLimitBurst=25\n\
         OnFailure={}\n\
         \n\
         [Service]\n\
         Type=notify\n\
         NotifyAccess=main\n\
         ExecStart={PROGRAMS}/{process} --node-config {}\n\
         Environment={allocator}\n\
         # systemd does not know what it refuses to others; who watches does.\n\
         Environment={REFUSALS_VARIABLE}={RUN_DIRECTORY}/{WATCH_DIRECTORY_NAME}/{process}.notify\n\
         # Who ends again and again waits longer each time before it starts, by what it has\n\
         # there of this boot: systemd 252 has one wait for all.\n\
         Environment={RESTARTS_VARIABLE}=/var/lib/bulkhead/{process}/restarts\n\
         Environment={BOOT_VARIABLE}=%b\n\
         # Its own wait is counted.\n\
         TimeoutStartSec={START_SECONDS}\n\
         WatchdogSec={WATCHDOG_SECONDS}\n\
         Restart=always\n\
         # More than 0 takes up to 250 ms longer than it says: systemd's timers have this slack.\n\
         RestartSec=0\n\
         # A bad configuration does not get better by itself, and a socket that a run has\n\
         # harmed is made anew first.\n\
         RestartPreventExitStatus=78 {EXIT_SOCKET_HARMED}\n\
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
        repair_name(process),
        configuration(process),
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
