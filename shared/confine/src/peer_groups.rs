//! The groups of who has connected to a socket.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use nix::libc;

/// Room for the groups of nearly everybody.
const USUAL_GROUPS: usize = 32;

/// Most groups that the kernel lets anybody have (`NGROUPS_MAX`).
const MOST_GROUPS: usize = 65_536;

/// The supplementary groups of the peer of a Unix socket, as they were when it
/// connected (`SO_PEERGROUPS`). Its primary group is in `SO_PEERCRED`.
///
/// # Errors
/// When this is no connected Unix socket.
pub fn peer_groups(socket: &impl AsFd) -> io::Result<Vec<u32>> {
    // They never change, so with the room that the kernel asked for they fit.
    let (first, needed) = ask(socket, USUAL_GROUPS)?;
    match first {
        Some(groups) => Ok(groups),
        None if needed > MOST_GROUPS => Err(io::ErrorKind::InvalidData.into()),
        None => ask(socket, needed)?
            .0
            .ok_or_else(|| io::ErrorKind::InvalidData.into()),
    }
}

/// The groups if there are at most `room`, and how many there are.
fn ask(socket: &impl AsFd, room: usize) -> io::Result<(Option<Vec<u32>>, usize)> {
    let mut groups = vec![0_u32; room];
    let mut bytes = libc::socklen_t::try_from(size_of_val(groups.as_slice()))
        .map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: the kernel writes at most as many bytes as `bytes` says, which is the size of
    // `groups`, and says in it how many it has written or needs.
    let outcome = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERGROUPS,
            groups.as_mut_ptr().cast(),
            &raw mut bytes,
        )
    };
    let count = usize::try_from(bytes).unwrap_or(usize::MAX) / size_of::<u32>();
    if outcome == 0 {
        groups.truncate(count);
        return Ok((Some(groups), count));
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::ERANGE) => Ok((None, count)),
        _ => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn the_groups_of_a_peer_are_those_of_its_process() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let own = nix::unistd::getgroups().unwrap();
        let own: Vec<u32> = own.into_iter().map(nix::unistd::Gid::as_raw).collect();
        assert_eq!(peer_groups(&ours).unwrap(), own);
    }

    #[test]
    fn more_groups_than_there_is_room_for_are_asked_for_again() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let (all, count) = ask(&ours, USUAL_GROUPS).unwrap();
        let all = all.unwrap();
        assert_eq!(all.len(), count);
        if count > 0 {
            assert_eq!(ask(&ours, count - 1).unwrap(), (None, count));
        }
        assert_eq!(ask(&ours, count).unwrap(), (Some(all), count));
    }

    #[test]
    fn what_is_no_connected_socket_has_no_groups() {
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(peer_groups(&file).is_err());
    }
}
