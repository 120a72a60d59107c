//! config-sourcer: the pods that should run here. All of it is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    process::main(topology::Process::ConfigSourcer, config_sourcer::run)
}
