//! What keeps root's privileges, so that the rest of the command line needs none.
//!
//! Processes serve root, and look at who connects. Where root runs a command that asks
//! them, this program starts itself once more: that second process, the broker, connects
//! to sockets and hands the connections over. It is told nothing but which process is
//! meant and sees nothing of what is said. The first becomes `nobody` for good before it
//! has heard anything, so also a connection that is made anew after a restart of a process
//! needs no privileges in it. The broker ends when the first has ended.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};

use nix::sys::prctl;
use nix::unistd::{Gid, Uid, geteuid, setgroups, setresgid, setresuid};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use topology::Process;

/// The subcommand that is the broker.
pub(crate) const SUBCOMMAND: &str = "connect";

/// The user and the group that own nothing, as the kernel has them by default.
const NOBODY: u32 = 65_534;

/// The broker, as who asks it sees it.
#[derive(Debug)]
pub(crate) struct Broker {
    /// One question at a time; messages are kept apart by the kernel.
    socket: Mutex<OwnedFd>,
    _child: Child,
}

impl Broker {
    /// Starts the broker and gives up root's privileges; `None` when this is not root.
    /// To be called before there are other threads.
    ///
    /// # Errors
    /// When one of both is not possible. It may be that a part is given up already, but
    /// never the user.
    pub(crate) fn start(run_dir: &Path) -> io::Result<Option<Broker>> {
        if !geteuid().is_root() {
            return Ok(None);
        }
        let (ours, theirs) = socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )?;
        let child = Command::new("/proc/self/exe")
            .arg("--run-dir")
            .arg(run_dir)
            .arg(SUBCOMMAND)
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        become_nobody()?;
        Ok(Some(Broker {
            socket: Mutex::new(ours),
            _child: child,
        }))
    }

    /// A connection to a process.
    ///
    /// # Errors
    /// When the broker could not connect, with its error, or has ended.
    pub(crate) fn connect(&self, process: Process) -> io::Result<UnixStream> {
        let socket = self.socket.lock().unwrap_or_else(PoisonError::into_inner);
        let number = Process::ALL.iter().position(|it| *it == process);
        let number = number.and_then(|number| u8::try_from(number).ok());
        let number = number.ok_or(io::ErrorKind::InvalidInput)?;
        let question = [number];
        sendmsg(
            &*socket,
            &[IoSlice::new(&question)],
            &mut SendAncillaryBuffer::default(),
            SendFlags::NOSIGNAL,
        )?;
        answered(socket.as_fd())
    }
}

/// The broker's answer: 0 and a connection, or the number of an error.
fn answered(socket: BorrowedFd<'_>) -> io::Result<UnixStream> {
    let mut code = [0; 4];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = recvmsg(
        socket,
        &mut [IoSliceMut::new(&mut code)],
        &mut control,
        RecvFlags::CMSG_CLOEXEC,
    )?;
    if received.bytes != code.len() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let code = i32::from_le_bytes(code);
    if code != 0 {
        return Err(io::Error::from_raw_os_error(code));
    }
    let mut rights = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(rights) => Some(rights),
        _ => None,
    });
    let descriptor = rights.next().and_then(|mut rights| rights.next());
    let descriptor = descriptor.ok_or(io::ErrorKind::InvalidData)?;
    Ok(UnixStream::from(descriptor))
}

/// Gives up root's user, groups and capabilities, and ever having more.
///
/// # Errors
/// When a part of it is not possible.
pub(crate) fn become_nobody() -> io::Result<()> {
    let (user, group) = (Uid::from_raw(NOBODY), Gid::from_raw(NOBODY));
    setgroups(&[])?;
    setresgid(group, group, group)?;
    prctl::set_no_new_privs()?;
    setresuid(user, user, user)?;
    Ok(())
}

/// The broker: connects to sockets in `run_dir` as it is asked on standard input, until
/// nobody is left who asks.
///
/// # Errors
/// When standard input is no such socket.
pub(crate) fn serve(run_dir: &Path) -> io::Result<()> {
    let socket = io::stdin();
    loop {
        let mut question = [0; 1];
        let received = recvmsg(
            &socket,
            &mut [IoSliceMut::new(&mut question)],
            &mut RecvAncillaryBuffer::default(),
            RecvFlags::CMSG_CLOEXEC,
        )?;
        if received.bytes == 0 {
            return Ok(());
        }
        let connected = Process::ALL
            .get(usize::from(question[0]))
            .ok_or_else(|| io::Error::from_raw_os_error(nix::libc::EINVAL))
            .and_then(|process| UnixStream::connect(run_dir.join(process.socket_file_name())));
        answer(socket.as_fd(), connected)?;
    }
}

fn answer(socket: BorrowedFd<'_>, connected: io::Result<UnixStream>) -> io::Result<()> {
    let code = match &connected {
        Ok(_) => 0,
        Err(error) => error.raw_os_error().unwrap_or(nix::libc::EIO),
    };
    let descriptors: Vec<BorrowedFd<'_>> = connected.iter().map(AsFd::as_fd).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(&descriptors));
    }
    let code = code.to_le_bytes();
    sendmsg(
        socket,
        &[IoSlice::new(&code)],
        &mut control,
        SendFlags::NOSIGNAL,
    )?;
    Ok(())
}
