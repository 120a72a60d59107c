//! A program that is confined like a process of Bulkhead, and then tries what that
//! process must not be able to do. It prints a line for each attempt: its name, and the
//! error number that it came to, or `permitted`.
//!
//! Usage: `escape PROCESS NODE_CONFIG SANDBOX [WEAKENED...]`. SANDBOX is a directory of
//! the test, with what is attempted to be opened. WEAKENED leaves something of the
//! confinement out, so that the test sees that it would notice.

#![expect(clippy::print_stdout, reason = "its answers are lines of text")]

mod raw_calls;

use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use anyhow::{Context as _, Result};
use confinement::escapes::{left_in, public_socket};
use nix::errno::Errno;
use nix::libc;
use nix::mount::{MntFlags, MsFlags};
use nix::sched::CloneFlags;
use nix::sys::socket::{AddressFamily, SockFlag, SockProtocol, SockType, socket};
use nix::unistd::{Pid, Uid};
use node_config::NodeConfig;
use topology::Process;

type Attempt = (&'static str, fn(&Path) -> Result<(), Errno>);

const ATTEMPTS: &[Attempt] = &[
    ("own-state", |it| open(&it.join("state/own/a"))),
    ("write-own-state", |it| write(&it.join("state/own/b"))),
    ("run-own-state", |it| {
        raw_calls::run_file(&it.join("state/own/a"))
    }),
    ("state-of-another", |it| open(&it.join("state/other/a"))),
    ("listed-manifest", |it| open(&it.join("etc/manifests/a"))),
    ("write-manifest", |it| write(&it.join("etc/manifests/b"))),
    ("shorten-manifest", |it| {
        shorten(&it.join("etc/manifests/a"))
    }),
    ("file-of-anybody", |it| open(&it.join("open/a"))),
    ("write-to-anybody", |it| write(&it.join("open/b"))),
    ("shadow", |_| open(Path::new("/etc/shadow"))),
    ("process-1", |_| open(Path::new("/proc/1/status"))),
    ("environment-of-another", |_| {
        open(Path::new("/proc/1/environ"))
    }),
    ("run-memory", |_| raw_calls::run_memory()),
    ("own-memory", |_| own_memory()),
    ("device-of-the-machine", |_| open(Path::new("/dev/zero"))),
    ("socket-of-root", |it| connect(&it.join("root.sock"))),
    ("socket-of-anybody", |it| connect(&public_socket(it))),
    ("file-in-tmp", |it| append(&left_in("/tmp", it))),
    ("file-in-shared-memory", |it| {
        append(&left_in("/dev/shm", it))
    }),
    ("file-in-home", |it| append(&left_in("/home", it))),
    ("tcp-listen", |_| system(TcpListener::bind("127.0.0.1:0"))),
    ("tcp-connect", tcp_connect),
    ("port-of-the-node", port_of_the_node),
    ("abstract-socket", abstract_socket),
    ("raw-socket", |_| raw_socket()),
    ("netlink", |_| family(AddressFamily::Netlink, SockType::Raw)),
    ("packets", |_| family(AddressFamily::Packet, SockType::Raw)),
    ("algorithms-of-the-kernel", |_| {
        family(AddressFamily::Alg, SockType::SeqPacket)
    }),
    ("socket-to-the-host", |_| {
        family(AddressFamily::Vsock, SockType::Stream)
    }),
    ("file-events", |_| raw_calls::file_events()),
    ("descriptor-of-a-process", |_| {
        raw_calls::descriptor_of_a_process()
    }),
    ("compare-processes", |_| raw_calls::compare_processes()),
    ("keys", |_| raw_calls::add_key()),
    ("io-ring", |_| raw_calls::io_ring()),
    ("page-faults", |_| raw_calls::page_faults()),
    ("mount", |it| mount(&it.join("open"))),
    ("user-namespace-by-clone", |_| {
        raw_calls::user_namespace_by_clone()
    }),
    ("user-namespace-by-clone3", |_| {
        raw_calls::user_namespace_by_clone3()
    }),
    ("mount-namespace", |_| {
        nix::sched::unshare(CloneFlags::CLONE_NEWNS)
    }),
    ("user-namespace", |_| {
        nix::sched::unshare(CloneFlags::CLONE_NEWUSER)
    }),
    ("network-namespace", |_| {
        nix::sched::unshare(CloneFlags::CLONE_NEWNET)
    }),
    ("chroot", |it| nix::unistd::chroot(it)),
    ("host-name", |_| nix::unistd::sethostname("localhost")),
    ("trace", |_| nix::sys::ptrace::attach(Pid::from_raw(1))),
    ("signal", |_| nix::sys::signal::kill(Pid::from_raw(1), None)),
    ("root", |_| become_root()),
    ("exec", |_| exec()),
    ("start-a-program", |_| {
        system(Command::new("/bin/true").status())
    }),
    ("device", device),
];

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let process: Process = arguments.next().context("no process")?.parse()?;
    let config = PathBuf::from(arguments.next().context("no configuration")?);
    let sandbox = PathBuf::from(arguments.next().context("no directory")?);
    let config = NodeConfig::read(&config)?;
    let mut permitted = process::permitted(&config, process);
    let mut is_sealed = true;
    for weakened in arguments {
        match weakened.as_str() {
            "files" => permitted.files = None,
            "another-directory" => {
                let files = permitted.files.get_or_insert_default();
                files.read.push(sandbox.join("open"));
            }
            "writable-manifests" => {
                let files = permitted.files.get_or_insert_default();
                files.write.push(sandbox.join("etc"));
            }
            "internet" => permitted.calls.internet = true,
            "programs" => permitted.calls.programs = true,
            "mounts" => permitted.calls.mounts = true,
            "file-events" => permitted.calls.file_events = true,
            "mount-namespaces" => permitted.calls.namespaces = true,
            "seal" => is_sealed = false,
            // For the test that starts this.
            "namespaces" | "own-mounts" | "as-root" => {}
            other => anyhow::bail!("nothing is weakened by {other}"),
        }
    }
    // Not everybody may read it afterwards.
    let port = fs::read_to_string(sandbox.join("state/own/port")).unwrap_or_default();
    let _ = PORT.set(port.parse().unwrap_or_default());
    if is_sealed {
        confine::seal(&permitted)?;
    }
    for (name, attempt) in ATTEMPTS {
        match attempt(&sandbox) {
            Ok(()) => println!("{name} permitted"),
            Err(error) => println!("{name} {error:?}"),
        }
    }
    Ok(())
}

