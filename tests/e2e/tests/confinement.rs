//! What confines the running processes, as the kernel tells it, against the topology.

use std::collections::BTreeSet;
use std::fs;

use anyhow::{Context as _, Result};
use confinement::{Starter, faults};
use e2e::Ground;
use serde_json::json;
use topology::{Account, Identities, Namespace, Process, row};

#[test]
fn each_process_has_namespaces_of_its_own_as_the_topology_says() -> Result<()> {
    let ground = Ground::start(json!({}))?;
    let pids = ground.bulkhead.pids()?;
    assert_eq!(pids.len(), Process::ON_EVERY_NODE.len());
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
    let ground = Ground::start(json!({}))?;
    let identities = Identities::from_base(ground.bulkhead.uid_base())?;
    let pids = ground.bulkhead.pids()?;
    assert_eq!(pids.len(), Process::ON_EVERY_NODE.len());
    let node = *pids.get(&Process::Supervisor).context("no supervisor")?;
    for (process, pid) in pids {
        let account = Account {
            uid: identities.uid(process),
            gid: identities.gid(process),
        };
        let faults = faults(process, pid, node, account, Starter::Supervisor)?;
        assert_eq!(faults, Vec::<String>::new(), "{process}");
    }
    Ok(())
}
