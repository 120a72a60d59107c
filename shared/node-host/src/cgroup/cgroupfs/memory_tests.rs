//! How much memory a pod has in use.

use std::io::Write as _;
use std::process::{Command, Stdio};

use super::tests::{Kernel, UID, legacy, put, resources, unified};
use super::*;

#[test]
fn the_memory_of_a_pod_is_that_of_its_cgroup_but_for_files_that_are_not_used() {
    let directory = tempfile::tempdir().unwrap();
    let pod = format!("kubepods/burstable/pod{UID}");
    let (old, new) = (directory.path().join("memory"), directory.path());
    put(&old.join(&pod).join("memory.usage_in_bytes"), "9000\n");
    let stat = "cache 5\ninactive_file 1\ntotal_inactive_file 2000\n";
    put(&old.join(&pod).join("memory.stat"), stat);
    put(&new.join(&pod).join("memory.current"), "8000\n");
    let stat = "anon 4096\ninactive_anon 7\ninactive_file 500\n";
    put(&new.join(&pod).join("memory.stat"), stat);
    let told = |cgroups: &Cgroupfs, uid: &str| cgroups.working_set(uid).unwrap();
    let (old, new) = (legacy(new), unified(new));
    assert_eq!((told(&old, UID), told(&new, UID)), (Some(7000), Some(7500)));
    assert_eq!((told(&old, "other"), told(&new, "other")), (None, None));
}

/// As an init container leaves it in a volume in memory.
#[test]
fn what_a_container_left_in_memory_that_is_gone_counts_for_its_pod() {
    const LEFT: u64 = 32 << 20;
    let kernel = Kernel::new("memory");
    let cgroups = &kernel.cgroups;
    let made = cgroups.ensure_pod(UID, QosClass::Burstable, &resources());
    made.unwrap();
    let container = cgroups.naming.pod_path(QosClass::Burstable, UID) + "/c";
    let mut directories = cgroups.hierarchies.directories(&container);
    directories.retain(|directory| fs::create_dir(directory).is_ok());
    let volume = tempfile::NamedTempFile::new_in("/dev/shm").unwrap();
    let mut child = Command::new("sh")
        .args(["-c", "read go; head -c \"$1\" /dev/zero > \"$0\""])
        .arg(volume.path())
        .arg(LEFT.to_string())
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    kernel.join(&container, &child);
    let used = || cgroups.working_set(UID).unwrap().unwrap();
    assert!(used() < LEFT, "{}", used());
    child.stdin.take().unwrap().write_all(b"go\n").unwrap();
    assert!(child.wait().unwrap().success());
    for directory in directories {
        fs::remove_dir(directory).unwrap();
    }
    assert!(used() >= LEFT, "{}", used());
}
