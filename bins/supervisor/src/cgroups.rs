//! A cgroup for each process, the supervisor included: what it is limited to by
//! itself, and what finds everything that a run has left behind, whatever session or
//! process group that has moved to.
//!
//! They are made below the cgroup that the supervisor was started in, so a unit with
//! `Delegate=yes` has them in its own:
//!
//! ```text
//! <own>/bulkhead<run directory>/supervisor
//!                              /pleg ...
//! ```
//!
//! What cannot be made is told as a degradation, and Bulkhead runs without it. All
//! that is done here may be done again: limits are written before each start where
//! they differ, and leftovers are looked for until there are none.

mod hierarchy;
mod limits;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use config_files::bulkhead::Protection;
use rustix::process::{Pid, PidfdFlags, Signal, getpid, pidfd_open, pidfd_send_signal};
use topology::{PROCESSES, Process, ProcessRow, row};

use crate::degradation::Degradation;
use hierarchy::{Controller, Hierarchy, Version};
pub(crate) use limits::OutOfMemory;
use limits::{Limits, MemoryEvents, Setting, TASKS_FILE};

/// How the name of the cgroup of all processes begins; the run directory follows.
const NAME_PREFIX: &str = "bulkhead";

/// Lists the processes of a cgroup. Who writes 0 to it is moved there.
const MEMBERS_FILE: &str = "cgroup.procs";

/// The same for threads (version 1). Who has one thread is moved by it at once, where
/// the other file takes a grace period of RCU, some 8 ms.
const THREADS_FILE: &str = "tasks";

/// Kills all processes of a cgroup and below (version 2, Linux 5.14).
const KILL_FILE: &str = "cgroup.kill";

/// What a cgroup hands down (version 2).
const HANDED_DOWN_FILE: &str = "cgroup.subtree_control";

/// What a cgroup may hand down (version 2).
const CONTROLLERS_FILE: &str = "cgroup.controllers";

/// Most processes of one run that are ended in one go, each held by a descriptor; others
/// are in the next.
const MAX_KILLED_AT_ONCE: usize = 256;

/// The cgroups of a supervisor, in one hierarchy.
#[derive(Debug)]
struct Tree {
    version: Version,
    /// That of all processes.
    directory: PathBuf,
    controllers: Vec<Controller>,
}

/// The cgroups of all processes.
#[derive(Debug, Default)]
pub(crate) struct Cgroups {
    /// Of the cgroup of all processes, in each hierarchy.
    name: String,
    processes: Vec<Process>,
    trees: Vec<Tree>,
    /// Of each process, when it was last started.
    memory_events: BTreeMap<Process, MemoryEvents>,
}

/// What a process needs to be put into its cgroups.
#[derive(Debug, Default)]
pub(crate) struct Entrances(Vec<File>);

impl Entrances {
    /// Who writes 0 to each of them is in.
    pub(crate) fn files(&self) -> impl Iterator<Item = &File> {
        self.0.iter()
    }
}

impl Cgroups {
    /// Makes those of all processes that `runs` names, moves the caller into that of the
    /// supervisor, and says what of all that this machine does not give.
    pub(crate) fn open(
        run_dir: &Path,
        runs: impl Fn(Process) -> bool,
    ) -> (Cgroups, Option<Degradation>) {
        let processes: Vec<Process> = Process::ALL.into_iter().filter(|it| runs(*it)).collect();
        let name = name(run_dir);
        let (trees, faults) = make_all(find(), &name, &processes);
        let cgroups = Cgroups {
            name,
            processes,
            trees,
            memory_events: BTreeMap::new(),
        };
        let degradation = cgroups.degradation(&faults);
        (cgroups, degradation)
    }

    fn degradation(&self, faults: &[String]) -> Option<Degradation> {
        let has = |controller: Controller| {
            let mut trees = self.trees.iter();
            trees.any(|tree| tree.controllers.contains(&controller))
        };
        degradation(has, !self.trees.is_empty(), faults)
    }

