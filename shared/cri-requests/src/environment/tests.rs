//! Environments of one container, of a node with known facts.

use std::sync::Arc;

use local_objects::{LocalObject, Lookup, ObjectRef};

use super::*;
use crate::test_pods::{node, pod};

/// A ConfigMap `c` and a Secret `s`; of `none` there is neither.
fn objects() -> Objects {
    let mut objects = Objects::default();
    for (kind, name, data) in [
        (
            ObjectKind::ConfigMap,
            "c",
            [("b", "of c"), ("1.a-x", "$(B)"), ("bytes", "x")],
        ),
        (
            ObjectKind::Secret,
            "s",
            [("b", "of s"), ("user", "admin"), ("raw", "\u{0}")],
        ),
    ] {
        let reference = reference(kind, name);
        let data = data.map(|(key, value)| {
            let value = match key {
                "raw" => vec![0xff],
                _ => value.as_bytes().to_vec(),
            };
            (key.to_owned(), value.into())
        });
        let object = LocalObject {
            reference: reference.clone(),
            version: "1".to_owned(),
            data: data.into(),
            binary_keys: ["bytes".to_owned()].into(),
        };
        objects.insert(reference, Lookup::Found(Arc::new(object)));
        objects.insert(self::reference(kind, "none"), Lookup::Missing);
    }
    objects
}

fn reference(kind: ObjectKind, name: &str) -> ObjectRef {
    ObjectRef {
        kind,
        namespace: "ns".to_owned(),
        name: name.to_owned(),
    }
}

/// The variables of container `c` of a pod with these `env` and `resources`.
fn variables(env: &str, resources: &str, spec: &str) -> Result<Vec<(String, String)>, BuildError> {
    variables_beside(&BTreeMap::new(), env, resources, spec)
}

/// The same beside variables of Services.
fn variables_beside(
    service_variables: &BTreeMap<String, String>,
    env: &str,
    resources: &str,
    spec: &str,
) -> Result<Vec<(String, String)>, BuildError> {
    let pod = pod(&format!(
        r#"{{"metadata":{{"name":"p","namespace":"ns","uid":"u1",
            "labels":{{"app":"web"}},"annotations":{{"a.b/c":"note"}}}},
            "spec":{{"nodeName":"n1","serviceAccountName":"sa"{spec},"containers":[
            {{"name":"c","env":{env},"resources":{resources}}},
            {{"name":"other","resources":{{"requests":{{"cpu":"1500m"}}}}}}]}}}}"#
    ));
    // The network plugin tells the other family first.
    let pod_ips = ["fd00::2".parse().unwrap(), "10.0.0.2".parse().unwrap()];
    let node = node();
    let input = EnvironmentInput {
        pod: &pod,
        container: &pod.containers()[0],
        field: "spec.containers[0]",
        node: &node,
        pod_ips: &pod_ips,
        objects: &objects(),
        service_variables,
        env_files: &EnvFiles::new(),
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
        ("spec.host", "n1"),
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
            r#"{"fileKeyRef":{"volumeName":"v","path":"p","key":"k"}}"#,
            r#"fileKeyRef: cannot find the volume "v" referenced by FileKeyRef"#,
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

#[test]
fn variables_of_services_can_be_referred_to_and_replaced_and_come_last() {
    let services = [("A_PORT", "tcp://a"), ("B_PORT", "tcp://b")];
    let services = services.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let env = r#"[{"name":"X","value":"$(A_PORT) $(B_PORT)"},{"name":"B_PORT","value":"mine"},
        {"name":"Y","value":"$(B_PORT)"}]"#;
    let all = variables_beside(&services.into(), env, "{}", "").unwrap();
    let expected = [
        ("X", "tcp://a tcp://b"),
        ("B_PORT", "mine"),
        ("Y", "mine"),
        ("A_PORT", "tcp://a"),
    ];
    assert_eq!(pairs(&all), expected);
}

/// The variables of a container with these `envFrom` and `env`.
fn with_sources(env_from: &str, env: &str) -> Result<Vec<(String, String)>, BuildError> {
    variables(&format!(r#"{env},"envFrom":{env_from}"#), "{}", "")
}

fn pairs(all: &[(String, String)]) -> Vec<(&str, &str)> {
    let pairs = all.iter();
    pairs
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect()
}

#[test]
fn all_values_of_objects_come_first_and_give_way_to_what_is_named() {
    let all = with_sources(
        r#"[{"configMapRef":{"name":"c"}},{"prefix":"S_","secretRef":{"name":"none","optional":true}}]"#,
        r#"[{"name":"X","value":"<$(b)>"},{"name":"b","value":"mine"}]"#,
    )
    .unwrap();
    // A value is not expanded itself, and what is binary is no variable.
    let expected = [("1.a-x", "$(B)"), ("b", "mine"), ("X", "<of c>")];
    assert_eq!(pairs(&all), expected);
    let later = r#"[{"prefix":"P.","configMapRef":{"name":"c"}},{"configMapRef":{"name":"c"}}]"#;
    let all = with_sources(later, "[]").unwrap();
    let names: Vec<_> = pairs(&all).iter().map(|(name, _)| *name).collect();
    assert_eq!(names, ["P.1.a-x", "P.b", "1.a-x", "b"]);
}

#[test]
fn values_of_keys_are_looked_up() {
    for (source, expected) in [
        (r#"{"configMapKeyRef":{"name":"c","key":"b"}}"#, "of c"),
        (r#"{"secretKeyRef":{"name":"s","key":"user"}}"#, "admin"),
    ] {
        assert_eq!(one(source, "{}").unwrap(), expected);
    }
}

#[test]
fn what_is_not_there_is_said_as_the_kubelet_says_it_unless_it_is_optional() {
    for (source, expected) in [
        (
            r#"{"configMapKeyRef":{"name":"none","key":"b"OPTIONAL}}"#,
            r#"configmap "none" not found"#,
        ),
        (
            r#"{"secretKeyRef":{"name":"none","key":"b"OPTIONAL}}"#,
            r#"secret "none" not found"#,
        ),
        (
            r#"{"configMapKeyRef":{"name":"c","key":"no"OPTIONAL}}"#,
            "couldn't find key no in ConfigMap ns/c",
        ),
        (
            r#"{"configMapKeyRef":{"name":"c","key":"bytes"OPTIONAL}}"#,
            "couldn't find key bytes in ConfigMap ns/c",
        ),
        (
            r#"{"secretKeyRef":{"name":"s","key":"no"OPTIONAL}}"#,
            "couldn't find key no in Secret ns/s",
        ),
    ] {
        let error = one(&source.replace("OPTIONAL", ""), "{}").unwrap_err();
        assert_eq!(error.to_string(), expected);
        let optional = source.replace("OPTIONAL", r#","optional":true"#);
        let env = format!(r#"[{{"name":"X","valueFrom":{optional}}}]"#);
        assert_eq!(variables(&env, "{}", "").unwrap(), []);
    }
    for source in [
        r#"[{"secretRef":{"name":"none"}}]"#,
        r#"[{"configMapRef":{"name":"unknown","optional":true}}]"#,
    ] {
        assert!(with_sources(source, "[]").is_err(), "{source}");
    }
}

#[test]
fn a_value_that_is_no_text_is_an_error_that_does_not_show_it() {
    let error = one(r#"{"secretKeyRef":{"name":"s","key":"raw"}}"#, "{}").unwrap_err();
    assert_eq!(
        error.to_string(),
        "spec.containers[0].env[0].valueFrom: the value of key raw in Secret ns/s is not UTF-8"
    );
}
