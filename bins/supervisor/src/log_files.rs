//! The log files of the processes, each of bounded size with one older generation.
//!
//! They are written by a thread of their own: a disk that hangs costs lines in the
//! files, and must not keep the supervisor from watching, restarting and answering.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use topology::Process;

use crate::failure::Failure;

/// Size at which a log file becomes `<name>.1`, replacing an older one.
const MAX_FILE_BYTES: u64 = 8 << 20;

/// Lines of one process that wait for the disk, 1 MiB at most: none takes the places
/// of the others.
const MAX_WAITING_LINES: usize = 1024;

/// After so many lines it is looked whether the file still has its name: others may have
/// removed or renamed it.
const LINES_BETWEEN_LOOKS: u32 = 256;

/// How long what waits may take at the end of the supervisor.
const LAST_WRITES: Duration = Duration::from_secs(1);

/// Little is done there.
const STACK_BYTES: usize = 64 * 1024;

#[derive(Debug)]
struct Entry {
    file: usize,
    line: String,
}

/// The log files; clones are the same files.
#[derive(Clone, Debug)]
pub(crate) struct LogFiles(Arc<Mutex<Queue>>);

#[derive(Debug)]
struct Queue {
    /// Empty once nothing more is taken.
    entries: Option<Sender<Entry>>,
    /// Disconnected when the thread has ended.
    ended: Receiver<()>,
    processes: Vec<Process>,
    waiting: Waiting,
}

/// How many lines of each file wait.
type Waiting = Arc<[AtomicUsize]>;

impl LogFiles {
    /// Opens `<directory>/<process>.log` of each, and starts the thread.
    pub(crate) fn open(directory: &Path, processes: &[Process]) -> Result<LogFiles, Failure> {
        let open = |process: &Process| {
            let path = directory.join(format!("{process}.log"));
            LogFile::open(path.clone()).map_err(|source| Failure::Io {
                action: "open",
                path,
                source,
            })
        };
        let files = processes.iter().map(open).collect::<Result<Vec<_>, _>>()?;
        let (entries, queued) = channel();
        let (end, ended) = channel();
        let waiting: Waiting = files.iter().map(|_| AtomicUsize::new(0)).collect();
        let written = Arc::clone(&waiting);
        std::thread::Builder::new()
            .name("log-files".to_owned())
            .stack_size(STACK_BYTES)
            .spawn(move || write_all(files, &queued, &written, end))
            .map_err(|source| Failure::System {
                action: "start a thread",
                source,
            })?;
        Ok(LogFiles(Arc::new(Mutex::new(Queue {
            entries: Some(entries),
            ended,
            processes: processes.to_vec(),
            waiting,
        }))))
    }

    /// Has a line written; never waits. `false` when the disk is too far behind to
    /// take it.
    pub(crate) fn write(&self, process: Process, line: String) -> bool {
        let queue = self.lock();
        let Some(file) = queue.processes.iter().position(|each| *each == process) else {
            return false;
        };
        let (Some(entries), Some(waiting)) = (&queue.entries, queue.waiting.get(file)) else {
            return false;
        };
        if waiting.fetch_add(1, Ordering::Relaxed) >= MAX_WAITING_LINES {
            waiting.fetch_sub(1, Ordering::Relaxed);
            return false;
        }
        entries.send(Entry { file, line }).is_ok()
    }

