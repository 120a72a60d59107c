//! What a process does itself at its start where systemd starts it again: it waits, later
//! each time if it ends again and again, and it looks at its socket. systemd 252 has one
//! wait for all restarts, and hands a socket on as the run before left it.
//!
//! A run does both before it reads anything from outside. What is remembered from one start
//! to the next is a line in the state directory of the process, so a run that was broken
//! into can have later runs start at once; systemd's own limit of starts is for that. What
//! another boot left there counts as nothing: that it ended with the node is no crash.
//! Not here: what our supervisor does, which waits and looks before it starts a process.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

use backoff::pace::{Moment, Pace};
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::socket::{Backlog, listen};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use topology::{BOOT_VARIABLE, Process, RESTARTS_VARIABLE, SOCKET_BACKLOG, row};

use crate::socket_file::has_its_name;

/// More than the line has.
const MAX_RECORD_BYTES: u64 = 128;

/// What is remembered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Series {
    failures: u32,
    /// When the run began, its wait being over.
    started: Moment,
}

/// Where the starts of this process are remembered, where systemd starts it.
#[derive(Debug)]
pub(crate) struct Record {
    file: PathBuf,
    /// This boot of the node, by a word.
    boot: String,
}

/// As the service of this process names it.
pub(crate) fn record() -> Option<Record> {
    let file = PathBuf::from(std::env::var_os(RESTARTS_VARIABLE)?);
    let boot = std::env::var(BOOT_VARIABLE).unwrap_or_default();
    Some(Record { file, boot })
}

/// Waits as long as this start has to because of those before.
#[expect(
    clippy::disallowed_methods,
    reason = "nothing else runs in the process yet"
)]
pub(crate) fn wait_for_turn(record: &Record, process: Process) {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let now = Duration::try_from(now).unwrap_or_default();
    let jitter = rand::random_range(-1.0..=1.0);
    match start(record, row(process).backoff_cap, now, jitter) {
        Ok(Duration::ZERO) => {}
        Ok(wait) => {
            let milliseconds = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
            tracing::warn!(%process, milliseconds, "has ended again and again: waits before it starts");
            std::thread::sleep(wait);
        }
        Err(error) => tracing::error!(%process, %error, "cannot tell how often it has started"),
    }
}

/// How long to wait at a start. To be called once for each; `jitter` is a random number
/// within -1 ..= 1.
///
/// # Errors
/// When it cannot be remembered.
fn start(record: &Record, cap: Duration, now: Moment, jitter: f64) -> io::Result<Duration> {
    let before = read(&record.file).and_then(|text| parse(&text, &record.boot));
    // The first start of all, or since the machine started.
    let (wait, next) = match before {
        None => (
            Duration::ZERO,
            Series {
                failures: 0,
                started: now,
            },
        ),
        Some(before) => before.ended(now, cap, jitter),
    };
    let (failures, started) = (next.failures, next.started.as_millis());
    write(
        &record.file,
        &format!("{failures} {started} {}\n", record.boot),
    )?;
    Ok(wait)
}

/// What is remembered, if that is a file and not larger than this process writes it. An
/// earlier run that was compromised may have left one that takes all memory, or a FIFO that
/// nobody writes.
fn read(record: &Path) -> Option<String> {
    let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
    let file = File::options()
        .read(true)
        .custom_flags(flags.bits())
        .open(record)
        .ok()?;
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut text = String::new();
    file.take(MAX_RECORD_BYTES).read_to_string(&mut text).ok()?;
    Some(text)
}

/// Replaces what is remembered, and writes to nothing that was there before.
fn write(record: &Path, text: &str) -> io::Result<()> {
    let new = record.with_extension("new");
    match fs::remove_file(&new) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    File::create_new(&new)?.write_all(text.as_bytes())?;
    fs::rename(new, record)
}

/// What this boot of the node has left.
fn parse(text: &str, boot: &str) -> Option<Series> {
    let mut words = text.trim_end_matches('\n').splitn(3, ' ');
    let (failures, started) = (words.next()?, words.next()?);
    // Moments of another one are on another clock.
    if words.next()? != boot {
        return None;
    }
    Some(Series {
        failures: failures.parse().ok()?,
        started: Duration::from_millis(started.parse().ok()?),
    })
}

