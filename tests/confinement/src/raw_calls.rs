//! Attempts of `escape` by calls that have no safe wrapper.

#![expect(
    unsafe_code,
    reason = "what is attempted here is what nobody needs, so no library offers it"
)]

use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::path::Path;

use nix::errno::Errno;
use nix::libc;
use nix::sys::wait::waitpid;
use nix::unistd::Pid;

/// An argument of a call.
type Word = libc::c_long;

fn call(number: libc::c_long, arguments: [Word; 5]) -> Result<Word, Errno> {
    let [first, second, third, fourth, fifth] = arguments;
    // SAFETY: numbers, and addresses of what lives longer than the call and is as large as
    // the kernel takes it to be. What is mapped or changed is nothing that is in use.
    Errno::result(unsafe { libc::syscall(number, first, second, third, fourth, fifth, 0) })
}

fn address<T>(of: &T) -> Word {
    std::ptr::from_ref(of).addr().cast_signed() as Word
}

/// Makes a process in a user namespace of its own, as fork(2) makes one.
pub(crate) fn user_namespace_by_clone() -> Result<(), Errno> {
    let flags = libc::CLONE_NEWUSER | libc::SIGCHLD;
    end_child(call(libc::SYS_clone, [flags.into(), 0, 0, 0, 0])?)
}

/// The same by the newer call, whose flags are in memory.
pub(crate) fn user_namespace_by_clone3() -> Result<(), Errno> {
    // `struct clone_args` of its first version: flags, four addresses and the signal at the
    // end of the process, then three of its memory.
    let mut arguments = [0_u64; 8];
    arguments[0] = u64::from(libc::CLONE_NEWUSER.cast_unsigned());
    arguments[4] = u64::from(libc::SIGCHLD.cast_unsigned());
    let size = Word::try_from(size_of_val(&arguments)).unwrap_or_default();
    end_child(call(
        libc::SYS_clone3,
        [address(&arguments), size, 0, 0, 0],
    )?)
}

/// Ends the calling process if it is the one that was made, else waits for that.
fn end_child(made: Word) -> Result<(), Errno> {
    if made == 0 {
        // SAFETY: takes a number, and runs nothing of this process.
        unsafe { libc::_exit(0) }
    }
    waitpid(
        Pid::from_raw(libc::pid_t::try_from(made).unwrap_or(-1)),
        None,
    )
    .map(drop)
}

/// Takes a descriptor out of a process: of itself, which nothing but the filter refuses.
pub(crate) fn descriptor_of_a_process() -> Result<(), Errno> {
    let own = call(libc::SYS_pidfd_open, [own_pid(), 0, 0, 0, 0])?;
    call(libc::SYS_pidfd_getfd, [own, 0, 0, 0, 0]).map(drop)
}

/// Asks whether two processes share a file; of itself, as above.
pub(crate) fn compare_processes() -> Result<(), Errno> {
    let arguments = [own_pid(), own_pid(), 0, 0, 0];
    call(libc::SYS_kcmp, arguments).map(drop)
}

fn own_pid() -> Word {
    Pid::this().as_raw().into()
}

pub(crate) fn add_key() -> Result<(), Errno> {
    let (kind, name) = (c"user", c"escape");
    let (payload, of_the_process) = ([0_u8; 1], libc::KEY_SPEC_PROCESS_KEYRING);
    let [kind, name] = [kind, name].map(|it| it.as_ptr().addr().cast_signed() as Word);
    let arguments = [kind, name, address(&payload), 1, of_the_process.into()];
    call(libc::SYS_add_key, arguments).map(drop)
}

pub(crate) fn io_ring() -> Result<(), Errno> {
    // `struct io_uring_params`, of 120 bytes.
    let mut parameters = [0_u64; 15];
    let at = std::ptr::from_mut(&mut parameters).addr().cast_signed() as Word;
    call(libc::SYS_io_uring_setup, [1, at, 0, 0, 0]).map(drop)
}

/// Handles faults of its own memory, which is for everybody where the kernel has it.
pub(crate) fn page_faults() -> Result<(), Errno> {
    const USER_MODE_ONLY: Word = 1;
    call(libc::SYS_userfaultfd, [USER_MODE_ONLY, 0, 0, 0, 0]).map(drop)
}

pub(crate) fn file_events() -> Result<(), Errno> {
    call(libc::SYS_inotify_init1, [0; 5]).map(drop)
}

/// Maps what is in a file as code.
pub(crate) fn run_file(path: &Path) -> Result<(), Errno> {
    let file = File::open(path).map_err(|error| {
        let number = error.raw_os_error().unwrap_or_default();
        Errno::from_raw(number)
    })?;
    let file = Word::from(file.as_raw_fd());
    map(libc::PROT_READ | libc::PROT_EXEC, libc::MAP_PRIVATE, file).map(drop)
}

/// Makes code of memory that it has written.
pub(crate) fn run_memory() -> Result<(), Errno> {
    let anonymous = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let page = map(libc::PROT_READ | libc::PROT_WRITE, anonymous, -1)?;
    let to_run = libc::PROT_READ | libc::PROT_EXEC;
    call(libc::SYS_mprotect, [page, PAGE, to_run.into(), 0, 0]).map(drop)
}

const PAGE: Word = 4096;

fn map(protection: libc::c_int, flags: libc::c_int, file: Word) -> Result<Word, Errno> {
    call(
        libc::SYS_mmap,
        [0, PAGE, protection.into(), flags.into(), file],
    )
}
