//! What a running process has of a node that is short of memory, processors or disk, and
//! what this machine refuses of it to everybody, found out without asking Bulkhead.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result};
use topology::{PROCESSES, Process, row};

use crate::starter::Starter;

/// The files of a weight of disks. A kernel may have two of them, one for each of its
/// schedulers.
const DISK_WEIGHTS: [&str; 4] = [
    "io.weight",
    "io.bfq.weight",
    "blkio.weight",
    "blkio.bfq.weight",
];

/// What systemd writes into the first of them with version 1, for a weight of 1.
const DISK_WEIGHT_OF_VERSION_1: u64 = 5;

/// Processor shares of version 1 that a weight of 100 is.
const SHARES_OF_USUAL_WEIGHT: u64 = 1024;

/// The weights of one process, and its score for want of memory.
#[derive(Clone, Debug)]
pub(crate) struct Shares {
    pub(crate) oom_score: Option<i16>,
    /// The score that whoever started it has.
    pub(crate) oom_score_of_starter: Option<i16>,
    /// Each file of a weight that its cgroup has.
    pub(crate) weights: Vec<(&'static str, u64)>,
    /// Where each of them is.
    pub(crate) cgroups: BTreeMap<&'static str, PathBuf>,
    pub(crate) refusals: Vec<Refusal>,
}

/// Something that some machines refuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// To be killed less likely than others.
    OomScore,
    /// Weights of disks.
    Disks,
}

impl Refusal {
    const ALL: [Refusal; 2] = [Refusal::OomScore, Refusal::Disks];

    /// What the supervisor tells of it has these words.
    fn words(self) -> &'static str {
        match self {
            Refusal::OomScore => "cannot set oom_score_adj",
            Refusal::Disks => "share disks",
        }
    }

    /// Whether this machine refuses it to the caller, who is root.
    fn is_so(self) -> Result<bool> {
        Ok(match self {
            Refusal::OomScore => {
                let least = PROCESSES.iter().map(|row| row.oom_score_adj).min();
                let write = format!("echo {} > /proc/self/oom_score_adj", least.unwrap_or(0));
                // A process of its own: the caller keeps what it has.
                let mut shell = Command::new("sh");
                shell.args(["-c", &write]).stderr(Stdio::null());
                !shell.status().context("cannot start a shell")?.success()
            }
            Refusal::Disks => !gives_weights_of_disks()?,
        })
    }

    /// All that this machine refuses.
    pub(crate) fn found() -> Result<Vec<Refusal>> {
        let mut found = Vec::new();
        for refusal in Refusal::ALL {
            if refusal.is_so()? {
                found.push(refusal);
            }
        }
        Ok(found)
    }
}

/// Whether a cgroup that is made beside the caller's gets a weight of disks. With version 1
/// in a container they may be read-only, or there are none.
fn gives_weights_of_disks() -> Result<bool> {
    let has = |cgroup: &Path| DISK_WEIGHTS.iter().any(|file| cgroup.join(file).exists());
    let memberships = fs::read_to_string("/proc/self/cgroup")?;
    let mut controllers = memberships.lines().filter_map(|line| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        controllers
            .split(',')
            .any(|it| it == "blkio")
            .then_some(path)
    });
    let Some(own) = controllers.next() else {
        let cgroups = fs::read_dir("/sys/fs/cgroup")?.flatten();
        return Ok(cgroups.into_iter().any(|cgroup| has(&cgroup.path())));
    };
    let name = format!("bulkhead-weights-{}", std::process::id());
    let made = Path::new("/sys/fs/cgroup/blkio")
        .join(own.trim_start_matches('/'))
        .join(name);
    if fs::create_dir(&made).is_err() {
        return Ok(false);
    }
    let gives = has(&made);
    fs::remove_dir(&made)?;
    Ok(gives)
}

