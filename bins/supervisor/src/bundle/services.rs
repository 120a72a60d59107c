//! Which processes run in a service of ours, by what the kernel tells of cgroups. So
//! systemd need not be asked, which takes rights that are as good as root's.

use std::fs;
use std::io;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use topology::{Identities, Process};

/// The process of ours in whose service `pid` is, if it runs there as this user.
pub(super) fn process_of(pid: i32, uid: u32) -> Option<Process> {
    service_of(pid).filter(|_| runs_as(pid, uid))
}

fn service_of(pid: i32) -> Option<Process> {
    service_in(&told(pid, "cgroup")?)
}

fn runs_as(pid: i32, uid: u32) -> bool {
    told(pid, "status").and_then(|status| user_in(&status)) == Some(uid)
}

fn told(pid: i32, file: &str) -> Option<String> {
    fs::read_to_string(format!("/proc/{pid}/{file}")).ok()
}

fn pids() -> io::Result<impl Iterator<Item = i32>> {
    let numbers = |entry: fs::DirEntry| entry.file_name().to_str()?.parse().ok();
    Ok(fs::read_dir("/proc")?.flatten().filter_map(numbers))
}

/// All that run in services of ours, each as the user of its service.
///
/// # Errors
/// When the kernel does not list processes.
pub(super) fn running(identities: &Identities) -> io::Result<Vec<(i32, Process)>> {
    let of_ours = |pid| {
        let process = service_of(pid)?;
        runs_as(pid, identities.uid(process)).then_some((pid, process))
    };
    Ok(pids()?.filter_map(of_ours).collect())
}

/// Kills all that run in the service of `process` as this user; systemd starts it again.
///
/// # Errors
/// When one that is still there cannot be killed.
pub(super) fn end(process: Process, uid: u32) -> io::Result<()> {
    for pid in pids()? {
        if process_of(pid, uid) != Some(process) {
            continue;
        }
        let Some(opened) = Pid::from_raw(pid) else {
            continue;
        };
        let Ok(descriptor) = pidfd_open(opened, PidfdFlags::empty()) else {
            continue;
        };
        // It may have ended, and somebody else have got its number meanwhile.
        if process_of(pid, uid) == Some(process) {
            match pidfd_send_signal(&descriptor, Signal::KILL) {
                Ok(()) | Err(rustix::io::Errno::SRCH) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }
    Ok(())
}

/// Whose service a process is in, from its `/proc/PID/cgroup`.
fn service_in(cgroups: &str) -> Option<Process> {
    let of_systemd = cgroups.lines().filter_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next()?, fields.next()?);
        ["", "name=systemd"].contains(&controllers).then_some(path)
    });
    let mut services = of_systemd.filter_map(|path| {
        let (_above, unit) = path.rsplit_once('/')?;
        let name = unit.strip_prefix("bulkhead-")?.strip_suffix(".service")?;
        name.parse().ok()
    });
    services.next()
}

/// The effective user, from its `/proc/PID/status`.
fn user_in(status: &str) -> Option<u32> {
    let mut lines = status.lines();
    let ids = lines.find_map(|line| line.strip_prefix("Uid:"))?;
    ids.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_service_of_a_process_is_told_by_its_cgroup() {
        let pleg = Some(Process::Pleg);
        for (cgroups, expected) in [
            ("0::/system.slice/bulkhead-pleg.service\n", pleg),
            (
                "2:memory:/system.slice/bulkhead-pleg.service\n\
                 1:name=systemd:/system.slice/bulkhead-pleg.service\n0::/\n",
                pleg,
            ),
            ("0::/a/b.slice/bulkhead-pleg.service\n", pleg),
            // Others, and what only looks like it.
            ("0::/system.slice/ssh.service\n", None),
            ("0::/system.slice/bulkhead-watch.service\n", None),
            ("0::/user.slice/bulkhead-pleg.service/own\n", None),
            ("0::/system.slice/xbulkhead-pleg.service\n", None),
            ("3:memory:/system.slice/bulkhead-pleg.service\n", None),
            ("", None),
        ] {
            assert_eq!(service_in(cgroups), expected, "{cgroups:?}");
        }
    }

    #[test]
    fn the_user_is_the_effective_one() {
        let status = "Name:\tpleg\nUid:\t1\t64002\t3\t4\nGid:\t5\t6\t7\t8\n";
        assert_eq!(user_in(status), Some(64_002));
        assert_eq!(user_in("Name:\tpleg\n"), None);
    }

    #[test]
    fn who_is_in_no_service_is_none_of_ours() {
        let own = i32::try_from(std::process::id()).unwrap();
        let uid = nix::unistd::geteuid().as_raw();
        assert_eq!(process_of(own, uid), None);
        assert_eq!(process_of(i32::MAX, uid), None);
    }
}
