//! What confines a running process, as `/proc` and its cgroup tell it, against its row of
//! the topology: the same comparison under the supervisor and under systemd.

pub mod escapes;
mod listening;
mod shares;
mod starter;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use confine::CapabilitySet;
use topology::{Account, Namespace, PROCESSES, Process, row};

use listening::Listening;
pub use shares::refusals_mistold;
use shares::{Shares, directory_of};
pub use starter::Starter;

/// Variables that a process may have: those of all, and of who speaks TLS.
const VARIABLES: [&str; 13] = [
    "NOTIFY_SOCKET",
    "WATCHDOG_USEC",
    "LISTEN_FDS",
    "LISTEN_FDNAMES",
    "LISTEN_PID",
    "GLIBC_TUNABLES",
    // glibc ends the first of the tunables in their place, so the second looks like another.
    "glibc.pthread.stack_cache_size",
    "MALLOC_ARENA_MAX",
    "MALLOC_MMAP_THRESHOLD_",
    "MALLOC_TRIM_THRESHOLD_",
    "BULKHEAD_LOG",
    "BULKHEAD_LOG_FORMAT",
    "RUST_BACKTRACE",
];
/// What systemd adds of its own; nothing of it is secret.
const OF_SYSTEMD: [&str; 13] = [
    "HOME",
    "INVOCATION_ID",
    "JOURNAL_STREAM",
    "LANG",
    "LOGNAME",
    "MEMORY_PRESSURE_WATCH",
    "MEMORY_PRESSURE_WRITE",
    "PATH",
    "SHELL",
    "SYSTEMD_EXEC_PID",
    "SYSTEMD_NSS_DYNAMIC_BYPASS",
    "USER",
    "WATCHDOG_PID",
];

/// The file mode creation mask of each process (umask(2)), as `/proc` writes it.
const UMASK: &str = "0077";

/// What is found of a running process.
#[derive(Clone, Debug)]
struct Facts {
    status: String,
    /// How many filters of system calls it has of who has started it.
    filters_before: u32,
    limits: String,
    /// Whose its memory and its environment are.
    owner: u32,
    /// The names of its variables.
    variables: BTreeSet<String>,
    /// The kinds of namespaces in which it is apart from the node.
    namespaces: BTreeSet<Namespace>,
    /// Where its first descriptors lead.
    descriptors: Vec<String>,
    /// Its listening sockets, among all its descriptors.
    listening: Listening,
    memory_max: Option<u64>,
    tasks_max: Option<u64>,
    shares: Shares,
}

impl Facts {
    /// Of the process `pid`, as the process `node` sees it, which has started it or is in
    /// the namespaces of who has.
    fn read(process: Process, pid: u32, node: u32) -> Result<Facts> {
        let file = |name: &str| {
            let path = format!("/proc/{pid}/{name}");
            fs::read_to_string(&path).with_context(|| path)
        };
        let mut namespaces = BTreeSet::new();
        for kind in Namespace::ALL {
            let of = |pid| fs::read_link(format!("/proc/{pid}/ns/{}", kind.file_name()));
            if of(pid)? != of(node)? {
                namespaces.insert(kind);
            }
        }
        let environment = file("environ")?;
        // The directory itself is always its user's.
        let owner = fs::metadata(format!("/proc/{pid}/environ"));
        let owner = owner.context("the owner of its environment")?;
        let names = environment.split_terminator('\0');
        let names = names.filter_map(|it| it.split('=').next());
        let descriptor = |number| {
            let link = fs::read_link(format!("/proc/{pid}/fd/{number}"));
            link.map_or_else(|_| String::new(), |to| to.display().to_string())
        };
        let memberships = file("cgroup")?;
        let limit = |controller, files: &[&str]| {
            let own = own_cgroup(&memberships, controller, process)?;
            let texts = files.iter().map(|file| fs::read_to_string(own.join(file)));
            texts.flatten().find_map(|text| text.trim().parse().ok())
        };
        let starter = match process {
            Process::Supervisor => std::process::id(),
            _ => node,
        };
        let status = fs::read_to_string(format!("/proc/{starter}/status"));
        let status = status.context("the status of who has started it")?;
        let filters_before = field(&status, "Seccomp_filters").parse().ok();
        Ok(Facts {
            status: file("status")?,
            filters_before: filters_before.unwrap_or(0),
            limits: file("limits")?,
            owner: owner.uid(),
            variables: names.map(str::to_owned).collect(),
            namespaces,
            descriptors: (0..4).map(descriptor).collect(),
            listening: Listening::read(pid, node)?,
            memory_max: limit("memory", &["memory.max", "memory.limit_in_bytes"]),
            tasks_max: limit("pids", &["pids.max"]),
            shares: Shares::read(pid, starter, &memberships)?,
        })
    }
}

