//! Most tests use plain directories in place of the kernel's; the last ones the
//! kernel's own, below a cgroup made for the test, and so need root.

use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command};

use node_config::CgroupDriver;
use pod::resources::cpu_weight;

use super::*;

pub(super) const UID: &str = "0123-abcd";
const SETTINGS: LimitSettings = LimitSettings {
    cpu_quota: true,
    cpu_period_micros: 100_000,
    pids: Some(64),
    reserves_memory: true,
};

fn naming(root: &str) -> CgroupNaming {
    CgroupNaming {
        driver: CgroupDriver::Cgroupfs,
        root: root.to_owned(),
        per_qos: true,
    }
}

/// The kernel's own, or a kernel with huge pages of two sizes.
fn system(huge_pages: Option<&Path>) -> SystemPaths {
    let mut system = SystemPaths::default();
    if let Some(directory) = huge_pages {
        for name in ["hugepages-2048kB", "hugepages-1048576kB"] {
            fs::create_dir_all(directory.join("kernel/mm/hugepages").join(name)).unwrap();
        }
        system.sys_dir = directory.to_owned();
    }
    system
}

pub(super) fn resources() -> PodCgroupResources {
    PodCgroupResources {
        cpu_shares: 512,
        cpu_request_millis: 500,
        cpu_quota_micros: Some(50_000),
        memory_limit_bytes: Some(1 << 26),
        memory_request_bytes: 1 << 25,
        huge_pages: [(2 << 20, 6 << 20)].into(),
    }
}

/// Directories in place of a version 1 node.
pub(super) fn legacy(directory: &Path) -> Cgroupfs {
    let line = |name: &str| {
        let mount = directory.join(name);
        fs::create_dir_all(&mount).unwrap();
        format!(
            "1 2 0:1 / {} rw - cgroup cgroup rw,{name}\n",
            mount.display()
        )
    };
    let table: String = ["cpu", "memory", "pids", "hugetlb", "name=systemd"]
        .map(line)
        .concat();
    let hierarchies = Hierarchies::detect(table.as_bytes()).unwrap();
    let sys = directory.join("sys");
    Cgroupfs::new(naming("/"), hierarchies, SETTINGS, &system(Some(&sys)))
}

pub(super) fn unified(directory: &Path) -> Cgroupfs {
    let table = format!("1 2 0:1 / {} rw - cgroup2 none rw\n", directory.display());
    let hierarchies = Hierarchies::detect(table.as_bytes()).unwrap();
    let sys = directory.join("sys");
    Cgroupfs::new(naming("/"), hierarchies, SETTINGS, &system(Some(&sys)))
}

pub(super) fn put(file: &Path, content: &str) {
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(file, content).unwrap();
}

#[test]
fn everybody_can_pass_through_the_cgroups_of_pods() {
    let directory = tempfile::tempdir().unwrap();
    let at = |path: &str| directory.path().join(path);
    for path in ["", "kubepods", "kubepods/besteffort"] {
        put(&at(path).join("cgroup.controllers"), "");
        put(&at(path).join("cgroup.subtree_control"), "");
    }
    let pods = ["cpu", "memory", "pids", "hugetlb", "."];
    let pods = pods.map(|part| {
        at(part)
            .join("kubepods/besteffort")
            .join(format!("pod{UID}"))
    });
    let made_by = [legacy(directory.path()), unified(directory.path())];
    for pod in &pods {
        // As a strict mask makes it.
        fs::create_dir_all(pod).unwrap();
        fs::set_permissions(pod, fs::Permissions::from_mode(0o700)).unwrap();
        fs::set_permissions(pod.parent().unwrap(), fs::Permissions::from_mode(0o700)).unwrap();
    }
    for cgroups in made_by {
        let made = cgroups.ensure_pod(UID, QosClass::BestEffort, &resources());
        drop(made);
    }
    for pod in pods {
        for directory in pod.ancestors().take(2) {
            let mode = fs::metadata(directory).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o755, "{}", directory.display());
        }
    }
}

