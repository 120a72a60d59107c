//! The kills of [`kills`](crate::kills) where systemd supervises the processes, on the
//! machine itself: its `bulkhead.target` has to be active.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use topology::Process;

use crate::kills::{Node, measure_on};
use crate::statistics::Row;
use crate::world::poll;

/// Kills each process of the bundle so often, and tells how long each was away.
pub(crate) fn kills(kills: usize) -> Result<Vec<Row>> {
    measure_on(&[Bundle], kills)
}

struct Bundle;

impl Node for Bundle {
    fn run_dir(&self) -> &Path {
        Path::new("/run/bulkhead")
    }

    fn running(&self) -> Result<Vec<(Process, u32)>> {
        let mut running = Vec::new();
        for process in Process::ON_EVERY_NODE.into_iter().skip(1) {
            let pid = ready(process)?.with_context(|| format!("{process} is not ready"))?;
            running.push((process, pid));
        }
        Ok(running)
    }

    fn next_pid(&self, process: Process, old: u32) -> Result<u32> {
        poll(&format!("{process} to be ready"), || {
            Ok(ready(process)?.filter(|pid| *pid != old))
        })
    }
}

/// The main process of a service that is ready.
fn ready(process: Process) -> Result<Option<u32>> {
    let asked = Command::new("systemctl")
        .args(["show", "--property=ActiveState,MainPID"])
        .arg(format!("bulkhead-{process}.service"))
        .output()
        .context("systemctl")?;
    ensure!(asked.status.success(), "systemctl: {}", asked.status);
    let told = String::from_utf8(asked.stdout)?;
    let property = |name: &str| {
        let mut lines = told.lines();
        lines.find_map(|line| line.strip_prefix(name)?.strip_prefix('='))
    };
    let pid = property("MainPID").and_then(|pid| pid.parse().ok());
    let is_ready = property("ActiveState") == Some("active");
    Ok(pid.filter(|pid| is_ready && *pid != 0))
}
