//! What the kernel says about the machine, and how it is configured.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::Path;

use cri_requests::{MAX_RESOLV_CONF_BYTES, ResolvConf, parse_resolv_conf};
use nix::sys::statvfs::statvfs;
use nix::sys::utsname::uname;
use nix::unistd::{SysconfVar, sysconf};
use node_layout::{DiskUsage, MachineIdentity, NodeCapacity};
use pod::Quantity;
use pod::resources::{CPU, MEMORY, PID, cpu_shares};

use crate::cgroup::AllPodsLimits;
use crate::error::IoContext as _;
use crate::error::NodeError;
use crate::gauges;
use crate::huge_pages::huge_pages;
use crate::shared::{Shared, SystemPaths};

/// Largest hosts file of the node that is read.
const MAX_HOSTS_FILE_BYTES: u64 = 1 << 20;

/// What the machine has.
pub(super) fn capacity(node: &Shared) -> Result<NodeCapacity, NodeError> {
    capacity_of(&node.system, &node.root_dir, node.unified_cgroups)
}

/// The same; `storage` is on the file system of pods' directories.
fn capacity_of(
    system: &SystemPaths,
    storage: &Path,
    unified_cgroups: bool,
) -> Result<NodeCapacity, NodeError> {
    let meminfo = system.proc_dir.join("meminfo");
    let text = fs::read_to_string(&meminfo).context("read", &meminfo)?;
    let memory_bytes = gauges::bytes_of(&text, "MemTotal")
        .ok_or_else(|| NodeError::refused(&meminfo, "there is no MemTotal in it"))?;
    Ok(NodeCapacity {
        cpu_millis: cores()? * 1000,
        memory_bytes,
        swap_bytes: gauges::bytes_of(&text, "SwapTotal").unwrap_or(0),
        page_bytes: page_bytes()?,
        ephemeral_storage_bytes: gauges::filesystem(storage)?.capacity_bytes,
        huge_pages: huge_pages(&system.sys_dir),
        unified_cgroups,
        kernel_release: kernel_release()?,
        app_armor: has_app_armor(&system.sys_dir),
        // There only while a policy is loaded.
        selinux: system.sys_dir.join("fs/selinux/enforce").exists(),
    })
}

/// Largest file of those that say which machine it is.
const MAX_IDENTITY_BYTES: u64 = 64 << 10;

/// Which machine it is. What cannot be read is empty: it is for people and inventories.
pub(super) fn identity(node: &Shared) -> MachineIdentity {
    let SystemPaths {
        proc_dir, sys_dir, ..
    } = &node.system;
    let line = |path: &Path| text_of(path).trim().to_owned();
    let machine_id = line(Path::new("/etc/machine-id"));
    let system_uuid = line(&sys_dir.join("class/dmi/id/product_uuid"));
    let release = text_of(Path::new("/etc/os-release"));
    let pretty = release
        .lines()
        .find_map(|line| line.strip_prefix("PRETTY_NAME="));
    MachineIdentity {
        system_uuid: match system_uuid.is_empty() {
            true => machine_id.clone(),
            false => system_uuid,
        },
        machine_id,
        boot_id: line(&proc_dir.join("sys/kernel/random/boot_id")),
        os_image: pretty
            .unwrap_or_default()
            .trim_matches(['"', '\''])
            .to_owned(),
    }
}

fn text_of(path: &Path) -> String {
    let mut text = String::new();
    let read =
        File::open(path).and_then(|file| file.take(MAX_IDENTITY_BYTES).read_to_string(&mut text));
    match read {
        Ok(_) => text,
        Err(_) => String::new(),
    }
}

fn page_bytes() -> Result<u64, NodeError> {
    let size = sysconf(SysconfVar::PAGE_SIZE).context("ask", Path::new("the size of a page"))?;
    Ok(size
        .and_then(|size| u64::try_from(size).ok())
        .unwrap_or(4096))
}

fn kernel_release() -> Result<String, NodeError> {
    let name = uname().context("ask", Path::new("the kernel for its name"))?;
    Ok(name.release().to_string_lossy().into_owned())
}

/// Whether the kernel enforces AppArmor profiles: it was built with it, it was not
/// switched off, and profiles can be loaded.
fn has_app_armor(sys_dir: &Path) -> bool {
    let enabled = fs::read_to_string(sys_dir.join("module/apparmor/parameters/enabled"));
    let is_enabled = enabled.is_ok_and(|text| text.starts_with('Y'));
    is_enabled && sys_dir.join("kernel/security/apparmor").is_dir()
}

