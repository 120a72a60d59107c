//! The sync-loop process: see the library.

use std::process::ExitCode;

use topology::Process;

fn main() -> ExitCode {
    process::main(
        Process::SyncLoop,
        |config, _| Ok(sync_loop::open(config)),
        sync_loop::serve,
    )
}
