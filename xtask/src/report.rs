//! What developers see: the one place that prints.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "output of a developer command"
)]

/// A line of output.
pub(crate) fn line(text: &str) {
    println!("{text}");
}

/// The headline of a step.
pub(crate) fn step(title: &str) {
    println!("\n== {title}");
}

/// Why the command failed, with all causes.
pub(crate) fn failure(error: &anyhow::Error) {
    eprintln!("error: {error:#}");
}
