//! Programs of the tests that call the processes as one of their users: on the node of a
//! test, or on the machine itself, where systemd may have started them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use test_support::BulkheadInstance;
use topology::Process;

/// Where processes of Bulkhead run that are called.
pub trait Callable {
    /// A program of the tests, to be run there as this user.
    ///
    /// # Errors
    /// When it cannot be put there.
    fn as_user(&self, uid: u32, program: &Path) -> Result<Command>;

    /// Does something in the namespaces in which they run.
    ///
    /// # Errors
    /// When these cannot be entered.
    fn run<T: Send>(&self, action: impl FnOnce() -> T + Send) -> Result<T>;

    /// The socket of a process.
    fn socket(&self, server: Process) -> PathBuf;
}

/// Becomes a user without any group but its own.
fn become_user(command: &mut Command, uid: u32) {
    let uid = uid.to_string();
    command.args(["--reuid", &uid, "--regid", &uid, "--clear-groups"]);
}

impl Callable for BulkheadInstance {
    fn as_user(&self, uid: u32, program: &Path) -> Result<Command> {
        let copy = program.file_name().context("a program without a name")?;
        let copy = self.paths().bin.join(copy);
        if !copy.exists() {
            fs::copy(program, &copy)?;
        }
        let mut command = self.node().command("setpriv");
        become_user(&mut command, uid);
        command.arg(copy);
        Ok(command)
    }

    fn run<T: Send>(&self, action: impl FnOnce() -> T + Send) -> Result<T> {
        Ok(self.node().run(action)?)
    }

    fn socket(&self, server: Process) -> PathBuf {
        self.paths().run.join(server.socket_file_name())
    }
}

/// The machine itself.
#[derive(Clone, Debug)]
pub struct Machine {
    /// Where the sockets are.
    pub run_directory: PathBuf,
}

impl Callable for Machine {
    fn as_user(&self, uid: u32, program: &Path) -> Result<Command> {
        let mut command = Command::new("setpriv");
        become_user(&mut command, uid);
        command.arg(program);
        Ok(command)
    }

    fn run<T: Send>(&self, action: impl FnOnce() -> T + Send) -> Result<T> {
        Ok(action())
    }

    fn socket(&self, server: Process) -> PathBuf {
        self.run_directory.join(server.socket_file_name())
    }
}
