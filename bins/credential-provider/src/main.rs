//! The credential-provider process: see the library.

use std::process::ExitCode;

use topology::Process;

fn main() -> ExitCode {
    process::main(
        Process::CredentialProvider,
        |_, _| Ok(()),
        |context, ()| credential_provider::serve(context),
    )
}
