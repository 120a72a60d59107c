//! The pleg process: see the library.

use std::process::ExitCode;

use topology::Process;

fn main() -> ExitCode {
    process::main(
        Process::Pleg,
        |_, _| Ok(()),
        |context, ()| pleg::serve(context),
    )
}
