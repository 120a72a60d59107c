//! cgroups of pods in the kernel's file system: made and removed as plain directories (the
//! cgroupfs driver), or by systemd as slices (the systemd driver). Limits are written and
//! what is left is killed and removed here with both. Blocking.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nix::errno::Errno;
use nix::unistd::Pid;
use node_layout::CgroupNaming;
use pod::QosClass;
use pod::identity::check_uid;
use pod::resources::{MAX_CPU_SHARES, MIN_CPU_SHARES, PodCgroupResources, cpu_shares};

use super::files::{has, make_legacy, make_unified, write, write_if_there};
use super::held::kill_held;
use super::hierarchy::{Controller, Hierarchies};
use super::limits::{KeptMemory, LimitSettings, Limits, huge_page_files, shares_of_weight};
use super::memory::working_set;
use super::pod_cgroups::{AllPodsLimits, PodCgroups, Removal};
use super::slices::{self, Slices};
use crate::error::IoContext;
use crate::error::NodeError;
use crate::huge_pages::huge_pages;
use crate::shared::SystemPaths;

/// Most cgroups below one pod that are taken down in one go. A container with a cgroup
/// namespace of its own can make them without end; the rest waits for the next time.
const MAX_CGROUPS_OF_POD: usize = 10_000;

/// The file with the memory that the kernel leaves to a cgroup whatever happens.
const MEMORY_MIN: &str = "memory.min";

/// The file with the memory that the kernel leaves to a cgroup as long as there is other.
const MEMORY_LOW: &str = "memory.low";

/// The file with how much of a cgroup's memory may be in swap. A kernel without swap, and
/// the top of the hierarchy, have none.
const MEMORY_SWAP: &str = "memory.swap.max";

/// The classes that have a cgroup, and whose pods are below it.
const CLASSES: [QosClass; 3] = [
    QosClass::Guaranteed,
    QosClass::Burstable,
    QosClass::BestEffort,
];

/// Either driver.
#[derive(Debug, Clone)]
pub(crate) struct Cgroupfs {
    naming: CgroupNaming,
    /// With the systemd driver, who makes the cgroups and removes them.
    slices: Option<Arc<dyn Slices>>,
    hierarchies: Hierarchies,
    settings: LimitSettings,
    /// Where processes are shown, `/proc`.
    proc_dir: PathBuf,
    /// Those that the kernel has, in bytes.
    huge_page_sizes: Vec<u64>,
    /// What pods request of CPU, in thousandths of a core, by UID; as far as this process
    /// was told. A weight, which their cgroups have with version 2, is too coarse to tell.
    requested: Arc<Mutex<BTreeMap<String, u64>>>,
    /// Held from when the pods of a class are added up until the sum is written: of two pods
    /// that start at once the later sum is the last to be written.
    adding_up: Arc<Mutex<()>>,
}

impl Cgroupfs {
    pub(super) fn new(
        naming: CgroupNaming,
        hierarchies: Hierarchies,
        settings: LimitSettings,
        system: &SystemPaths,
    ) -> Cgroupfs {
        Cgroupfs {
            naming,
            slices: None,
            hierarchies,
            settings,
            proc_dir: system.proc_dir.clone(),
            huge_page_sizes: huge_pages(&system.sys_dir).into_keys().collect(),
            requested: Arc::default(),
            adding_up: Arc::default(),
        }
    }

    /// With the systemd driver.
    pub(super) fn with_slices(self, slices: Arc<dyn Slices>) -> Cgroupfs {
        Cgroupfs {
            slices: Some(slices),
            ..self
        }
    }

    fn is_unified(&self) -> bool {
        matches!(self.hierarchies, Hierarchies::Unified { .. })
    }

    fn requested(&self) -> MutexGuard<'_, BTreeMap<String, u64>> {
        self.requested
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn adding_up(&self) -> MutexGuard<'_, ()> {
        self.adding_up
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn note_request(&self, pod_uid: &str, resources: &PodCgroupResources) {
        let millis = u64::try_from(resources.cpu_request_millis).unwrap_or(0);
        self.requested().insert(pod_uid.to_owned(), millis);
    }

