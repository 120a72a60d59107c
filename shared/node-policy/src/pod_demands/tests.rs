//! Each field of a pod that is a demand, alone and with what it stands beside.

use super::*;
use crate::demand::SeLinuxOption;

/// Field, container and demand of everything that ordinary pods of level `restricted`
/// do not ask for.
fn demands(spec: &str) -> Vec<(String, String, Demand)> {
    let pod: Pod = serde_json::from_str(&format!(r#"{{"spec":{spec}}}"#)).unwrap();
    listed(&pod)
}

fn listed(pod: &Pod) -> Vec<(String, String, Demand)> {
    let listed = demands_of(pod).into_iter().map(|demand| {
        let container = demand.container.map(|(name, _)| name).unwrap_or_default();
        (demand.field, container, demand.demand)
    });
    listed.collect()
}

/// A container that asks for nothing, and what is added to it.
fn modest(more: &str, context: &str) -> String {
    format!(
        r#"{{"name":"c","image":"i","securityContext":{{"allowPrivilegeEscalation":false,
            "runAsNonRoot":true,"seccompProfile":{{"type":"RuntimeDefault"}},
            "capabilities":{{"drop":["ALL"]}}{context}}}{more}}}"#
    )
}

fn in_container(more: &str, context: &str) -> Vec<(String, String, Demand)> {
    demands(&format!(r#"{{"containers":[{}]}}"#, modest(more, context)))
}

fn in_pod(fields: &str) -> Vec<(String, String, Demand)> {
    demands(&format!(r#"{{"containers":[{}]{fields}}}"#, modest("", "")))
}

#[test]
fn a_modest_pod_asks_for_nothing() {
    assert_eq!(in_pod(""), []);
    let nothing = r#","hostNetwork":false,"hostPID":false,"hostIPC":false,
        "securityContext":{"runAsNonRoot":true,"seLinuxOptions":{"level":"s0","type":""}},
        "volumes":[{"name":"a","emptyDir":{}},{"name":"b","secret":{}},{"name":"c","configMap":{}}]"#;
    assert_eq!(in_pod(nothing), []);
}

#[test]
fn a_container_without_a_word_about_security_asks_for_what_the_restricted_level_wants_said() {
    let found = demands(r#"{"containers":[{"name":"c","image":"i"}]}"#);
    let found: Vec<Demand> = found.into_iter().map(|(_, _, demand)| demand).collect();
    assert_eq!(
        found,
        [
            Demand::PrivilegeEscalation,
            Demand::MayRunAsRoot,
            Demand::SeccompUnset,
            Demand::DefaultCapabilities,
        ]
    );
}

fn each_is_a_demand_of_the_pod<const N: usize>(table: [(&str, &str, Demand); N]) {
    for (fields, field, demand) in table {
        let expected = [(field.to_owned(), String::new(), demand)];
        assert_eq!(in_pod(&format!(",{fields}")), expected, "{fields}");
    }
}

#[test]
fn each_field_of_a_pod_is_a_demand_with_its_path() {
    each_is_a_demand_of_the_pod([
        (
            r#""hostNetwork":true"#,
            "spec.hostNetwork",
            Demand::HostNetwork,
        ),
        (r#""hostPID":true"#, "spec.hostPID", Demand::HostPid),
        (r#""hostIPC":true"#, "spec.hostIPC", Demand::HostIpc),
        (
            r#""securityContext":{"runAsUser":0}"#,
            "spec.securityContext.runAsUser",
            Demand::User(0),
        ),
        (
            r#""securityContext":{"runAsUser":7}"#,
            "spec.securityContext.runAsUser",
            Demand::User(7),
        ),
        (
            r#""securityContext":{"runAsGroup":8}"#,
            "spec.securityContext.runAsGroup",
            Demand::Group(8),
        ),
        (
            r#""securityContext":{"fsGroup":9}"#,
            "spec.securityContext.fsGroup",
            Demand::Group(9),
        ),
        (
            r#""securityContext":{"supplementalGroups":[5]}"#,
            "spec.securityContext.supplementalGroups[0]",
            Demand::Group(5),
        ),
        (
            r#""securityContext":{"runAsNonRoot":false}"#,
            "spec.securityContext.runAsNonRoot",
            Demand::MayRunAsRoot,
        ),
    ]);
}

#[test]
fn each_profile_and_option_of_a_pod_is_a_demand_with_its_path() {
    each_is_a_demand_of_the_pod([
        (
            r#""securityContext":{"sysctls":[{"name":"net/core/somaxconn","value":"1"}]}"#,
            "spec.securityContext.sysctls[0].name",
            Demand::Sysctl("net.core.somaxconn".to_owned()),
        ),
        (
            r#""securityContext":{"seccompProfile":{"type":"Unconfined"}}"#,
            "spec.securityContext.seccompProfile.type",
            Demand::SeccompUnconfined,
        ),
        (
            r#""securityContext":{"appArmorProfile":{"type":"Unconfined"}}"#,
            "spec.securityContext.appArmorProfile.type",
            Demand::AppArmorUnconfined,
        ),
        (
            r#""securityContext":{"seLinuxOptions":{"user":"u"}}"#,
            "spec.securityContext.seLinuxOptions.user",
            Demand::SeLinux(SeLinuxOption::User, "u".to_owned()),
        ),
        (
            r#""securityContext":{"windowsOptions":{"hostProcess":true}}"#,
            "spec.securityContext.windowsOptions.hostProcess",
            Demand::WindowsHostProcess,
        ),
        (
            r#""volumes":[{"name":"v","nfs":{"server":"s","path":"/"}}]"#,
            "spec.volumes[0].nfs",
            Demand::VolumeKind("nfs".to_owned()),
        ),
    ]);
}

type ContainerRow<'a> = (&'a str, &'a str, &'a str, Demand);

fn each_is_a_demand_of_the_container<const N: usize>(table: [ContainerRow<'_>; N]) {
    for (more, context, field, demand) in table {
        let comma = |text: &str| {
            if text.is_empty() {
                String::new()
            } else {
                format!(",{text}")
            }
        };
        let field = format!("spec.containers[0].{field}");
        let expected = [(field, "c".to_owned(), demand)];
        let found = in_container(&comma(more), &comma(context));
        assert_eq!(found, expected, "{more}{context}");
    }
}

#[test]
fn each_field_of_a_security_context_is_a_demand_of_its_container() {
    each_is_a_demand_of_the_container([
        (
            "",
            r#""privileged":true"#,
            "securityContext.privileged",
            Demand::Privileged,
        ),
        (
            "",
            r#""procMount":"Unmasked""#,
            "securityContext.procMount",
            Demand::UnmaskedProc,
        ),
        (
            "",
            r#""runAsUser":0"#,
            "securityContext.runAsUser",
            Demand::User(0),
        ),
        (
            "",
            r#""runAsGroup":7"#,
            "securityContext.runAsGroup",
            Demand::Group(7),
        ),
        (
            "",
            r#""appArmorProfile":{"type":"Nonsense"}"#,
            "securityContext.appArmorProfile.type",
            Demand::AppArmorUnconfined,
        ),
        (
            "",
            r#""seLinuxOptions":{"type":"spc_t"}"#,
            "securityContext.seLinuxOptions.type",
            Demand::SeLinux(SeLinuxOption::Type, "spc_t".to_owned()),
        ),
        (
            "",
            r#""seLinuxOptions":{"role":"r"}"#,
            "securityContext.seLinuxOptions.role",
            Demand::SeLinux(SeLinuxOption::Role, "r".to_owned()),
        ),
        (
            "",
            r#""windowsOptions":{"hostProcess":true}"#,
            "securityContext.windowsOptions.hostProcess",
            Demand::WindowsHostProcess,
        ),
    ]);
}

#[test]
fn ports_and_hosts_of_probes_and_hooks_are_demands_of_their_container() {
    each_is_a_demand_of_the_container([
        (
            r#""ports":[{"containerPort":1},{"containerPort":2,"hostPort":80}]"#,
            "",
            "ports[1].hostPort",
            Demand::HostPort(80),
        ),
        (
            r#""livenessProbe":{"httpGet":{"port":1,"host":"h"}}"#,
            "",
            "livenessProbe.httpGet.host",
            Demand::ProbeHost("h".to_owned()),
        ),
        (
            r#""startupProbe":{"tcpSocket":{"port":1,"host":"h"}}"#,
            "",
            "startupProbe.tcpSocket.host",
            Demand::ProbeHost("h".to_owned()),
        ),
        (
            r#""lifecycle":{"preStop":{"httpGet":{"port":1,"host":"h"}}}"#,
            "",
            "lifecycle.preStop.httpGet.host",
            Demand::ProbeHost("h".to_owned()),
        ),
    ]);
}

#[test]
fn every_kind_of_container_is_looked_at() {
    let spec = r#"{"containers":[],"initContainers":[{"name":"i","image":"x",
        "securityContext":{"privileged":true}}],"ephemeralContainers":[{"name":"e","image":"x",
        "securityContext":{"capabilities":{"add":["cap_net_admin"]}}}]}"#;
    let found = demands(spec);
    let has = |field: &str, container: &str, demand: Demand| {
        found.contains(&(field.to_owned(), container.to_owned(), demand))
    };
    assert!(has(
        "spec.initContainers[0].securityContext.privileged",
        "i",
        Demand::Privileged
    ));
    assert!(has(
        "spec.ephemeralContainers[0].securityContext.capabilities.add[0]",
        "e",
        Demand::Capability("NET_ADMIN".to_owned())
    ));
}

#[test]
fn ports_of_a_pod_in_the_nodes_network_are_asked_for_with_it() {
    let spec = format!(
        r#"{{"hostNetwork":true,"containers":[{}]}}"#,
        modest(r#","ports":[{"containerPort":80,"hostPort":80}]"#, "")
    );
    let found = demands(&spec);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].2, Demand::HostNetwork);
}

#[test]
fn all_capabilities_are_dropped_in_every_spelling() {
    for (drop, keeps) in [
        ("ALL", false),
        ("all", false),
        ("CAP_ALL", false),
        ("cap_all", false),
        ("NET_RAW", true),
        ("CAP_CAP_ALL", true),
    ] {
        let spec = modest("", "").replace("ALL", drop);
        let found = demands(&format!(r#"{{"containers":[{spec}]}}"#));
        let found = found.iter().map(|(_, _, demand)| demand);
        let found = found.filter(|it| **it == Demand::DefaultCapabilities);
        assert_eq!(found.count(), usize::from(keeps), "{drop}");
    }
}

#[test]
fn in_a_user_namespace_root_is_not_asked_for_and_an_unmasked_proc_is_less() {
    let spec = r#"{"hostUsers":false,"securityContext":{"runAsUser":0,"runAsNonRoot":false,
        "seccompProfile":{"type":"Localhost","localhostProfile":"p"}},
        "containers":[{"name":"c","image":"i","securityContext":{"allowPrivilegeEscalation":false,
        "procMount":"Unmasked","runAsUser":7,"capabilities":{"drop":["ALL"]}}}]}"#;
    let found = demands(spec);
    let asked = |field: &str, demand| {
        let field = format!("spec.containers[0].securityContext.{field}");
        (field, "c".to_owned(), demand)
    };
    let expected = [
        asked("procMount", Demand::UnmaskedProcOfOwnUsers),
        asked("runAsUser", Demand::User(7)),
    ];
    assert_eq!(found, expected);
}

#[test]
fn a_pods_word_counts_for_containers_that_say_nothing() {
    let spec = |context: &str| {
        format!(
            r#"{{"securityContext":{{"runAsNonRoot":true,"seccompProfile":{{"type":"RuntimeDefault"}}}},
            "containers":[{{"name":"c","image":"i","securityContext":{{
            "allowPrivilegeEscalation":false,"capabilities":{{"drop":["ALL"]}}{context}}}}}]}}"#
        )
    };
    assert_eq!(demands(&spec("")), []);
    let found = demands(&spec(r#","runAsNonRoot":false"#));
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].2, Demand::MayRunAsRoot);
}

#[test]
fn a_path_is_asked_for_by_each_container_that_mounts_it() {
    let spec = r#"{"volumes":[{"name":"v","hostPath":{"path":"/a","type":"BlockDevice"}}],
        "containers":[
          {"name":"reads","image":"i","volumeMounts":[{"name":"v","mountPath":"/m","readOnly":true}]},
          {"name":"both","image":"i","volumeMounts":[{"name":"v","mountPath":"/m","readOnly":true},
            {"name":"v","mountPath":"/n"}]},
          {"name":"none","image":"i"}]}"#;
    let found: Vec<_> = demands(spec)
        .into_iter()
        .filter(|(field, ..)| field == "spec.volumes[0].hostPath.path")
        .map(|(_, container, demand)| (container, demand))
        .collect();
    let path = |read_only| Demand::HostPath {
        path: "/a".to_owned(),
        read_only,
    };
    let disk = || Demand::Device {
        path: "/a".to_owned(),
        block: true,
    };
    let expected = [
        ("reads", path(true)),
        ("reads", disk()),
        ("both", path(false)),
        ("both", disk()),
    ];
    assert_eq!(
        found,
        expected.map(|(name, demand)| (name.to_owned(), demand))
    );
}

