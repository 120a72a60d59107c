//! Holding a process to the files that it has listed, and its network to what it needs,
//! by Landlock (landlock(7)). Older kernels enforce less of it, and the oldest nothing;
//! [`landlock_lacks`] says what.
//!
//! Landlock does not look at connections to sockets with a path, so nothing of this is
//! about who may call whom (`ipc`).

use std::io;
use std::path::PathBuf;

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, Ruleset, RulesetAttr, RulesetCreatedAttr,
    RulesetError, Scope, path_beneath_rules,
};
use nix::libc;

/// What is asked for; a kernel that has less enforces what it has.
const WANTED: ABI = ABI::V6;

/// What a process is held to, as far as the kernel can.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// To the files that it lists.
    Files,
    /// Not to shorten other files, also where it may read them.
    Lengths,
    /// To no TCP but what it needs.
    Tcp,
    /// To no commands to devices.
    Commands,
    /// To no signals and abstract sockets of others.
    Others,
}

/// What each version of the kernel's interface added of what is asked for, and what it is
/// for people.
const ADDED: &[(i64, Hold, &str)] = &[
    (1, Hold::Files, "hold processes to the files that they list"),
    (3, Hold::Lengths, "keep them from shortening other files"),
    (4, Hold::Tcp, "keep them from TCP"),
    (5, Hold::Commands, "keep them from commands to devices"),
    (
        6,
        Hold::Others,
        "keep them from signals and abstract sockets of others",
    ),
];

impl Hold {
    /// Whether the interface of this version has it.
    #[must_use]
    pub fn is_in(self, version: i64) -> bool {
        let mut added = ADDED.iter();
        added.any(|(added_by, hold, _)| *hold == self && *added_by <= version)
    }
}

/// What a process may open by path. Each directory stands for everything below it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Files {
    /// To read and list.
    pub read: Vec<PathBuf>,
    /// To change, too.
    pub write: Vec<PathBuf>,
}

/// Restricts the calling thread, and all that it starts. Paths that do not exist, or
/// that the caller cannot reach, are left out: it cannot open them either.
pub(crate) fn restrict(files: &Files, internet: bool) -> Result<(), RulesetError> {
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    let mut rules = Ruleset::default()
        .handle_access(AccessFs::from_all(WANTED))?
        .handle_access(AccessNet::BindTcp)?;
    if !internet {
        rules = rules.handle_access(AccessNet::ConnectTcp)?;
    }
    rules
        .scope(Scope::Signal | Scope::AbstractUnixSocket)?
        .create()?
        .add_rules(path_beneath_rules(&files.read, read))?
        .add_rules(path_beneath_rules(&files.write, read | changes()))?
        .restrict_self()?;
    Ok(())
}

/// What keeping state takes: no devices, no programs.
fn changes() -> BitFlags<AccessFs> {
    AccessFs::WriteFile
        | AccessFs::Truncate
        | AccessFs::MakeReg
        | AccessFs::MakeDir
        | AccessFs::MakeSym
        | AccessFs::RemoveFile
        | AccessFs::RemoveDir
        | AccessFs::Refer
}

/// What of all this the running kernel cannot do, for people.
#[must_use]
pub fn landlock_lacks() -> Vec<&'static str> {
    lacks(landlock_version())
}

fn lacks(version: i64) -> Vec<&'static str> {
    let missing = ADDED.iter().filter(|(_, hold, _)| !hold.is_in(version));
    missing.map(|(_, _, what)| *what).collect()
}

/// The version of the running kernel's interface; 0 where there is none.
#[must_use]
pub fn landlock_version() -> i64 {
    const VERSION: libc::c_uint = 1;
    let nothing = std::ptr::null::<libc::c_void>();
    // SAFETY: with this flag the kernel reads no structure, and answers with a number.
    let answer =
        unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, nothing, 0_usize, VERSION) };
    answer.max(0)
}

/// A ruleset's error as one of the system.
pub(crate) fn system_error(error: &RulesetError) -> io::Error {
    io::Error::other(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_older_kernel_lacks_is_said() {
        assert_eq!(lacks(0).len(), ADDED.len());
        assert_eq!(lacks(1).len(), ADDED.len() - 1);
        assert_eq!(lacks(2), lacks(1));
        assert!(lacks(2).contains(&"keep them from TCP"));
        assert_eq!(lacks(6), Vec::<&str>::new());
        assert_eq!(lacks(9), Vec::<&str>::new());
    }
}