/// The cgroup of a process that a controller has: with version 1 that of its hierarchy.
pub(crate) fn directory_of(memberships: &str, controller: &str) -> PathBuf {
    let lines = memberships.lines().filter_map(|line| line.split_once(':'));
    let mut paths: Vec<(&str, &str)> = lines.filter_map(|(_, rest)| rest.split_once(':')).collect();
    // That of version 2 has no controllers, and is the last to be asked.
    paths.sort_by_key(|(controllers, _)| controllers.is_empty());
    let has = |controllers: &str| {
        controllers.is_empty() || controllers.split(',').any(|it| it == controller)
    };
    let found = paths.into_iter().find(|(controllers, _)| has(controllers));
    let (controllers, path) = found.unwrap_or_default();
    let top = Path::new("/sys/fs/cgroup");
    let top = match controllers.is_empty() {
        true => top.to_owned(),
        false => top.join(controller),
    };
    top.join(path.trim_start_matches('/'))
}

/// What of this is wrong: the supervisor tells (`told`) that the machine refuses something,
/// which it does not, or the other way round. A line for each.
///
/// # Errors
/// When it cannot be tried.
pub fn refusals_mistold(told: &str) -> Result<Vec<String>> {
    let found = Refusal::found()?;
    let wrong = |refusal: &Refusal| {
        let (is_told, is_found) = (told.contains(refusal.words()), found.contains(refusal));
        let it = refusal.words();
        (is_told != is_found).then(|| format!("{it}: told {is_told}, found {is_found}"))
    };
    Ok(Refusal::ALL.iter().filter_map(wrong).collect())
}

impl Shares {
    /// Of a process with this `/proc/PID/cgroup`, started by another. With version 1 its
    /// cgroups may have other paths in each hierarchy.
    pub(crate) fn read(pid: u32, starter: u32, memberships: &str) -> Result<Shares> {
        let score = |pid| {
            let text = fs::read_to_string(format!("/proc/{pid}/oom_score_adj")).ok()?;
            text.trim().parse().ok()
        };
        let (mut weights, mut cgroups) = (Vec::new(), BTreeMap::new());
        for (controller, files) in [
            ("cpu", &["cpu.weight", "cpu.shares"][..]),
            ("blkio", &DISK_WEIGHTS),
        ] {
            let directory = directory_of(memberships, controller);
            for file in files {
                let text = fs::read_to_string(directory.join(file)).ok();
                let first = text.as_deref().and_then(|text| text.lines().next());
                let number = first.map(|line| line.trim_start_matches("default ").trim());
                if let Some(number) = number {
                    weights.push((*file, number.parse().context(*file)?));
                    cgroups.insert(*file, directory.clone());
                }
            }
        }
        Ok(Shares {
            oom_score: score(pid),
            oom_score_of_starter: score(starter),
            weights,
            cgroups,
            refusals: Refusal::found()?,
        })
    }

    /// What is not as the row of the process says.
    pub(crate) fn faults(&self, process: Process, starter: Starter) -> Vec<String> {
        let row = row(process);
        let mut faults = Vec::new();
        let least = match self.refusals.contains(&Refusal::OomScore) {
            true => self.oom_score_of_starter,
            false => Some(row.oom_score_adj),
        };
        let expected = least.map(|least| row.oom_score_adj.max(least));
        if self.oom_score.is_none() || self.oom_score != expected {
            let found = self.oom_score;
            faults.push(format!("oom_score_adj: {found:?}, and not {expected:?}"));
        }
        let is_of_disks = |file: &str| DISK_WEIGHTS.contains(&file);
        let has = |disks| self.weights.iter().any(|it| is_of_disks(it.0) == disks);
        if !has(false) {
            faults.push("it has no weight of processors".to_owned());
        }
        if !has(true) && !self.refusals.contains(&Refusal::Disks) {
            faults.push("it has no weight of disks".to_owned());
        }
        for (file, found) in &self.weights {
            let weight = match is_of_disks(file) {
                true => row.io_weight,
                false => row.cpu_weight,
            };
            let expected = content(file, weight.into(), starter);
            if *found != expected {
                let cgroup = self.cgroups.get(file).map(PathBuf::as_path);
                let cgroup = cgroup.unwrap_or(Path::new("")).display();
                faults.push(format!("{file} of {cgroup}: {found}, and not {expected}"));
            }
        }
        faults
    }
}

