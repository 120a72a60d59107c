//! The prober process: see the library.

use std::process::ExitCode;
use std::sync::Arc;

use prober::NodeNetwork;
use topology::Process;

fn main() -> ExitCode {
    process::main(Process::Prober, |context| {
        prober::run(context, Arc::new(NodeNetwork::default()))
    })
}
