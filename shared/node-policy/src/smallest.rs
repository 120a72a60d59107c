//! The smallest grant that allows a demand.

use crate::demand::{Demand, SeLinuxOption};
use crate::grant::{Grant, HostPathGrant};
use crate::path::NodePath;
use crate::protected::{Protected, Standing};
use crate::range::Range;
use crate::selector::PodGlob;
use crate::subject::Subject;

/// What stands for other characters in the patterns of a grant.
const PLACEHOLDERS: [char; 2] = ['*', '?'];

/// The smallest grant that allows a demand of a pod; `None` if none can.
pub(crate) fn smallest_grant(
    subject: &Subject,
    demand: &Demand,
    protected: &Protected,
) -> Option<Grant> {
    let mut grant = grant_without_content(subject)?;
    add(&mut grant, demand, protected);
    (!grant.gives_nothing()).then_some(grant)
}

/// For this pod of this source alone. `None` for a name that no pod can have, which a
/// pattern might take for a placeholder.
pub(crate) fn grant_without_content(subject: &Subject) -> Option<Grant> {
    let name = subject.full_name();
    if name.contains(PLACEHOLDERS) {
        return None;
    }
    Some(Grant {
        pods: vec![PodGlob::try_from(name).ok()?],
        sources: vec![subject.source],
        ..Grant::default()
    })
}

/// Adds what allows the demand.
pub(crate) fn add(grant: &mut Grant, demand: &Demand, protected: &Protected) {
    match demand {
        Demand::HostNetwork => grant.host_network = true,
        Demand::HostPid => grant.host_pid = true,
        Demand::HostIpc => grant.host_ipc = true,
        Demand::WindowsHostProcess => grant.host_process = true,
        Demand::Privileged => grant.privileged = true,
        Demand::Capability(name) if name.is_empty() => {}
        Demand::Capability(name) => insert(&mut grant.capabilities, name.clone()),
        Demand::DefaultCapabilities => grant.default_capabilities = true,
        Demand::HostPath { path, read_only } => {
            if let Ok(path) = NodePath::parse(path) {
                add_path(&mut grant.host_paths, path, *read_only, protected);
            }
        }
        Demand::HostPort(port) => insert(&mut grant.host_ports, Range::single(u32::from(*port))),
        Demand::Device { path, .. } => {
            if let Ok(path) = NodePath::parse(path) {
                insert(&mut grant.devices, path);
            }
        }
        Demand::Sysctl(name) if name.contains(PLACEHOLDERS) || name.is_empty() => {}
        Demand::Sysctl(name) => insert(&mut grant.sysctls, name.clone()),
        Demand::User(user) => add_id(&mut grant.users, *user),
        Demand::Group(group) => add_id(&mut grant.groups, *group),
        Demand::MayRunAsRoot => insert(&mut grant.users, Range::single(0)),
        Demand::PrivilegeEscalation => grant.privilege_escalation = true,
        Demand::SeccompUnconfined | Demand::SeccompUnset => grant.seccomp_unconfined = true,
        Demand::AppArmorUnconfined => grant.app_armor_unconfined = true,
        Demand::SeLinux(SeLinuxOption::Type, value) => {
            insert(&mut grant.se_linux_types, value.clone());
        }
        Demand::SeLinux(SeLinuxOption::User, value) => {
            insert(&mut grant.se_linux_users, value.clone());
        }
        Demand::SeLinux(SeLinuxOption::Role, value) => {
            insert(&mut grant.se_linux_roles, value.clone());
        }
        Demand::UnmaskedProc | Demand::UnmaskedProcOfOwnUsers => grant.unmasked_proc = true,
        Demand::VolumeKind(kind) => insert(&mut grant.volume_kinds, kind.clone()),
        Demand::ProbeHost(host) => insert(&mut grant.probe_hosts, host.clone()),
        Demand::Exec => grant.exec = true,
    }
}

/// A path that is both read and written is granted once, to write.
fn add_path(
    paths: &mut Vec<HostPathGrant>,
    path: NodePath,
    read_only: bool,
    protected: &Protected,
) {
    if let Some(known) = paths.iter_mut().find(|known| known.prefix == path) {
        known.read_only &= read_only;
        return;
    }
    let includes_protected = matches!(protected.standing(&path), Standing::Above(..));
    paths.push(HostPathGrant {
        prefix: path,
        read_only,
        follow_links: false,
        includes_protected,
    });
    paths.sort();
}

fn add_id(ranges: &mut Vec<Range>, id: i64) {
    if let Ok(id) = u32::try_from(id) {
        insert(ranges, Range::single(id));
    }
}

fn insert<T: Ord>(values: &mut Vec<T>, value: T) {
    if let Err(at) = values.binary_search(&value) {
        values.insert(at, value);
    }
}
