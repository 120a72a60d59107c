//! The units of the bundle, in which systemd supervises the processes in place of our
//! supervisor: one service and one socket for each process, from its row in the topology.
//! What is in `systemd/bundle` and `systemd/system-preset` is what this crate makes; a test
//! compares them, and `cargo xtask units` writes them.
//!
//! Pure. Not here: `systemd/bulkhead.service`, which runs the supervisor, and what both ways
//! to run Bulkhead want, `systemd/bulkhead-loopback.service`.

mod hardening;
mod names;
mod service;

use std::fmt::Write as _;

use topology::{PROCESSES, Process, ProcessRow, SOCKET_BACKLOG};

use names::{HEAD, LOOPBACK, PREPARE, RUN_DIRECTORY, SUPERVISOR, TARGET, socket_name};
pub use names::{PROGRAMS, service_name};

/// A file for systemd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitFile {
    /// Its name, below `systemd/bundle` for one of the bundle.
    pub name: String,
    /// What it says.
    pub text: String,
}

/// All files of the bundle, in the order of their names.
#[must_use]
pub fn bundle() -> Vec<UnitFile> {
    let mut files = vec![target(), prepare()];
    for row in supervised() {
        files.push(socket(row));
        files.push(UnitFile {
            name: service_name(row.process),
            text: service::service(row),
        });
    }
    files.sort_by(|one, other| one.name.cmp(&other.name));
    files
}

/// The processes that systemd starts: all but the supervisor, whose place it takes.
fn supervised() -> impl Iterator<Item = &'static ProcessRow> {
    let others = |row: &&ProcessRow| row.process != Process::Supervisor;
    PROCESSES.iter().filter(others)
}

/// The names of the processes in the order in which an upgrade restarts them: the reverse
/// of that in which they start, so that the one that works for all others is the last.
#[must_use]
pub fn order_of_upgrade() -> Vec<&'static str> {
    let names = supervised().map(|row| row.process.name());
    let mut names: Vec<&str> = names.collect();
    names.reverse();
    names
}

/// Whether every node runs it; who is not one of them starts with its first caller.
fn is_on_every_node(row: &ProcessRow) -> bool {
    Process::ON_EVERY_NODE.contains(&row.process)
}

/// What is enabled where nobody has said: neither of the two ways to run Bulkhead. Debian's
/// systemd would enable both, when an image boots for the first time as a machine of its own.
///
/// There is no file for systemd-tmpfiles beside it, because it would be empty: the supervisor
/// makes and checks its directories, in [`PREPARE`] too, which sockets come after, and what
/// is below `/run` goes with the machine.
#[must_use]
pub fn preset() -> UnitFile {
    let text = format!("{HEAD}disable {SUPERVISOR}\ndisable {TARGET}\n");
    UnitFile {
        name: "90-bulkhead.preset".to_owned(),
        text,
    }
}

fn target() -> UnitFile {
    let mut wanted = [LOOPBACK, PREPARE].map(str::to_owned).to_vec();
    for row in supervised() {
        wanted.push(socket_name(row.process));
        // Others are started by their first caller.
        if is_on_every_node(row) || row.services.is_empty() {
            wanted.push(service_name(row.process));
        }
    }
    let text = format!(
        "{HEAD}# The processes of Bulkhead, each a service of its own. Containers belong to the\n\
         # container runtime and go on when this target stops.\n\
         [Unit]\n\
         Description=Bulkhead, a Kubernetes node agent, as services of their own\n\
         Wants={}\n\
         # The same processes, supervised by ours.\n\
         Conflicts={SUPERVISOR}\n\
         After={SUPERVISOR}\n\
         \n\
         [Install]\n\
         WantedBy=multi-user.target\n",
        wanted.join(" ")
    );
    UnitFile {
        name: TARGET.to_owned(),
        text,
    }
}

fn prepare() -> UnitFile {
    // It is confined like one of the others, and sees what of that the machine gives.
    let row = topology::row(Process::Supervisor);
    let text = format!(
        "{HEAD}# Makes the directories of the processes and writes the resolved configuration that\n\
         # they read. To read a changed one: bulkhead reload\n\
         [Unit]\n\
         Description=Bulkhead: directories and configuration\n\
         # Of two that change places, the supervisor has its directories to the end.\n\
         After=network-online.target {SUPERVISOR}\n\
         Wants=network-online.target\n\
         PartOf={TARGET}\n\
         StartLimitIntervalSec=0\n\
         \n\
         [Service]\n\
         Type=oneshot\n\
         RemainAfterExit=yes\n\
         ExecStart={PROGRAMS}/supervisor --config=/etc/bulkhead/kubelet.yaml --prepare\n\
         # Whom an earlier failure has kept from starting, systemd does not start by itself.\n\
         # Without one the target is not reached yet: it comes after what it wants.\n\
         ExecStartPost=-/bin/sh -c 'systemctl --quiet is-active {TARGET} && \
         systemctl start --no-block --job-mode=fail {TARGET}'\n\
         # The same for processes that run, which are restarted after it: by `bulkhead\n\
         # reload`, or by an upgrade in its order.\n\
         ExecReload={PROGRAMS}/supervisor --config=/etc/bulkhead/kubelet.yaml --prepare --again\n\
         Restart=on-failure\n\
         RestartSec=2\n\
         # What does not pass by itself, as in {SUPERVISOR}.\n\
         RestartPreventExitStatus=2 10 14 15 17 78\n\
         # To hand each process its directory and set its mode; for namespaces, which it tries.\n\
         CapabilityBoundingSet=CAP_CHOWN CAP_FOWNER CAP_SYS_ADMIN CAP_SYS_CHROOT\n\
         NoNewPrivileges=yes\n\
         # Like those of the processes, so that it sees what of them is not in force here.\n\
         OOMScoreAdjust={}\n\
         MemoryMax={}M\n\
         TasksMax={}\n\
         CPUWeight={}\n\
         IOWeight={}\n\
         IPAddressDeny={}\n",
        row.oom_score_adj,
        row.memory_max_bytes >> 20,
        row.tasks_max,
        row.cpu_weight,
        row.io_weight,
        hardening::refused_networks(),
    );
    UnitFile {
        name: PREPARE.to_owned(),
        text,
    }
}

fn socket(row: &ProcessRow) -> UnitFile {
    let process = row.process;
    let mut text = String::new();
    let _ = write!(
        text,
        "{HEAD}[Unit]\n\
         Description=Bulkhead: socket of {process}\n\
         # Other sockets come before the services of a boot, and {PREPARE}\n\
         # is one of these.\n\
         DefaultDependencies=no\n\
         Conflicts=shutdown.target\n\
         Before=shutdown.target\n\
         Requires={PREPARE}\n\
         After={PREPARE}\n\
         PartOf={TARGET}\n\
         \n\
         [Socket]\n\
         ListenStream={RUN_DIRECTORY}/{}\n\
         FileDescriptorName={process}\n\
         # Root's; who else may connect is on the access list that comes next.\n\
         SocketMode=0600\n\
         ExecStartPost={PROGRAMS}/supervisor --permit-callers={process}\n\
         Backlog={SOCKET_BACKLOG}\n\
         # Callers wait for the next run, however often a process ends.\n\
         FlushPending=no\n\
         TriggerLimitIntervalSec=0\n\
         RemoveOnStop=yes\n",
        process.socket_file_name()
    );
    UnitFile {
        name: socket_name(process),
        text,
    }
}

#[cfg(test)]
mod tests;