#[test]
fn version_one_limits_go_to_the_hierarchy_of_their_controller() {
    let directory = tempfile::tempdir().unwrap();
    let cgroups = legacy(directory.path());
    let pod = format!("kubepods/burstable/pod{UID}");
    let files = [
        ("cpu", "cpu.shares", "512"),
        ("cpu", "cpu.cfs_period_us", "100000"),
        ("cpu", "cpu.cfs_quota_us", "50000"),
        ("memory", "memory.limit_in_bytes", "67108864"),
        ("pids", "pids.max", "64"),
        ("hugetlb", "hugetlb.2MB.limit_in_bytes", "6291456"),
        ("hugetlb", "hugetlb.2MB.rsvd.limit_in_bytes", "6291456"),
        ("hugetlb", "hugetlb.1GB.limit_in_bytes", "0"),
    ];
    let file =
        |controller: &str, name: &str| directory.path().join(controller).join(&pod).join(name);
    for (controller, name, _) in files {
        put(&file(controller, name), "");
    }
    cgroups
        .ensure_pod(UID, QosClass::Burstable, &resources())
        .unwrap();
    for (controller, name, content) in files {
        assert_eq!(
            fs::read_to_string(file(controller, name)).unwrap(),
            content,
            "{name}"
        );
    }
}

#[test]
fn version_two_controllers_are_handed_down_from_the_top() {
    let directory = tempfile::tempdir().unwrap();
    let cgroups = unified(directory.path());
    let levels = ["", "kubepods", "kubepods/besteffort"];
    for level in levels {
        put(
            &directory.path().join(level).join("cgroup.controllers"),
            "cpu memory",
        );
        put(
            &directory.path().join(level).join("cgroup.subtree_control"),
            "cpu\n",
        );
    }
    let pod = directory
        .path()
        .join(format!("kubepods/besteffort/pod{UID}"));
    put(&pod.join("cpu.weight"), "");
    put(&pod.join("memory.max"), "");
    put(&pod.join("hugetlb.2MB.max"), "");
    put(&pod.join("hugetlb.1GB.rsvd.max"), "max");
    cgroups
        .ensure_pod(UID, QosClass::BestEffort, &resources())
        .unwrap();
    for level in levels {
        let file = directory.path().join(level).join("cgroup.subtree_control");
        // The kernel would add it; what is not there is not asked for.
        assert!(
            fs::read_to_string(file).unwrap().starts_with("+memory"),
            "{level}"
        );
    }
    assert_eq!(
        fs::read_to_string(pod.join("memory.max")).unwrap(),
        "67108864"
    );
    for (file, limit) in [
        ("hugetlb.2MB.max", "6291456"),
        ("hugetlb.1GB.rsvd.max", "0"),
    ] {
        let text = fs::read_to_string(pod.join(file)).unwrap();
        assert_eq!(&text[..limit.len()], limit, "{file}");
    }
    // A limit whose file the kernel does not have is passed over.
    assert!(!pod.join("pids.max").exists());
}

#[test]
fn what_takes_more_capabilities_is_left_to_the_runtime() {
    let directory = tempfile::tempdir().unwrap();
    let cgroups = unified(directory.path());
    let levels = ["", "kubepods", "kubepods/besteffort"];
    let file = |level: &str, name: &str| directory.path().join(level).join(name);
    for level in levels {
        put(&file(level, "cgroup.controllers"), "cpuset");
        put(&file(level, "cgroup.subtree_control"), "");
    }
    cgroups
        .ensure_pod(UID, QosClass::BestEffort, &resources())
        .unwrap();
    for level in levels {
        let handed_down = fs::read_to_string(file(level, "cgroup.subtree_control"));
        assert_eq!(handed_down.unwrap(), "", "{level}");
    }
}

#[test]
fn memory_of_pods_is_left_to_their_classes_too() {
    let directory = tempfile::tempdir().unwrap();
    let mut cgroups = unified(directory.path());
    let at = |path: &str| directory.path().join(path);
    let pods = [
        (QosClass::Guaranteed, "kubepods/pod1"),
        (QosClass::Burstable, "kubepods/burstable/pod2"),
        (QosClass::Burstable, "kubepods/burstable/pod3"),
    ];
    for level in ["", "kubepods", "kubepods/burstable"] {
        put(&at(level).join("cgroup.controllers"), "memory");
        put(&at(level).join("cgroup.subtree_control"), "memory");
        put(&at(level).join("memory.min"), "");
        put(&at(level).join("memory.low"), "");
    }
    // What is left whatever happens, and as long as there is other.
    let kept = |path: &str| {
        ["memory.min", "memory.low"].map(|file| {
            let text = fs::read_to_string(at(path).join(file)).unwrap();
            text.parse::<u64>().unwrap()
        })
    };
    for (index, (qos, path)) in pods.into_iter().enumerate() {
        put(&at(path).join("memory.min"), "");
        put(&at(path).join("memory.low"), "");
        cgroups
            .ensure_pod(&(index + 1).to_string(), qos, &resources())
            .unwrap();
        let expected = match qos {
            QosClass::Guaranteed => [1 << 25, 0],
            _ => [0, 1 << 25],
        };
        assert_eq!(kept(path), expected);
    }
    assert_eq!(kept("kubepods/burstable"), [0, 2 << 25]);
    assert_eq!(kept("kubepods"), [1 << 25, 2 << 25]);
    fs::remove_dir_all(at("kubepods/burstable/pod3")).unwrap();
    cgroups.follow_memory().unwrap();
    assert_eq!(kept("kubepods/burstable"), [0, 1 << 25]);
    for path in ["kubepods", "kubepods/burstable"] {
        fs::write(at(path).join("memory.min"), "").unwrap();
        fs::write(at(path).join("memory.low"), "").unwrap();
    }
    cgroups.settings.reserves_memory = false;
    cgroups.follow_memory().unwrap();
    let (qos, path) = pods[0];
    for file in ["memory.min", "memory.low"] {
        fs::write(at(path).join(file), "").unwrap();
    }
    cgroups.ensure_pod("1", qos, &resources()).unwrap();
    assert_eq!(kept(path), [0, 0]);
    assert_eq!(kept("kubepods/burstable"), [0, 0]);
    assert_eq!(kept("kubepods"), [0, 0]);
}

