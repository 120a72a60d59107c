//! A pretend node on this machine: own network, own mounts, own cgroup, own
//! directory. Everything that runs on it is ended and removed with it.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt;
use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::str::FromStr;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use nix::mount::{MsFlags, mount};

use crate::interrupt;
use crate::namespaces::{self, Namespaces};
use crate::processes;
use crate::slot::Slot;
use crate::{cgroup, slot};

/// Name of the node's interface to the outside, which leads nowhere.
pub const NODE_INTERFACE: &str = "node0";

/// One private node; dropping it removes everything that runs on it.
#[derive(Debug)]
pub struct TestNode {
    slot: Arc<Slot>,
    /// Absent when it shares the machine's.
    namespaces: Option<Namespaces>,
    process_cgroup: PathBuf,
}

/// What of a node still exists; empty when it was removed completely.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Leftovers {
    /// Living processes.
    pub processes: Vec<u32>,
    /// Cgroup directories.
    pub cgroups: Vec<PathBuf>,
    /// Mount points of this machine below the node's directory.
    pub mounts: Vec<String>,
    /// The node's directory.
    pub directory: Option<PathBuf>,
}

/// Names a node that may be gone, to look for its [`Leftovers`].
#[derive(Debug, Clone)]
pub struct NodeIdentity {
    name: String,
    directory: PathBuf,
}

impl TestNode {
    /// Makes a node, after removing what killed owners left behind.
    ///
    /// # Errors
    /// When namespaces, cgroups or interfaces cannot be made.
    pub fn create() -> Result<Self> {
        let node = Self::with_namespaces(|| Namespaces::create().map(Some))?;
        node.set_up_network()?;
        Ok(node)
    }

    /// A node with a directory and a cgroup of its own, but with this
    /// machine's network and mounts: for a container runtime that is not ours.
    ///
    /// # Errors
    /// When the cgroups cannot be made.
    pub fn create_on_this_machine() -> Result<Self> {
        Self::with_namespaces(|| Ok(None))
    }

    fn with_namespaces(make: impl FnOnce() -> Result<Option<Namespaces>>) -> Result<Self> {
        let slot = Arc::new(Slot::acquire()?);
        interrupt::register(&slot)?;
        let prepared =
            make().and_then(|spaces| Ok((spaces, cgroup::create_for_processes(&slot.name)?)));
        let (namespaces, process_cgroup) = match prepared {
            Ok(prepared) => prepared,
            Err(error) => {
                interrupt::unregister(&slot);
                // The first error tells more than that of the clean-up.
                if slot.destroy().is_ok() {
                    slot.release();
                }
                return Err(error);
            }
        };
        Ok(Self {
            slot,
            namespaces,
            process_cgroup,
        })
    }

    /// Never used again by another node; also the name of its cgroup, below
    /// which its pods belong.
    #[must_use]
    pub fn name(&self) -> String {
        self.slot.name.clone()
    }

    /// What pods see as their node: a short name, different from that of other
    /// nodes that exist now. On a machine's own network, where others may have
    /// such names, it is [`TestNode::name`].
    #[must_use]
    pub fn host_name(&self) -> String {
        match self.namespaces {
            Some(_) => format!("node-{}", self.slot.index),
            None => self.name(),
        }
    }

    /// Where its files are; removed with it.
    #[must_use]
    pub fn directory(&self) -> PathBuf {
        self.slot.directory()
    }

    /// Where one of several runtimes or agents on it has its files: the first
    /// in [`TestNode::directory`] itself.
    #[must_use]
    pub fn directory_of(&self, instance: u8) -> PathBuf {
        match instance {
            0 => self.directory(),
            other => self.directory().join(format!("i{other}")),
        }
    }

    /// The cgroup below which its pods belong, as a configuration names it.
    #[must_use]
    pub fn cgroup_root(&self) -> String {
        format!("/{}", self.name())
    }

    /// The node's address on [`NODE_INTERFACE`], valid inside only.
    #[must_use]
    pub fn address(&self) -> Ipv4Addr {
        Ipv4Addr::new(10, 123, self.slot.index, 1)
    }

