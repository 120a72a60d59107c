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
use topology::{Need, Process, row};

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
    config: NodeConfig,
    public_socket: PathBuf,
    _sockets: [UnixListener; 2],
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
        let public_socket = public_socket(directory);
        let _ = fs::remove_file(&public_socket);
        let sockets = [socket, UnixListener::bind(&public_socket)?];
        fs::set_permissions(&public_socket, Permissions::from_mode(0o777))?;
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
            config,
            public_socket,
            _sockets: sockets,
            _abstract_socket: abstract_socket,
            _port: port,
        })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.directory
    }

    /// The configuration that it is a node of, which is in its `node.json`.
    #[must_use]
    pub fn config(&self) -> &NodeConfig {
        &self.config
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.public_socket);
    }
}

/// A socket of the node that everybody may connect to, as that of the system's message bus
/// is: outside of the sandbox in this directory, and with a name of its own.
#[must_use]
pub fn public_socket(directory: &Path) -> PathBuf {
    let name = directory.file_name().unwrap_or_default().display();
    Path::new("/run").join(format!("escape-{name}.sock"))
}

/// What systemd's own settings make of some attempts.
const UNDER_SYSTEMD: [(&str, &str); 5] = [
    ("socket-of-anybody", "ENOENT"),
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
        // Landlock does not look at it; mounts of its own keep it from sight.
        ("socket-of-anybody", "permitted"),
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

/// What attempts come to by mounts of its own alone, of a process without Landlock and
/// filter: paths that it is not shown do not exist, and what it only reads it cannot change.
#[must_use]
pub fn hidden(process: Process) -> Answers {
    let hidden = [
        "state-of-another",
        "file-of-anybody",
        "write-to-anybody",
        "process-1",
        "environment-of-another",
        "device-of-the-machine",
        "socket-of-root",
        "socket-of-anybody",
        "start-a-program",
    ];
    let mut answers: Answers = hidden
        .map(|name| (name.to_owned(), "ENOENT".to_owned()))
        .into();
    // In `/etc`, where the files for the look-up of names are.
    let shadow = match row(process).needs(Need::Internet) {
        true => "EACCES",
        false => "ENOENT",
    };
    answers.insert("shadow".to_owned(), shadow.to_owned());
    let manifests = match process {
        Process::ConfigSourcer => ["permitted", "EROFS"],
        _ => ["ENOENT", "ENOENT"],
    };
    for (name, answer) in ["listed-manifest", "write-manifest"].iter().zip(manifests) {
        answers.insert((*name).to_owned(), answer.to_owned());
    }
    answers
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
