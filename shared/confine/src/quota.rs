//! Quotas of users, by a file of the file system that has them (quotactl_fd(2), Linux 5.14).

use std::io;
use std::os::fd::{AsFd, AsRawFd as _};

use nix::libc;

/// What a user may have on a file system; 0 is as much as there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UserQuota {
    /// Bytes at most, in whole kibibytes.
    pub bytes: u64,
    /// Files and directories at most.
    pub files: u64,
}

/// The kernel counts in these.
const BLOCK_BYTES: u64 = 1 << 10;

/// `Q_XGETQSTAT` of linux/dqblk_xfs.h, which every file system with quotas answers.
const GET_STATE: i32 = 0x5805;

/// `FS_QUOTA_UDQ_ENFD`: users are held to their quotas, which are not only counted.
const USERS_ARE_HELD: u16 = 1 << 1;

/// The beginning of `fs_quota_stat`, and room for the rest, of which we ask nothing.
#[repr(C)]
struct State {
    version: i8,
    flags: u16,
    rest: [u64; 16],
}

/// Whether the file system of `file` holds users to quotas.
#[must_use]
pub fn holds_users_to_quotas(file: &impl AsFd) -> bool {
    let mut state = State {
        version: 0,
        flags: 0,
        rest: [0; 16],
    };
    // SAFETY: the kernel writes a `fs_quota_stat` of 80 bytes, for which there is room.
    let asked = unsafe { call(file, GET_STATE, 0, (&raw mut state).cast()) };
    asked.is_ok() && state.flags & USERS_ARE_HELD != 0
}

/// What a user may have there.
///
/// # Errors
/// When the file system has no quotas, or the caller no right to look.
pub fn user_quota(file: &impl AsFd, uid: u32) -> io::Result<UserQuota> {
    // SAFETY: all-zero is a valid dqblk.
    let mut limits: libc::dqblk = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes a `dqblk`.
    unsafe { call(file, libc::Q_GETQUOTA, uid, (&raw mut limits).cast())? };
    Ok(UserQuota {
        bytes: limits.dqb_bhardlimit.saturating_mul(BLOCK_BYTES),
        files: limits.dqb_ihardlimit,
    })
}

/// Has a user held to this there, from now on. What it has already stays.
///
/// # Errors
/// When the file system has no quotas, or the caller no right to set them.
pub fn set_user_quota(file: &impl AsFd, uid: u32, quota: UserQuota) -> io::Result<()> {
    // SAFETY: all-zero is a valid dqblk.
    let mut limits: libc::dqblk = unsafe { std::mem::zeroed() };
    limits.dqb_bhardlimit = quota.bytes.div_ceil(BLOCK_BYTES);
    limits.dqb_ihardlimit = quota.files;
    limits.dqb_valid = libc::QIF_LIMITS;
    // SAFETY: the kernel reads a `dqblk`.
    unsafe { call(file, libc::Q_SETQUOTA, uid, (&raw mut limits).cast()) }
}

/// # Safety
/// `data` points to what `command` reads or writes.
unsafe fn call(
    file: &impl AsFd,
    command: i32,
    uid: u32,
    data: *mut libc::c_void,
) -> io::Result<()> {
    // As QCMD() has it: the kind of quota in the lowest byte.
    let command = (command << 8) | libc::USRQUOTA;
    let file = file.as_fd().as_raw_fd();
    // SAFETY: the descriptor is open, and the caller vouches for `data`.
    match unsafe { libc::syscall(libc::SYS_quotactl_fd, file, command, uid, data) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_writes_fits() {
        // Its `fs_quota_stat`: flags after a byte and its padding, 80 bytes in all.
        assert_eq!(std::mem::offset_of!(State, flags), 2);
        assert!(size_of::<State>() >= 80);
    }

    #[test]
    fn a_file_system_without_quotas_says_so() {
        let file = std::fs::File::open("/proc").unwrap();
        assert!(!holds_users_to_quotas(&file));
        assert!(user_quota(&file, 1).is_err());
        assert!(set_user_quota(&file, 1, UserQuota::default()).is_err());
    }
}