    /// Takes nothing more, and gives the disk a moment for what waits.
    pub(crate) fn finish(&self) {
        let mut queue = self.lock();
        queue.entries = None;
        // It never sends: either it ends, or the time is over.
        if queue.ended.recv_timeout(LAST_WRITES) == Err(RecvTimeoutError::Timeout) {
            tracing::warn!("the log disk hangs; the last lines are not in the files");
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The thread: writes until nobody sends any more. `end` tells so by being dropped.
fn write_all(
    mut files: Vec<LogFile>,
    queued: &Receiver<Entry>,
    waiting: &[AtomicUsize],
    end: Sender<()>,
) {
    for Entry { file, line } in queued {
        if let (Some(file), Some(waiting)) = (files.get_mut(file), waiting.get(file)) {
            file.write(&line);
            waiting.fetch_sub(1, Ordering::Relaxed);
        }
    }
    drop(end);
}

/// A log file with one older generation. It is opened after all sockets: whoever
/// launches a process needs that no other thread closes a low descriptor meanwhile
/// (`confine::spawn`), and this one does when it rotates.
#[derive(Debug)]
struct LogFile {
    path: PathBuf,
    file: File,
    bytes: u64,
    /// Until it is looked whether it has its name.
    lines_left: u32,
}

impl LogFile {
    fn open(path: PathBuf) -> io::Result<LogFile> {
        let file = OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o600)
            .custom_flags(nix::libc::O_NOFOLLOW)
            .open(&path)?;
        let bytes = file.metadata()?.len();
        Ok(LogFile {
            path,
            file,
            bytes,
            lines_left: LINES_BETWEEN_LOOKS,
        })
    }

    /// Writes a line. A full disk costs lines in the file, nothing else.
    fn write(&mut self, line: &str) {
        if self.bytes >= MAX_FILE_BYTES {
            self.rotate();
        }
        self.lines_left = self.lines_left.saturating_sub(1);
        if self.lines_left == 0 {
            self.lines_left = LINES_BETWEEN_LOOKS;
            if !self.has_its_name() {
                self.begin_another();
            }
        }
        if self.file.write_all(format!("{line}\n").as_bytes()).is_ok() {
            self.bytes += line.len() as u64 + 1;
        }
    }

    fn rotate(&mut self) {
        let old = self.path.with_extension("log.1");
        let renamed = match self.has_its_name() {
            true => std::fs::rename(&self.path, old),
            // What lies there now, if anything, is not what is full.
            false => Ok(()),
        };
        match renamed {
            Ok(()) => self.begin_another(),
            Err(error) => {
                let path = self.path.display();
                tracing::warn!(%path, %error, "cannot rotate the log; it is begun again");
                drop(self.file.set_len(0));
                self.bytes = 0;
            }
        }
    }

    /// Whether who opens the path gets this file.
    fn has_its_name(&self) -> bool {
        let own = self.file.metadata().map(|it| (it.dev(), it.ino()));
        let named = std::fs::symlink_metadata(&self.path).map(|it| (it.dev(), it.ino()));
        own.is_ok_and(|own| named.is_ok_and(|named| named == own))
    }

    /// Goes on in the file of that name, which is made if it is not there. Until that can
    /// be done, the old file gets the lines, and is begun again only when it is full twice.
    fn begin_another(&mut self) {
        match LogFile::open(self.path.clone()) {
            Ok(another) => *self = another,
            Err(error) => {
                let path = self.path.display();
                tracing::warn!(%path, %error, "cannot make the log file; the one before it is written to");
                let length = self.file.metadata().map_or(0, |it| it.len());
                if length >= 2 * MAX_FILE_BYTES {
                    drop(self.file.set_len(0));
                }
                self.bytes = 0;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    const PLEG: Process = Process::Pleg;

    #[test]
    fn a_log_file_has_one_older_generation_and_a_bound() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pleg.log");
        let mut file = LogFile::open(path.clone()).unwrap();
        file.write("old");
        file.bytes = MAX_FILE_BYTES;
        file.write("new");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "new\n");
        let old = std::fs::read_to_string(path.with_extension("log.1"));
        assert_eq!(old.unwrap(), "old\n");
    }

    #[test]
    fn a_file_that_others_take_away_is_made_again() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pleg.log");
        let mut file = LogFile::open(path.clone()).unwrap();
        file.write("lost");
        std::fs::remove_file(&path).unwrap();
        for _ in 0..LINES_BETWEEN_LOOKS {
            file.write("later");
        }
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "later\n".repeat(2));
        // logrotate renames the file and makes an empty one, which must not be rotated.
        let moved = directory.path().join("pleg.log.1");
        std::fs::rename(&path, &moved).unwrap();
        std::fs::write(&path, "of logrotate\n").unwrap();
        file.bytes = MAX_FILE_BYTES;
        file.write("new");
        let texts = [&path, &moved].map(|path| std::fs::read_to_string(path).unwrap());
        assert_eq!(texts, ["of logrotate\nnew\n", &"later\n".repeat(2)]);
    }

    #[test]
    fn where_no_other_file_can_be_made_no_line_is_lost() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pleg.log");
        let mut file = LogFile::open(path.clone()).unwrap();
        file.write("old");
        std::fs::rename(&path, path.with_extension("log.1")).unwrap();
        std::fs::create_dir(&path).unwrap();
        file.bytes = MAX_FILE_BYTES;
        file.write("meanwhile");
        let old = std::fs::read_to_string(path.with_extension("log.1"));
        assert_eq!(old.unwrap(), "old\nmeanwhile\n");
        std::fs::remove_dir(&path).unwrap();
        for _ in 0..LINES_BETWEEN_LOOKS {
            file.write("new");
        }
        assert!(std::fs::read_to_string(&path).unwrap().starts_with("new\n"));
    }

    #[test]
    fn each_process_has_its_file_and_all_that_waits_is_written_at_the_end() {
        let directory = tempfile::tempdir().unwrap();
        let files = LogFiles::open(directory.path(), &[PLEG, Process::Prober]).unwrap();
        for number in 0..3 {
            assert!(files.write(PLEG, format!("pleg {number}")));
            assert!(files.write(Process::Prober, format!("prober {number}")));
        }
        assert!(!files.write(Process::SyncLoop, "of no file".to_owned()));
        files.finish();
        assert!(!files.write(PLEG, "too late".to_owned()));
        for process in ["pleg", "prober"] {
            let path = directory.path().join(format!("{process}.log"));
            let expected = format!("{process} 0\n{process} 1\n{process} 2\n");
            assert_eq!(std::fs::read_to_string(path).unwrap(), expected);
        }
    }

    #[test]
    fn a_disk_that_hangs_holds_up_nobody_and_one_process_takes_no_place_of_another() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pleg.log");
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        // Nobody reads for now, as if the disk hung as soon as the pipe is full.
        let mut disk = OpenOptions::new()
            .read(true)
            .custom_flags(nix::libc::O_NONBLOCK)
            .open(&path)
            .unwrap();
        let files = LogFiles::open(directory.path(), &[PLEG, Process::Prober]).unwrap();
        let line = "x".repeat(1023);
        let mut taken = 0;
        while files.write(PLEG, line.clone()) {
            taken += 1;
        }
        assert!(files.write(Process::Prober, line.clone()));
        // It goes on: all that was taken arrives.
        let mut bytes = 0;
        let mut buffer = vec![0; 64 << 10];
        while bytes < taken * 1024 {
            match disk.read(&mut buffer) {
                Ok(read) => bytes += read,
                Err(error) => {
                    assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
                    std::thread::yield_now();
                }
            }
        }
        assert!(files.write(PLEG, line));
    }
}
