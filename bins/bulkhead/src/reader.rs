//! The status for who is not root, and a member of the group that `statusGroup` names: the
//! supervisor tells it on a socket of its own, without being asked anything.

use std::io::{self, ErrorKind};
use std::path::Path;

use bulkhead_api::v1;
use ipc::Message as _;
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::net::UnixStream;
use tokio::time::timeout;
use topology::STATUS_SOCKET_FILE_NAME;

use crate::connection::DEADLINE;
use crate::failure::Failure;

/// Longest status; the supervisor sends 64 KiB at most.
const MAX_STATUS_BYTES: u64 = 1 << 20;

/// What the supervisor tells readers; `None` where this user is none, or there are none.
///
/// # Errors
/// When the supervisor does not tell it whole and in time.
pub(crate) async fn status(run_dir: &Path) -> Result<Option<v1::SupervisorStatus>, Failure> {
    let socket = run_dir.join(STATUS_SOCKET_FILE_NAME);
    let told = timeout(DEADLINE, async {
        match UnixStream::connect(&socket).await {
            Err(error) if is_not_for_us(&error) => Ok(None),
            Err(error) => Err(error),
            Ok(stream) => received(stream).await,
        }
    });
    let told = told.await.unwrap_or_else(|_late| {
        let late = format!("no answer within {} s", DEADLINE.as_secs());
        Err(io::Error::new(ErrorKind::TimedOut, late))
    });
    told.map_err(|source| Failure::Local {
        action: format!("read the status from {}", socket.display()),
        source,
    })
}

fn is_not_for_us(error: &io::Error) -> bool {
    let kinds = [
        ErrorKind::PermissionDenied,
        ErrorKind::NotFound,
        ErrorKind::ConnectionRefused,
    ];
    kinds.contains(&error.kind())
}

/// The message; `None` of who hangs up without a word, as the supervisor does on who may not
/// read.
async fn received(stream: impl AsyncRead + Unpin) -> io::Result<Option<v1::SupervisorStatus>> {
    let mut bytes = Vec::new();
    let mut stream = stream.take(MAX_STATUS_BYTES);
    stream.read_to_end(&mut bytes).await?;
    if bytes.is_empty() {
        return Ok(None);
    }
    let status = v1::SupervisorStatus::decode_length_delimited(&bytes[..]);
    let damaged = |error| io::Error::new(ErrorKind::InvalidData, error);
    status.map(Some).map_err(damaged)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status() -> v1::SupervisorStatus {
        v1::SupervisorStatus {
            node_name: "node-a".to_owned(),
            left_out: vec!["log lines".to_owned()],
            ..v1::SupervisorStatus::default()
        }
    }

    #[tokio::test]
    async fn a_whole_message_is_read_and_a_part_of_one_refused() {
        let whole = status().encode_length_delimited_to_vec();
        let read = received(&whole[..]).await.unwrap();
        assert_eq!(read, Some(status()));
        assert_eq!(received(&[][..]).await.unwrap(), None, "hung up on");
        for end in 1..whole.len() {
            let part = &whole[..end];
            assert!(received(part).await.is_err(), "{end} bytes");
        }
    }

    #[tokio::test]
    async fn no_more_is_kept_than_a_status_has() {
        let endless = tokio::io::repeat(0xff);
        assert!(received(endless).await.is_err());
    }

    #[tokio::test]
    async fn where_there_are_no_readers_nobody_is_one() {
        let directory = tempfile::tempdir().unwrap();
        assert!(matches!(super::status(directory.path()).await, Ok(None)));
    }
}
