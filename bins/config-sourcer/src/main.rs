//! config-sourcer: the pods that should run here. All of it is in the library.

use std::process::ExitCode;

use topology::Process;

fn main() -> ExitCode {
    process::main(
        Process::ConfigSourcer,
        |_, _| Ok(()),
        |context, ()| config_sourcer::serve(context),
    )
}
