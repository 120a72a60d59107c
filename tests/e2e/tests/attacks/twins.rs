//! Each process as an attacker of those whom it calls. The server lives, with the same pid,
//! and answers its other callers meanwhile, half of the time within twice the usual time.

use std::time::Duration;

use anyhow::Result;
use e2e::bystanders::{self, Turns};
use e2e::credential_program;
use e2e::twins::{Programs, attack_everybody};
use test_support::{BulkheadInstance, ContainerdOptions, PrivateContainerd};
use topology::{Identities, Process};

/// Nobody calls it a delay, however short the usual one is: what a busy machine has in any
/// case. The figures of `cargo xtask bench` are far below it.
const NO_DELAY: Duration = Duration::from_millis(20);

#[test]
fn a_server_outlives_each_of_its_callers_as_an_attacker_and_answers_the_others() -> Result<()> {
    let containerd = PrivateContainerd::start(&ContainerdOptions::default())?;
    let directory = containerd.node().directory_of(0);
    let options = credential_program::install(&directory, "exit 1", &["a.io".to_owned()])?;
    let instance = BulkheadInstance::start(&containerd, &options)?;
    let identities = Identities::from_base(instance.uid_base())?;
    let pids = instance.pids()?;
    let programs = Programs {
        hostile_twin: env!("CARGO_BIN_EXE_hostile-twin").into(),
        call_as: env!("CARGO_BIN_EXE_call-as").into(),
    };
    let tell = |line: &str| println!("{line}");
    attack_everybody(&instance, &programs, &identities, &Process::ALL, tell)?;
    let turns = Turns {
        rounds: 1,
        calls: 20,
    };
    let mut delayed = Vec::new();
    bystanders::measure(&instance, &programs, &identities, turns, |case| {
        let (quiet, attacked) = (case.quiet.median(), case.attacked.median());
        if attacked > (quiet * 2).max(NO_DELAY) {
            delayed.push(case);
        }
    })?;
    assert!(delayed.is_empty(), "others wait: {delayed:#?}");
    assert_eq!(instance.pids()?, pids, "all live on");
    Ok(())
}
