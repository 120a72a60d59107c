//! The status for people who are not root: members of the group that `statusGroup` names.
//!
//! They have a socket of their own, on which nothing can be asked: who connects gets the
//! status once, and the connection is closed. No byte of theirs is ever read, and the
//! places and calls of root's socket are not theirs to use up. One after the other is
//! served, so many a second at most.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener as StdListener;
use std::path::Path;
use std::time::Duration;

use bulkhead_api::v1;
use config_files::bulkhead::BulkheadConfig;
use ipc::Message as _;
use nix::sys::socket::{Backlog, listen};
use nix::unistd::Group;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{UnixListener, UnixStream};
use tokio::time::{sleep, timeout};
use topology::{Identities, STATUS_SOCKET_FILE_NAME};

use crate::failure::Failure;

/// Readers that queue.
const BACKLOG: i32 = 64;

/// Who may connect is root, and the group.
const SOCKET_MODE: u32 = 0o660;

/// Time from one reader to the next: to look at all processes costs a few milliseconds.
const PAUSE: Duration = Duration::from_millis(100);

/// How long a reader may take to read what does not fit into its socket's buffer.
const PATIENCE: Duration = Duration::from_secs(1);

/// A group that cannot be that of the readers.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum GroupError {
    /// Nobody is in a group that is not there.
    #[error(
        "statusGroup: there is no group {name}: create it (groupadd --system {name}), or name another"
    )]
    Missing {
        /// Its name.
        name: String,
    },
    /// The group of a process, which is to read no more than its row says.
    #[error(
        "statusGroup: {name} (gid {gid}) is a group of Bulkhead's own processes or of root: name one of people"
    )]
    OfProcess {
        /// Its name.
        name: String,
        /// Its number.
        gid: u32,
    },
}

/// The group whose members may read, where one is configured.
///
/// # Errors
/// When there is no such group, or it is a process's own.
pub(crate) fn group(
    config: &BulkheadConfig,
    identities: &Identities,
) -> Result<Option<u32>, Failure> {
    let Some(name) = &config.status_group else {
        return Ok(None);
    };
    let found = Group::from_name(name).map_err(|errno| Failure::System {
        action: "look up statusGroup",
        source: errno.into(),
    })?;
    let gid = found.map(|group| group.gid.as_raw());
    let checked = check_group(name, gid, &identities.ids());
    checked
        .map(Some)
        .map_err(|error| Failure::Configuration(Box::new(error)))
}

fn check_group(name: &str, found: Option<u32>, of_processes: &[u32]) -> Result<u32, GroupError> {
    let name = name.to_owned();
    match found {
        None => Err(GroupError::Missing { name }),
        Some(gid) if gid == 0 || of_processes.contains(&gid) => {
            Err(GroupError::OfProcess { name, gid })
        }
        Some(gid) => Ok(gid),
    }
}

/// Whether somebody may read: root, and the members of the group.
fn may_read(uid: u32, primary: u32, supplementary: &[u32], group: u32) -> bool {
    uid == 0 || primary == group || supplementary.contains(&group)
}

/// The status without what may come from logs or manifests.
fn for_readers(mut status: v1::SupervisorStatus) -> v1::SupervisorStatus {
    for process in &mut status.processes {
        process.status_text.clear();
        if let Some(ending) = &mut process.last_ending {
            ending.last_log_lines.clear();
        }
    }
    status.left_out = vec![
        "last log lines of crashes".to_owned(),
        "what the processes say of themselves".to_owned(),
    ];
    status
}

/// Where readers connect.
#[derive(Debug)]
pub(crate) struct StatusReaders {
    socket: StdListener,
    group: u32,
}

