//! The real supervisor, started by tests. They need root.
#![expect(clippy::unwrap_used, reason = "helpers of tests may panic")]

mod cgroups;
mod endings;
mod hanging_disk;
mod node;
mod refusals;
mod reloads;
mod second_agent;
mod supervision;

/// Not a test by itself: the supervised processes are this program with this
/// name, and without the environment that says so there is nothing to do.
#[test]
fn acts_as_a_supervised_process_when_told_so() {
    node::child::act();
}
