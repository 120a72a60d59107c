//! What confines the running processes, as the kernel tells it, against the topology.

use std::collections::BTreeSet;
use std::fs;

use anyhow::{Context as _, Result};
use confinement::{Starter, faults, refusals_mistold};
use e2e::Ground;
use topology::{Account, Identities, Namespace, Process, row};

#[test]
fn each_process_has_namespaces_of_its_own_as_the_topology_says() -> Result<()> {
    let ground = Ground::with_every_process()?;
    let pids = ground.bulkhead.pids()?;
    assert_eq!(pids.len(), Process::ALL.len());
    for shown in ground.bulkhead.processes()? {
        let process: Process = shown.name.parse()?;
        for kind in Namespace::ALL {
            let mut words = shown.confinement.split(", ");
            let is_shown = words.any(|word| word == kind.file_name());
            let expected = row(process).namespaces.contains(&kind);
            assert_eq!(is_shown, expected, "{process} {}", shown.confinement);
        }
    }
    for kind in Namespace::ALL {
        let of = |pid: &u32| fs::read_link(format!("/proc/{pid}/ns/{}", kind.file_name()));
        let nodes = pids.get(&Process::Supervisor);
        let nodes = of(nodes.context("no supervisor")?)?;
        let mut seen = BTreeSet::new();
        for (process, pid) in &pids {
            let found = of(pid)?;
            if row(*process).namespaces.contains(&kind) {
                assert_ne!(found, nodes, "{process} {kind:?}");
                assert!(seen.insert(found), "{process} shares its {kind:?}");
            } else {
                assert_eq!(found, nodes, "{process} {kind:?}");
            }
        }
    }
    Ok(())
}

#[test]
fn the_kernel_confines_each_process_as_the_topology_says() -> Result<()> {
    let ground = Ground::with_every_process()?;
    let identities = Identities::from_base(ground.bulkhead.uid_base())?;
    let pids = ground.bulkhead.pids()?;
    assert_eq!(pids.len(), Process::ALL.len());
    let pid_of = |process| pids.get(&process).copied().context("it does not run");
    let node = pid_of(Process::Supervisor)?;
    let found = |process| {
        let account = Account {
            uid: identities.uid(process),
            gid: identities.gid(process),
        };
        faults(
            process,
            pid_of(process)?,
            node,
            account,
            Starter::Supervisor,
        )
    };
    for process in Process::ALL {
        assert_eq!(found(process)?, Vec::<String>::new(), "{process}");
    }
    // What the machine refuses is not asked for; then the supervisor says so.
    let status = ground.bulkhead.command_line_json(&["status"])?;
    let told = status["degradations"].to_string();
    println!("degraded: {told}");
    assert_eq!(refusals_mistold(&told)?, Vec::<String>::new(), "{told}");
    // Anybody may make it more likely.
    let score = format!("/proc/{}/oom_score_adj", pid_of(Process::Pleg)?);
    fs::write(score, "1")?;
    let faults = found(Process::Pleg)?;
    assert_eq!(faults.len(), 1, "another score is noticed: {faults:?}");
    Ok(())
}
