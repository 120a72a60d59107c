//! Developer commands. `cargo xtask --help` lists them.

mod bench;
mod boot;
mod build;
mod count;
mod demo;
mod failures;
mod fuzz;
mod images;
mod manual;
mod package;
mod packages;
mod report;
mod sim;
mod soak;
mod teeth;
mod test;
mod tree;
mod units;
mod vm;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Developer commands of Bulkhead.
///
/// Each installs the Debian packages that it needs and that are missing, so
/// it works on a fresh machine with Rust and a C compiler; `vm-test` only tells
/// which. All but `images`, `package`, `units`, `count`, `sim`, `sim-teeth` and `fuzz`
/// need root: they make namespaces, cgroups and mounts,
/// in places of their own, and remove them again.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the whole agent with example pods and show it
    Demo(demo::Arguments),
    /// Run every check and test, as CI does
    Test(test::Arguments),
    /// Run tests of cgroups in a booted Debian with its own kernel (cgroup v2)
    VmTest(vm::Arguments),
    /// Boot systemd in a container, and run Bulkhead there in both ways
    BootTest(boot::Arguments),
    /// Measure against direct calls of the container runtime
    Bench(bench::Arguments),
    /// Give readers of manifests, files and logs many changed inputs
    Fuzz(fuzz::Arguments),
    /// Kill and harm processes for a long time, while pods must not notice
    Soak(soak::Arguments),
    /// Play scenarios on a simulated node, thousands of them
    Sim(sim::Arguments),
    /// Put faults into a copy of the product, which those scenarios have to find
    SimTeeth(teeth::Arguments),
    /// Build a Debian package of the release programs
    Package(package::Arguments),
    /// Write the units of the systemd bundle, which come from the table of processes
    Units,
    /// Count lines of code and tests, and words of the documents
    Count,
    /// Build the images that tests and the demo use
    Images,
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().command {
        Command::Demo(arguments) => demo::run(&arguments),
        Command::Test(arguments) => test::run(&arguments),
        Command::VmTest(arguments) => vm::run(&arguments),
        Command::BootTest(arguments) => boot::run(&arguments),
        Command::Bench(arguments) => bench::run(&arguments),
        Command::Fuzz(arguments) => fuzz::run(&arguments),
        Command::Soak(arguments) => soak::run(&arguments),
        Command::Sim(arguments) => sim::run(&arguments),
        Command::SimTeeth(arguments) => teeth::run(&arguments),
        Command::Package(arguments) => package::run(&arguments),
        Command::Units => units::run(),
        Command::Count => count::run(),
        Command::Images => images::run(),
    };
    outcome.unwrap_or_else(|error| {
        report::failure(&error);
        ExitCode::FAILURE
    })
}