impl StatusReaders {
    /// Makes the socket for a group; without one removes that of an earlier supervisor.
    ///
    /// # Errors
    /// When the file system refuses.
    pub(crate) fn open(run_dir: &Path, group: Option<u32>) -> Result<Option<Self>, Failure> {
        let path = run_dir.join(STATUS_SOCKET_FILE_NAME);
        let made = match group {
            None => remove(&path).map(|()| None),
            Some(group) => StatusReaders::make(&path, group).map(Some),
        };
        made.map_err(|source| Failure::Io {
            action: "create or remove socket",
            path,
            source,
        })
    }

    fn make(path: &Path, group: u32) -> io::Result<StatusReaders> {
        // Under another name until only its readers can connect.
        let new = path.with_extension("new");
        remove(&new)?;
        let socket = StdListener::bind(&new)?;
        listen(&socket, Backlog::new(BACKLOG)?)?;
        socket.set_nonblocking(true)?;
        std::fs::set_permissions(&new, PermissionsExt::from_mode(0o000))?;
        std::os::unix::fs::lchown(&new, None, Some(group))?;
        std::fs::set_permissions(&new, PermissionsExt::from_mode(SOCKET_MODE))?;
        std::fs::rename(&new, path)?;
        Ok(StatusReaders { socket, group })
    }

    /// Sends each reader the status, one after the other.
    ///
    /// # Errors
    /// When the socket cannot be used at all.
    pub(crate) async fn serve(self, status: impl Fn() -> v1::SupervisorStatus) -> io::Result<()> {
        let listener = UnixListener::from_std(self.socket)?;
        loop {
            match listener.accept().await {
                Ok((stream, _)) => tell(stream, self.group, &status).await,
                Err(error) => tracing::warn!(%error, "cannot accept a reader of the status"),
            }
            sleep(PAUSE).await;
        }
    }
}

async fn tell(mut stream: UnixStream, group: u32, status: impl Fn() -> v1::SupervisorStatus) {
    let (Ok(peer), Ok(groups)) = (stream.peer_cred(), confine::peer_groups(&stream)) else {
        return;
    };
    if !may_read(peer.uid(), peer.gid(), &groups, group) {
        return;
    }
    let message = for_readers(status()).encode_length_delimited_to_vec();
    // Who is gone, or does not read, goes without.
    drop(timeout(PATIENCE, stream.write_all(&message)).await);
}