    /// Makes a cgroup in each hierarchy and writes those of its limits that differ.
    fn ensure(&self, path: &str, limits: &Limits) -> Result<(), NodeError> {
        if let Some(slices) = &self.slices {
            let properties = slices::properties(limits, self.is_unified());
            slices.ensure(slices::name_of(path), &properties)?;
        }
        let files = match &self.hierarchies {
            Hierarchies::Unified { mount } => {
                make_unified(mount, path)?;
                limits.unified_files()
            }
            Hierarchies::Legacy { .. } => {
                for controller in [Controller::Cpu, Controller::Memory, Controller::Pids] {
                    if let Some(directory) = self.hierarchies.directory(controller, path) {
                        make_legacy(&directory, path)?;
                    }
                }
                limits.legacy_files()
            }
        };
        for (controller, file, content) in files {
            let Some(directory) = self.hierarchies.directory(controller, path) else {
                continue;
            };
            let file = directory.join(file);
            if has(&file, &content) {
                continue;
            }
            match write(&file, &content) {
                // A kernel without this controller, or one that was not handed down:
                // the limit cannot be kept, and the pod runs all the same.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    tracing::warn!(file = %file.display(), "this kernel cannot limit that");
                }
                // Version 1 takes no limit below what is in use; version 2 does, and
                // reclaims. It is written again with the pod's next change, and for all pods
                // together when the process starts next.
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                    tracing::warn!(file = %file.display(), limit = content, "more is in use already");
                }
                written => written.context("write", &file)?,
            }
        }
        Ok(())
    }

    /// Limits a pod's huge pages of each size that the kernel has: those that it does not
    /// ask for are not for it.
    fn limit_huge_pages(&self, path: &str, pages: &BTreeMap<u64, u64>) -> Result<(), NodeError> {
        let Some(directory) = self.hierarchies.directory(Controller::HugePages, path) else {
            return Ok(());
        };
        let is_unified = self.is_unified();
        if !is_unified {
            make_legacy(&directory, path)?;
        }
        for size in &self.huge_page_sizes {
            let limit = pages.get(size).copied().unwrap_or(0);
            for file in huge_page_files(*size, is_unified) {
                let file = directory.join(file);
                match write(&file, &limit.to_string()) {
                    // A kernel without the controller, or an old one that does not count
                    // reservations.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                        tracing::warn!(file = %file.display(), limit, "more is in use already");
                    }
                    written => written.context("write", &file)?,
                }
            }
        }
        Ok(())
    }

    /// Has the kernel leave memory to a cgroup, where version 2 has it do that.
    fn keep_memory(&self, path: &str, kept: KeptMemory) -> Result<(), NodeError> {
        let Hierarchies::Unified { mount } = &self.hierarchies else {
            return Ok(());
        };
        if let Some(slices) = &self.slices
            && self.settings.reserves_memory
        {
            slices.change(slices::name_of(path), &slices::kept_memory(kept))?;
        }
        let cgroup = mount.join(path);
        write_if_there(&cgroup.join(MEMORY_MIN), &kept.min_bytes.to_string())?;
        write_if_there(&cgroup.join(MEMORY_LOW), &kept.low_bytes.to_string())
    }

    /// Keeps the memory of all pods out of swap, as a kubelet with its usual `NoSwap` does
    /// on version 2.
    fn forbid_swap(&self, path: &str) -> Result<(), NodeError> {
        let Hierarchies::Unified { mount } = &self.hierarchies else {
            return Ok(());
        };
        let file = mount.join(path).join(MEMORY_SWAP);
        if has(&file, "0") {
            return Ok(());
        }
        if let Some(slices) = &self.slices {
            slices.change(slices::name_of(path), &slices::NO_SWAP)?;
        }
        write_if_there(&file, "0")
    }

    /// Leaves to the burstable pods together, and to all pods, what is left to each: a
    /// cgroup gets no more than those above it.
    fn follow_memory(&self) -> Result<(), NodeError> {
        let _adding_up = self.adding_up();
        let class = |qos| self.naming.class_path(qos);
        let burstable = self.memory_of_pods(&class(QosClass::Burstable))?;
        let mut all = self.memory_of_pods(&class(QosClass::Guaranteed))?;
        self.keep_memory(&class(QosClass::Burstable), burstable)?;
        all += burstable;
        self.keep_memory(&class(QosClass::Guaranteed), all)
    }

    /// What is left to the pods of a class; nothing where none is reserved.
    fn memory_of_pods(&self, class: &str) -> Result<KeptMemory, NodeError> {
        let mut sum = KeptMemory::default();
        let Hierarchies::Unified { mount } = &self.hierarchies else {
            return Ok(sum);
        };
        for child in children(&mount.join(class))? {
            let name = child.file_name().and_then(OsStr::to_str);
            let is_pod = name.is_some_and(|name| self.naming.pod_uid(name).is_some());
            if self.settings.reserves_memory && is_pod {
                // What cannot be told is gone.
                let bytes = |file: &str| -> u64 {
                    let text = fs::read_to_string(child.join(file)).unwrap_or_default();
                    text.trim().parse().unwrap_or(0)
                };
                sum += KeptMemory {
                    min_bytes: bytes(MEMORY_MIN),
                    low_bytes: bytes(MEMORY_LOW),
                };
            }
        }
        Ok(sum)
    }

    /// Kills what runs in the cgroups; whether there was anything.
    fn kill_all(&self, cgroups: &BTreeSet<PathBuf>) -> Result<bool, NodeError> {
        let mut found = false;
        for cgroup in cgroups {
            let file = cgroup.join("cgroup.procs");
            let listed = match fs::read_to_string(&file) {
                Ok(listed) => listed,
                // Gone, or threaded: then its parent lists the processes.
                Err(error)
                    if error.kind() == io::ErrorKind::NotFound
                        || error.raw_os_error() == Some(Errno::EOPNOTSUPP as i32) =>
                {
                    continue;
                }
                Err(error) => return Err(NodeError::io("read", file, error)),
            };
            let processes = listed.lines().filter_map(|line| line.trim().parse().ok());
            for process in processes {
                found |= kill_held(process, || self.may_kill(process, cgroup));
            }
            // What a runtime froze before it died stays frozen, and does not end on version
            // 1. Other hierarchies have no such file.
            if !listed.is_empty() {
                let _ = write(&cgroup.join("freezer.state"), "THAWED");
            }
        }
        Ok(found)
    }

    /// Whether a process is in this cgroup: its number may have been given to another one
    /// since the list was read. Never 0 (not of our PID namespace), 1, or
    /// ourselves.
    fn may_kill(&self, process: i32, cgroup: &Path) -> bool {
        if process <= 1 || Pid::from_raw(process) == Pid::this() {
            return false;
        }
        let file = self.proc_dir.join(process.to_string()).join("cgroup");
        let Ok(memberships) = fs::read_to_string(file) else {
            return false;
        };
        let memberships = memberships
            .lines()
            .filter_map(|line| line.splitn(3, ':').nth(2));
        let path = cgroup.to_string_lossy();
        memberships
            .filter(|path| path.len() > 1)
            .any(|membership| path.ends_with(membership))
    }

    /// Gives the burstable class the CPU shares of what its pods request together: with a
    /// fixed share they would starve beside guaranteed ones, or take from them.
    fn follow_burstable(&self) -> Result<(), NodeError> {
        let _adding_up = self.adding_up();
        let class = self.naming.class_path(QosClass::Burstable);
        let Some(directory) = self.hierarchies.directory(Controller::Cpu, &class) else {
            return Ok(());
        };
        let (mut millis, mut shares) = (0_i64, 0_u64);
        for child in children(&directory)? {
            let name = child
                .file_name()
                .and_then(OsStr::to_str)
                .unwrap_or_default();
            let Some(uid) = self.naming.pod_uid(name) else {
                continue;
            };
            let requested = self.requested().get(&uid).copied();
            match requested {
                Some(requested) => {
                    let requested = i64::try_from(requested).unwrap_or(i64::MAX);
                    millis = millis.saturating_add(requested);
                }
                None => shares = shares.saturating_add(self.shares(&child)),
            }
        }
        if millis > 0 {
            shares = shares.saturating_add(cpu_shares(millis));
        }
        self.ensure(
            &class,
            &Limits::shares(shares.clamp(MIN_CPU_SHARES, MAX_CPU_SHARES)),
        )
    }

    /// After a pod is gone.
    fn follow_pods(&self) -> Result<(), NodeError> {
        self.follow_burstable()?;
        match self.settings.reserves_memory {
            true => self.follow_memory(),
            false => Ok(()),
        }
    }

    /// The CPU shares of a cgroup; the fewest if it cannot be told.
    fn shares(&self, directory: &Path) -> u64 {
        let number = |file: &str| -> Option<u64> {
            fs::read_to_string(directory.join(file))
                .ok()?
                .trim()
                .parse()
                .ok()
        };
        let shares = match self.hierarchies {
            Hierarchies::Unified { .. } => number("cpu.weight").map(shares_of_weight),
            Hierarchies::Legacy { .. } => number("cpu.shares"),
        };
        shares.unwrap_or(MIN_CPU_SHARES)
    }

    /// Has systemd stop the pod's slice, in each class that has a cgroup for it.
    fn stop_slices(&self, pod_uid: &str) -> Result<Removal, NodeError> {
        let Some(slices) = &self.slices else {
            return Ok(Removal::Done);
        };
        let mut stopped = Removal::Done;
        for path in CLASSES.map(|qos| self.naming.pod_path(qos, pod_uid)) {
            let directories = self.hierarchies.directories(&path);
            if directories.iter().any(|directory| directory.is_dir())
                && slices.stop(slices::name_of(&path))? == Removal::Busy
            {
                stopped = Removal::Busy;
            }
        }
        Ok(stopped)
    }

    fn pod_directories(&self, pod_uid: &str) -> Vec<PathBuf> {
        let paths = CLASSES.map(|qos| self.naming.pod_path(qos, pod_uid));
        paths
            .iter()
            .flat_map(|path| self.hierarchies.directories(path))
            .collect()
    }
}