/// The cgroup that a controller has the process in, if that is the process's own: of its
/// name, or of its unit's.
fn own_cgroup(memberships: &str, controller: &str, process: Process) -> Option<PathBuf> {
    let found = directory_of(memberships, controller);
    let names = [process.to_string(), format!("bulkhead-{process}.service")];
    names
        .iter()
        .any(|name| found.ends_with(name))
        .then_some(found)
}

/// A line of `/proc/PID/status`, with single spaces.
fn field(status: &str, name: &str) -> String {
    let mut lines = status.lines().filter_map(|line| line.split_once(':'));
    let value = lines.find(|(found, _)| *found == name);
    let words = value.map_or("", |(_, value)| value).split_whitespace();
    words.collect::<Vec<_>>().join(" ")
}

/// The filters that each has installed itself.
const FILTERS: u32 = 2;

/// Whether it has a namespace of its own: as its row says, but for pod-worker-pool under
/// systemd, where a unit with an IPC namespace has mounts of its own too, which containers
/// would not see.
fn has_own(kind: Namespace, process: Process, starter: Starter) -> bool {
    let shares = (Namespace::Ipc, Process::PodWorkerPool, Starter::Systemd);
    row(process).namespaces.contains(&kind) && (kind, process, starter) != shares
}

/// What a process is to have of what there is.
fn capabilities(process: Process, available: CapabilitySet) -> Result<CapabilitySet> {
    let set = |process| {
        let names = row(process).capabilities.iter().map(|(name, _)| *name);
        CapabilitySet::of(names)
    };
    let mut wanted = set(process)?;
    if process == Process::Supervisor {
        // It keeps what it hands down.
        for row in PROCESSES {
            wanted = wanted.union(set(row.process)?);
        }
    }
    Ok(wanted.intersection(available))
}

/// What of a running process is not as its row says: a line for each. `node` is the
/// supervisor's pid, or under systemd that of any process of the node.
///
/// # Errors
/// When it is gone, or the kernel does not tell of it.
pub fn faults(
    process: Process,
    pid: u32,
    node: u32,
    account: Account,
    starter: Starter,
) -> Result<Vec<String>> {
    let kept = capabilities(process, CapabilitySet::available()?)?;
    let facts = Facts::read(process, pid, node)?;
    Ok(compare(&facts, process, account, kept, starter))
}

fn compare(
    facts: &Facts,
    process: Process,
    account: Account,
    kept: CapabilitySet,
    starter: Starter,
) -> Vec<String> {
    let mut faults = rights(facts, process, account, kept, starter);
    let mut differs = |what: &str, found: String, expected: String| {
        if found != expected {
            faults.push(format!("{what}: {found}, and not {expected}"));
        }
    };
    let row = row(process);
    let core = facts
        .limits
        .lines()
        .find(|line| line.starts_with("Max core"));
    let core = core.unwrap_or_default().split_whitespace();
    let core: Vec<_> = core.skip(4).take(2).collect();
    differs("core dumps", core.join(" "), "0 0".to_owned());
    let found = field(&facts.status, "Umask");
    differs("mask of new files", found, UMASK.to_owned());
    for kind in Namespace::ALL {
        let expected = has_own(kind, process, starter);
        // A unit may give more; less, never.
        if starter == Starter::Supervisor || expected {
            let found = facts.namespaces.contains(&kind);
            differs(kind.name(), found.to_string(), expected.to_string());
        }
    }
    let number = |found: Option<u64>| found.map_or("none".to_owned(), |it| it.to_string());
    let memory = row.memory_max_bytes.to_string();
    differs("memory limit", number(facts.memory_max), memory);
    let tasks = row.tasks_max.to_string();
    differs("limit of tasks", number(facts.tasks_max), tasks);
    faults.extend(facts.shares.faults(process, starter));
    faults.extend(facts.listening.faults(process));
    if process == Process::Supervisor {
        return faults;
    }
    let output = ["pipe:", "socket:"][usize::from(starter == Starter::Systemd)];
    let expected = ["/dev/null", output, output, "socket:"];
    for (number, expected) in expected.iter().enumerate() {
        let found = facts.descriptors.get(number);
        if !found.is_some_and(|found| found.starts_with(expected)) {
            faults.push(format!(
                "descriptor {number}: {found:?}, and not {expected}"
            ));
        }
    }
    let mut known: BTreeSet<&str> = VARIABLES.into();
    known.extend(row.environment);
    if starter == Starter::Systemd {
        known.extend(OF_SYSTEMD);
    }
    let variables = facts.variables.iter().map(String::as_str);
    for unknown in variables.filter(|name| !known.contains(name)) {
        faults.push(format!("it has the variable {unknown}"));
    }
    faults
}

