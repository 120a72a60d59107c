//! The `bulkhead` command line: see the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    bulkhead_cli::main()
}