    /// Sets the limits of a process anew, and opens the way into its cgroups. What
    /// cannot be done is logged.
    pub(crate) fn prepare(&mut self, process: Process) -> Entrances {
        let limits = Limits::of(row(process));
        let mut entrances = Vec::new();
        for tree in &self.trees {
            let directory = tree.of(process);
            let warn = |what, error: io::Error| {
                tracing::warn!(%process, "degraded: {}", fault(what, &directory, &error));
            };
            if let Err(error) = make(&directory).and_then(|()| tree.set(&directory, &limits)) {
                warn("limit", error);
            }
            let entrance = directory.join(tree.entrance_file());
            match OpenOptions::new().write(true).open(entrance) {
                Ok(file) => entrances.push(file),
                Err(error) => warn("start it in", error),
            }
        }
        let events = self.memory_events(process).unwrap_or_default();
        self.memory_events.insert(process, events);
        Entrances(entrances)
    }

    /// Puts the supervisor and `running` back into their cgroups where somebody has moved
    /// them out, and says who was moved. systemd does so with version 1: when another
    /// service of the same slice gets or loses a controller, it moves the processes of all
    /// services there in that hierarchy, delegated ones too, and removes the cgroups that
    /// are empty then.
    pub(crate) fn keep(&mut self, running: &[(Process, i32)]) -> BTreeSet<Process> {
        let pids = running
            .iter()
            .filter_map(|(process, pid)| Some((*process, Pid::from_raw(*pid)?)));
        let everybody: Vec<_> = pids.chain([(Process::Supervisor, getpid())]).collect();
        let mut moved = BTreeSet::new();
        let former = self.make_lost_trees();
        // Where it could not be made anew that has been said.
        for tree in self.trees.iter().filter(|tree| tree.has_supervisor()) {
            let away = everybody.iter().filter(|(it, pid)| !tree.has(*it, *pid));
            for (process, pid) in away {
                let directory = tree.of(*process);
                match write(&directory.join(MEMBERS_FILE), &pid.to_string()) {
                    Ok(()) => drop(moved.insert(*process)),
                    Err(error) => {
                        tracing::warn!(%process, "{}", fault("put it back into", &directory, &error));
                    }
                }
            }
        }
        if !former.is_empty() {
            moved.insert(Process::Supervisor);
            for (process, _) in running {
                let events = self.memory_events(*process).unwrap_or_default();
                self.memory_events.insert(*process, events);
            }
        }
        for tree in former {
            if self.trees.iter().all(|it| it.directory != tree.directory) {
                tree.remove_empty();
            }
        }
        moved
    }

    /// Makes those trees anew in which the supervisor is no longer, below where it is now;
    /// returns what they were.
    fn make_lost_trees(&mut self) -> Vec<Tree> {
        let mut former = Vec::new();
        for tree in self.trees.iter_mut().filter(|tree| !tree.has_supervisor()) {
            let is_its = |found: &Hierarchy| tree.is_in(found);
            let Some(hierarchy) = find().into_iter().find(is_its) else {
                continue;
            };
            let mut faults = Vec::new();
            match Tree::make(&hierarchy, &self.name, &self.processes, &mut faults) {
                Ok(made) => former.push(std::mem::replace(tree, made)),
                Err(error) => faults.push(fault("make cgroups in", &hierarchy.own, &error)),
            }
            for fault in faults {
                tracing::warn!("degraded: {fault}");
            }
        }
        former
    }

    /// Has everything end that still is in the cgroup of a process, and says how much
    /// that was. What is dying already, and not yet reaped, does not count.
    pub(crate) fn clear(&self, process: Process) -> usize {
        let Some(tree) = self.tree_to_kill_in() else {
            return 0;
        };
        match tree.clear(&tree.of(process)) {
            Ok(found) => found,
            Err(error) => {
                tracing::error!(%process, %error, "cannot look for what a run has left");
                0
            }
        }
    }

    /// Whether the process was killed for want of memory since it was last prepared.
    pub(crate) fn out_of_memory(&self, process: Process) -> Option<OutOfMemory> {
        let then = self.memory_events.get(&process)?;
        self.memory_events(process)?.since(*then)
    }

    fn memory_events(&self, process: Process) -> Option<MemoryEvents> {
        let of_memory = |tree: &&Tree| tree.controllers.contains(&Controller::Memory);
        let tree = self.trees.iter().find(of_memory)?;
        let directory = tree.of(process);
        let read = |name| fs::read_to_string(directory.join(name)).unwrap_or_default();
        let (events, fails) = match tree.version {
            Version::One => (read("memory.oom_control"), read("memory.failcnt")),
            Version::Two => (read("memory.events.local"), String::new()),
        };
        Some(MemoryEvents::parse(tree.version, &events, &fails))
    }

