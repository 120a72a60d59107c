//! The api-gateway process: see the library.

use std::process::ExitCode;

use topology::Process;

fn main() -> ExitCode {
    process::main(
        Process::ApiGateway,
        |config, _| api_gateway::open(config),
        api_gateway::serve,
    )
}
