//! The request that creates a pod's sandbox.

use std::collections::{BTreeMap, BTreeSet};

use cri::v1::{LinuxPodSandboxConfig, PodSandboxConfig, PodSandboxMetadata, PortMapping, Protocol};
use node_layout::{IdRange, paths};
use pod::core::ContainerPort;
use pod::metadata::{POD_NAME_LABEL, POD_NAMESPACE_LABEL, POD_UID_LABEL};
use pod::{Pod, PodExt, PodIdentity, QosClass, runtime_class, sysctl};

use crate::dns::{PodWarning, ResolvConf, pod_dns};
use crate::error::BuildError;
use crate::hostname::host_names;
use crate::node_facts::NodeFacts;
use crate::resources::{sandbox_overhead, sandbox_resources};
use crate::security::sandbox_security;

/// A sandbox's configuration and what its pod's owner should know about it.
#[derive(Debug, Clone, PartialEq)]
pub struct SandboxConfig {
    /// For RunPodSandbox, and for each CreateContainer in it.
    pub config: PodSandboxConfig,
    /// How the runtime is to run it, for RunPodSandbox; empty for its default.
    pub runtime_handler: String,
    /// For events.
    pub warnings: Vec<PodWarning>,
}

/// The configuration of the `attempt`th sandbox of a pod. `resolv_conf` is the node's,
/// absent when the node is configured to have none; `ids`
/// are the pod's, if it is to have users of its own.
pub fn pod_sandbox_config(
    pod: &Pod,
    attempt: u32,
    node: &NodeFacts,
    (resolv_conf, ids): (Option<&ResolvConf>, Option<IdRange>),
) -> Result<SandboxConfig, BuildError> {
    let identity = PodIdentity::of(pod)?;
    let runtime_handler = runtime_class::handler(pod, &node.runtime_classes).ok_or_else(|| {
        let reason = "the node has no such runtime class";
        BuildError::invalid("spec.runtimeClassName", reason)
    })?;
    let (dns_config, warnings) = pod_dns(pod, node, resolv_conf);
    // The node's network comes with the node's name.
    let hostname = if pod.host_network() {
        String::new()
    } else {
        host_names(pod, &node.cluster_domain)?.sandbox
    };
    let log_directory = paths::pod_logs(&node.pod_logs_dir, &identity)
        .display()
        .to_string();
    let config = PodSandboxConfig {
        metadata: Some(PodSandboxMetadata {
            name: identity.name().to_owned(),
            uid: identity.uid().to_owned(),
            namespace: identity.namespace().to_owned(),
            attempt,
        }),
        hostname,
        log_directory,
        dns_config: Some(dns_config),
        port_mappings: port_mappings(pod)?,
        labels: labels(pod, &identity),
        annotations: pod.metadata.annotations.clone().unwrap_or_default(),
        linux: Some(LinuxPodSandboxConfig {
            cgroup_parent: node.cgroups.pod_parent(QosClass::of(pod), identity.uid()),
            security_context: Some(sandbox_security(pod, ids)?),
            sysctls: sysctls(pod),
            overhead: Some(sandbox_overhead(pod, node)),
            resources: Some(sandbox_resources(pod, node)),
        }),
    };
    Ok(SandboxConfig {
        config,
        runtime_handler: runtime_handler.to_owned(),
        warnings,
    })
}

/// The pod's own labels, and over them those by which the sandbox is found again.
fn labels(pod: &Pod, identity: &PodIdentity) -> BTreeMap<String, String> {
    let mut labels = pod.metadata.labels.clone().unwrap_or_default();
    labels.extend(
        [
            (POD_NAME_LABEL, identity.name()),
            (POD_NAMESPACE_LABEL, identity.namespace()),
            (POD_UID_LABEL, identity.uid()),
        ]
        .map(|(key, value)| (key.to_owned(), value.to_owned())),
    );
    labels
}

/// Every port of every container; one that says the same as an earlier one of its
/// container is left out.
fn port_mappings(pod: &Pod) -> Result<Vec<PortMapping>, BuildError> {
    let mut mappings = Vec::new();
    for (container_index, container) in pod.containers().iter().enumerate() {
        let mut seen = BTreeSet::new();
        for (index, port) in container.ports.iter().flatten().enumerate() {
            let field = format!("spec.containers[{container_index}].ports[{index}]");
            let mapping = port_mapping(port, &field)?;
            let PortMapping {
                protocol,
                container_port,
                host_port,
                ref host_ip,
            } = mapping;
            if seen.insert((protocol, host_ip.clone(), host_port, container_port)) {
                mappings.push(mapping);
            }
        }
    }
    Ok(mappings)
}