    /// One that can forbid new tasks, if there is one.
    fn tree_to_kill_in(&self) -> Option<&Tree> {
        let has_tasks = |tree: &&Tree| tree.controllers.contains(&Controller::Tasks);
        self.trees.iter().max_by_key(has_tasks)
    }

    /// Moves the supervisor back to where it was started and removes what is empty.
    pub(crate) fn remove(&self) {
        for tree in &self.trees {
            tree.remove();
        }
    }
}

/// What of its row's limits the caller does not have, though its unit says them: systemd
/// leaves out what the machine does not have. It ends all that a unit has left.
pub(crate) fn not_in_force(row: &ProcessRow) -> Option<Degradation> {
    let limits = Limits::of(row);
    let found = find();
    let has = |controller| found.iter().any(|it| is_set(it, &limits, controller));
    degradation(has, true, &[])
}

fn is_set(hierarchy: &Hierarchy, limits: &Limits, controller: Controller) -> bool {
    let Some((names, content)) = limits.setting(controller, hierarchy.version) else {
        return false;
    };
    let read = |name| fs::read_to_string(hierarchy.own.join(name)).ok();
    let mut found = names.iter().filter_map(read);
    // Weights of disks systemd counts in another way with version 1.
    found.any(|text| controller == Controller::Disk || text.trim() == content)
}

/// The hierarchies of cgroups, and where in each the caller is.
fn find() -> Vec<Hierarchy> {
    // Mount points of others may be any bytes.
    let text = |path| String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned();
    hierarchy::find(&text("/proc/self/mountinfo"), &text("/proc/self/cgroup"))
}

/// What is missing where only some controllers are in force, and an end is total or not.
fn degradation(
    has: impl Fn(Controller) -> bool,
    ends_all: bool,
    faults: &[String],
) -> Option<Degradation> {
    let because = match faults {
        [] => "this machine has no controller for it".to_owned(),
        faults => faults.join("; "),
    };
    let missing = Controller::ALL.into_iter().filter(|it| !has(*it));
    let mut missing: Vec<(Protection, &str)> = missing
        .map(|controller| match controller {
            Controller::Memory => (Protection::Limits, "limit memory"),
            Controller::Tasks => (Protection::Limits, "limit tasks"),
            Controller::Processor => (Protection::Shares, "share processors"),
            Controller::Disk => (Protection::Shares, "share disks"),
        })
        .collect();
    if !ends_all {
        let end = "end what a process leaves in another session";
        missing.push((Protection::TotalEnd, end));
    }
    if missing.is_empty() {
        return None;
    }
    let (lacks, what): (_, Vec<&str>) = missing.into_iter().unzip();
    let what = what.join(", ");
    Some(Degradation {
        lacks,
        text: format!("cannot {what} for each process by itself: {because}"),
    })
}

/// The name of the cgroup of all processes: of another run directory it is another.
fn name(run_dir: &Path) -> String {
    let path = run_dir.to_string_lossy();
    let escaped = path.replace('\\', "\\x5c").replace('-', "\\x2d");
    format!("{NAME_PREFIX}{}", escaped.replace('/', "-"))
}

fn make_all(found: Vec<Hierarchy>, name: &str, processes: &[Process]) -> (Vec<Tree>, Vec<String>) {
    let (mut trees, mut faults) = (Vec::new(), Vec::new());
    if found.is_empty() {
        faults.push("no hierarchy of cgroups is mounted".to_owned());
    }
    for hierarchy in found {
        match Tree::make(&hierarchy, name, processes, &mut faults) {
            Ok(tree) => trees.push(tree),
            Err(error) => faults.push(fault("make cgroups in", &hierarchy.own, &error)),
        }
    }
    (trees, faults)
}

fn fault(action: &str, path: &Path, error: &io::Error) -> String {
    format!("cannot {action} {}: {error}", path.display())
}

