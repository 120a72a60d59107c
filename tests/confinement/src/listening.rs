//! The sockets on which a running process could be called: its own, and none that was left
//! open for it or that it has opened itself.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use anyhow::{Context as _, Result};
use topology::Process;

/// `__SO_ACCEPTCON`, the one flag that `/proc/net/unix` tells.
const LISTENS: &str = "00010000";

/// `TCP_LISTEN` in `/proc/net/tcp`.
const TCP_LISTENS: &str = "0A";

/// What our supervisor binds a socket to, before it gives it its name.
const NEW: &str = ".new";

/// Where each listening socket of a process was bound.
#[derive(Clone, Debug, Default)]
pub(crate) struct Listening(Vec<String>);

impl Listening {
    #[cfg(test)]
    pub(crate) fn at(paths: &[&str]) -> Listening {
        Listening(paths.iter().map(|path| (*path).to_owned()).collect())
    }

    /// Of the process `pid`. A socket is known in the network namespace where it was made:
    /// its own in that of `node`, which has made it, others perhaps in that of the process.
    pub(crate) fn read(pid: u32, node: u32) -> Result<Listening> {
        let directory = format!("/proc/{pid}/fd");
        let entries = fs::read_dir(&directory).with_context(|| directory.clone())?;
        let mut held = BTreeSet::new();
        for entry in entries {
            // What was closed meanwhile is none.
            let Ok(to) = fs::read_link(entry?.path()) else {
                continue;
            };
            let to = to.display().to_string();
            held.extend(inode_of(&to).map(str::to_owned));
        }
        let mut tables = vec![node];
        if network_of(node)? != network_of(pid)? {
            tables.push(pid);
        }
        let mut found = Vec::new();
        for of in tables {
            let table = |name: &str| {
                let path = format!("/proc/{of}/net/{name}");
                fs::read_to_string(&path).with_context(|| path)
            };
            found.extend(unix(&table("unix")?, &held));
            for name in ["tcp", "tcp6"] {
                // A kernel may have no version 6.
                let text = table(name).unwrap_or_default();
                found.extend(tcp(name, &text, &held));
            }
        }
        Ok(Listening(found))
    }

    /// What is not as it is to be: each has one, bound to its own name; the supervisor has
    /// those of all that run, each once.
    pub(crate) fn faults(&self, process: Process) -> Vec<String> {
        let own = process.socket_file_name();
        let of_all: Vec<String> = match process {
            Process::Supervisor => Process::ALL.map(Process::socket_file_name).into(),
            _ => vec![own.clone()],
        };
        let mut faults = Vec::new();
        let mut seen = BTreeSet::new();
        for bound in &self.0 {
            let name = Path::new(bound).file_name().unwrap_or_default();
            let name = name.to_string_lossy();
            let name = name.strip_suffix(NEW).unwrap_or(&name).to_owned();
            // It serves addresses of the node, which its configuration names.
            let is_of_network = process == Process::NodeApi && bound.starts_with("tcp");
            if is_of_network {
                continue;
            }
            if !of_all.contains(&name) || !seen.insert(name) {
                faults.push(format!("it listens at {bound:?}"));
            }
        }
        if !seen.contains(&own) {
            faults.push(format!("it does not listen at {own}: {:?}", self.0));
        }
        faults
    }
}

fn network_of(pid: u32) -> Result<(u64, u64)> {
    let path = format!("/proc/{pid}/ns/net");
    let found = fs::metadata(&path).with_context(|| path)?;
    Ok((found.dev(), found.ino()))
}

/// The inode of a socket, by what a descriptor leads to.
fn inode_of(descriptor: &str) -> Option<&str> {
    descriptor.strip_prefix("socket:[")?.strip_suffix(']')
}

/// Where those of these sockets are bound that listen, by `/proc/net/unix`.
fn unix(table: &str, held: &BTreeSet<String>) -> Vec<String> {
    let bound = |line: &str| {
        // Num RefCount Protocol Flags Type St Inode Path
        let mut words = line.split_whitespace().skip(3);
        let (flags, inode) = (words.next()?, words.nth(2)?);
        let path = words.collect::<Vec<_>>().join(" ");
        (flags == LISTENS && held.contains(inode)).then_some(path)
    };
    table.lines().filter_map(bound).collect()
}

/// The same by `/proc/net/tcp`.
fn tcp(name: &str, table: &str, held: &BTreeSet<String>) -> Vec<String> {
    let bound = |line: &str| {
        // sl local_address rem_address st queues timer retransmits uid timeout inode
        let words: Vec<&str> = line.split_whitespace().collect();
        let (address, state, inode) = (words.get(1)?, words.get(3)?, words.get(9)?);
        (*state == TCP_LISTENS && held.contains(*inode)).then(|| format!("{name} {address}"))
    };
    table.lines().filter_map(bound).collect()
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::os::unix::net::{UnixListener, UnixStream};

    use super::*;

    fn faults(process: Process, paths: &[&str]) -> usize {
        Listening::at(paths).faults(process).len()
    }

    #[test]
    fn a_process_listens_at_its_own_socket_and_nowhere_else() {
        let (own, other) = ("/run/bulkhead/pleg.sock", "/run/bulkhead/prober.sock");
        let of_supervisor = "/run/bulkhead/pleg.sock.new";
        assert_eq!(faults(Process::Pleg, &[own]), 0);
        assert_eq!(faults(Process::Pleg, &[of_supervisor]), 0);
        assert_eq!(faults(Process::Pleg, &[]), 1);
        assert_eq!(faults(Process::Pleg, &[own, other]), 1);
        assert_eq!(faults(Process::Pleg, &[own, ""]), 1);
        assert_eq!(faults(Process::Pleg, &[own, "tcp 0100007F:0050"]), 1);
        assert_eq!(faults(Process::Pleg, &[own, of_supervisor]), 1, "two of it");
    }

    #[test]
    fn the_supervisor_listens_at_the_sockets_of_all_and_at_each_once() {
        let names = Process::ALL.map(|process| format!("/run/{process}.sock.new"));
        let mut paths: Vec<&str> = names.iter().map(String::as_str).collect();
        let faults = |paths: &[&str]| faults(Process::Supervisor, paths);
        assert_eq!(faults(&paths), 0);
        for another in [paths[1], "/run/another.sock", ""] {
            let more = [&paths[..], &[another]].concat();
            assert_eq!(faults(&more), 1, "{another}");
        }
        paths.retain(|path| !path.contains("supervisor"));
        assert_eq!(faults(&paths), 1, "not at its own");
    }

    #[test]
    fn of_a_running_process_those_sockets_are_found_that_listen() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pleg.sock");
        let unix = UnixListener::bind(&path).unwrap();
        let _calls = UnixStream::connect(&path).unwrap();
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let own = std::process::id();
        let found = || Listening::read(own, own).unwrap().0;
        let bound = path.display().to_string();
        let port = format!(":{:04X}", tcp.local_addr().unwrap().port());
        let is_of_tcp = |bound: &String| bound.starts_with("tcp ") && bound.ends_with(&port);
        assert_eq!(found().iter().filter(|it| **it == bound).count(), 1);
        assert_eq!(found().iter().filter(|it| is_of_tcp(it)).count(), 1);
        drop((unix, tcp));
        assert!(!found().contains(&bound), "{:?}", found());
        assert!(!found().iter().any(is_of_tcp), "{:?}", found());
    }
}
