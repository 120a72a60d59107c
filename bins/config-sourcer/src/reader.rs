//! One look at the manifest path: what is there, and what is new in it. All of it
//! may block for as long as a file system likes, so it happens on a thread for
//! such work; what the findings mean is decided in `file_source`.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clock::{UnixNanos, WallClock};
use manifest_files::{Expectation, Fingerprint, Found, ListError, Location, Place, Unreadable};
use nix::errno::Errno;
use nix::unistd::{getegid, geteuid};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, watch};

use crate::files::Observation;
use crate::last_good::PathKind;
use crate::watcher::{Armed, Arming};

/// Files that wait to be judged: each may be as large as a manifest may be.
const WAITING_FILES: usize = 1;

/// The same in a simulation, where nobody takes one before all are read.
const WAITING_FILES_ON_ONE_THREAD: usize = 1024;

/// What is to be looked at.
#[derive(Debug)]
pub(crate) struct Order {
    /// The manifest path.
    pub(crate) path: PathBuf,
    /// Now.
    pub(crate) clock: WallClock,
    /// The files that are known, by their paths, and what they are recognised by.
    pub(crate) known: BTreeMap<String, Option<Fingerprint>>,
    /// Which files are read even if they may be half written.
    pub(crate) settled: Settled,
    /// Watches the path before it is looked at, so that nothing is missed.
    pub(crate) arming: Option<Arming>,
}

/// Files that are complete as far as anybody can tell.
#[derive(Debug)]
pub(crate) enum Settled {
    /// These names.
    Names(BTreeSet<OsString>),
    /// All of them: some have been waited for long enough.
    All,
}

/// What is new of a file.
#[derive(Debug)]
pub(crate) struct Finding {
    /// The file's path.
    pub(crate) path: String,
    /// What was found.
    pub(crate) observation: Observation,
    /// When.
    pub(crate) at: UnixNanos,
}

/// What there was when all was seen.
#[derive(Debug)]
pub(crate) struct Listing {
    /// What the path is; `None` if there is nothing.
    pub(crate) kind: Result<Option<PathKind>, String>,
    /// Why nobody knows whether there is something: a link is in the way.
    pub(crate) dangling: Option<String>,
    /// Paths of all files that are in their place.
    pub(crate) listed: BTreeSet<String>,
    /// Whether some of them are being written.
    pub(crate) settling: bool,
    /// How many files of the directory were not looked at.
    pub(crate) left_out: usize,
    /// What is watched now.
    pub(crate) armed: Option<Armed>,
}

/// How the reading thread tells what it does.
#[derive(Debug)]
pub(crate) struct Reporter {
    findings: mpsc::Sender<Finding>,
    place: watch::Sender<String>,
}

/// The other end of a [`Reporter`].
#[derive(Debug)]
pub(crate) struct Reports {
    findings: mpsc::Receiver<Finding>,
    place: watch::Receiver<String>,
}

/// What the reading thread has told.
#[derive(Debug)]
pub(crate) enum Report {
    /// Something is new.
    Finding(Finding),
    /// It has come to another place.
    Progress,
    /// That was all.
    End,
}

/// Both ends. Dropping the reports ends the reading at the next file.
pub(crate) fn reporter(path: &Path) -> (Reporter, Reports) {
    let room = match blocking::stays_on_this_thread() {
        true => WAITING_FILES_ON_ONE_THREAD,
        false => WAITING_FILES,
    };
    let (sender, findings) = mpsc::channel(room);
    let (at, place) = watch::channel(path.display().to_string());
    let reporter = Reporter {
        findings: sender,
        place: at,
    };
    (reporter, Reports { findings, place })
}

impl Reporter {
    /// Returns whether anybody still wants to know.
    pub(crate) fn at(&self, place: &str) -> bool {
        self.place.send(place.to_owned()).is_ok()
    }

    /// Returns whether anybody still wants to know.
    fn found(&self, finding: Finding) -> bool {
        match self.findings.try_send(finding) {
            Ok(()) => true,
            Err(TrySendError::Full(finding)) => self.findings.blocking_send(finding).is_ok(),
            Err(TrySendError::Closed(_)) => false,
        }
    }
}

impl Reports {
    /// The next report; progress is told once however much there was.
    /// Cancel-safe: a report is taken when it is returned.
    pub(crate) async fn next(&mut self) -> Report {
        tokio::select! {
            biased;
            finding = self.findings.recv() => finding.map_or(Report::End, Report::Finding),
            Ok(()) = self.place.changed() => Report::Progress,
        }
    }

    /// The path that is being looked at.
    pub(crate) fn place(&self) -> String {
        self.place.borrow().clone()
    }
}

/// Reads as ordered; blocks. [`read`], but for tests of what hangs.
#[derive(Clone)]
pub(crate) struct Disk(Arc<Read>);

type Read = dyn Fn(Order, &Reporter) -> Listing + Send + Sync;

impl Disk {
    /// Reads with this function.
    pub(crate) fn new(read: impl Fn(Order, &Reporter) -> Listing + Send + Sync + 'static) -> Self {
        Self(Arc::new(read))
    }

    /// Blocks until all is read.
    pub(crate) fn read(&self, order: Order, reporter: &Reporter) -> Listing {
        (self.0)(order, reporter)
    }
}

impl fmt::Debug for Disk {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Disk")
    }
}

