//! How long a caller waits for a server that another one attacks, in each way that a caller
//! can: on one processor and behind everybody else, so that the figure tells of the server.

use std::time::Duration;

use anyhow::Result;
use e2e::bystanders::{self, Turns, Waits};
use e2e::credential_program;
use e2e::ground::TIMEOUT;
use e2e::twins::Programs;
use test_support::{BulkheadInstance, ContainerdOptions, PrivateContainerd, binaries};
use topology::Identities;

use crate::statistics::{Row, Samples};

/// All pairs of a server and its attacker, after two rows with the answers of all of them.
pub(crate) fn measure(rounds: usize, calls: usize) -> Result<Vec<Row>> {
    let containerd = PrivateContainerd::start(&ContainerdOptions::default())?;
    let directory = containerd.node().directory_of(0);
    let options = credential_program::install(&directory, "exit 1", &["a.io".to_owned()])?;
    let instance = BulkheadInstance::start(&containerd, &options)?;
    let identities = Identities::from_base(instance.uid_base())?;
    let beside = |name: &str| -> Result<_> {
        let directory = binaries::profile_directory()?;
        Ok(directory.join(name))
    };
    let programs = Programs {
        hostile_twin: beside("hostile-twin")?,
        call_as: beside("call-as")?,
        patience: TIMEOUT,
    };
    let mut rows = Vec::new();
    let (mut quiet, mut attacked) = (Waits::default(), Waits::default());
    let turns = Turns { rounds, calls };
    bystanders::measure(&instance, &programs, &identities, turns, |case| {
        let who = format!(
            "{} answers {}, attacked by {}",
            case.server, case.bystander, case.attacker
        );
        rows.extend(both(&who, &case.quiet, &case.attacked));
        for (all, more) in [(&mut quiet, case.quiet), (&mut attacked, case.attacked)] {
            all.kept.extend(more.kept);
            all.fresh.extend(more.fresh);
        }
    })?;
    let all = both("an attacked server answers others", &quiet, &attacked);
    Ok(all.into_iter().chain(rows).collect())
}

fn both(who: &str, quiet: &Waits, attacked: &Waits) -> [Row; 2] {
    let row = |what: &str, attacked: &[Duration], quiet: &[Duration]| {
        let (attacked, quiet) = (Samples::of(attacked), Samples::of(quiet));
        Row::against(&format!("{who}{what}"), &attacked, &quiet, "<= 2")
    };
    [
        row("", &attacked.kept, &quiet.kept),
        row(", connecting first", &attacked.fresh, &quiet.fresh),
    ]
}