fn system<T>(answer: io::Result<T>) -> Result<(), Errno> {
    let number = |error: io::Error| Errno::from_raw(error.raw_os_error().unwrap_or_default());
    answer.map(drop).map_err(number)
}

fn open(path: &Path) -> Result<(), Errno> {
    system(File::open(path))
}

fn write(path: &Path) -> Result<(), Errno> {
    system(fs::write(path, "escaped"))
}

/// Only to what is there.
fn append(path: &Path) -> Result<(), Errno> {
    system(File::options().append(true).open(path))
}

/// Opened to be read, and made empty by that.
fn shorten(path: &Path) -> Result<(), Errno> {
    let mut options = File::options();
    system(options.read(true).custom_flags(libc::O_TRUNC).open(path))
}

fn connect(path: &Path) -> Result<(), Errno> {
    system(UnixStream::connect(path))
}

/// To a port where nobody listens: who may connect is refused by nobody but that.
fn tcp_connect(_: &Path) -> Result<(), Errno> {
    match system(TcpStream::connect("127.0.0.1:1")) {
        Err(Errno::ECONNREFUSED) => Ok(()),
        answer => answer,
    }
}

/// Where the test listens.
static PORT: OnceLock<u16> = OnceLock::new();

/// To a port of the node's loopback where the test listens.
fn port_of_the_node(_: &Path) -> Result<(), Errno> {
    let port = PORT.get().copied().unwrap_or_default();
    system(TcpStream::connect((Ipv4Addr::LOCALHOST, port)))
}

/// To a socket of the test that has a name and no path.
fn abstract_socket(sandbox: &Path) -> Result<(), Errno> {
    let name = sandbox.as_os_str().as_encoded_bytes();
    let address = SocketAddr::from_abstract_name(name);
    system(address.and_then(|address| UnixStream::connect_addr(&address)))
}

fn family(family: AddressFamily, kind: SockType) -> Result<(), Errno> {
    socket(family, kind, SockFlag::empty(), None::<SockProtocol>).map(drop)
}

fn raw_socket() -> Result<(), Errno> {
    let (family, kind) = (AddressFamily::Inet, SockType::Raw);
    socket(family, kind, SockFlag::empty(), SockProtocol::Icmp).map(drop)
}

fn mount(path: &Path) -> Result<(), Errno> {
    let (none, flags) = (None::<&str>, MsFlags::empty());
    nix::mount::mount(none, path, Some("tmpfs"), flags, none)?;
    nix::mount::umount2(path, MntFlags::MNT_DETACH)
}

fn become_root() -> Result<(), Errno> {
    if Uid::current().is_root() {
        return Ok(());
    }
    nix::unistd::setuid(Uid::from_raw(0))
}

fn exec() -> Result<(), Errno> {
    // A program that is not there: whoever may call exec is told that.
    let absent = CString::new("/absent").unwrap_or_default();
    match nix::unistd::execv(&absent, &[&absent]) {
        Err(Errno::ENOENT) => Ok(()),
        Err(error) => Err(error),
        Ok(never) => match never {},
    }
}

fn device(sandbox: &Path) -> Result<(), Errno> {
    use nix::sys::stat::{Mode, SFlag, makedev, mknod};
    let path = sandbox.join("state/own/device");
    mknod(&path, SFlag::S_IFCHR, Mode::S_IRUSR, makedev(1, 1))
}

/// Opened to be written to, code included: the kernel lets who may be traced do so.
fn own_memory() -> Result<(), Errno> {
    let _ = nix::sys::prctl::set_dumpable(true);
    append(Path::new("/proc/self/mem"))
}