fn remove(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use tempfile::TempDir;
    use tokio::io::AsyncReadExt as _;
    use tokio::time::Instant;

    use super::*;

    const GROUP: u32 = 700;

    #[test]
    fn root_and_members_of_the_group_may_read() {
        for (uid, primary, supplementary, expected) in [
            (0, 0, &[][..], true),
            (1000, GROUP, &[], true),
            (1000, 1000, &[4, GROUP], true),
            (1000, 1000, &[4, 24], false),
            (1000, 0, &[0], false),
            (GROUP, 1000, &[], false),
            (u32::MAX, u32::MAX, &[], false),
        ] {
            let allowed = may_read(uid, primary, supplementary, GROUP);
            assert_eq!(allowed, expected, "{uid} {primary} {supplementary:?}");
        }
    }

    #[test]
    fn a_group_of_people_can_be_named_and_no_other() {
        let processes = [0, 64_001, 64_002];
        assert_eq!(check_group("ops", Some(GROUP), &processes), Ok(GROUP));
        for (found, named) in [
            (None, "no group ops"),
            (Some(0), "gid 0"),
            (Some(64_002), "gid 64002"),
        ] {
            let error = check_group("ops", found, &processes).unwrap_err();
            assert!(error.to_string().contains(named), "{error}");
        }
    }

    fn status() -> v1::SupervisorStatus {
        let ending = v1::Ending {
            reason: "killed by SIGKILL".to_owned(),
            last_log_lines: vec!["password=hunter2".to_owned()],
            ..v1::Ending::default()
        };
        v1::SupervisorStatus {
            processes: vec![v1::ProcessStatus {
                name: "pleg".to_owned(),
                last_ending: Some(ending),
                status_text: "hunter2.yaml is refused".to_owned(),
                ..v1::ProcessStatus::default()
            }],
            ..v1::SupervisorStatus::default()
        }
    }

    #[test]
    fn no_line_of_a_log_is_for_readers_and_that_is_said() {
        let told = for_readers(status());
        assert!(!format!("{told:?}").contains("hunter2"), "{told:?}");
        let ending = told.processes[0].last_ending.as_ref().unwrap();
        assert_eq!(ending.reason, "killed by SIGKILL");
        assert_eq!(told.left_out.len(), 2);
    }

    #[test]
    fn the_socket_is_for_the_group_and_goes_with_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(STATUS_SOCKET_FILE_NAME);
        // The group of who runs the test: to give a file to another takes root.
        let own = nix::unistd::getgid().as_raw();
        for _ in 0..2 {
            let made = StatusReaders::open(directory.path(), Some(own)).unwrap();
            assert!(made.is_some());
            let found = std::fs::metadata(&path).unwrap();
            assert_eq!((found.mode() & 0o777, found.gid()), (SOCKET_MODE, own));
        }
        assert!(
            StatusReaders::open(directory.path(), None)
                .unwrap()
                .is_none()
        );
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn a_reader_gets_the_status_once_and_whole() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let group = nix::unistd::getgid().as_raw();
        tell(ours, group, status).await;
        let mut told = Vec::new();
        theirs.read_to_end(&mut told).await.unwrap();
        let told = v1::SupervisorStatus::decode_length_delimited(&told[..]).unwrap();
        assert_eq!(told, for_readers(status()));
    }

    /// Where readers connect, and who serves them with this status.
    fn served(
        status: impl Fn() -> v1::SupervisorStatus,
    ) -> (TempDir, impl Future<Output = io::Result<()>>) {
        let directory = tempfile::tempdir().unwrap();
        let own = nix::unistd::getgid().as_raw();
        let readers = StatusReaders::open(directory.path(), Some(own)).unwrap();
        let serving = readers.unwrap().serve(status);
        (directory, serving)
    }

    async fn connect(directory: &TempDir) -> UnixStream {
        let path = directory.path().join(STATUS_SOCKET_FILE_NAME);
        UnixStream::connect(path).await.unwrap()
    }

    /// How many bytes a reader is told until its connection is closed.
    async fn read(mut reader: UnixStream) -> usize {
        let mut told = Vec::new();
        let reading = timeout(10 * PATIENCE, reader.read_to_end(&mut told));
        reading.await.expect("it waits for ever").unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn ten_readers_a_second_are_served_at_most() {
        let (directory, serving) = served(status);
        let readers = async {
            let mut connected = Vec::new();
            for _ in 0..5 {
                connected.push(connect(&directory).await);
            }
            let begun = Instant::now();
            for reader in connected {
                assert!(read(reader).await > 0);
            }
            let four_pauses = Duration::from_millis(400);
            assert!(begun.elapsed() >= four_pauses, "{:?}", begun.elapsed());
        };
        tokio::select! {
            ended = serving => panic!("{ended:?}"),
            () = readers => {}
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_reader_that_does_not_read_is_waited_for_a_second_and_no_longer() {
        let ending = v1::Ending {
            // More than waits in a socket.
            reason: "x".repeat(1 << 20),
            ..v1::Ending::default()
        };
        let mut large = status();
        large.processes[0].last_ending = Some(ending);
        let whole = for_readers(large.clone()).encode_length_delimited_to_vec();
        let (directory, serving) = served(|| large.clone());
        let readers = async {
            let begun = Instant::now();
            let slow = connect(&directory).await;
            assert_eq!(read(connect(&directory).await).await, whole.len());
            let second = Duration::from_secs(1)..Duration::from_millis(1500);
            assert!(second.contains(&begun.elapsed()), "{:?}", begun.elapsed());
            assert!(read(slow).await < whole.len());
        };
        tokio::select! {
            ended = serving => panic!("{ended:?}"),
            () = readers => {}
        }
    }
}
