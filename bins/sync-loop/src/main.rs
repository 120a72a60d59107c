//! The sync-loop process: see the library.

use std::process::ExitCode;

use topology::Process;

fn main() -> ExitCode {
    process::main(Process::SyncLoop, sync_loop::run)
}
