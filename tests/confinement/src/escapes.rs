//! What a confined process tries that it must not be able to do, and what that is to come
//! to. The program `escape` tries it.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::net::{Ipv4Addr, TcpListener};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};

use anyhow::Result;
use node_config::{DirectoryLayout, NodeConfig};
use topology::Process;

use crate::Starter;

/// Those that the kernel holds to their files.
pub const HELD: [Process; 5] = [
    Process::StatusSyncer,
    Process::Pleg,
    Process::Prober,
    Process::ConfigSourcer,
    Process::SyncLoop,
];

/// What attempts came to, by their names.
pub type Answers = BTreeMap<String, String>;

/// What the program `escape` says.
#[must_use]
pub fn answers(output: &str) -> Answers {
    let answers = output.lines().filter_map(|line| line.split_once(' '));
    answers
        .map(|(name, answer)| (name.to_owned(), answer.to_owned()))
        .collect()
}

/// A directory with what is attempted to be opened, where modes alone would permit all
/// but what belongs to root.
#[derive(Debug)]
pub struct Sandbox {
    directory: PathBuf,
    _socket: UnixListener,
    _abstract_socket: UnixListener,
    _port: TcpListener,
}

impl Sandbox {
    /// Fills an empty directory for a process that runs as this user.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn new(directory: &Path, process: Process, uid: u32) -> Result<Sandbox> {
        let at = |name: &str| directory.join(name);
        for name in ["state/own", "state/other", "etc/manifests", "open"] {
            fs::create_dir_all(at(name))?;
            fs::write(at(name).join("a"), "")?;
            for path in [at(name), at(name).join("a")] {
                fs::set_permissions(path, Permissions::from_mode(0o777))?;
            }
        }
        fs::set_permissions(directory, Permissions::from_mode(0o755))?;
        let socket = UnixListener::bind(at("root.sock"))?;
        fs::set_permissions(at("root.sock"), Permissions::from_mode(0o660))?;
        let address = SocketAddr::from_abstract_name(directory.as_os_str().as_encoded_bytes())?;
        let abstract_socket = UnixListener::bind_addr(&address)?;
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        fs::write(at("state/own/port"), port.local_addr()?.port().to_string())?;
        let mut layout = DirectoryLayout::below(directory);
        layout.state_dir = at("states");
        fs::create_dir(&layout.state_dir)?;
        symlink(at("state/own"), layout.state(process))?;
        let mut config = NodeConfig::with_defaults("node", layout);
        config.static_pod_path = Some(at("etc/manifests"));
        fs::write(at("node.json"), serde_json::to_vec(&config)?)?;
        chown(at("node.json"), Some(uid), None)?;
        Ok(Sandbox {
            directory: directory.to_owned(),
            _socket: socket,
            _abstract_socket: abstract_socket,
            _port: port,
        })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.directory
    }
}

/// What systemd's own settings make of some attempts.
const UNDER_SYSTEMD: [(&str, &str); 4] = [
    ("write-manifest", "EROFS"),
    ("write-to-anybody", "EROFS"),
    ("process-1", "ENOENT"),
    ("environment-of-another", "ENOENT"),
];

/// What each attempt of `process` is to come to. Under systemd some come to less: files
/// outside of its own directories cannot be written at all, and it sees no other process.
#[must_use]
pub fn expected(process: Process, starter: Starter) -> Answers {
    let has_state = HELD.contains(&process) && process != Process::Pleg;
    let reads_manifests = process == Process::ConfigSourcer;
    let internet = [Process::Prober, Process::ConfigSourcer].contains(&process);
    let permitted = |if_so: bool, otherwise: &'static str| match if_so {
        true => "permitted",
        false => otherwise,
    };
    let all = [
        ("own-state", permitted(has_state, "EACCES")),
        ("write-own-state", permitted(has_state, "EACCES")),
        ("state-of-another", "EACCES"),
        ("listed-manifest", permitted(reads_manifests, "EACCES")),
        ("write-manifest", "EACCES"),
        ("file-of-anybody", "EACCES"),
        ("write-to-anybody", "EACCES"),
        ("shadow", "EACCES"),
        ("process-1", "EACCES"),
        ("environment-of-another", "EACCES"),
        ("device-of-the-machine", "EACCES"),
        ("socket-of-root", "EACCES"),
        (
            "tcp-listen",
            permitted(false, if internet { "EACCES" } else { "EPERM" }),
        ),
        ("tcp-connect", permitted(internet, "EPERM")),
        ("port-of-the-node", permitted(internet, "EPERM")),
        (
            "abstract-socket",
            if internet { "EPERM" } else { "ECONNREFUSED" },
        ),
        ("raw-socket", "EPERM"),
        ("netlink", "EPERM"),
        ("packets", "EPERM"),
        ("mount", "EPERM"),
        ("user-namespace", "EPERM"),
        ("network-namespace", "EPERM"),
        ("chroot", "EPERM"),
        ("host-name", "EPERM"),
        ("trace", "EPERM"),
        ("signal", "EPERM"),
        ("root", "EPERM"),
        ("exec", "EPERM"),
        ("start-a-program", "EPERM"),
        ("device", "EPERM"),
    ];
    let under_systemd = UNDER_SYSTEMD.iter().filter(|_| starter == Starter::Systemd);
    all.iter()
        .chain(under_systemd)
        .map(|(name, answer)| ((*name).to_owned(), (*answer).to_owned()))
        .collect()
}

/// Of the pool, which is root and has its capabilities: what its filter refuses.
pub const REFUSED_TO_THE_POOL: [&str; 11] = [
    "tcp-listen",
    "tcp-connect",
    "raw-socket",
    "netlink",
    "packets",
    "user-namespace",
    "network-namespace",
    "chroot",
    "trace",
    "exec",
    "start-a-program",
];
