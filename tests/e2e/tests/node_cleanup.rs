//! A test node never outlives its owner for long, however the owner ends.

use std::io::{BufRead as _, BufReader};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use test_support::node::{Leftovers, NodeIdentity, reap_dead_owners};
use test_support::wait_for;

#[test]
fn an_interrupted_owner_removes_its_node_first() -> Result<()> {
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let (mut owner, identity) = hold_node()?;
        assert!(!identity.leftovers()?.processes.is_empty());
        kill(Pid::from_raw(i32::try_from(owner.id())?), signal)?;
        let status = owner.wait()?;
        assert_eq!(status.signal(), Some(signal as i32), "it ends as told");
        assert_eq!(identity.leftovers()?, Leftovers::default());
    }
    Ok(())
}

#[test]
fn what_a_killed_owner_leaves_is_removed_by_the_next_one() -> Result<()> {
    let (mut owner, identity) = hold_node()?;
    owner.kill()?;
    owner.wait()?;
    // Another test may start a node now, which removes them too.
    wait_for(
        "the leftovers to be removed",
        Duration::from_secs(30),
        || {
            reap_dead_owners().map_err(|error| format!("{error:#}"))?;
            match identity.leftovers().map_err(|error| format!("{error:#}"))? {
                leftovers if leftovers == Leftovers::default() => Ok(()),
                leftovers => Err(format!("{leftovers:?}")),
            }
        },
    )?;
    Ok(())
}

#[test]
fn the_node_of_a_living_owner_is_left_alone() -> Result<()> {
    let (mut owner, identity) = hold_node()?;
    let before = identity.leftovers()?.processes;
    reap_dead_owners()?;
    assert_eq!(identity.leftovers()?.processes, before);
    kill(Pid::from_raw(i32::try_from(owner.id())?), Signal::SIGTERM)?;
    owner.wait()?;
    Ok(())
}

/// A process that owns a node, and the node's identity.
fn hold_node() -> Result<(Child, NodeIdentity)> {
    let mut owner = Command::new(env!("CARGO_BIN_EXE_hold-node"))
        .stdout(Stdio::piped())
        .spawn()?;
    let output = owner.stdout.take().context("no output")?;
    let mut line = String::new();
    BufReader::new(output).read_line(&mut line)?;
    let identity = line
        .trim_end()
        .parse()
        .context("the owner did not come up")?;
    Ok((owner, identity))
}
