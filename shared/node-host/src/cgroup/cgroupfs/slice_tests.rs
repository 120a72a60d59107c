//! The systemd driver, with a systemd that notes what it is asked for and plain directories
//! in place of the kernel's.

use system_bus::{Property, Value};

use super::tests::{legacy, resources};
use super::*;

const UID: &str = "01-ab";

#[derive(Debug, Default)]
struct Systemd {
    /// The directory whose cgroup a stop removes.
    cgroups: PathBuf,
    calls: Mutex<Vec<String>>,
    /// Stops that are under way before one is done.
    slow_stops: Mutex<usize>,
}

impl Systemd {
    fn note(&self, call: String) {
        self.calls.lock().unwrap().push(call);
    }

    fn calls(&self) -> Vec<String> {
        std::mem::take(&mut self.calls.lock().unwrap())
    }
}

impl Slices for Systemd {
    fn ensure(&self, name: &str, properties: &[Property]) -> Result<(), NodeError> {
        let memory = properties.iter().find(|(name, _)| *name == "MemoryLimit");
        let Some((_, Value::Number(memory))) = memory else {
            panic!("{properties:?}");
        };
        let memory = (*memory != u64::MAX).then_some(memory);
        self.note(format!("ensure {name} {memory:?}"));
        Ok(())
    }

    fn change(&self, name: &str, _properties: &[Property]) -> Result<(), NodeError> {
        self.note(format!("change {name}"));
        Ok(())
    }

    fn stop(&self, name: &str) -> Result<Removal, NodeError> {
        self.note(format!("stop {name}"));
        let mut slow = self.slow_stops.lock().unwrap();
        if *slow > 0 {
            *slow -= 1;
            return Ok(Removal::Busy);
        }
        fs::remove_dir_all(self.cgroups.join(name)).unwrap();
        Ok(Removal::Done)
    }
}

/// Directories in place of a version 1 node with the systemd driver.
fn systemd(directory: &Path, slow_stops: usize) -> (Cgroupfs, Arc<Systemd>) {
    let systemd = Arc::new(Systemd {
        cgroups: directory.join("memory/kubepods.slice/kubepods-burstable.slice"),
        slow_stops: Mutex::new(slow_stops),
        ..Systemd::default()
    });
    let mut cgroups = legacy(directory).with_slices(Arc::clone(&systemd) as Arc<dyn Slices>);
    cgroups.naming.driver = node_config::CgroupDriver::Systemd;
    (cgroups, systemd)
}

#[test]
fn systemd_is_asked_for_each_slice_and_limits_are_written_besides() {
    let directory = tempfile::tempdir().unwrap();
    let (cgroups, systemd) = systemd(directory.path(), 0);
    let class = "kubepods.slice/kubepods-burstable.slice";
    let pod = format!("{class}/kubepods-burstable-pod01_ab.slice");
    let limit = directory
        .path()
        .join("memory")
        .join(&pod)
        .join("memory.limit_in_bytes");
    fs::create_dir_all(limit.parent().unwrap()).unwrap();
    fs::write(&limit, "").unwrap();
    let resources = resources();
    cgroups
        .ensure_pod(UID, QosClass::Burstable, &resources)
        .unwrap();
    let expected = format!(
        "ensure kubepods-burstable-pod01_ab.slice {:?}",
        Some(1 << 26)
    );
    assert_eq!(
        systemd.calls(),
        [expected, "ensure kubepods-burstable.slice None".into()]
    );
    assert_eq!(fs::read_to_string(&limit).unwrap(), (1 << 26).to_string());
    assert_eq!(cgroups.pods().unwrap(), BTreeSet::from([UID.to_owned()]));
}

#[test]
fn systemd_stops_the_slice_of_a_pod_that_is_removed_before_its_directories_go() {
    let directory = tempfile::tempdir().unwrap();
    let (cgroups, systemd) = systemd(directory.path(), 1);
    let pod = "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod01_ab.slice";
    let at = |controller: &str| directory.path().join(controller).join(pod);
    // systemd knows nothing of huge pages.
    for controller in ["memory", "hugetlb"] {
        fs::create_dir_all(at(controller)).unwrap();
    }
    assert_eq!(cgroups.remove_pod(UID).unwrap(), Removal::Busy);
    assert!(at("memory").is_dir() && at("hugetlb").is_dir());
    assert_eq!(cgroups.remove_pod(UID).unwrap(), Removal::Done);
    assert!(!at("memory").exists() && !at("hugetlb").exists());
    let stop = "stop kubepods-burstable-pod01_ab.slice";
    let calls = systemd.calls();
    assert_eq!(calls[..2], [stop, stop]);
    assert_eq!(cgroups.remove_pod(UID).unwrap(), Removal::Done);
    assert_eq!(systemd.calls(), Vec::<String>::new());
}
