//! Environments of one container, of a node with known facts.

use super::*;
use crate::test_pods::{node, pod};

/// The variables of container `c` of a pod with these `env` and `resources`.
fn variables(env: &str, resources: &str, spec: &str) -> Result<Vec<(String, String)>, BuildError> {
    let pod = pod(&format!(
        r#"{{"metadata":{{"name":"p","namespace":"ns","uid":"u1",
            "labels":{{"app":"web"}},"annotations":{{"a.b/c":"note"}}}},
            "spec":{{"nodeName":"n1","serviceAccountName":"sa"{spec},"containers":[
            {{"name":"c","env":{env},"resources":{resources}}},
            {{"name":"other","resources":{{"requests":{{"cpu":"1500m"}}}}}}]}}}}"#
    ));
    let pod_ips = ["10.0.0.2".parse().unwrap(), "fd00::2".parse().unwrap()];
    let node = node();
    let input = EnvironmentInput {
        pod: &pod,
        container: &pod.containers()[0],
        field: "spec.containers[0]",
        node: &node,
        pod_ips: &pod_ips,
    };
    let environment = environment(&input, &mut Budget::new())?;
    Ok(environment
        .iter()
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect())
}

fn one(source: &str, resources: &str) -> Result<String, BuildError> {
    let env = format!(r#"[{{"name":"X","valueFrom":{source}}}]"#);
    variables(&env, resources, "").map(|all| all[0].1.clone())
}

fn field(path: &str) -> Result<String, BuildError> {
    one(&format!(r#"{{"fieldRef":{{"fieldPath":"{path}"}}}}"#), "{}")
}

fn resource(resource: &str, more: &str, resources: &str) -> Result<String, BuildError> {
    one(
        &format!(r#"{{"resourceFieldRef":{{"resource":"{resource}"{more}}}}}"#),
        resources,
    )
}

#[test]
fn variables_keep_their_order_and_see_only_earlier_ones() {
    let env = r#"[{"name":"Z","value":"1"},{"name":"A","value":"$(Z)$(LATER)"},
        {"name":"LATER","value":"$(A)"},{"name":"EMPTY"},{"name":"Z","value":"$(Z)+"}]"#;
    let all = variables(env, "{}", "").unwrap();
    let all: Vec<_> = all
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    let expected = [
        ("Z", "1+"),
        ("A", "1$(LATER)"),
        ("LATER", "1$(LATER)"),
        ("EMPTY", ""),
    ];
    assert_eq!(all, expected);
}

#[test]
fn fields_of_the_pod_are_looked_up() {
    for (path, expected) in [
        ("metadata.name", "p"),
        ("metadata.namespace", "ns"),
        ("metadata.uid", "u1"),
        ("metadata.labels['app']", "web"),
        ("metadata.labels['none']", ""),
        ("metadata.annotations['a.b/c']", "note"),
        ("spec.nodeName", "n1"),
        ("spec.serviceAccountName", "sa"),
        ("status.hostIP", "10.123.0.1"),
        ("status.hostIPs", "10.123.0.1"),
        ("status.podIP", "10.0.0.2"),
        ("status.podIPs", "10.0.0.2,fd00::2"),
    ] {
        assert_eq!(field(path).unwrap(), expected, "{path}");
    }
    for path in [
        "spec.containers",
        "metadata.labels",
        "metadata.name['x']",
        "",
    ] {
        let error = field(path).unwrap_err().to_string();
        let start = "spec.containers[0].env[0].valueFrom.fieldRef.fieldPath: unsupported fieldPath";
        assert!(error.starts_with(start), "{error}");
    }
}

#[test]
fn a_pod_on_the_nodes_network_has_the_nodes_address() {
    let env = r#"[{"name":"X","valueFrom":{"fieldRef":{"fieldPath":"status.podIP"}}}]"#;
    let all = variables(env, "{}", r#","hostNetwork":true"#).unwrap();
    assert_eq!(all[0].1, "10.123.0.1");
}

#[test]
fn resources_are_counted_in_units_of_the_divisor_rounded_up() {
    let resources = r#"{"requests":{"cpu":"100m","memory":"1Ki"},
        "limits":{"cpu":"1100m","memory":"64Mi","hugepages-2Mi":"4Mi"}}"#;
    for (name, more, expected) in [
        ("limits.cpu", "", "2"),
        ("limits.cpu", r#","divisor":"1m""#, "1100"),
        ("limits.memory", "", "67108864"),
        ("limits.memory", r#","divisor":"1Mi""#, "64"),
        ("limits.memory", r#","divisor":"60Mi""#, "2"),
        ("limits.memory", r#","divisor":"0""#, "67108864"),
        ("limits.hugepages-2Mi", r#","divisor":"1Mi""#, "4"),
        ("requests.cpu", "", "1"),
        ("requests.memory", r#","divisor":"1Mi""#, "1"),
        ("requests.ephemeral-storage", "", "0"),
        (
            "requests.cpu",
            r#","containerName":"other","divisor":"1m""#,
            "1500",
        ),
    ] {
        assert_eq!(
            resource(name, more, resources).unwrap(),
            expected,
            "{name}{more}"
        );
    }
}

#[test]
fn a_limit_that_is_not_stated_is_what_the_node_has_for_pods() {
    for (name, expected) in [
        ("limits.cpu", "2"),
        ("limits.memory", "25279000576"),
        ("limits.ephemeral-storage", "1000"),
        ("requests.cpu", "0"),
    ] {
        assert_eq!(resource(name, "", "{}").unwrap(), expected, "{name}");
    }
}

#[test]
fn what_cannot_be_looked_up_is_an_error_with_its_field() {
    for (source, expected) in [
        (
            r#"{"resourceFieldRef":{"resource":"limits.pods"}}"#,
            "resourceFieldRef.resource: unsupported container resource : limits.pods",
        ),
        (
            r#"{"resourceFieldRef":{"resource":"limits.cpu","containerName":"x"}}"#,
            "resourceFieldRef.containerName: container x not found",
        ),
        (
            r#"{"resourceFieldRef":{"resource":"limits.cpu","divisor":"x"}}"#,
            "resourceFieldRef.divisor: ",
        ),
        (
            r#"{"configMapKeyRef":{"name":"n","key":"k"}}"#,
            "configMapKeyRef is not supported",
        ),
        (
            r#"{"secretKeyRef":{"name":"n","key":"k"}}"#,
            "secretKeyRef is not supported",
        ),
        (r#"{}"#, ": names no source"),
    ] {
        let error = one(source, "{}").unwrap_err().to_string();
        assert!(
            error.starts_with("spec.containers[0].env[0].valueFrom"),
            "{error}"
        );
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn an_environment_beyond_the_bound_is_an_error() {
    let mut env = format!(r#"[{{"name":"V0","value":"{}"}}"#, "x".repeat(1000));
    for index in 1..20 {
        let before = index - 1;
        env += &format!(r#",{{"name":"V{index}","value":"$(V{before})$(V{before})"}}"#);
    }
    let error = variables(&(env + "]"), "{}", "").unwrap_err();
    assert_eq!(
        error.to_string(),
        "spec.containers[0].env[10]: expands to more than 1048576 bytes"
    );
}