impl Series {
    fn ended(self, now: Moment, cap: Duration, jitter: f64) -> (Duration, Series) {
        let mut pace = Pace::after(self.failures);
        pace.was_ready(now.saturating_sub(self.started), cap);
        let wait = pace.crashed(now, cap, jitter);
        let next = Series {
            failures: pace.failures(),
            started: now + wait,
        };
        (wait, next)
    }
}

/// Whether nobody can connect any more: a run before has shut the socket down, or its name is
/// gone or another socket's.
///
/// # Errors
/// When that cannot be found out.
pub(crate) fn is_harmed(socket: &UnixListener, path: &Path) -> io::Result<bool> {
    let mut polled = [PollFd::new(socket, PollFlags::RDHUP)];
    poll(&mut polled, Some(&Timespec::default()))?;
    let is_shut_down = polled[0]
        .revents()
        .intersects(PollFlags::RDHUP | PollFlags::HUP);
    Ok(is_shut_down || !has_its_name(path)?)
}

/// Sets again what a run before can have changed of the socket for good and nobody sees: how
/// many callers queue (`listen(2)`), and flags of the open file, of which `O_ASYNC` would send
/// signals to each run.
///
/// # Errors
/// When the kernel refuses.
pub(crate) fn set_again(socket: &UnixListener) -> io::Result<()> {
    listen(socket, Backlog::new(SOCKET_BACKLOG.cast_signed())?)?;
    fcntl(socket, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd as _;
    use std::os::unix::net::UnixStream;

    use nix::sys::socket::{Shutdown, shutdown};
    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;

    use super::*;
    use crate::socket_file::note_socket_file;

    const CAP: Duration = Duration::from_secs(10);

    fn in_boot(boot: &str, directory: &Path) -> Record {
        Record {
            file: directory.join("restarts"),
            boot: boot.to_owned(),
        }
    }

    /// The waits at so many starts, when each run lasts so long.
    fn waits(count: usize, lasts: Duration) -> Vec<Duration> {
        let directory = tempfile::tempdir().unwrap();
        let record = in_boot("0c", directory.path());
        let mut now = Duration::from_secs(1000);
        let mut waits = Vec::new();
        for _ in 0..count {
            let wait = start(&record, CAP, now, 0.0).unwrap();
            waits.push(wait);
            now += wait + lasts;
        }
        waits
    }

    #[test]
    fn who_ends_soon_waits_longer_each_time_and_not_for_ever() {
        let waits = waits(14, Duration::from_millis(50));
        assert_eq!(
            waits[..2],
            [Duration::ZERO; 2],
            "the first restart is at once"
        );
        assert!(waits.is_sorted(), "{waits:?}");
        assert_eq!(waits.last(), Some(&CAP));
    }

    #[test]
    fn who_runs_for_a_while_between_its_ends_waits_for_nothing() {
        assert_eq!(waits(50, backoff::pace::SOON), [Duration::ZERO; 50]);
        assert_eq!(waits(9, Duration::from_secs(3600)), [Duration::ZERO; 9]);
    }

    #[test]
    fn a_boot_of_the_node_begins_a_new_series() {
        let directory = tempfile::tempdir().unwrap();
        // At each boot it starts at about the same moment of a clock that begins with it.
        for (number, now) in [5_000, 5_300, 4_900]
            .into_iter()
            .cycle()
            .take(12)
            .enumerate()
        {
            let record = in_boot(&format!("{number:032x}"), directory.path());
            let wait = start(&record, CAP, Duration::from_millis(now), 0.0).unwrap();
            assert_eq!(wait, Duration::ZERO, "boot {number}");
            let text = fs::read_to_string(&record.file).unwrap();
            assert_eq!(text, format!("0 {now} {number:032x}\n"));
        }
    }

    #[test]
    fn what_is_remembered_of_an_earlier_boot_or_is_damaged_is_as_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let record = in_boot("0c", directory.path());
        let now = Duration::from_secs(5);
        let of_others = ["9 4999 0d", "9 4999", "9 4999 ", "9 26000 0b"];
        let damaged = ["", "3", "x 1 0c", "3 x 0c", "-1 5 0c", "9 4999 0c 0c"];
        for text in of_others.into_iter().chain(damaged) {
            fs::write(&record.file, text).unwrap();
            let wait = start(&record, CAP, now, 0.0).unwrap();
            assert_eq!(wait, Duration::ZERO, "{text}");
            let written = fs::read_to_string(&record.file).unwrap();
            assert_eq!(written, "0 5000 0c\n", "{text}");
        }
        // One that was killed while it waited is none.
        for started in [4_999, 15_000] {
            fs::write(&record.file, format!("9 {started} 0c\n")).unwrap();
            assert_eq!(start(&record, CAP, now, 0.0).unwrap(), CAP, "{started}");
        }
    }

    #[test]
    fn the_longest_line_can_be_read_again() {
        let directory = tempfile::tempdir().unwrap();
        let record = in_boot(&"f".repeat(32), directory.path());
        let now = Duration::from_millis(u64::MAX);
        let line = format!("{} {} {}\n", u32::MAX, now.as_millis(), record.boot);
        fs::write(&record.file, line).unwrap();
        let text = read(&record.file).unwrap();
        let series = parse(&text, &record.boot).unwrap();
        assert_eq!((series.failures, series.started), (u32::MAX, now));
    }

    #[test]
    fn what_a_broken_run_left_in_place_of_the_record_holds_up_no_later_one() {
        let directory = tempfile::tempdir().unwrap();
        let other = directory.path().join("other");
        let record = in_boot("0c", directory.path());
        let left: [&dyn Fn(&Path); 4] = [
            &|path| mkfifo(path, Mode::S_IRWXU).unwrap(),
            &|path| File::create(path).unwrap().set_len(1 << 40).unwrap(),
            &|path| std::os::unix::fs::symlink(&other, path).unwrap(),
            &|path| fs::write(path, [0xff; 8]).unwrap(),
        ];
        for (number, leave) in left.into_iter().enumerate() {
            for name in ["restarts", "restarts.new"] {
                fs::write(&other, "9 4000 0c\n").unwrap();
                let _ = fs::remove_file(&record.file);
                leave(&directory.path().join(name));
                let now = Duration::from_secs(5);
                let wait = start(&record, CAP, now, 0.0).unwrap();
                assert_eq!(wait, Duration::ZERO, "{number} {name}");
                let text = fs::read_to_string(&record.file).unwrap();
                assert_eq!(text, "0 5000 0c\n", "{number} {name}");
                assert!(fs::symlink_metadata(&record.file).unwrap().is_file());
                assert_eq!(fs::read_to_string(&other).unwrap(), "9 4000 0c\n");
            }
        }
    }

    #[test]
    fn a_socket_to_which_nobody_can_connect_is_harmed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pleg.sock");
        let listen = || {
            let _ = fs::remove_file(&path);
            let socket = UnixListener::bind(&path).unwrap();
            note_socket_file(&path).unwrap();
            socket
        };
        let socket = listen();
        assert!(!is_harmed(&socket, &path).unwrap());
        // Somebody who waits is none.
        let _caller = UnixStream::connect(&path).unwrap();
        assert!(!is_harmed(&socket, &path).unwrap());
        fs::rename(&path, directory.path().join("its")).unwrap();
        assert!(is_harmed(&socket, &path).unwrap(), "it has lost its name");
        let _other = UnixListener::bind(&path).unwrap();
        assert!(is_harmed(&socket, &path).unwrap(), "its name is another's");
        for how in [Shutdown::Read, Shutdown::Both] {
            let socket = listen();
            shutdown(socket.as_raw_fd(), how).unwrap();
            assert!(is_harmed(&socket, &path).unwrap(), "{how:?}");
        }
    }

    #[test]
    fn a_socket_that_an_earlier_version_has_made_without_a_note_is_kept() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pleg.sock");
        let socket = UnixListener::bind(&path).unwrap();
        assert!(!is_harmed(&socket, &path).unwrap());
    }

    #[test]
    fn a_queue_and_flags_that_a_run_has_changed_are_set_again() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pleg.sock");
        let socket = UnixListener::bind(&path).unwrap();
        listen(&socket, Backlog::new(0).unwrap()).unwrap();
        fcntl(&socket, FcntlArg::F_SETFL(OFlag::O_ASYNC)).unwrap();
        set_again(&socket).unwrap();
        let flags = OFlag::from_bits_retain(fcntl(&socket, FcntlArg::F_GETFL).unwrap());
        assert!(!flags.contains(OFlag::O_ASYNC), "{flags:?}");
        // None waits for the ones before it to be accepted.
        let callers = (0..100).map(|_| UnixStream::connect(&path).unwrap());
        assert_eq!(callers.collect::<Vec<_>>().len(), 100);
    }
}