/// What a file has for a weight.
fn content(file: &str, weight: u64, starter: Starter) -> u64 {
    match (file, starter) {
        ("cpu.shares", _) => weight * SHARES_OF_USUAL_WEIGHT / 100,
        ("io.bfq.weight", Starter::Systemd) => of_bfq(weight),
        ("blkio.weight", Starter::Systemd) => weight * DISK_WEIGHT_OF_VERSION_1,
        ("blkio.bfq.weight", Starter::Systemd) => of_bfq(weight * DISK_WEIGHT_OF_VERSION_1),
        _ => weight,
    }
}

/// What systemd makes of weights up to 10,000 where the kernel takes 1,000 at most: those
/// above the usual one are moved together.
fn of_bfq(weight: u64) -> u64 {
    match weight.checked_sub(100) {
        Some(more) => 100 + more * 900 / 9_900,
        None => weight,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> Shares {
        let row = row(Process::PodWorkerPool);
        Shares {
            oom_score: Some(row.oom_score_adj),
            oom_score_of_starter: Some(-999),
            weights: vec![("cpu.shares", 2048), ("io.weight", 200)],
            cgroups: BTreeMap::new(),
            refusals: Vec::new(),
        }
    }

    fn found(shares: &Shares) -> Vec<String> {
        shares.faults(Process::PodWorkerPool, Starter::Supervisor)
    }

    #[test]
    fn each_other_share_of_a_running_process_is_a_fault() {
        assert_eq!(found(&good()), Vec::<String>::new());
        let changes: [fn(&mut Shares); 7] = [
            |it| it.oom_score = Some(0),
            |it| it.oom_score = None,
            |it| it.weights = vec![("cpu.shares", 2048)],
            |it| it.weights = vec![("io.weight", 200)],
            |it| it.weights[0].1 = 1024,
            |it| it.weights[1].1 = 100,
            |it| it.weights.push(("io.bfq.weight", 100)),
        ];
        for (number, change) in changes.iter().enumerate() {
            let mut other = good();
            change(&mut other);
            assert_eq!(found(&other).len(), 1, "number {number}");
        }
    }

    #[test]
    fn what_the_machine_refuses_is_no_fault_and_all_else_is() {
        let mut refused = good();
        refused.weights.truncate(1);
        refused.refusals = Refusal::ALL.to_vec();
        for (own, of_starter, faults) in [
            (0, 0, 0),
            (-500, -500, 0),
            (-998, -999, 0),
            (0, -500, 1),
            (-998, 0, 1),
        ] {
            refused.oom_score = Some(own);
            refused.oom_score_of_starter = Some(of_starter);
            assert_eq!(found(&refused).len(), faults, "{own} below {of_starter}");
        }
        (refused.oom_score, refused.oom_score_of_starter) = (None, None);
        assert_eq!(found(&refused).len(), 1, "nothing is known");
    }

    #[test]
    fn weights_of_systemd_are_those_that_it_writes() {
        for (file, expected) in [
            ("io.weight", [50, 100, 200]),
            ("io.bfq.weight", [50, 100, 109]),
            ("blkio.weight", [250, 500, 1000]),
            ("blkio.bfq.weight", [113, 136, 181]),
            ("cpu.shares", [512, 1024, 2048]),
        ] {
            let found = [50, 100, 200].map(|weight| content(file, weight, Starter::Systemd));
            assert_eq!(found, expected, "{file}");
        }
    }
}