    /// [`TestNode::address`], unless it shares the machine's network.
    #[must_use]
    pub fn own_address(&self) -> Option<Ipv4Addr> {
        self.namespaces.as_ref().map(|_| self.address())
    }

    /// Network of its pods in CIDR notation, different from other nodes'.
    #[must_use]
    pub fn pod_network(&self) -> String {
        self.pod_network_of(0)
    }

    /// Network of the pods of one of several runtimes on it.
    #[must_use]
    pub fn pod_network_of(&self, instance: u8) -> String {
        format!("10.{}.{}.0/24", 88 + instance, self.slot.index)
    }

    /// Number of the node among those that exist now.
    #[must_use]
    pub fn index(&self) -> u8 {
        self.slot.index
    }

    /// What to look for once the node is gone.
    #[must_use]
    pub fn identity(&self) -> NodeIdentity {
        NodeIdentity {
            name: self.name(),
            directory: self.directory(),
        }
    }

    /// Runs `action` on a thread inside the node: connections that it makes
    /// start there, paths show the node's mounts.
    ///
    /// # Errors
    /// When the namespaces cannot be entered.
    pub fn run<T: Send>(&self, action: impl FnOnce() -> T + Send) -> io::Result<T> {
        match &self.namespaces {
            Some(namespaces) => namespaces.run(action),
            None => Ok(action()),
        }
    }

    /// A command for [`TestNode::spawn`] and [`TestNode::output`]. It runs in
    /// the node's cgroup, marked as belonging to the node, in a process group
    /// of its own, so that Ctrl-C reaches the test alone.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        use std::os::unix::process::CommandExt as _;
        let mut command = Command::new("/bin/sh");
        command
            .arg("-c")
            .arg(r#"echo $$ > "$0/cgroup.procs" && exec "$@""#)
            .arg(&self.process_cgroup)
            .arg(program.as_ref())
            .env(processes::MARKER, &self.slot.name)
            .stdin(Stdio::null())
            .process_group(0);
        command
    }

    /// The same for a service: it runs in a cgroup of its own on every hierarchy that
    /// limits something.
    ///
    /// # Errors
    /// When a cgroup cannot be made.
    pub fn service(&self, program: impl AsRef<OsStr>) -> Result<Command> {
        use std::os::unix::process::CommandExt as _;
        const ENTER: &str = r#"while [ "$1" != -- ]; do
            mkdir -p "$1/$$" && echo $$ > "$1/$$/cgroup.procs" || exit 1
            shift
        done
        shift
        exec "$@""#;
        let mut command = Command::new("/bin/sh");
        command
            .args(["-c", ENTER, "service"])
            .args(cgroup::create_for_services(&self.slot.name)?)
            .arg("--")
            .arg(program.as_ref())
            .env(processes::MARKER, &self.slot.name)
            .stdin(Stdio::null())
            .process_group(0);
        Ok(command)
    }