/// Cores that are online, whether this process may use them or not.
fn cores() -> Result<u64, NodeError> {
    let online = sysconf(SysconfVar::_NPROCESSORS_ONLN).context("count", Path::new("cores"))?;
    Ok(online
        .and_then(|cores| u64::try_from(cores).ok())
        .unwrap_or(1)
        .max(1))
}

/// How full the file system of an existing path is.
pub(super) fn disk_usage(path: &Path) -> Result<DiskUsage, NodeError> {
    let usage = statvfs(path).context("inspect", path)?;
    Ok(DiskUsage {
        capacity_bytes: usage.blocks().saturating_mul(usage.fragment_size()),
        available_bytes: usage
            .blocks_available()
            .saturating_mul(usage.fragment_size()),
    })
}

/// What pods may use of a resource.
pub(super) fn allocatable(node: &Shared, resource: &str) -> Result<Quantity, NodeError> {
    let capacity = capacity(node)?;
    let allocatable = eviction::allocatable(&node.config, &capacity);
    Ok(allocatable.get(resource).copied().unwrap_or(Quantity::ZERO))
}

/// What all pods together get: the kubelet's `enforceNodeAllocatable: [pods]`. What is
/// kept back for eviction is theirs to use until they are evicted.
pub(super) fn limits_of_all_pods(node: &Shared) -> Result<AllPodsLimits, NodeError> {
    let reserved = &node.config.reserved;
    let capacity = capacity(node)?;
    let left = capacity.allocatable(reserved, &BTreeMap::new());
    let of = |resource: &str| left.get(resource).copied().unwrap_or(Quantity::ZERO);
    let cpu_shares = cpu_shares(of(CPU).milli_value());
    if !node.config.enforce_allocatable {
        return Ok(AllPodsLimits {
            cpu_shares,
            memory_bytes: None,
            pids: None,
        });
    }
    let memory = of(MEMORY).value();
    if memory <= 0 {
        let reason = "systemReserved and kubeReserved leave no memory for pods";
        return Err(NodeError::refused("kubepods", reason));
    }
    let pids = reserved.get(PID).and_then(|text| text.parse().ok());
    let pids = u64::try_from(pids.map_or(0, Quantity::value)).unwrap_or(0);
    let max_processes = gauges::machine(&node.system)?.max_processes;
    Ok(AllPodsLimits {
        cpu_shares,
        memory_bytes: Some(memory),
        pids: Some(max_processes.saturating_sub(pids).max(1)),
    })
}

/// The resolv.conf that pods get, if any.
pub(super) fn resolv_conf(node: &Shared) -> Result<Option<ResolvConf>, NodeError> {
    let Some(path) = &node.resolv_conf else {
        return Ok(None);
    };
    let text = read_text(path, MAX_RESOLV_CONF_BYTES).context("read", path)?;
    let parsed = parse_resolv_conf(&text);
    parsed
        .map(Some)
        .map_err(|error| NodeError::refused(path, error.to_string()))
}

/// The node's own hosts file.
pub(super) fn hosts_file(node: &Shared) -> Result<String, NodeError> {
    let path = &node.system.hosts_file;
    match read_text(path, MAX_HOSTS_FILE_BYTES) {
        // A node without one has no names to pass on.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        read => read.context("read", path),
    }
}

/// The beginning of a text file, as far as the bound goes.
fn read_text(path: &Path, limit: u64) -> io::Result<String> {
    let mut bytes = Vec::new();
    File::open(path)?.take(limit).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn app_armor_is_there_when_it_is_enabled_and_profiles_can_be_loaded() {
        let sys = tempfile::tempdir().unwrap();
        assert!(!has_app_armor(sys.path()));
        let parameters = sys.path().join("module/apparmor/parameters");
        fs::create_dir_all(&parameters).unwrap();
        fs::write(parameters.join("enabled"), "Y\n").unwrap();
        assert!(!has_app_armor(sys.path()));
        fs::create_dir_all(sys.path().join("kernel/security/apparmor")).unwrap();
        assert!(has_app_armor(sys.path()));
        fs::write(parameters.join("enabled"), "N\n").unwrap();
        assert!(!has_app_armor(sys.path()));
    }

    #[test]
    fn this_machine_has_something_of_everything() {
        let found =
            capacity_of(&SystemPaths::default(), Path::new("/nowhere/at/all"), false).unwrap();
        assert!(
            found.cpu_millis >= 1000 && found.memory_bytes > 1 << 20,
            "{found:?}"
        );
        assert!(found.ephemeral_storage_bytes > 1 << 20, "{found:?}");
        assert!(pod::sysctl::KernelVersion::parse(&found.kernel_release).is_some());
    }
}