/// Users, groups, capabilities, filters.
fn rights(
    facts: &Facts,
    process: Process,
    account: Account,
    kept: CapabilitySet,
    starter: Starter,
) -> Vec<String> {
    let Account { uid, gid } = account;
    let mask = kept.mask();
    let kept = format!("{mask:016x}");
    let expected = [
        ("Uid", format!("{uid} {uid} {uid} {uid}")),
        ("Gid", format!("{gid} {gid} {gid} {gid}")),
        ("CapPrm", kept.clone()),
        ("CapEff", kept.clone()),
        ("CapBnd", kept),
        ("NoNewPrivs", "1".to_owned()),
        ("Seccomp", "2".to_owned()),
    ];
    let mut faults = Vec::new();
    for (name, expected) in expected {
        let found = field(&facts.status, name);
        if found != expected {
            faults.push(format!("{name}: {found}, and not {expected}"));
        }
    }
    // What root has of these comes from how it was started; more than its own it never has.
    for name in ["CapInh", "CapAmb"] {
        let found = field(&facts.status, name);
        let has_more = u64::from_str_radix(&found, 16).map_or(true, |it| it & !mask != 0);
        if has_more {
            faults.push(format!("{name}: {found}, beyond {mask:016x}"));
        }
    }
    // Of who is not dumpable it is root; of a root process this tells nothing.
    if facts.owner != 0 {
        faults.push(format!("its own user {} can read its memory", facts.owner));
    }
    // systemd names the primary group once more.
    let groups = field(&facts.status, "Groups");
    let is_other = |group: &str| group != gid.to_string() || starter == Starter::Supervisor;
    if process != Process::Supervisor && groups.split(' ').any(|it| !it.is_empty() && is_other(it))
    {
        faults.push(format!("Groups: {groups}"));
    }
    let own = FILTERS;
    let found = field(&facts.status, "Seccomp_filters").parse().unwrap_or(0);
    let found = u32::saturating_sub(found, facts.filters_before);
    // A unit has filters beside them, and the supervisor may be one.
    let may_have_more = starter == Starter::Systemd || process == Process::Supervisor;
    if found < own || (found != own && !may_have_more) {
        faults.push(format!("{found} filters of system calls, and not {own}"));
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    const ACCOUNT: Account = Account { uid: 7, gid: 8 };

    fn good() -> Facts {
        let none = "0000000000000000";
        Facts {
            status: format!(
                "Umask:\t0077\nUid:\t7\t7\t7\t7\nGid:\t8\t8\t8\t8\nGroups:\t \n\
                 NoNewPrivs:\t1\nSeccomp:\t2\nSeccomp_filters:\t3\nCapInh:\t{none}\nCapPrm:\t{none}\nCapEff:\t{none}\n\
                 CapBnd:\t{none}\nCapAmb:\t{none}\n"
            ),
            filters_before: 1,
            limits: "Max core file size        0                    0               bytes\n".into(),
            owner: 0,
            variables: ["NOTIFY_SOCKET".to_owned()].into(),
            namespaces: Namespace::ALL.into(),
            descriptors: ["/dev/null", "pipe:[1]", "pipe:[1]", "socket:[2]"]
                .map(str::to_owned)
                .into(),
            listening: Listening::at(&["/run/bulkhead/pleg.sock"]),
            memory_max: Some(row(Process::Pleg).memory_max_bytes),
            tasks_max: Some(row(Process::Pleg).tasks_max.into()),
            shares: Shares {
                oom_score: Some(row(Process::Pleg).oom_score_adj),
                oom_score_of_starter: Some(0),
                weights: vec![("cpu.weight", 100), ("io.weight", 100)],
                cgroups: std::collections::BTreeMap::new(),
                refusals: Vec::new(),
            },
        }
    }

    fn found(facts: &Facts) -> Vec<String> {
        let kept = capabilities(Process::Pleg, CapabilitySet::from_mask(u64::MAX)).unwrap();
        compare(facts, Process::Pleg, ACCOUNT, kept, Starter::Supervisor)
    }

    #[test]
    fn limits_count_only_of_the_cgroup_that_the_process_is_in() {
        let own = |memberships, controller| own_cgroup(memberships, controller, Process::Pleg);
        let apart = "9:pids:/run/pleg\n4:memory:/run\n1:name=systemd:/run/pleg\n0::/run/pleg\n";
        let pids = PathBuf::from("/sys/fs/cgroup/pids/run/pleg");
        assert_eq!(own(apart, "pids"), Some(pids));
        assert_eq!(own(apart, "memory"), None);
        let unified = "0::/system.slice/bulkhead-pleg.service\n";
        let path = PathBuf::from("/sys/fs/cgroup/system.slice/bulkhead-pleg.service");
        assert_eq!(own(unified, "memory"), Some(path));
        assert_eq!(
            own("0::/system.slice/bulkhead-prober.service\n", "memory"),
            None
        );
    }

    #[test]
    fn each_weakness_of_a_running_process_is_a_fault() {
        assert_eq!(found(&good()), Vec::<String>::new());
        for (from, to) in [
            ("Umask:\t0077", "Umask:\t0022"),
            ("Uid:\t7\t7\t7\t7", "Uid:\t7\t7\t0\t7"),
            ("Gid:\t8\t8\t8\t8", "Gid:\t0\t8\t8\t8"),
            ("Groups:\t ", "Groups:\t0 "),
            ("NoNewPrivs:\t1", "NoNewPrivs:\t0"),
            ("Seccomp:\t2", "Seccomp:\t0"),
            ("Seccomp_filters:\t3", "Seccomp_filters:\t1"),
            ("CapInh:\t0", "CapInh:\t2"),
            ("CapPrm:\t0", "CapPrm:\t2"),
            ("CapEff:\t0", "CapEff:\t2"),
            ("CapBnd:\t0", "CapBnd:\t2"),
            ("CapAmb:\t0", "CapAmb:\t2"),
        ] {
            let mut weaker = good();
            assert!(weaker.status.contains(from), "{from}");
            weaker.status = weaker.status.replace(from, to);
            assert_eq!(found(&weaker).len(), 1, "{to}: {:?}", found(&weaker));
        }
        let changes: [fn(&mut Facts); 11] = [
            |it| it.limits = it.limits.replace("   0 ", "   1 "),
            |it| it.owner = ACCOUNT.uid,
            |it| it.variables.extend(["SECRET".to_owned()]),
            |it| it.namespaces.retain(|kind| *kind != Namespace::Ipc),
            |it| it.namespaces.clear(),
            |it| it.descriptors[0] = "/etc/shadow".to_owned(),
            |it| it.descriptors[1] = "/dev/tty".to_owned(),
            |it| it.listening = Listening::at(&[]),
            |it| it.memory_max = None,
            |it| it.tasks_max = Some(10_000),
            |it| it.shares.oom_score = Some(0),
        ];
        for (number, change) in changes.iter().enumerate() {
            let mut weaker = good();
            change(&mut weaker);
            assert_ne!(found(&weaker), Vec::<String>::new(), "number {number}");
        }
    }
}