/// Looks at everything; blocks.
pub(crate) fn read(order: Order, reporter: &Reporter) -> Listing {
    let armed = order.arming.as_ref().map(|arming| arming.add(&order.path));
    let mut reading = Reading {
        order: &order,
        reporter,
        listed: BTreeSet::new(),
        settling: false,
    };
    let mut left_out = 0;
    let mut dangling = None;
    let kind = match manifest_files::open_place(&order.path) {
        Err(error @ ListError::LeadsNowhere) => {
            dangling = Some(of_directory(error));
            Ok(None)
        }
        Err(error) => Err(error),
        Ok(Place::Absent) => Ok(None),
        Ok(Place::File) => {
            let name = order.path.file_name().unwrap_or_default();
            let shown = order.path.display().to_string();
            reading.at_file(Location::Path(&order.path), shown.clone(), name);
            // Gone meanwhile or not: the next look tells.
            reading.listed.insert(shown);
            Ok(Some(PathKind::File))
        }
        Ok(Place::Directory(handle)) => reading.at_directory(&handle).map(|not_read| {
            left_out = not_read;
            Some(PathKind::Directory)
        }),
    };
    let Reading {
        listed, settling, ..
    } = reading;
    Listing {
        kind: kind.map_err(of_directory),
        dangling,
        listed,
        settling,
        left_out,
        armed,
    }
}

/// What was asked for, and what is read of it so far.
struct Reading<'a> {
    order: &'a Order,
    reporter: &'a Reporter,
    listed: BTreeSet<String>,
    settling: bool,
}

impl Reading<'_> {
    /// Returns how many files were left out.
    fn at_directory(&mut self, handle: &OwnedFd) -> Result<usize, ListError> {
        let names = manifest_files::names(handle)?;
        let order = self.order;
        let shown = |name: &OsStr| manifest_files::display_path(&order.path, name);
        let (names, left_out) =
            manifest_files::chosen(names, |name| order.known.contains_key(&shown(name)));
        for name in names {
            if !self.at_file(Location::Beneath(handle, &name), shown(&name), &name) {
                break;
            }
        }
        Ok(left_out)
    }

    /// Returns whether anybody still wants to know.
    fn at_file(&mut self, location: Location<'_>, path: String, name: &OsStr) -> bool {
        if !self.reporter.at(&path) {
            return false;
        }
        let settled = match &self.order.settled {
            Settled::All => true,
            Settled::Names(names) => names.contains(name),
        };
        let at = self.order.clock.now();
        let expected = Expectation {
            fingerprint: self.order.known.get(&path).copied().flatten(),
            settled,
            now: at,
        };
        let observation = match manifest_files::read(location, expected) {
            Found::Directory | Found::Gone => return true,
            Found::Settling => {
                self.settling = true;
                None
            }
            Found::Unchanged => None,
            Found::Content { bytes, fingerprint } => {
                Some(Observation::Content { bytes, fingerprint })
            }
            Found::Unreadable(reason) => Some(Observation::Unreadable {
                reason: of_file(reason),
            }),
        };
        self.listed.insert(path.clone());
        observation.is_none_or(|observation| {
            self.reporter.found(Finding {
                path,
                observation,
                at,
            })
        })
    }
}

/// Why a file cannot be read, and what to do about it: tools that make clusters
/// write manifests for root alone, and this process is not root.
fn of_file(reason: Unreadable) -> String {
    match reason {
        Unreadable::System(Errno::EACCES | Errno::EPERM) => {
            let (user, group) = (geteuid(), getegid());
            format!(
                "{reason}: config-sourcer is uid {user} and gid {group}; \
                 chgrp {group} and chmod g+r this file, or setfacl -m u:{user}:r"
            )
        }
        other => other.to_string(),
    }
}

/// Why the manifest path cannot be read, and what to do about it.
fn of_directory(error: ListError) -> String {
    match error {
        ListError::System {
            source: Errno::EACCES | Errno::EPERM,
            ..
        } => {
            let (user, group) = (geteuid(), getegid());
            format!(
                "{error}: config-sourcer is uid {user} and gid {group}; \
                 chgrp {group} and chmod g+rx this directory, or setfacl -m u:{user}:rx, \
                 and let it pass the directories above"
            )
        }
        // Where links led when the process was started is what it may see.
        ListError::LeadsNowhere => format!(
            "{error}; its pods keep running. If something is there: bulkhead reload, and \
             bulkhead restart config-sourcer. If they are to end: remove the link"
        ),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_permitted_is_told_with_the_remedy() {
        let (user, group) = (geteuid(), getegid());
        let file = of_file(Unreadable::System(Errno::EACCES));
        let start = format!("cannot be read: Permission denied: config-sourcer is uid {user} ");
        assert!(file.starts_with(&start), "{file}");
        let directory = of_directory(ListError::System {
            action: "open it",
            source: Errno::EACCES,
        });
        for (text, mode) in [(&file, "r"), (&directory, "rx")] {
            for words in [
                format!("chgrp {group} and chmod g+{mode} this"),
                format!("setfacl -m u:{user}:{mode}"),
            ] {
                assert!(text.contains(&words), "{words}: {text}");
            }
        }
        assert_eq!(
            of_file(Unreadable::System(Errno::EIO)),
            "cannot be read: I/O error"
        );
        assert_eq!(of_file(Unreadable::Dangles), "is a link that leads nowhere");
    }
}
