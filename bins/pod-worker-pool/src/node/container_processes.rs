//! Processes of a container that its runtime has lost sight of, found by the cgroup
//! that the runtime named after the container. Blocking.

use std::fs;
use std::path::Path;

use nix::sys::signal::{Signal, kill as send};
use nix::unistd::Pid;

use super::NodeError;
use super::error::IoContext as _;

/// Shortest id of a container whose processes are looked for: a shorter one could be
/// the name of somebody else's cgroup. containerd's have 64 hexadecimal digits.
const MIN_ID_CHARS: usize = 32;

/// Kills the processes of a container; how many there were.
pub(super) fn kill(proc_dir: &Path, container_id: &str) -> Result<usize, NodeError> {
    if container_id.len() < MIN_ID_CHARS || !container_id.bytes().all(|it| it.is_ascii_hexdigit()) {
        return Err(NodeError::refused(container_id, "no container id"));
    }
    let mut killed = 0;
    for entry in fs::read_dir(proc_dir).context("list", proc_dir)? {
        let entry = entry.context("list", proc_dir)?;
        let name = entry.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse::<i32>().ok()) else {
            continue;
        };
        // Most go on living; one that has ended has no cgroups.
        let memberships = fs::read_to_string(entry.path().join("cgroup")).unwrap_or_default();
        if pid > 1 && is_in_container(&memberships, container_id) {
            killed += usize::from(send(Pid::from_raw(pid), Signal::SIGKILL).is_ok());
        }
    }
    Ok(killed)
}

/// Whether the lines of `/proc/PID/cgroup` (cgroups(7)) name a container: by a cgroup
/// called as it is, or by systemd's `cri-containerd-ID.scope`.
fn is_in_container(memberships: &str, container_id: &str) -> bool {
    let paths = memberships
        .lines()
        .filter_map(|line| line.splitn(3, ':').nth(2));
    let mut parts = paths.flat_map(|path| path.split('/'));
    parts.any(|part| {
        let name = part.strip_suffix(".scope").unwrap_or(part);
        name.rsplit('-').next() == Some(container_id)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    #[test]
    fn a_process_is_told_by_the_cgroup_that_is_named_after_its_container() {
        let other = ID.replace('0', "f");
        for (memberships, expected) in [
            (
                format!("3:cpu:/kubepods/podx/{ID}\n1:name=systemd:/\n"),
                true,
            ),
            (format!("0::/kubepods/podx/{ID}/nested\n"), true),
            (
                format!("0::/kubepods-podx.slice/cri-containerd-{ID}.scope\n"),
                true,
            ),
            (format!("0::/kubepods/podx/{other}\n"), false),
            (format!("0::/kubepods/podx/{ID}0\n"), false),
            (format!("{ID}\n0::/\n"), false),
            (String::new(), false),
        ] {
            assert_eq!(is_in_container(&memberships, ID), expected, "{memberships}");
        }
    }

    #[test]
    fn what_is_no_container_id_kills_nobody() {
        let directory = tempfile::tempdir().unwrap();
        for id in ["", "kubepods", "user.slice", &"/".repeat(64), &ID[..31]] {
            let error = kill(directory.path(), id).unwrap_err();
            assert!(error.to_string().contains("no container id"), "{error}");
        }
    }

    #[test]
    fn only_the_processes_of_the_container_are_killed() {
        let directory = tempfile::tempdir().unwrap();
        let spawn = || {
            let mut sleep = std::process::Command::new("sleep");
            sleep.arg("1000").spawn().unwrap()
        };
        let (mut inside, mut outside) = (spawn(), spawn());
        let show = |pid: u32, path: &str| {
            let process = directory.path().join(pid.to_string());
            fs::create_dir_all(&process).unwrap();
            fs::write(process.join("cgroup"), format!("0::{path}\n")).unwrap();
        };
        show(inside.id(), &format!("/kubepods/podx/{ID}"));
        show(outside.id(), "/kubepods/podx/another");
        show(1, &format!("/kubepods/podx/{ID}"));
        fs::create_dir_all(directory.path().join("self")).unwrap();
        assert_eq!(kill(directory.path(), ID).unwrap(), 1);
        assert!(!inside.wait().unwrap().success());
        assert!(outside.try_wait().unwrap().is_none(), "it lives");
        outside.kill().unwrap();
        outside.wait().unwrap();
    }
}