#[test]
fn pods_are_found_in_their_class_whatever_hierarchy_has_them() {
    let directory = tempfile::tempdir().unwrap();
    let cgroups = legacy(directory.path());
    assert!(cgroups.pods().unwrap().is_empty());
    for path in [
        "cpu/kubepods/pod1",
        "memory/kubepods/pod1",
        "memory/kubepods/burstable/pod2",
        "name=systemd/kubepods/besteffort/pod3",
        "memory/kubepods/besteffort/other",
        "memory/elsewhere/pod4",
    ] {
        fs::create_dir_all(directory.path().join(path)).unwrap();
    }
    let found = BTreeSet::from(["1", "2", "3"].map(str::to_owned));
    assert_eq!(cgroups.pods().unwrap(), found);
}

#[test]
fn removal_takes_a_pod_down_everywhere_and_nothing_else() {
    let directory = tempfile::tempdir().unwrap();
    let cgroups = legacy(directory.path());
    let path = |path: &str| directory.path().join(path);
    fs::create_dir_all(path(&format!("cpu/kubepods/burstable/pod{UID}/c1/nested"))).unwrap();
    fs::create_dir_all(path(&format!("name=systemd/kubepods/pod{UID}/c2"))).unwrap();
    fs::create_dir_all(path("cpu/kubepods/burstable/pod9")).unwrap();
    assert_eq!(cgroups.remove_pod(UID).unwrap(), Removal::Done);
    assert_eq!(cgroups.pods().unwrap().len(), 1);
    assert!(path("name=systemd/kubepods").is_dir());
    // Again: nothing to do.
    assert_eq!(cgroups.remove_pod(UID).unwrap(), Removal::Done);
}

#[test]
fn a_limit_that_is_there_already_is_not_written() {
    let temporary = tempfile::tempdir().unwrap();
    let cgroups = legacy(temporary.path());
    let pod = format!("cpu/kubepods/pod{UID}/cpu.cfs_quota_us");
    let file = temporary.path().join(pod);
    put(&file, "");
    let ensure = |quota| {
        let resources = PodCgroupResources {
            cpu_quota_micros: Some(quota),
            ..resources()
        };
        cgroups.ensure_pod(UID, QosClass::Guaranteed, &resources)
    };
    ensure(50_000).unwrap();
    assert_eq!(fs::read_to_string(&file).unwrap(), "50000");
    let opened = fs::File::options().write(true).open(&file).unwrap();
    let long_ago = std::time::SystemTime::UNIX_EPOCH;
    opened.set_modified(long_ago).unwrap();
    let modified = || fs::metadata(&file).unwrap().modified().unwrap();
    ensure(50_000).unwrap();
    assert_eq!(modified(), long_ago);
    ensure(60_000).unwrap();
    assert_ne!(modified(), long_ago);
    assert_eq!(fs::read_to_string(&file).unwrap(), "60000");
}

