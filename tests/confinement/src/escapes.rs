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
use confine::Hold;
use node_config::{DirectoryLayout, NodeConfig};
use topology::{Need, Place, Process, Sight, row};

use crate::starter::Starter;

/// Those that the kernel holds to their files.
pub const HELD: [Process; 7] = [
    Process::StatusSyncer,
    Process::Pleg,
    Process::Prober,
    Process::ConfigSourcer,
    Process::SyncLoop,
    Process::ApiGateway,
    Process::NodeApi,
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
    left: [PathBuf; 3],
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
        let left = WHERE_OTHERS_LEAVE_FILES.map(|it| left_in(it, directory));
        for path in &left {
            fs::write(path, "")?;
            fs::set_permissions(path, Permissions::from_mode(0o666))?;
        }
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
            left,
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
        for path in self.left.iter().chain([&self.public_socket]) {
            let _ = fs::remove_file(path);
        }
    }
}

/// A socket of the node that everybody may connect to, as that of the system's message bus
/// is: outside of the sandbox in this directory, and with a name of its own.
#[must_use]
pub fn public_socket(directory: &Path) -> PathBuf {
    let name = directory.file_name().unwrap_or_default().display();
    Path::new("/run").join(format!("escape-{name}.sock"))
}

/// Where everybody may write, or people keep what is theirs.
const WHERE_OTHERS_LEAVE_FILES: [&str; 3] = ["/tmp", "/dev/shm", "/home"];

/// A file that everybody may change, outside of the sandbox in `directory`.
#[must_use]
pub fn left_in(place: &str, directory: &Path) -> PathBuf {
    let name = directory.file_name().unwrap_or_default().display();
    Path::new(place).join(format!("escape-{name}"))
}

/// What systemd's own settings make of some attempts.
const UNDER_SYSTEMD: [(&str, &str); 9] = [
    ("file-in-tmp", "EACCES"),
    ("file-in-shared-memory", "EACCES"),
    ("file-in-home", "EACCES"),
    ("socket-of-anybody", "ENOENT"),
    ("write-manifest", "EROFS"),
    ("shorten-manifest", "EROFS"),
    ("write-to-anybody", "EROFS"),
    ("process-1", "ENOENT"),
    ("environment-of-another", "ENOENT"),
];

/// The same of some more, of who sees the node's files beside programs that it starts.
const BESIDE_THE_NODE_UNDER_SYSTEMD: [(&str, &str); 8] = [
    ("file-in-tmp", "ENOENT"),
    ("file-in-shared-memory", "ENOENT"),
    ("file-in-home", "EACCES"),
    ("socket-of-anybody", "ENOENT"),
    ("write-manifest", "EROFS"),
    ("write-to-anybody", "EROFS"),
    ("process-1", "ENOENT"),
    ("environment-of-another", "ENOENT"),
];

/// What the filters refuse to everybody, root or not.
const FOR_NOBODY: [&str; 14] = [
    "packets",
    "algorithms-of-the-kernel",
    "socket-to-the-host",
    "descriptor-of-a-process",
    "compare-processes",
    "keys",
    "io-ring",
    "page-faults",
    "user-namespace-by-clone",
    "user-namespace",
    "network-namespace",
    "chroot",
    "host-name",
    "trace",
];

/// What attempts of `process` are to come to, where the kernel's Landlock is of this version
/// (0: there is none): all of one that is held to its files, of the others those of which
/// something keeps it. Under systemd some come to less: files outside of its own directories
/// cannot be written at all, and it sees no other process.
#[must_use]
pub fn expected(process: Process, starter: Starter, landlock: i64) -> Answers {
    let mut answers: BTreeMap<&str, &str> = FOR_NOBODY.map(|name| (name, "EPERM")).into();
    answers.insert("user-namespace-by-clone3", "ENOSYS");
    match HELD.contains(&process) {
        true => answers.extend(held(process, landlock)),
        false => answers.extend(refused(process).iter().copied()),
    }
    if starter == Starter::Systemd {
        // By its mounts, with which our supervisor's are tried by themselves.
        if row(process).needs(Need::Internet) && keeps_state(process) {
            answers.insert("run-own-state", "EPERM");
        }
        for (name, less) in UNDER_SYSTEMD {
            answers.entry(name).and_modify(|answer| *answer = less);
        }
        if process == Process::CredentialProvider {
            answers.extend(BESIDE_THE_NODE_UNDER_SYSTEMD);
        }
    }
    let answers = answers.into_iter();
    answers
        .map(|(name, answer)| (name.to_owned(), answer.to_owned()))
        .collect()
}

