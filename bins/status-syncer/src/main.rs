//! status-syncer: PodStatus from observations. All of it is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    process::main(topology::Process::StatusSyncer, status_syncer::run)
}
