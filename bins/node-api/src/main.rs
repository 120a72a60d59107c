//! The node-api process: see the library.

use std::process::ExitCode;

use topology::Process;

fn main() -> ExitCode {
    process::main(
        Process::NodeApi,
        |config, _| node_api::open(config),
        node_api::serve,
    )
}
