//! What the units are called, and the places that they name.

use topology::Process;

/// Where the programs are installed.
pub const PROGRAMS: &str = "/usr/libexec/bulkhead";

/// The run directory, which the units name.
pub(crate) const RUN_DIRECTORY: &str = "/run/bulkhead";

/// What prepares the node for the processes.
pub(crate) const PREPARE: &str = "bulkhead-prepare.service";

/// What keeps others off the node's loopback addresses; not of the bundle.
pub(crate) const LOOPBACK: &str = "bulkhead-loopback.service";

/// What starts and stops all of them.
pub(crate) const TARGET: &str = "bulkhead.target";

/// What runs our supervisor, which runs the rest.
pub(crate) const SUPERVISOR: &str = "bulkhead.service";

/// What says where a file comes from, at its head.
pub(crate) const HEAD: &str = "# Made from the table of processes by `cargo xtask units`.\n";

/// The name of the service of a process.
#[must_use]
pub fn service_name(process: Process) -> String {
    format!("bulkhead-{process}.service")
}

/// The name of its socket.
pub(crate) fn socket_name(process: Process) -> String {
    format!("bulkhead-{process}.socket")
}
