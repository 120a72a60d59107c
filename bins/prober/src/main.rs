//! The prober process: see the library.

use std::process::ExitCode;
use std::sync::Arc;

use prober::NodeNetwork;
use topology::Process;

fn main() -> ExitCode {
    process::main(
        Process::Prober,
        |config, _| Ok(prober::open(config)),
        |context, opened| prober::serve(context, opened, Arc::new(NodeNetwork)),
    )
}