/// A weight tells shares only roughly: of many small pods a fifth was lost.
#[test]
fn the_burstable_class_has_the_shares_of_what_its_pods_request_together() {
    let requesting = |millis| PodCgroupResources {
        cpu_shares: cpu_shares(millis),
        cpu_request_millis: millis,
        ..resources()
    };
    let temporary = tempfile::tempdir().unwrap();
    for (name, file, of_pods, of_class) in [
        ("v1", "cpu.shares", 102, cpu_shares(1000)),
        ("v2", "cpu.weight", cpu_weight(102), cpu_weight(1024)),
    ] {
        let directory = temporary.path().join(name);
        let (cgroups, root) = match name {
            "v1" => (legacy(&directory), directory.join("cpu")),
            _ => (unified(&directory), directory.clone()),
        };
        let class = root.join("kubepods/burstable");
        put(&class.join(file), "");
        for level in [&root, &root.join("kubepods"), &class] {
            put(&level.join("cgroup.controllers"), "cpu");
            put(&level.join("cgroup.subtree_control"), "cpu");
        }
        let uids: Vec<String> = (0..10).map(|number| number.to_string()).collect();
        for uid in &uids {
            put(&class.join(format!("pod{uid}")).join(file), "");
            let made = cgroups.ensure_pod(uid, QosClass::Burstable, &requesting(100));
            made.unwrap();
        }
        let read = |path: &Path| -> u64 { fs::read_to_string(path).unwrap().parse().unwrap() };
        assert_eq!(read(&class.join("pod0").join(file)), of_pods);
        assert_eq!(read(&class.join(file)), of_class, "{name}");
        // Another process finds the pods as they are, and is told what they request.
        let cgroups = match name {
            "v1" => legacy(&directory),
            _ => unified(&directory),
        };
        for uid in &uids {
            cgroups.adopt_pod(uid, &requesting(100)).unwrap();
        }
        assert_eq!(read(&class.join(file)), of_class, "{name}");
        fs::remove_dir_all(class.join("pod0")).unwrap();
        fs::write(class.join(file), "").unwrap();
        cgroups.remove_pod("0").unwrap();
        cgroups.adopt_pod("1", &requesting(100)).unwrap();
        let less = match name {
            "v1" => cpu_shares(900),
            _ => cpu_weight(cpu_shares(900)),
        };
        assert_eq!(read(&class.join(file)), less, "{name}");
    }
}

#[test]
fn a_uid_that_could_be_a_path_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let cgroups = legacy(directory.path());
    for uid in ["", "..", "a/b", "../../x"] {
        assert!(cgroups.remove_pod(uid).is_err(), "{uid:?}");
        assert!(
            cgroups
                .ensure_pod(uid, QosClass::Burstable, &resources())
                .is_err(),
            "{uid:?}"
        );
    }
}

#[test]
fn a_process_that_is_listed_but_elsewhere_by_now_is_spared() {
    let directory = tempfile::tempdir().unwrap();
    let cgroups = legacy(directory.path());
    let mut bystander = Command::new("sleep").arg("1000").spawn().unwrap();
    let pod = directory.path().join(format!("cpu/kubepods/pod{UID}"));
    let listed = format!(
        "0\n1\n{}\n{}\nnonsense\n",
        std::process::id(),
        bystander.id()
    );
    put(&pod.join("cgroup.procs"), &listed);
    // The file of the made-up cgroup keeps its directory from being removed.
    assert_eq!(cgroups.remove_pod(UID).unwrap(), Removal::Busy);
    assert!(bystander.try_wait().unwrap().is_none());
    bystander.kill().unwrap();
    bystander.wait().unwrap();
}

/// The kernel's own hierarchies, below a cgroup that the test removes again.
pub(super) struct Kernel {
    pub(super) cgroups: Cgroupfs,
    root: String,
}

impl Kernel {
    pub(super) fn new(name: &str) -> Kernel {
        let root = format!("bulkhead-test-{}-{name}", std::process::id());
        let table = fs::read("/proc/self/mountinfo").unwrap();
        let hierarchies = Hierarchies::detect(&table).unwrap();
        let cgroups = Cgroupfs::new(naming(&root), hierarchies, SETTINGS, &system(None));
        Kernel { cgroups, root }
    }

    /// A process in the pod's cgroup, in each hierarchy that it is in.
    fn run_in_pod(&self, path: &str) -> Child {
        let mut command = Command::new("sleep");
        let child = command.arg("1000").process_group(0).spawn().unwrap();
        self.join(path, &child);
        child
    }

    /// Puts a process into a cgroup, in each hierarchy that has it.
    pub(super) fn join(&self, path: &str, child: &Child) {
        let mut joined = 0;
        for directory in self.cgroups.hierarchies.directories(path) {
            joined += usize::from(
                directory.is_dir()
                    && write(&directory.join("cgroup.procs"), &child.id().to_string()).is_ok(),
            );
        }
        assert!(joined > 0, "the process joined no cgroup");
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        for top in self.cgroups.hierarchies.directories(&self.root) {
            let mut cgroups = BTreeSet::new();
            collect(top, &mut cgroups).unwrap();
            for cgroup in cgroups.iter().rev() {
                let _ = fs::remove_dir(cgroup);
            }
        }
    }
}

