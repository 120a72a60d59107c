//! The cgroups of the classes, which follow the pods in them.

use super::tests::{legacy, put, resources, unified};
use super::*;

/// A pod that went while systemd still stopped its slice is not there at the next call.
#[test]
fn the_share_of_the_burstable_pods_follows_who_comes_and_goes() {
    let directory = tempfile::tempdir().unwrap();
    let cgroups = legacy(directory.path());
    let class = directory.path().join("cpu/kubepods/burstable");
    // The kernel makes it, and takes a whole number each time.
    let file = class.join("cpu.shares");
    let share = || fs::read_to_string(&file).unwrap();
    let requests = |cpu_request_millis| PodCgroupResources {
        cpu_request_millis,
        ..resources()
    };
    let run = |uid: &str, millis| {
        let made = cgroups.ensure_pod(uid, QosClass::Burstable, &requests(millis));
        made.unwrap();
    };
    for round in 0..100 {
        put(&file, "");
        std::thread::scope(|scope| {
            scope.spawn(|| run("1", 1000));
            scope.spawn(|| run("2", 3000));
        });
        assert_eq!(share(), "4096", "of two at once, round {round}");
        for uid in ["1", "2"] {
            fs::remove_dir_all(class.join(format!("pod{uid}"))).unwrap();
            let others = ["memory", "pids", "hugetlb", "name=systemd"];
            for hierarchy in others.map(|it| directory.path().join(it)) {
                let _ = fs::remove_dir_all(hierarchy.join(format!("kubepods/burstable/pod{uid}")));
            }
            put(&file, "");
            assert_eq!(cgroups.remove_pod(uid).unwrap(), Removal::Done);
        }
        assert_eq!(share(), "2", "of none, round {round}");
    }
}

#[test]
fn the_memory_of_pods_is_kept_out_of_swap() {
    let directory = tempfile::tempdir().unwrap();
    let cgroups = unified(directory.path());
    let at = |path: &str| directory.path().join(path);
    for path in ["", "kubepods", "kubepods/besteffort", "kubepods/burstable"] {
        put(&at(path).join("cgroup.controllers"), "");
        put(&at(path).join("cgroup.subtree_control"), "");
    }
    let all_pods = AllPodsLimits {
        cpu_shares: 2048,
        memory_bytes: None,
        pids: None,
    };
    // A kernel without swap has no such file.
    cgroups.ensure_classes(&all_pods).unwrap();
    assert!(!at("kubepods/memory.swap.max").exists());
    put(&at("kubepods/memory.swap.max"), "max\n");
    cgroups.ensure_classes(&all_pods).unwrap();
    let limit = fs::read_to_string(at("kubepods/memory.swap.max")).unwrap();
    assert!(limit.starts_with('0'), "{limit:?}");
}
