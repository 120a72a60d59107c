//! Each process as an attacker of those whom it calls. The server lives, with the same pid,
//! and answers its other callers meanwhile, half of the time within twice the usual time.

use std::fs;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result};
use e2e::bystanders::{self, Turns};
use e2e::callers::{Callable as _, Machine};
use e2e::credential_program;
use e2e::ground::TIMEOUT;
use e2e::twins::{Programs, attack_everybody};
use test_support::{BulkheadInstance, ContainerdOptions, PrivateContainerd};
use topology::{Identities, Process};

/// Nobody calls it a delay, however short the usual one is: what a busy machine has in any
/// case. The figures of `cargo xtask bench` are far below it.
const NO_DELAY: Duration = Duration::from_millis(20);

fn programs(patience: Duration) -> Programs {
    Programs {
        hostile_twin: env!("CARGO_BIN_EXE_hostile-twin").into(),
        call_as: env!("CARGO_BIN_EXE_call-as").into(),
        patience,
    }
}

#[test]
fn a_server_outlives_each_of_its_callers_as_an_attacker_and_answers_the_others() -> Result<()> {
    let containerd = PrivateContainerd::start(&ContainerdOptions::default())?;
    let directory = containerd.node().directory_of(0);
    let options = credential_program::install(&directory, "exit 1", &["a.io".to_owned()])?;
    let instance = BulkheadInstance::start(&containerd, &options)?;
    let identities = Identities::from_base(instance.uid_base())?;
    let pids = instance.pids()?;
    let programs = programs(TIMEOUT);
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

/// Nothing else says that the test above attacks somebody.
#[test]
fn who_does_not_read_or_hangs_up_on_everybody_has_met_no_attack() -> Result<()> {
    for keeps in [true, false] {
        let directory = format!("silent-{}-{keeps}", std::process::id());
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(directory);
        fs::create_dir_all(&directory)?;
        let place = Machine {
            run_directory: directory.clone(),
        };
        let server = Process::SyncLoop;
        let listener = UnixListener::bind(place.socket(server))?;
        thread::spawn(move || {
            let accepted = listener.incoming().flatten();
            // Kept as long as the thread, or not at all.
            accepted.filter(|_| keeps).collect::<Vec<_>>()
        });
        let identities = Identities::from_base(64_000)?;
        let programs = programs(Duration::from_millis(300));
        let result = attack_everybody(&place, &programs, &identities, &[server], |_| {});
        fs::remove_dir_all(&directory)?;
        let error = format!("{:#}", result.err().context("all is well")?);
        let (_, unmet) = error.split_once("not met: ").context(error.clone())?;
        assert_eq!(unmet.split(", ").count(), 12, "{error}");
    }
    Ok(())
}