#[test]
fn the_kernel_takes_the_limits() {
    let kernel = Kernel::new("limits");
    let cgroups = &kernel.cgroups;
    let all_pods = AllPodsLimits {
        cpu_shares: 2048,
        memory_bytes: Some(1 << 30),
        pids: Some(5000),
    };
    cgroups.ensure_classes(&all_pods).unwrap();
    for _ in 0..2 {
        cgroups
            .ensure_pod(UID, QosClass::Burstable, &resources())
            .unwrap();
    }
    let path = cgroups.naming.pod_path(QosClass::Burstable, UID);
    let memory = cgroups
        .hierarchies
        .directory(Controller::Memory, &path)
        .unwrap();
    let file = match cgroups.hierarchies {
        Hierarchies::Unified { .. } => "memory.max",
        Hierarchies::Legacy { .. } => "memory.limit_in_bytes",
    };
    let all = cgroups.naming.class_path(QosClass::Guaranteed);
    let of_all = |controller, file| {
        let directory = cgroups.hierarchies.directory(controller, &all).unwrap();
        fs::read_to_string(directory.join(file))
            .unwrap()
            .trim()
            .to_owned()
    };
    assert_eq!(of_all(Controller::Memory, file), "1073741824");
    assert_eq!(of_all(Controller::Pids, "pids.max"), "5000");
    assert_eq!(
        fs::read_to_string(memory.join(file)).unwrap().trim(),
        "67108864"
    );
    let huge_pages = cgroups.hierarchies.directory(Controller::HugePages, &path);
    let file = match cgroups.hierarchies {
        Hierarchies::Unified { .. } => "hugetlb.2MB.max",
        Hierarchies::Legacy { .. } => "hugetlb.2MB.limit_in_bytes",
    };
    if let Some(file) = huge_pages.map(|directory| directory.join(file))
        && file.exists()
    {
        assert_eq!(fs::read_to_string(file).unwrap().trim(), "6291456");
    }
    assert_eq!(cgroups.pods().unwrap(), BTreeSet::from([UID.to_owned()]));
    assert_eq!(cgroups.remove_pod(UID).unwrap(), Removal::Done);
    assert!(cgroups.pods().unwrap().is_empty());
}

#[test]
fn what_is_left_in_a_pod_is_killed_before_its_cgroup_goes() {
    let kernel = Kernel::new("kill");
    let cgroups = &kernel.cgroups;
    cgroups
        .ensure_pod(UID, QosClass::BestEffort, &resources())
        .unwrap();
    let mut child = kernel.run_in_pod(&cgroups.naming.pod_path(QosClass::BestEffort, UID));
    let first = cgroups.remove_pod(UID).unwrap();
    // The test is the parent: waiting ends when the kill has had its effect.
    let status = child.wait().unwrap();
    assert_eq!(
        std::os::unix::process::ExitStatusExt::signal(&status),
        Some(9)
    );
    let mut removal = first;
    while removal == Removal::Busy {
        std::thread::yield_now();
        removal = cgroups.remove_pod(UID).unwrap();
    }
    assert!(cgroups.pods().unwrap().is_empty());
}

#[test]
fn what_a_runtime_froze_before_it_died_is_killed_too() {
    let kernel = Kernel::new("frozen");
    let cgroups = &kernel.cgroups;
    cgroups
        .ensure_pod(UID, QosClass::BestEffort, &resources())
        .unwrap();
    let path = cgroups.naming.pod_path(QosClass::BestEffort, UID);
    // A runtime puts its containers into every hierarchy.
    for directory in cgroups.hierarchies.directories(&path) {
        let _ = fs::create_dir_all(&directory);
    }
    let mut child = kernel.run_in_pod(&path);
    let mut frozen = 0;
    for directory in cgroups.hierarchies.directories(&path) {
        for (file, word) in [("freezer.state", "FROZEN"), ("cgroup.freeze", "1")] {
            frozen += usize::from(write(&directory.join(file), word).is_ok());
        }
    }
    assert!(frozen > 0, "nothing was frozen");
    while cgroups.remove_pod(UID).unwrap() == Removal::Busy {
        // The test is its parent, and takes its end.
        let _ = child.try_wait().unwrap();
        std::thread::yield_now();
    }
    let status = child.wait().unwrap();
    assert_eq!(
        std::os::unix::process::ExitStatusExt::signal(&status),
        Some(9)
    );
}
