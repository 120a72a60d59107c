//! kubectl as a person uses it: with input, and as long as it runs.

use std::io::{Read as _, Write as _};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result};
use test_support::node::TestNode;

/// How a program ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// Its exit code; none after a signal.
    pub code: Option<i32>,
    /// Its standard output.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
}

/// Runs a program on the node to its end, with this input.
///
/// # Errors
/// When it cannot be started.
pub fn run(node: &TestNode, mut command: Command, input: &[u8]) -> Result<Ended> {
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = node.spawn(command).context("cannot start the program")?;
    let stdin = child.stdin.take();
    let output = std::thread::scope(|scope| {
        scope.spawn(move || {
            // It may end without having read all.
            stdin.and_then(|mut stdin| stdin.write_all(input).ok())
        });
        child.wait_with_output()
    })?;
    Ok(Ended {
        code: output.status.code(),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    })
}

/// A program that runs; it is killed when dropped.
pub struct Running(Child);

impl Running {
    /// Starts it on the node.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(node: &TestNode, mut command: Command) -> Result<Running> {
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let child = node.spawn(command).context("cannot start the program")?;
        Ok(Running(child))
    }

    /// Sends it input.
    ///
    /// # Errors
    /// When it does not read any.
    pub fn write(&mut self, text: &str) -> Result<()> {
        let stdin = self.0.stdin.as_mut().context("no input")?;
        Ok(stdin.write_all(text.as_bytes())?)
    }

    /// Reads its output until this text is in it; answers what was read.
    ///
    /// # Errors
    /// When the output ends before.
    pub fn read_until(&mut self, text: &str) -> Result<String> {
        let stdout = self.0.stdout.as_mut().context("no output")?;
        let (mut read, mut buffer) = (String::new(), [0; 1024]);
        while !read.contains(text) {
            let count = stdout.read(&mut buffer)?;
            anyhow::ensure!(count > 0, "the output ends without {text:?}: {read:?}");
            read += &String::from_utf8_lossy(&buffer[..count]);
        }
        Ok(read)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}