fn permitted(if_so: bool, otherwise: &'static str) -> &'static str {
    match if_so {
        true => "permitted",
        false => otherwise,
    }
}

/// Whether a process may open its own state directory, or may open whatever its user may.
#[must_use]
pub fn keeps_state(process: Process) -> bool {
    let mut opens = row(process).opens.iter();
    !HELD.contains(&process) || opens.any(|it| it.place == Place::OwnState)
}

/// Of one that is held to its files.
fn held(process: Process, landlock: i64) -> [(&'static str, &'static str); 34] {
    let has_state = keeps_state(process);
    let reads_manifests = process == Process::ConfigSourcer;
    let internet = row(process).needs(Need::Internet);
    let holds = |hold: Hold| hold.is_in(landlock);
    // Modes alone permit it.
    let listed = |is_listed| permitted(is_listed || !holds(Hold::Files), "EACCES");
    let is_shortened = !holds(Hold::Files) || (reads_manifests && !holds(Hold::Lengths));
    // Who needs no internet has no such socket.
    let (tcp, listens) = match internet {
        true => ("permitted", permitted(!holds(Hold::Tcp), "EACCES")),
        false => ("EPERM", "EPERM"),
    };
    // Who needs it loads libraries, and from a mount of its own with nothing to run.
    let run_own_state = match listed(has_state) {
        "permitted" => permitted(internet, "EPERM"),
        refused => refused,
    };
    // Who needs it is in the node's network.
    let abstract_socket = match internet {
        true => permitted(!holds(Hold::Others), "EPERM"),
        false => "ECONNREFUSED",
    };
    [
        ("own-state", listed(has_state)),
        ("write-own-state", listed(has_state)),
        ("state-of-another", listed(false)),
        ("listed-manifest", listed(reads_manifests)),
        ("write-manifest", listed(false)),
        ("shorten-manifest", permitted(is_shortened, "EACCES")),
        ("file-of-anybody", listed(false)),
        ("write-to-anybody", listed(false)),
        ("shadow", "EACCES"),
        ("process-1", listed(false)),
        ("environment-of-another", "EACCES"),
        ("device-of-the-machine", listed(false)),
        ("socket-of-root", "EACCES"),
        // Landlock does not look at it; mounts of its own keep it from sight.
        ("socket-of-anybody", "permitted"),
        ("file-in-tmp", listed(false)),
        ("file-in-shared-memory", listed(false)),
        ("file-in-home", listed(false)),
        ("tcp-listen", listens),
        ("tcp-connect", tcp),
        ("port-of-the-node", tcp),
        ("abstract-socket", abstract_socket),
        ("raw-socket", "EPERM"),
        ("netlink", "EPERM"),
        (
            "file-events",
            permitted(row(process).needs(Need::FileEvents), "EPERM"),
        ),
        ("mount", "EPERM"),
        ("mount-namespace", "EPERM"),
        ("signal", "EPERM"),
        ("root", "EPERM"),
        ("exec", "EPERM"),
        ("start-a-program", "EPERM"),
        ("device", "EPERM"),
        ("run-own-state", run_own_state),
        ("run-memory", "EPERM"),
        // It is root's, of who cannot be traced.
        ("own-memory", "EACCES"),
    ]
}

/// Of the others, what is refused beside what nobody has: to the pool, which is root and has
/// its capabilities, by its filter; to who starts programs, more by its user.
fn refused(process: Process) -> &'static [(&'static str, &'static str)] {
    match process {
        Process::PodWorkerPool => &[
            ("tcp-listen", "EPERM"),
            ("tcp-connect", "EPERM"),
            ("port-of-the-node", "EPERM"),
            ("abstract-socket", "ECONNREFUSED"),
            ("raw-socket", "EPERM"),
            ("netlink", "EPERM"),
            ("mount-namespace", "EPERM"),
            ("exec", "EPERM"),
            ("start-a-program", "EPERM"),
            ("run-own-state", "EPERM"),
            ("run-memory", "EPERM"),
        ],
        Process::CredentialProvider => &[
            ("shadow", "EACCES"),
            ("environment-of-another", "EACCES"),
            ("socket-of-root", "EACCES"),
            ("raw-socket", "EPERM"),
            ("mount", "EPERM"),
            ("mount-namespace", "EPERM"),
            ("signal", "EPERM"),
            ("root", "EPERM"),
            ("device", "EPERM"),
        ],
        _ => &[("raw-socket", "EPERM")],
    }
}