impl PodCgroups for Cgroupfs {
    fn ensure_classes(&self, all_pods: &AllPodsLimits) -> Result<(), NodeError> {
        let path = |qos| self.naming.class_path(qos);
        self.ensure(&path(QosClass::Guaranteed), &Limits::of_all_pods(all_pods))?;
        self.forbid_swap(&path(QosClass::Guaranteed))?;
        self.ensure(&path(QosClass::BestEffort), &Limits::shares(MIN_CPU_SHARES))?;
        self.follow_burstable()?;
        self.follow_memory()
    }

    fn ensure_pod(
        &self,
        pod_uid: &str,
        qos: QosClass,
        resources: &PodCgroupResources,
    ) -> Result<(), NodeError> {
        check_uid(pod_uid)?;
        let limits = Limits::of_pod(resources, self.settings);
        let path = self.naming.pod_path(qos, pod_uid);
        self.ensure(&path, &limits)?;
        self.note_request(pod_uid, resources);
        self.limit_huge_pages(&path, &resources.huge_pages)?;
        if qos == QosClass::Burstable {
            self.follow_burstable()?;
        }
        if !self.settings.reserves_memory {
            // What it had when that was on.
            return self.keep_memory(&path, KeptMemory::default());
        }
        let kept = KeptMemory::of_pod(qos, resources.memory_request_bytes);
        self.keep_memory(&path, kept)?;
        self.follow_memory()
    }

