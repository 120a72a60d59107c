//! The program in the test images: a server whose health a test can switch,
//! with endings and signal handling on order. One process can play several
//! parts at once; what it does is told by its options alone.

mod behaviour;
mod grpc_health;
mod http_server;
mod journal;
mod options;

use clap::Parser;

use crate::options::Options;

fn main() -> std::process::ExitCode {
    let options = Options::parse();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    match runtime {
        Ok(runtime) => runtime.block_on(behaviour::run(options)),
        Err(error) => behaviour::fail("cannot start the runtime", &error),
    }
}
