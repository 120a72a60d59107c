//! Each process as an attacker of those whom it calls. The server lives, with the same pid,
//! and answers its other callers meanwhile.

use anyhow::Result;
use e2e::credential_program;
use e2e::twins::{Programs, attack_everybody};
use test_support::{BulkheadInstance, ContainerdOptions, PrivateContainerd};
use topology::{Identities, Process};

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
    assert_eq!(instance.pids()?, pids, "all live on");
    Ok(())
}