impl Tree {
    /// Makes the cgroups of one hierarchy; what they cannot do is added to `faults`.
    fn make(
        hierarchy: &Hierarchy,
        name: &str,
        processes: &[Process],
        faults: &mut Vec<String>,
    ) -> io::Result<Tree> {
        let mut tree = Tree {
            version: hierarchy.version,
            directory: hierarchy.own.join(name),
            controllers: hierarchy.controllers.clone(),
        };
        make(&tree.directory)?;
        make(&tree.of(Process::Supervisor))?;
        // With version 2 a cgroup that hands controllers down has no processes itself.
        tree.enter(&tree.of(Process::Supervisor))?;
        if tree.version == Version::Two {
            tree.controllers = handed_down(&hierarchy.own, &tree.directory, faults);
        }
        tree.limit(&tree.directory.clone(), &Limits::of_all(PROCESSES), faults);
        for process in processes {
            let directory = tree.of(*process);
            make(&directory)?;
            tree.limit(&directory, &Limits::of(row(*process)), faults);
        }
        Ok(tree)
    }

    fn of(&self, process: Process) -> PathBuf {
        self.directory.join(process.name())
    }

    fn has(&self, process: Process, pid: Pid) -> bool {
        members(&self.of(process)).is_ok_and(|members| members.contains(&pid))
    }

    fn has_supervisor(&self) -> bool {
        self.has(Process::Supervisor, getpid())
    }

    /// Whether it is in this hierarchy; no two of version 1 have the same controller.
    fn is_in(&self, hierarchy: &Hierarchy) -> bool {
        let mut controllers = hierarchy.controllers.iter();
        hierarchy.version == self.version
            && (self.version == Version::Two || controllers.any(|it| self.controllers.contains(it)))
    }

    fn entrance_file(&self) -> &'static str {
        match self.version {
            Version::One => THREADS_FILE,
            Version::Two => MEMBERS_FILE,
        }
    }

    /// Moves the caller, which has one thread.
    fn enter(&self, directory: &Path) -> io::Result<()> {
        fs::write(directory.join(self.entrance_file()), "0")
    }

    /// Sets limits for the first time, and does without controllers that cannot.
    fn limit(&mut self, directory: &Path, limits: &Limits, faults: &mut Vec<String>) {
        for controller in self.controllers.clone() {
            if let Err(error) = self.set_one(directory, limits, controller) {
                let name = controller.name(self.version);
                faults.push(fault(
                    &format!("set the {name} limit of"),
                    directory,
                    &error,
                ));
                self.controllers.retain(|it| *it != controller);
            }
        }
    }

    fn set(&self, directory: &Path, limits: &Limits) -> io::Result<()> {
        let mut controllers = self.controllers.iter();
        controllers.try_for_each(|controller| self.set_one(directory, limits, *controller))
    }

    fn set_one(&self, directory: &Path, limits: &Limits, controller: Controller) -> io::Result<()> {
        match limits.setting(controller, self.version) {
            Some(setting) => write_where_it_differs(directory, &setting),
            None => Ok(()),
        }
    }

    fn clear(&self, directory: &Path) -> io::Result<usize> {
        let left = members(directory)?;
        if left.is_empty() {
            return Ok(0);
        }
        match write(&directory.join(KILL_FILE), "1") {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => {
                // From here on nothing in it can start more.
                match write(&directory.join(TASKS_FILE), "0") {
                    Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                    _ => kill_each(directory, &left)?,
                }
            }
            Err(error) => return Err(error),
        }
        Ok(left.len())
    }

    /// Removes what has no process. Absent is as good, and one that is not empty must stay.
    fn remove_empty(&self) {
        for process in Process::ALL {
            drop(fs::remove_dir(self.of(process)));
        }
        drop(fs::remove_dir(self.of(Process::Supervisor)));
        drop(fs::remove_dir(&self.directory));
    }

    fn remove(&self) {
        let own = self.directory.parent().unwrap_or(&self.directory);
        self.remove_empty();
        if self.version == Version::Two {
            for controller in &self.controllers {
                let off = format!("-{}", controller.name(self.version));
                drop(write(&self.directory.join(HANDED_DOWN_FILE), &off));
                drop(write(&own.join(HANDED_DOWN_FILE), &off));
            }
        }
        drop(fs::write(own.join(MEMBERS_FILE), "0"));
        self.remove_empty();
    }
}

