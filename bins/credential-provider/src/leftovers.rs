//! What programs have left where they may write and nothing lasts: it counts as this
//! process's memory, and once there is no room any more they fail for good. On a node with
//! a kubelet such files are in its `/tmp`, which somebody clears; here nobody else can.

use std::convert::Infallible;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clock::{UnixNanos, WallClock};
use nix::sys::statvfs::fstatvfs;
use tokio::time::MissedTickBehavior;
use topology::{Process, Sight};

/// How long it stays: a program runs for a minute, and another one may go on with it.
const STAYS_FOR: Duration = Duration::from_secs(6 * 60 * 60);

/// How often it is looked at.
const PERIOD: Duration = Duration::from_secs(60 * 60);

/// Removes it.
#[derive(Debug)]
pub(crate) struct Leftovers {
    /// Directories, and how many bytes may be in each.
    places: Vec<(PathBuf, u64)>,
    clock: WallClock,
}

impl Leftovers {
    /// In all places where this process and its programs may write and nothing lasts.
    pub(crate) fn new(clock: &WallClock) -> Leftovers {
        let hidden = match topology::row(Process::CredentialProvider).sight {
            Sight::NodeBut(hidden) => hidden,
            Sight::Listed => &[],
        };
        let places = hidden.iter().filter_map(|it| Some((it.path, it.room?)));
        Leftovers {
            places: places.map(|(path, room)| (path.into(), room)).collect(),
            clock: clock.clone(),
        }
    }

    /// Looks after them for ever. It blocks for a moment only: they are in memory.
    pub(crate) async fn run(self) -> Infallible {
        let mut tick = tokio::time::interval(PERIOD);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tick.tick().await;
            self.look();
        }
    }

    fn look(&self) {
        for (path, room) in &self.places {
            if let Err(error) = look_at(path, *room, self.clock.now()) {
                let path = path.display();
                tracing::warn!(%path, %error, "what programs have left is not removed");
            }
        }
    }
}

/// Removes what is old, unless the directory is not the small one that was made for us.
fn look_at(path: &Path, room: u64, now: UnixNanos) -> io::Result<()> {
    let directory = match fs::File::open(path) {
        Ok(opened) => OwnedFd::from(opened),
        // The node has none.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let disk = fstatvfs(&directory)?;
    if disk.blocks().saturating_mul(disk.fragment_size()) > room {
        tracing::debug!(path = %path.display(), "it is the node's");
        return Ok(());
    }
    remove_old(&directory, path, now)
}

/// Removes what has not changed for long. What changed in a time to come did so before the
/// clock was set back.
fn remove_old(directory: &OwnedFd, path: &Path, now: UnixNanos) -> io::Result<()> {
    let is_kept = |name: &OsStr| {
        let found = match path.join(name).symlink_metadata() {
            // A program that runs has removed it itself.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
            found => found?,
        };
        let changed = UnixNanos(found.ctime().saturating_mul(1_000_000_000));
        Ok(now.since(changed).max(changed.since(now)) < STAYS_FOR)
    };
    tree_removal::remove_all(directory, is_kept).map_err(|left| left.source)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As a program that was killed leaves it.
    fn left() -> (tempfile::TempDir, Leftovers) {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("file"), "x").unwrap();
        fs::create_dir_all(directory.path().join("tree/of/directories")).unwrap();
        let leftovers = Leftovers {
            places: vec![(directory.path().to_owned(), u64::MAX)],
            clock: WallClock::simulated(WallClock::system().now()),
        };
        (directory, leftovers)
    }

    fn names(directory: &tempfile::TempDir) -> usize {
        fs::read_dir(directory.path()).unwrap().count()
    }

    #[test]
    fn what_programs_left_goes_after_hours_whatever_the_clock_says() {
        let hour = 60 * 60 * 1_000_000_000;
        for (jump, expected) in [
            (0, 2),
            (hour, 2),
            (-hour, 2),
            (24 * hour, 0),
            (-24 * hour, 0),
        ] {
            let (directory, leftovers) = left();
            leftovers.clock.jump(jump);
            leftovers.look();
            assert_eq!(names(&directory), expected, "{jump}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn programs_find_room_again_without_a_restart() {
        let (directory, leftovers) = left();
        let looking = leftovers.run();
        let later = tokio::time::timeout(STAYS_FOR - Duration::from_secs(1), looking);
        later.await.unwrap_err();
        assert_eq!(names(&directory), 2);
        let (directory, leftovers) = left();
        let later = tokio::time::timeout(STAYS_FOR + 2 * PERIOD, leftovers.run());
        later.await.unwrap_err();
        assert_eq!(names(&directory), 0);
    }

    /// Whoever runs this process without mounts of its own.
    #[test]
    fn nothing_goes_from_a_directory_of_the_node() {
        let (directory, mut leftovers) = left();
        leftovers.places[0].1 = 32 << 20;
        leftovers.clock.jump(24 * 60 * 60 * 1_000_000_000);
        leftovers.look();
        assert_eq!(names(&directory), 2);
    }

    #[test]
    fn it_looks_where_programs_have_room() {
        let leftovers = Leftovers::new(&WallClock::system());
        let paths: Vec<&str> = leftovers
            .places
            .iter()
            .map(|it| it.0.to_str().unwrap())
            .collect();
        assert_eq!(paths, ["/dev/shm", "/tmp", "/var/tmp"]);
    }
}