    /// Starts a command of [`TestNode::command`] or [`TestNode::service`] inside the node.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn spawn(&self, mut command: Command) -> io::Result<Child> {
        self.run(|| command.spawn())?
    }

    /// Runs a program inside the node to its end and returns its standard
    /// output.
    ///
    /// # Errors
    /// When it cannot be started or fails; the error holds its output.
    pub fn output<S: AsRef<OsStr>>(&self, program: &str, arguments: &[S]) -> Result<String> {
        let mut command = self.command(program);
        command.args(arguments);
        let output = self
            .run(|| command.output())
            .and_then(|result| result)
            .with_context(|| format!("cannot run {program}"))?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        if !output.status.success() {
            let arguments: Vec<_> = arguments
                .iter()
                .map(|a| a.as_ref().to_string_lossy())
                .collect();
            bail!(
                "{program} {}: {}\n{}{text}",
                arguments.join(" "),
                output.status,
                String::from_utf8_lossy(&output.stderr)
            );
        }
        Ok(text)
    }

    /// Mounts a file system of `bytes` on `directory` (made if missing) inside
    /// the node: a disk that can be filled.
    ///
    /// # Errors
    /// When it cannot be mounted.
    pub fn mount_small_disk(&self, directory: &Path, bytes: u64) -> Result<()> {
        if self.namespaces.is_none() {
            bail!("nothing is mounted on the machine itself");
        }
        fs::create_dir_all(directory).with_context(|| directory.display().to_string())?;
        let options = format!("size={bytes},mode=0755");
        self.run(|| {
            mount(
                Some("tmpfs"),
                directory,
                Some("tmpfs"),
                MsFlags::empty(),
                Some(&*options),
            )
        })?
        .with_context(|| format!("cannot mount a tmpfs on {}", directory.display()))
    }

    /// From now on, changes below `directory` stay inside and are found by
    /// [`TestNode::changes`], as those below `/run` and `/var/lib` always are.
    ///
    /// # Errors
    /// When it cannot be mounted over.
    pub fn catch_changes(&self, directory: &str) -> Result<()> {
        if self.namespaces.is_none() {
            bail!("nothing is mounted on the machine itself");
        }
        self.run(|| namespaces::overlay(directory))?
    }

    /// What was written to the system's own directories since the node was
    /// made, by path: kind, mode, owner, and of files their size and time.
    ///
    /// # Errors
    /// When it cannot be looked at.
    pub fn changes(&self) -> Result<BTreeMap<PathBuf, String>> {
        self.run(namespaces::changes)?
    }

    /// Loopback, and one interface with an address and the default route, so
    /// that the node looks like one with a network. The other end is not
    /// connected to anything: packets for elsewhere are lost.
    fn set_up_network(&self) -> Result<()> {
        if self.namespaces.is_none() {
            bail!("the machine's own network is not to be changed");
        }
        let address = format!("{}/24", self.address());
        for line in [
            "link set lo up".to_owned(),
            format!("link add {NODE_INTERFACE} type veth peer name outside0"),
            format!("address add {address} dev {NODE_INTERFACE}"),
            format!("link set {NODE_INTERFACE} up"),
            "link set outside0 up".to_owned(),
            format!("route add default dev {NODE_INTERFACE}"),
        ] {
            let words: Vec<&str> = line.split(' ').collect();
            self.output("ip", &words)?;
        }
        Ok(())
    }
}

impl Drop for TestNode {
    fn drop(&mut self) {
        interrupt::unregister(&self.slot);
        match self.slot.destroy() {
            Ok(()) => self.slot.release(),
            Err(error) if std::thread::panicking() => report(&error),
            Err(error) => panic!("the test node {} was not removed: {error:#}", self.name()),
        }
    }
}

impl fmt::Display for NodeIdentity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {}", self.name, self.directory.display())
    }
}

/// Reads what `Display` writes: for a node that another process holds.
impl FromStr for NodeIdentity {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let (name, directory) = text
            .split_once(' ')
            .with_context(|| format!("want NAME DIRECTORY, not {text:?}"))?;
        Ok(Self {
            name: name.to_owned(),
            directory: directory.into(),
        })
    }
}

impl NodeIdentity {
    /// Looks for everything that could be left of the node.
    ///
    /// # Errors
    /// When the machine's tables cannot be read.
    pub fn leftovers(&self) -> Result<Leftovers> {
        let table = fs::read_to_string("/proc/self/mountinfo").context("/proc/self/mountinfo")?;
        let directory = self.directory.to_string_lossy();
        let mounts = table
            .lines()
            .filter_map(|line| line.split(' ').nth(4))
            .filter(|mount_point| mount_point.starts_with(&*directory))
            .map(str::to_owned)
            .collect();
        Ok(Leftovers {
            processes: processes::of_node(&self.name)?.into_iter().collect(),
            cgroups: cgroup::existing(&self.name)?,
            mounts,
            directory: self.directory.exists().then(|| self.directory.clone()),
        })
    }
}

/// Removes what is left of nodes whose owner was killed.
///
/// # Errors
/// When something cannot be removed.
pub fn reap_dead_owners() -> Result<()> {
    slot::reap_dead_owners()
}

#[expect(clippy::print_stderr, reason = "a second panic would hide the first")]
fn report(error: &anyhow::Error) {
    eprintln!("while panicking: the test node was not removed: {error:#}");
}