/// A line for each attempt that came to something else than it is to.
#[must_use]
pub fn different(expected: &Answers, told: &Answers) -> Vec<String> {
    let others = expected
        .iter()
        .filter(|(name, answer)| told.get(*name) != Some(answer));
    others
        .map(|(name, answer)| format!("{name}: {:?}, not {answer}", told.get(name)))
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
        "socket-of-root",
        "socket-of-anybody",
        "file-in-tmp",
        "file-in-shared-memory",
        "file-in-home",
        "device-of-the-machine",
        "start-a-program",
    ];
    let mut answers: Answers = hidden
        .map(|name| (name.to_owned(), "ENOENT".to_owned()))
        .into();
    if row(process).sight != Sight::Listed {
        // It starts programs of the node, which may count on that device.
        answers.remove("start-a-program");
        answers.insert("device-of-the-machine".to_owned(), "permitted".to_owned());
    }
    // What it writes is on a mount of which nothing is run.
    let run_own_state = match keeps_state(process) {
        true => "EPERM",
        false => "ENOENT",
    };
    answers.insert("run-own-state".to_owned(), run_own_state.to_owned());
    // In `/etc`, where the files for the look-up of names are.
    let mut opens = row(process).opens.iter();
    let shadow = match opens.any(|it| it.place == Place::NameResolution) {
        true => "EACCES",
        false => "ENOENT",
    };
    answers.insert("shadow".to_owned(), shadow.to_owned());
    let manifests = match process {
        Process::ConfigSourcer => ["permitted", "EROFS", "EROFS"],
        _ => ["ENOENT"; 3],
    };
    let names = ["listed-manifest", "write-manifest", "shorten-manifest"];
    for (name, answer) in names.iter().zip(manifests) {
        answers.insert((*name).to_owned(), answer.to_owned());
    }
    answers
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The newest that any of this asks for.
    const WHOLE: i64 = 6;

    /// What comes to something else than with a whole Landlock.
    fn otherwise(process: Process, landlock: i64) -> Vec<String> {
        let whole = expected(process, Starter::Supervisor, WHOLE);
        let told = expected(process, Starter::Supervisor, landlock);
        assert_eq!(told.len(), whole.len());
        let changed = |(name, _): &(&String, &String)| told.get(*name) != whole.get(*name);
        whole
            .iter()
            .filter(changed)
            .map(|(name, _)| format!("{name} {}", told[name]))
            .collect()
    }

    #[test]
    fn an_older_landlock_refuses_exactly_so_much_less() {
        for process in HELD {
            for newer in [WHOLE, WHOLE + 1, WHOLE + 9] {
                assert_eq!(otherwise(process, newer), Vec::<String>::new());
            }
            let is_sourcer = process == Process::ConfigSourcer;
            let internet = row(process).needs(Need::Internet);
            for landlock in 1..WHOLE {
                let mut less = Vec::new();
                if internet {
                    less.push("abstract-socket permitted");
                }
                if is_sourcer && landlock < 3 {
                    less.push("shorten-manifest permitted");
                }
                if internet && landlock < 4 {
                    less.push("tcp-listen permitted");
                }
                assert_eq!(otherwise(process, landlock), less, "{process} {landlock}");
            }
        }
    }

    #[test]
    fn without_landlock_modes_alone_keep_files() {
        let pleg = [
            "device-of-the-machine permitted",
            "file-in-home permitted",
            "file-in-shared-memory permitted",
            "file-in-tmp permitted",
            "file-of-anybody permitted",
            "listed-manifest permitted",
            "own-state permitted",
            "process-1 permitted",
            "run-own-state EPERM",
            "shorten-manifest permitted",
            "state-of-another permitted",
            "write-manifest permitted",
            "write-own-state permitted",
            "write-to-anybody permitted",
        ];
        assert_eq!(otherwise(Process::Pleg, 0), pleg);
        let whole = expected(Process::Pleg, Starter::Systemd, WHOLE);
        let none = expected(Process::Pleg, Starter::Systemd, 0);
        // systemd's settings refuse what they refuse.
        for (name, answer) in UNDER_SYSTEMD {
            assert_eq!([&whole[name], &none[name]], [answer, answer], "{name}");
        }
    }

    #[test]
    fn landlock_has_no_say_in_who_is_not_held() {
        for process in [
            Process::Supervisor,
            Process::PodWorkerPool,
            Process::CredentialProvider,
        ] {
            assert_eq!(otherwise(process, 0), Vec::<String>::new());
        }
    }
}
