//! A program at a terminal of its own: what it shows, keys, and how it leaves it.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Termios, Winsize, tcgetattr, tcsetwinsize};

use super::fakes::Node;

/// Far longer than anything is waited for, so that a failure does not hang.
const COMES_WITHIN: Duration = Duration::from_secs(30);

pub(crate) struct Terminal {
    child: Child,
    keyboard: File,
    /// The program's side, held open so that it can be looked at in the end.
    slave: File,
    before: Termios,
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
        let before = tcgetattr(&slave).unwrap();
        let child = std::process::Command::new(env!("CARGO_BIN_EXE_bulkhead"))
            .arg("--run-dir")
            .arg(node.run_dir())
            .args(arguments)
            .stdin(Stdio::from(slave.try_clone().unwrap()))
            .stdout(Stdio::from(slave.try_clone().unwrap()))
            .spawn()
            .unwrap();
        let keyboard = File::from(master);
        let mut screen = keyboard.try_clone().unwrap();
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
            keyboard,
            slave,
            before,
            shown,
            text: String::new(),
        }
    }

    pub(crate) fn press(&mut self, key: u8) {
        self.keyboard.write_all(&[key]).unwrap();
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
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

    /// Waits for the end, and that the terminal is as it was. Answers with the exit code.
    pub(crate) fn end(mut self) -> i32 {
        // The cursor is back, on the screen of before.
        self.until_shown("\x1b[?25h\x1b[?1049l");
        let code = self.child.wait().unwrap().code().unwrap();
        let after = tcgetattr(&self.slave).unwrap();
        assert_eq!(after.local_modes, self.before.local_modes);
        assert_eq!(after.input_modes, self.before.input_modes);
        assert_eq!(after.output_modes, self.before.output_modes);
        code
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
