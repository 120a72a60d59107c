//! The service of a process: how it is started, watched, limited and started again.

use std::fmt::Write as _;

use topology::{Process, ProcessRow};

use crate::hardening;
use crate::names::{HEAD, PREPARE, PROGRAMS, RUN_DIRECTORY, TARGET, socket_name};

/// How long a process may be silent, in seconds; as with our supervisor.
const WATCHDOG_SECONDS: u32 = 5;

/// What keeps the memory of a process small; as with our supervisor.
const ALLOCATOR_VARIABLES: &str =
    "MALLOC_ARENA_MAX=1 MALLOC_MMAP_THRESHOLD_=131072 MALLOC_TRIM_THRESHOLD_=131072";

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
         Environment={ALLOCATOR_VARIABLES}\n\
         # A run may have shut its socket down, which systemd keeps for the next one.\n\
         ExecStopPost=+{PROGRAMS}/supervisor --repair-socket={process}\n\
         WatchdogSec={WATCHDOG_SECONDS}\n\
         # systemd 252 has no growing waits: restart-steps.conf.254 has them for later ones.\n\
         Restart=always\n\
         RestartSec=100ms\n\
         # A bad configuration does not get better by itself.\n\
         RestartPreventExitStatus=78\n\
         TimeoutStopSec=6\n\
         KillMode=control-group\n\
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
        configuration(process),
        row.oom_score_adj,
        row.memory_max_bytes >> 20,
        row.tasks_max,
        row.cpu_weight,
        row.io_weight,
    );
    if process == Process::PodWorkerPool {
        // Its last connections to the runtime, which carry calls under way, and its lock
        // that delays a shutdown of the node.
        text.push_str("FileDescriptorStoreMax=8\n");
    }
    for (name, value) in hardening::settings(row) {
        let _ = writeln!(text, "{name}={value}");
    }
    text
}

/// What a later systemd can do better: waits that grow from a hundredth of a second.
pub(crate) fn restart_steps(row: &ProcessRow) -> String {
    format!(
        "{HEAD}# With systemd 254 and later: restarts at once, and waits that grow.\n\
         [Service]\n\
         RestartSec=10ms\n\
         RestartSteps=8\n\
         RestartMaxDelaySec={}\n",
        row.backoff_cap.as_secs()
    )
}