fn port_mapping(port: &ContainerPort, field: &str) -> Result<PortMapping, BuildError> {
    let protocol = match port.protocol.as_deref() {
        None | Some("" | "TCP") => Protocol::Tcp,
        Some("UDP") => Protocol::Udp,
        Some("SCTP") => Protocol::Sctp,
        Some(other) => {
            let reason = format!("{other:?} is no protocol");
            return Err(BuildError::invalid(format!("{field}.protocol"), reason));
        }
    };
    Ok(PortMapping {
        protocol: protocol.into(),
        container_port: port.container_port,
        host_port: port.host_port.unwrap_or(0),
        host_ip: port.host_ip.clone().unwrap_or_default(),
    })
}

/// Kernel settings, by their dotted names.
fn sysctls(pod: &Pod) -> BTreeMap<String, String> {
    let stated = pod
        .spec_or_default()
        .security_context
        .as_ref()
        .and_then(|context| context.sysctls.as_deref())
        .unwrap_or_default();
    stated
        .iter()
        .map(|stated| (sysctl::dotted(&stated.name), stated.value.clone()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_pods::{node, pod};

    fn of(metadata: &str, spec: &str) -> Result<PodSandboxConfig, BuildError> {
        let pod = pod(&format!(
            r#"{{"metadata":{{"name":"p","namespace":"ns","uid":"u"{metadata}}},"spec":{{{spec}}}}}"#
        ));
        pod_sandbox_config(&pod, 3, &node(), (None, None)).map(|sandbox| sandbox.config)
    }

    const PLAIN: &str = r#""containers":[{"name":"c"}]"#;

    #[test]
    fn identity_and_attempt_are_in_the_metadata() {
        let metadata = of("", PLAIN).unwrap().metadata.unwrap();
        assert_eq!((metadata.name.as_str(), metadata.attempt), ("p", 3));
    }

    #[test]
    fn a_label_of_the_pod_cannot_hide_whose_sandbox_it_is() {
        let metadata = r#","labels":{"io.kubernetes.pod.uid":"other","a":"b"}"#;
        let labels = of(metadata, PLAIN).unwrap().labels;
        assert_eq!(labels["io.kubernetes.pod.uid"], "u");
        assert_eq!(labels["a"], "b");
    }

    #[test]
    fn a_port_that_is_stated_twice_is_mapped_once() {
        let ports = r#"[{"containerPort":80,"hostPort":8080},{"containerPort":80,"hostPort":8080},
            {"containerPort":80,"hostPort":8080,"protocol":"SCTP"}]"#;
        let spec = format!(r#""containers":[{{"name":"a","ports":{ports}}}]"#);
        let mappings = of("", &spec).unwrap().port_mappings;
        let protocols: Vec<_> = mappings.iter().map(PortMapping::protocol).collect();
        assert_eq!(protocols, [Protocol::Tcp, Protocol::Sctp]);
    }

    #[test]
    fn sysctls_have_dotted_names() {
        let stated = r#""securityContext":{"sysctls":[{"name":"net/core/a","value":"1"}]}"#;
        let config = of("", &format!("{PLAIN},{stated}")).unwrap();
        let sysctls = config.linux.unwrap().sysctls;
        assert_eq!(sysctls, [("net.core.a".to_owned(), "1".to_owned())].into());
    }

    #[test]
    fn an_identity_that_could_be_a_path_is_refused() {
        let hostile =
            pod(r#"{"metadata":{"name":"p","namespace":"..","uid":"u"},"spec":{"containers":[]}}"#);
        let outcome = pod_sandbox_config(&hostile, 0, &node(), (None, None));
        assert!(
            matches!(outcome, Err(BuildError::Identity(_))),
            "{outcome:?}"
        );
    }

    #[test]
    fn a_sandbox_runs_by_the_handler_of_the_pods_runtime_class() {
        let handler = |field: &str| {
            let pod = pod(&format!(
                r#"{{"metadata":{{"name":"p","namespace":"n","uid":"u"}},
                    "spec":{{"containers":[{{"name":"c"}}]{field}}}}}"#
            ));
            pod_sandbox_config(&pod, 0, &node(), (None, None)).map(|made| made.runtime_handler)
        };
        assert_eq!(handler("").unwrap(), "");
        assert_eq!(handler(r#","runtimeClassName":"vm""#).unwrap(), "kata");
        let error = handler(r#","runtimeClassName":"x""#).unwrap_err();
        assert!(error.to_string().contains("runtimeClassName"), "{error}");
    }
}