#[test]
fn a_path_that_nobody_mounts_is_asked_for_by_the_pod() {
    for (type_, read_only) in [
        ("", true),
        ("Directory", true),
        ("DirectoryOrCreate", false),
    ] {
        let volumes =
            format!(r#","volumes":[{{"name":"v","hostPath":{{"path":"/a","type":"{type_}"}}}}]"#);
        let expected = Demand::HostPath {
            path: "/a".to_owned(),
            read_only,
        };
        let field = "spec.volumes[0].hostPath.path".to_owned();
        assert_eq!(
            in_pod(&volumes),
            [(field, String::new(), expected)],
            "{type_}"
        );
    }
}

#[test]
fn annotations_of_older_clients_are_demands() {
    for (annotation, value, demand) in [
        (
            "container.apparmor.security.beta.kubernetes.io/c",
            "unconfined",
            Some(Demand::AppArmorUnconfined),
        ),
        (
            "container.apparmor.security.beta.kubernetes.io/c",
            "runtime/default",
            None,
        ),
        (
            "container.apparmor.security.beta.kubernetes.io/c",
            "localhost/p",
            None,
        ),
        (
            "seccomp.security.alpha.kubernetes.io/pod",
            "unconfined",
            Some(Demand::SeccompUnconfined),
        ),
        (
            "container.seccomp.security.alpha.kubernetes.io/c",
            "docker/default",
            None,
        ),
        ("other", "unconfined", None),
    ] {
        let pod: Pod = serde_json::from_str(&format!(
            r#"{{"metadata":{{"annotations":{{"{annotation}":"{value}"}}}},"spec":{{"containers":[]}}}}"#
        ))
        .unwrap();
        let found = listed(&pod).into_iter().map(|(_, _, demand)| demand).next();
        assert_eq!(found, demand, "{annotation}={value}");
    }
}
