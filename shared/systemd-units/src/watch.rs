//! The service that watches the processes as our supervisor does: what they keep on the
//! disk, and what they refuse to each other.

use topology::{Process, WATCH_DIRECTORY_NAME, row};

use crate::names::{HEAD, PREPARE, PROGRAMS, RUN_DIRECTORY, TARGET};

/// What it may do as root, and why is beside it. It does not reach the system bus, so that
/// it has no more of root's rights than these.
const CAPABILITIES: &str = "CAP_CHOWN CAP_DAC_OVERRIDE CAP_FOWNER CAP_KILL";

/// Settings like those of the processes. It sees who is in which service by `/proc`.
const HARDENING: &str = "\
NoNewPrivileges=yes
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
ProtectClock=yes
ProtectHostname=yes
LockPersonality=yes
MemoryDenyWriteExecute=yes
SystemCallArchitectures=native
SystemCallErrorNumber=EPERM
KeyringMode=private
ProtectSystem=strict
ProtectHome=yes
PrivateTmp=yes
InaccessiblePaths=/tmp /var/tmp -/dev/shm
PrivateDevices=yes
ProtectKernelTunables=yes
ProtectKernelModules=yes
ProtectKernelLogs=yes
ProtectControlGroups=yes
ProcSubset=pid
PrivateMounts=yes
PrivateNetwork=yes
PrivateIPC=yes
RestrictAddressFamilies=AF_UNIX
IPAddressDeny=any
SystemCallFilter=@system-service
SystemCallFilter=~@resources @setuid @keyring @memlock
SystemCallFilter=seccomp
";

/// The whole file.
pub(crate) fn service() -> String {
    // It does the same as the supervisor, which starts the processes and serves beside it.
    let row = row(Process::Supervisor);
    format!(
        "{HEAD}[Unit]\n\
         Description=Bulkhead: watches what its processes keep and refuse\n\
         Requires={PREPARE}\n\
         After={PREPARE}\n\
         PartOf={TARGET}\n\
         StartLimitIntervalSec=0\n\
         \n\
         [Service]\n\
         Type=notify\n\
         NotifyAccess=main\n\
         ExecStart={PROGRAMS}/supervisor --watch\n\
         WatchdogSec=10\n\
         Restart=always\n\
         RestartSec=1\n\
         # A bad configuration does not get better by itself.\n\
         RestartPreventExitStatus=78\n\
         OOMScoreAdjust={}\n\
         MemoryMax={}M\n\
         TasksMax={}\n\
         LimitCORE=0\n\
         UMask=0077\n\
         WorkingDirectory=/\n\
         User=root\n\
         # Root by number alone has nothing. It gives sockets to the processes, sees and\n\
         # clears their directories, those with the sticky bit too, and kills them.\n\
         SecureBits=noroot noroot-locked\n\
         AmbientCapabilities={CAPABILITIES}\n\
         CapabilityBoundingSet={CAPABILITIES}\n\
         ReadWritePaths=/var/lib/bulkhead\n\
         # Here the processes tell it what they refuse, and it tells what it has found.\n\
         RuntimeDirectory=bulkhead/{WATCH_DIRECTORY_NAME}\n\
         # Neither the system bus nor the container runtime, which do what root asks.\n\
         TemporaryFileSystem=/run:ro\n\
         BindReadOnlyPaths={RUN_DIRECTORY} /run/systemd/notify\n\
         {HARDENING}",
        row.oom_score_adj,
        row.memory_max_bytes >> 20,
        row.tasks_max,
    )
}