/// Has the controllers handed down that there are, and returns those that then are.
fn handed_down(own: &Path, directory: &Path, faults: &mut Vec<String>) -> Vec<Controller> {
    let listed = fs::read_to_string(own.join(CONTROLLERS_FILE)).unwrap_or_default();
    let listed: BTreeSet<&str> = listed.split_whitespace().collect();
    let mut usable = Vec::new();
    for controller in Controller::ALL {
        let name = controller.name(Version::Two);
        if !listed.contains(name) {
            continue;
        }
        let on = format!("+{name}");
        let handed = [own, directory]
            .into_iter()
            .try_for_each(|cgroup| write(&cgroup.join(HANDED_DOWN_FILE), &on));
        match handed {
            Ok(()) => usable.push(controller),
            Err(error) => faults.push(fault(&format!("hand {name} down in"), own, &error)),
        }
    }
    usable
}

fn make(directory: &Path) -> io::Result<()> {
    match fs::create_dir(directory) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}

/// Without creating it: what is absent is an error.
fn write(path: &Path, content: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).open(path)?;
    file.write_all(content.as_bytes())
}

/// Into each of the files that there is.
fn write_where_it_differs(directory: &Path, (names, content): &Setting) -> io::Result<()> {
    let mut written = Err(ErrorKind::NotFound.into());
    for name in *names {
        let path = directory.join(name);
        match fs::read_to_string(&path) {
            Ok(found) if found.trim() == content => {}
            Ok(_) => write(&path, content)?,
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        }
        written = Ok(());
    }
    written
}

/// The processes of a cgroup; of one that is gone there are none.
fn members(directory: &Path) -> io::Result<Vec<Pid>> {
    let listed = match fs::read_to_string(directory.join(MEMBERS_FILE)) {
        Err(error) if is_gone(&error) => return Ok(Vec::new()),
        listed => listed?,
    };
    let numbers = listed.lines().filter_map(|line| line.trim().parse().ok());
    Ok(numbers
        .filter(|number| *number > 0)
        .filter_map(Pid::from_raw)
        .take(MAX_KILLED_AT_ONCE)
        .collect())
}

/// Also where it went while it was looked at.
fn is_gone(error: &io::Error) -> bool {
    let went = rustix::io::Errno::NODEV.raw_os_error();
    error.kind() == ErrorKind::NotFound || error.raw_os_error() == Some(went)
}

/// Kills each process that is still in the cgroup after it was got hold of: its number
/// cannot be another's then.
fn kill_each(directory: &Path, listed: &[Pid]) -> io::Result<()> {
    let mut held = Vec::new();
    for pid in listed {
        match pidfd_open(*pid, PidfdFlags::empty()) {
            Ok(descriptor) => held.push((*pid, descriptor)),
            Err(rustix::io::Errno::SRCH) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let still = members(directory)?;
    for (pid, descriptor) in held {
        if still.contains(&pid) {
            match pidfd_send_signal(&descriptor, Signal::KILL) {
                Err(error) if error != rustix::io::Errno::SRCH => return Err(error.into()),
                _ => {}
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scheduler_of_disks_that_there_is_gets_the_weight() {
        let setting =
            Limits::of(row(Process::PodWorkerPool)).setting(Controller::Disk, Version::Two);
        let setting = setting.unwrap();
        for present in [
            &["io.weight"][..],
            &["io.bfq.weight"],
            &["io.weight", "io.bfq.weight"],
        ] {
            let directory = tempfile::tempdir().unwrap();
            for name in present {
                fs::write(directory.path().join(name), "default 100\n").unwrap();
            }
            write_where_it_differs(directory.path(), &setting).unwrap();
            for name in setting.0 {
                // The file of a kernel is not longer after a shorter write.
                let found = fs::read_to_string(directory.path().join(name));
                let is_there = present.contains(name);
                assert_eq!(found.is_ok(), is_there, "{name}");
                assert!(
                    !is_there || found.unwrap().starts_with("default 200"),
                    "{name}"
                );
            }
        }
        let empty = tempfile::tempdir().unwrap();
        let absent = write_where_it_differs(empty.path(), &setting).unwrap_err();
        assert_eq!(absent.kind(), ErrorKind::NotFound);
    }
}