    fn adopt_pod(&self, pod_uid: &str, resources: &PodCgroupResources) -> Result<(), NodeError> {
        check_uid(pod_uid)?;
        self.note_request(pod_uid, resources);
        self.follow_burstable()
    }

    fn remove_pod(&self, pod_uid: &str) -> Result<Removal, NodeError> {
        check_uid(pod_uid)?;
        let mut cgroups = BTreeSet::new();
        for directory in self.pod_directories(pod_uid) {
            collect(directory, &mut cgroups)?;
        }
        if cgroups.is_empty() {
            // It may have gone since an earlier call that found it busy.
            if self.requested().remove(pod_uid).is_some() {
                self.follow_pods()?;
            }
            return Ok(Removal::Done);
        }
        let killed = self.kill_all(&cgroups)?;
        if self.stop_slices(pod_uid)? == Removal::Busy {
            return Ok(Removal::Busy);
        }
        let mut left = None;
        // Children sort behind their parents.
        for cgroup in cgroups.iter().rev() {
            match fs::remove_dir(cgroup) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => left = Some((cgroup, error)),
            }
        }
        match left {
            None => {
                self.requested().remove(pod_uid);
                self.follow_pods()?;
                Ok(Removal::Done)
            }
            Some((_, error)) if killed || is_busy(&error) => Ok(Removal::Busy),
            Some((cgroup, error)) => Err(NodeError::io("remove", cgroup, error)),
        }
    }

    fn pods(&self) -> Result<BTreeSet<String>, NodeError> {
        let mut found = BTreeSet::new();
        for qos in CLASSES {
            for directory in self.hierarchies.directories(&self.naming.class_path(qos)) {
                let children = children(&directory)?;
                let names = children.iter().filter_map(|it| it.file_name()?.to_str());
                found.extend(names.filter_map(|name| self.naming.pod_uid(name)));
            }
        }
        Ok(found)
    }

    fn working_set(&self, pod_uid: &str) -> Result<Option<u64>, NodeError> {
        check_uid(pod_uid)?;
        let paths = CLASSES.map(|qos| self.naming.pod_path(qos, pod_uid));
        let mut directories = paths
            .iter()
            .filter_map(|path| self.hierarchies.directory(Controller::Memory, path));
        Ok(directories.find_map(|directory| working_set(&directory, self.is_unified())))
    }
}

/// Whether a cgroup still has processes or cgroups in it.
fn is_busy(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ResourceBusy | io::ErrorKind::DirectoryNotEmpty
    )
}

/// A cgroup and all below it, as far as the bound goes.
fn collect(directory: PathBuf, cgroups: &mut BTreeSet<PathBuf>) -> Result<(), NodeError> {
    if !directory.is_dir() {
        return Ok(());
    }
    let mut pending = vec![directory];
    while let Some(directory) = pending.pop() {
        if cgroups.len() >= MAX_CGROUPS_OF_POD {
            break;
        }
        pending.extend(children(&directory)?);
        cgroups.insert(directory);
    }
    Ok(())
}

/// The cgroups directly below one; none when it is not there.
fn children(directory: &Path) -> Result<Vec<PathBuf>, NodeError> {
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(NodeError::io("read", directory, error)),
    };
    let entries = entries.filter_map(Result::ok);
    let directories = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    Ok(directories.map(|entry| entry.path()).collect())
}

#[cfg(test)]
mod class_tests;
#[cfg(test)]
mod memory_tests;
#[cfg(test)]
mod slice_tests;
#[cfg(test)]
mod tests;
