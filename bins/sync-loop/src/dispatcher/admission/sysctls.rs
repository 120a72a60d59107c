//! Kernel settings that a pod wants: those that are safe, and those that
//! `allowedUnsafeSysctls` names.

use pod::sysctl::{KernelVersion, SysctlNamespace, dotted, is_safe};

use super::rejection::Rejection;
use crate::dispatcher::pod_facts::PodFacts;

/// Refuses a pod with a setting that is not allowed, or that would be the node's own:
/// the pod shares that namespace with it.
pub(super) fn check(
    pod: &PodFacts,
    kernel: Option<KernelVersion>,
    allowed_unsafe: &[String],
) -> Result<(), Rejection> {
    for name in &pod.sysctls {
        let name = dotted(name);
        let is_allowed =
            is_safe(&name, kernel) || allowed_unsafe.iter().any(|allowed| covers(allowed, &name));
        let problem = match SysctlNamespace::of(&name) {
            Some(namespace) if is_allowed => {
                let is_the_nodes = match namespace {
                    SysctlNamespace::Ipc => pod.host_ipc,
                    SysctlNamespace::Net => pod.host_network,
                };
                if !is_the_nodes {
                    continue;
                }
                format!("not allowed with host {} enabled", namespace.as_str())
            }
            _ => "not allowlisted".to_owned(),
        };
        return Err(Rejection {
            reason: "SysctlForbidden".to_owned(),
            message: format!("forbidden sysctl: {name:?} {problem}"),
        });
    }
    Ok(())
}

/// An entry of the list is a name, or ends with `*`.
fn covers(allowed: &str, name: &str) -> bool {
    let allowed = dotted(allowed);
    match allowed.strip_suffix('*') {
        Some(beginning) => name.starts_with(beginning),
        None => allowed == name,
    }
}
