//! One look at the manifest path: what is there is read, and judged where it is new. All of
//! it may block for as long as a file system likes, so it happens on a thread for such work;
//! what follows for the pods is decided in `file_source`.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use clock::{UnixNanos, WallClock};
use manifest_files::{Expectation, Found, ListError, Location, Place, Unreadable};
use nix::errno::Errno;
use nix::unistd::{getegid, geteuid};
use pod_manifest::{ManifestNode, Origin, static_pods};
use tokio::sync::watch;

use crate::files::Manifests;
use crate::watcher::{Armed, Arming};

/// Whether the manifest path is a directory or a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PathKind {
    /// A directory of manifests.
    Directory,
    /// One manifest.
    File,
}

/// What is to be looked at.
#[derive(Debug)]
pub(crate) struct Order {
    /// The manifest path.
    pub(crate) path: PathBuf,
    /// Whose pods these are.
    pub(crate) node: ManifestNode,
    /// Now.
    pub(crate) clock: WallClock,
    /// What is known of the manifests.
    pub(crate) manifests: Manifests,
    /// Names of files that are complete as far as anybody can tell: they are read even if they
    /// have just been changed.
    pub(crate) settled: BTreeSet<OsString>,
    /// Watches the path before it is looked at, so that nothing is missed.
    pub(crate) arming: Option<Arming>,
    /// Takes the path that is being looked at. When nobody wants it, the reading ends.
    pub(crate) place: watch::Sender<String>,
}

/// What there was when all was seen.
#[derive(Debug)]
pub(crate) struct Listing {
    /// What the path is; `None` if there is nothing.
    pub(crate) kind: Result<Option<PathKind>, String>,
    /// What is known of the manifests now.
    pub(crate) manifests: Manifests,
    /// Whether some of them are being written.
    pub(crate) settling: bool,
    /// How many files of the directory were not looked at.
    pub(crate) left_out: usize,
    /// What is watched now.
    pub(crate) armed: Option<Armed>,
}

/// Looks at everything; blocks.
pub(crate) fn read(order: Order) -> Listing {
    let armed = order.arming.as_ref().map(|arming| arming.add(&order.path));
    let mut reading = Reading {
        order,
        listed: BTreeSet::new(),
        settling: false,
    };
    let mut left_out = 0;
    let path = reading.order.path.clone();
    let kind = match manifest_files::open_place(&path) {
        Err(error) => Err(error),
        Ok(Place::Absent) => Ok(None),
        Ok(Place::File) => {
            let name = path.file_name().unwrap_or_default();
            let shown = path.display().to_string();
            reading.at_file(Location::Path(&path), shown.clone(), name);
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
        order: Order { mut manifests, .. },
        listed,
        settling,
    } = reading;
    if let Ok(Some(_)) = kind {
        manifests.retain(&listed);
    }
    Listing {
        kind: kind.map_err(of_directory),
        manifests,
        settling,
        left_out,
        armed,
    }
}

/// What was asked for, and what is read of it so far.
struct Reading {
    order: Order,
    listed: BTreeSet<String>,
    settling: bool,
}

impl Reading {
    /// Returns how many files were left out.
    fn at_directory(&mut self, handle: &OwnedFd) -> Result<usize, ListError> {
        let names = manifest_files::names(handle)?;
        let path = self.order.path.clone();
        let shown = |name: &OsStr| manifest_files::display_path(&path, name);
        let manifests = &self.order.manifests;
        let (names, left_out) = manifest_files::chosen(names, |name| manifests.knows(&shown(name)));
        for name in names {
            if !self.at_file(Location::Beneath(handle, &name), shown(&name), &name) {
                break;
            }
        }
        Ok(left_out)
    }

    /// Returns whether anybody still wants to know.
    fn at_file(&mut self, location: Location<'_>, path: String, name: &OsStr) -> bool {
        let order = &mut self.order;
        if order.place.send(path.clone()).is_err() {
            return false;
        }
        let now = order.clock.now();
        let expected = Expectation {
            fingerprint: order.manifests.fingerprint(&path),
            settled: order.settled.contains(name),
            now,
        };
        let content = match manifest_files::read(location, expected) {
            Found::Directory | Found::Gone => return true,
            Found::Settling => {
                self.settling = true;
                None
            }
            Found::Unchanged => None,
            Found::Content { bytes, fingerprint } => Some(Ok((bytes, fingerprint))),
            Found::Unreadable(reason) => Some(Err(of_file(reason))),
        };
        if let Some(content) = content {
            let node = &order.node;
            let judge = |bytes: &[u8]| static_pods(bytes, Origin::File(&path), node);
            let seen = timestamp(now);
            order.manifests.observe(&path, content, &seen, judge);
        }
        self.listed.insert(path);
        true
    }
}

/// A time as annotations have it: RFC 3339 with nanoseconds.
pub(crate) fn timestamp(time: UnixNanos) -> String {
    // Any number of nanoseconds in 64 bits is a time that jiff knows.
    k8s_openapi::jiff::Timestamp::from_nanosecond(i128::from(time.0))
        .map(|time| time.to_string())
        .unwrap_or_default()
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
    fn times_look_like_the_kubelets() {
        assert_eq!(timestamp(UnixNanos(0)), "1970-01-01T00:00:00Z");
        assert_eq!(
            timestamp(UnixNanos(1_767_225_600_000_000_001)),
            "2026-01-01T00:00:00.000000001Z"
        );
        assert!(!timestamp(UnixNanos(i64::MAX)).is_empty());
    }

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
