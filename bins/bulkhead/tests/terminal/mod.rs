//! A program at a terminal of its own: what it shows.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use super::fakes::Node;

/// Far longer than anything is waited for, so that a failure does not hang.
const COMES_WITHIN: Duration = Duration::from_secs(30);

pub(crate) struct Terminal {
    child: Child,
    shown: Receiver<Vec<u8>>,
    /// All that was shown so far.
    pub(crate) text: String,
}

impl Terminal {
    /// Starts a command at a terminal of 100 columns and 30 rows.
    pub(crate) fn start(node: &Node, arguments: &[&str]) -> Terminal {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap().into_bytes();
        let path = PathBuf::from(std::ffi::OsString::from_vec(name));
        let slave = File::options().read(true).write(true).open(path).unwrap();
        let size = Winsize {
            ws_row: 30,
            ws_col: 100,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(&slave, size).unwrap();
        let child = std::process::Command::new(env!("CARGO_BIN_EXE_bulkhead"))
            .arg("--run-dir")
            .arg(node.run_dir())
            .args(arguments)
            .stdin(Stdio::from(slave.try_clone().unwrap()))
            .stdout(Stdio::from(slave))
            .spawn()
            .unwrap();
        let mut screen = File::from(master);
        let (sender, shown) = channel();
        std::thread::spawn(move || {
            let mut part = [0; 4096];
            while let Ok(length) = screen.read(&mut part) {
                if length == 0 || sender.send(part[..length].to_vec()).is_err() {
                    break;
                }
            }
        });
        Terminal {
            child,
            shown,
            text: String::new(),
        }
    }

    /// Waits until something is shown that was not shown before.
    pub(crate) fn until_shown(&mut self, words: &str) {
        let until = Instant::now() + COMES_WITHIN;
        let begin = self.text.len();
        while !self.text[begin..].contains(words) {
            let left = until.saturating_duration_since(Instant::now());
            let part = self.shown.recv_timeout(left);
            let part = part.unwrap_or_else(|_| panic!("{words} is not shown: {}", self.text));
            self.text += &String::from_utf8_lossy(&part);
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
