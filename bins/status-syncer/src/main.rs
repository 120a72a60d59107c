//! status-syncer: PodStatus from observations. All of it is in the library.

use std::process::ExitCode;

use topology::Process;

fn main() -> ExitCode {
    process::main(
        Process::StatusSyncer,
        |config, _| Ok(status_syncer::open(config)),
        status_syncer::serve,
    )
}
