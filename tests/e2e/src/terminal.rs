//! A program at a terminal of its own, and what a person does and sees there.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::unix::ffi::OsStringExt as _;
use std::process::{Child, Command};
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;

use anyhow::{Context as _, Result};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};
use test_support::node::TestNode;

use crate::ground::TIMEOUT;

/// A program at a terminal of its own.
pub struct Terminal {
    child: Child,
    keys: File,
    shown: Receiver<Vec<u8>>,
    text: String,
}

impl Terminal {
    /// Starts the program on the node.
    ///
    /// # Errors
    /// When there is no terminal, or no program.
    pub fn start(node: &TestNode, mut command: Command) -> Result<Terminal> {
        let keys = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY)?;
        grantpt(&keys)?;
        unlockpt(&keys)?;
        let name = ptsname(&keys, Vec::new())?.into_bytes();
        let slave = File::options()
            .read(true)
            .write(true)
            .open(std::ffi::OsString::from_vec(name))?;
        command
            .stdin(slave.try_clone()?)
            .stdout(slave.try_clone()?)
            .stderr(slave);
        let keys = File::from(keys);
        let child = node.spawn(command)?;
        let mut screen = keys.try_clone()?;
        let (sender, shown) = channel();
        std::thread::spawn(move || {
            let mut part = [0; 4096];
            while let Ok(length) = screen.read(&mut part) {
                if length == 0 || sender.send(part[..length].to_vec()).is_err() {
                    break;
                }
            }
        });
        Ok(Terminal {
            child,
            keys,
            shown,
            text: String::new(),
        })
    }

    /// Whether the program gets each key as it is pressed.
    ///
    /// # Errors
    /// When the terminal does not say so.
    pub fn is_raw(&self) -> Result<bool> {
        let modes = tcgetattr(&self.keys)?.local_modes;
        Ok(!modes.contains(LocalModes::ICANON))
    }

    /// Gives it this size.
    ///
    /// # Errors
    /// When the program has ended.
    pub fn resize(&self, columns: u16, rows: u16) -> Result<()> {
        let size = Winsize {
            ws_row: rows,
            ws_col: columns,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(&self.keys, size)?;
        // It is not the terminal's session, so the kernel does not say so.
        let pid = Pid::from_raw(i32::try_from(self.child.id())?);
        Ok(kill(pid, Signal::SIGWINCH)?)
    }

    /// Presses keys.
    ///
    /// # Errors
    /// When the terminal takes none.
    pub fn press(&mut self, keys: &str) -> Result<()> {
        Ok(self.keys.write_all(keys.as_bytes())?)
    }

    /// Waits until these words were shown since the last time.
    ///
    /// # Errors
    /// When they are not in time.
    pub fn until_shown(&mut self, words: &str) -> Result<()> {
        let until = Instant::now() + TIMEOUT;
        while !self.text.contains(words) {
            let left = until.saturating_duration_since(Instant::now());
            let part = self.shown.recv_timeout(left);
            let part = part.with_context(|| format!("{words:?} is not in {:?}", self.text))?;
            self.text += &String::from_utf8_lossy(&part);
        }
        self.text.clear();
        Ok(())
    }

    /// Waits for the program's end; its exit code.
    ///
    /// # Errors
    /// When there is none to wait for.
    pub fn wait(&mut self) -> Result<Option<i32>> {
        Ok(self.child.wait()?.code())
    }
}
