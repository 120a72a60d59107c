//! Pods that somebody writes to get out of what a pod may be, or to harm who reads them:
//! each is refused with the field that makes it so, and shown without what it would do to
//! a terminal.

use pod_manifest::{Origin, static_pods};
use serde_json::{Value, json};

/// What is wrong with `pod`, a line for each.
fn refused(pod: &Value) -> Vec<String> {
    let path = Origin::File("/etc/manifests/a.json");
    match static_pods(pod.to_string().as_bytes(), path, &"node".into()) {
        Ok(_) => Vec::new(),
        Err(errors) => errors.iter().map(ToString::to_string).collect(),
    }
}

fn good() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": "web", "namespace": "default", "labels": {}, "annotations": {} },
        "spec": {
            "containers": [{
                "name": "app", "image": "i:1", "securityContext": {}, "resources": {},
                "volumeMounts": [{ "name": "v", "mountPath": "/v" }],
                "livenessProbe": { "httpGet": { "port": 80 } },
            }],
            "volumes": [{ "name": "v", "emptyDir": {} }],
            "securityContext": {},
        },
    })
}

/// The good pod with `value` at `pointer`, whose parent it has.
fn with(pointer: &str, value: Value) -> Value {
    let mut pod = good();
    let (parent, key) = pointer.rsplit_once('/').unwrap_or_default();
    let key = key.replace("~1", "/");
    match pod.pointer_mut(parent) {
        Some(Value::Object(fields)) => drop(fields.insert(key, value)),
        other => panic!("{pointer}: {other:?}"),
    }
    pod
}

/// What somebody writes, where, and the field of the error.
type Attempt = (&'static str, Value, &'static str);

/// Names that would be paths, or look like others.
fn names() -> Vec<Attempt> {
    let mut attempts: Vec<Attempt> = Vec::new();
    for name in [
        "..",
        "../web",
        "a/b",
        "a\u{0}b",
        "a\nb",
        "\u{1b}[2Jweb",
        // A Cyrillic letter, a full-width one, one that is not seen, one that turns the text.
        "w\u{435}b",
        "\u{ff57}eb",
        "we\u{200b}b",
        "\u{202e}bew",
        "WEB",
        &"a".repeat(4096),
    ] {
        attempts.push(("/metadata/name", json!(name), "metadata.name"));
        attempts.push(("/metadata/namespace", json!(name), "metadata.namespace"));
        attempts.push(("/metadata/uid", json!(name), "metadata.uid"));
        attempts.push((
            "/spec/containers/0/name",
            json!(name),
            "spec.containers[0].name",
        ));
        attempts.push(("/spec/volumes/0/name", json!(name), "spec.volumes[0].name"));
    }
    // A UID in capital letters is another spelling and no path.
    attempts.retain(|(_, name, field)| *name != json!("WEB") || *field != "metadata.uid");
    attempts
}

/// Fields of a pod.
fn of_pods() -> Vec<Attempt> {
    let git = json!([{ "name": "v", "gitRepo": { "repository": "https://h/r" } }]);
    let path = |path: &str| json!([{ "name": "v", "hostPath": { "path": path } }]);
    let secret = json!({ "sources": [{ "serviceAccountToken": { "path": "t" } }] });
    let secret = json!([{ "name": "v", "projected": secret }]);
    vec![
        ("/spec/volumes", git, "spec.volumes[0].gitRepo"),
        (
            "/spec/volumes",
            path("/srv/../etc"),
            "spec.volumes[0].hostPath.path",
        ),
        (
            "/spec/volumes",
            secret,
            "spec.volumes[0].projected.sources[0].serviceAccountToken",
        ),
        (
            "/spec/serviceAccountName",
            json!("admin"),
            "spec.serviceAccountName",
        ),
        ("/spec/hostname", json!("a\nb"), "spec.hostname"),
        (
            "/spec/hostAliases",
            json!([{ "ip": "1 evil", "hostnames": ["a"] }]),
            "spec.hostAliases.ip",
        ),
        (
            "/spec/hostAliases",
            json!([{ "ip": "10.0.0.1", "hostnames": ["a\n10.0.0.2 b"] }]),
            "spec.hostAliases.hostnames",
        ),
        (
            "/spec/dnsConfig",
            json!({ "nameservers": ["10.0.0.1\nsearch evil"] }),
            "spec.dnsConfig.nameservers[0]",
        ),
        (
            "/spec/dnsConfig",
            json!({ "searches": ["a\noptions x"] }),
            "spec.dnsConfig.searches[0]",
        ),
        (
            "/spec/activeDeadlineSeconds",
            json!(i64::MAX),
            "spec.activeDeadlineSeconds",
        ),
        (
            "/spec/runtimeClassName",
            json!("../runc"),
            "spec.runtimeClassName",
        ),
        (
            "/spec/ephemeralContainers",
            many(1),
            "spec.ephemeralContainers",
        ),
        ("/spec/containers", json!([]), "spec.containers"),
    ]
}

const TOO_MANY_OF_A_POD: &str = "the pod has more than 10000 items in lists";
const TOO_MANY_OF_A_MANIFEST: &str = "the pods of a manifest have more than 100000 items in lists";

const TOO_MANY_VALUES: &str = "more than 250000 values";

/// So many containers.
fn many(count: usize) -> Value {
    {
        let container = |number| json!({ "name": format!("c{number}"), "image": "i:1" });
        json!((0..count).map(container).collect::<Vec<Value>>())
    }
}

/// Lists that are too long.
fn of_lists() -> Vec<Attempt> {
    vec![
        ("/spec/containers", many(100_000), TOO_MANY_VALUES),
        ("/spec/containers", many(70_000), TOO_MANY_OF_A_MANIFEST),
        ("/spec/containers", many(1_001), TOO_MANY_OF_A_POD),
        // Two bytes each, and 3 KiB as a volume with a field for each kind.
        (
            "/spec/volumes",
            json!(vec![json!({}); 100_000]),
            TOO_MANY_OF_A_MANIFEST,
        ),
        (
            "/spec/volumes",
            json!(vec![json!({}); 1_000]),
            TOO_MANY_OF_A_POD,
        ),
        (
            "/spec/containers/0/securityContext",
            json!({ "capabilities": { "add": vec!["A"; 10_000] } }),
            TOO_MANY_OF_A_POD,
        ),
    ]
}

/// Its metadata.
fn of_metadata() -> Vec<Attempt> {
    let mirror = json!({ "kubernetes.io/config.mirror": "a" });
    vec![
        ("/metadata/annotations", mirror, "metadata.annotations"),
        (
            "/metadata/annotations",
            json!({ "a": "x".repeat(300 << 10) }),
            "metadata.annotations",
        ),
        (
            "/metadata/labels",
            json!({ "a": "b\u{1b}[31m" }),
            "metadata.labels",
        ),
        (
            "/metadata/labels",
            json!({ "../a": "b" }),
            "metadata.labels",
        ),
        (
            "/metadata/finalizers",
            json!(["example.com/never"]),
            "metadata.finalizers",
        ),
    ]
}

/// Fields of its security, and of its container's.
fn of_security() -> Vec<Attempt> {
    let local = |name: &str| json!({ "type": "Localhost", "localhostProfile": name });
    let sysctl = |name: &str| json!([{ "name": name, "value": "1" }]);
    vec![
        (
            "/spec/securityContext/runAsUser",
            json!(-1),
            "spec.securityContext.runAsUser",
        ),
        (
            "/spec/securityContext/runAsUser",
            json!(1_i64 << 32),
            "spec.securityContext.runAsUser",
        ),
        (
            "/spec/securityContext/fsGroup",
            json!(-1),
            "spec.securityContext.fsGroup",
        ),
        (
            "/spec/securityContext/supplementalGroups",
            json!([1_i64 << 40]),
            "spec.securityContext.supplementalGroups[0]",
        ),
        (
            "/spec/securityContext/sysctls",
            sysctl("../kernel/core_pattern"),
            "spec.securityContext.sysctls[0].name",
        ),
        (
            "/spec/securityContext/sysctls",
            sysctl("kernel..shmmax"),
            "spec.securityContext.sysctls[0].name",
        ),
        (
            "/spec/containers/0/securityContext/seccompProfile",
            local("../../etc/x"),
            "spec.containers[0].securityContext.seccompProfile.localhostProfile",
        ),
        (
            "/spec/containers/0/securityContext/seccompProfile",
            local(""),
            "spec.containers[0].securityContext.seccompProfile.localhostProfile",
        ),
        (
            "/spec/containers/0/securityContext/seccompProfile",
            local("/etc/x"),
            "spec.containers[0].securityContext.seccompProfile.localhostProfile",
        ),
        (
            "/spec/containers/0/securityContext/seccompProfile",
            json!({ "type": "unconfined" }),
            "spec.containers[0].securityContext.seccompProfile.type",
        ),
        (
            "/spec/containers/0/securityContext/appArmorProfile",
            local(""),
            "spec.containers[0].securityContext.appArmorProfile.localhostProfile",
        ),
        (
            "/spec/containers/0/securityContext/procMount",
            json!("unmasked"),
            "spec.containers[0].securityContext.procMount",
        ),
        (
            "/spec/containers/0/securityContext/windowsOptions",
            json!({ "hostProcess": true }),
            "spec.containers[0].securityContext.windowsOptions",
        ),
    ]
}

/// Other fields of its container.
fn of_containers() -> Vec<Attempt> {
    let mount = |path: &str, key: &str, value: &str| json!([{ "name": "v", "mountPath": path, key: value }]);
    vec![
        (
            "/spec/containers/0/image",
            json!(" "),
            "spec.containers[0].image",
        ),
        (
            "/spec/containers/0/volumeMounts",
            mount("/v", "subPath", "../etc"),
            "spec.containers[0].volumeMounts.subPath",
        ),
        (
            "/spec/containers/0/volumeMounts",
            mount("/v", "subPath", "/etc"),
            "spec.containers[0].volumeMounts.subPath",
        ),
        (
            "/spec/containers/0/volumeMounts",
            mount("/v", "subPathExpr", "a/../../b"),
            "spec.containers[0].volumeMounts.subPathExpr",
        ),
        (
            "/spec/containers/0/volumeMounts",
            mount("/v", "mountPropagation", "Everywhere"),
            "spec.containers[0].volumeMounts.mountPropagation",
        ),
        (
            "/spec/containers/0/volumeMounts",
            mount("/v", "mountPropagation", "Bidirectional"),
            "spec.containers[0].volumeMounts.mountPropagation",
        ),
        (
            "/spec/containers/0/volumeDevices",
            json!([{ "name": "v", "devicePath": "/dev/sda" }]),
            "spec.containers[0].volumeDevices",
        ),
        (
            "/spec/containers/0/ports",
            json!([{ "containerPort": 65_536 }]),
            "spec.containers[0].ports[0].containerPort",
        ),
        (
            "/spec/containers/0/ports",
            json!([{ "containerPort": 80, "hostPort": -1 }]),
            "spec.containers[0].ports[0].hostPort",
        ),
        (
            "/spec/containers/0/ports",
            json!([{ "containerPort": 80, "hostPort": 80, "hostIP": "127.0.0.1 -j ACCEPT" }]),
            "spec.containers[0].ports[0].hostIP",
        ),
    ]
}

/// Its probes, resources and variables.
fn of_probes() -> Vec<Attempt> {
    let probe = |field: &str, value: Value| json!({ "httpGet": { "port": 80, field: value } });
    let header =
        |name: &str, value: &str| probe("httpHeaders", json!([{ "name": name, "value": value }]));
    vec![
        (
            "/spec/containers/0/livenessProbe",
            probe("scheme", json!("FILE")),
            "spec.containers[0].livenessProbe.httpGet.scheme",
        ),
        (
            "/spec/containers/0/livenessProbe",
            probe("port", json!(0)),
            "spec.containers[0].livenessProbe.httpGet.port",
        ),
        (
            "/spec/containers/0/livenessProbe",
            header("a\r\nb", "1"),
            "spec.containers[0].livenessProbe.httpGet.httpHeaders",
        ),
        (
            "/spec/containers/0/livenessProbe",
            json!({ "exec": { "command": [] } }),
            "spec.containers[0].livenessProbe.exec.command",
        ),
        (
            "/spec/containers/0/livenessProbe",
            json!({}),
            "spec.containers[0].livenessProbe",
        ),
        (
            "/spec/containers/0/resources/limits",
            json!({ "memory": "-1" }),
            "spec.containers[0].resources.limits",
        ),
        (
            "/spec/containers/0/resources/limits",
            json!({ "example.com/gpu": "1" }),
            "spec.containers[0].resources.limits",
        ),
        (
            "/spec/containers/0/env",
            json!([{ "name": "A=B", "value": "" }]),
            "spec.containers[0].env[0].name",
        ),
        (
            "/spec/containers/0/env",
            json!([{ "name": "", "value": "" }]),
            "spec.containers[0].env[0].name",
        ),
        (
            "/spec/containers/0/terminationMessagePolicy",
            json!("Everything"),
            "spec.containers[0].terminationMessagePolicy",
        ),
    ]
}

#[test]
fn a_hostile_pod_is_refused_by_the_field_that_makes_it_so() {
    assert_eq!(refused(&good()), Vec::<String>::new());
    let attempts = [
        names(),
        of_pods(),
        of_lists(),
        of_metadata(),
        of_security(),
        of_containers(),
        of_probes(),
    ]
    .concat();
    let mut passed = Vec::new();
    for (pointer, value, field) in attempts {
        let shown: String = format!("{pointer} {value:?}").chars().take(120).collect();
        let errors = refused(&with(pointer, value));
        if !errors.iter().any(|error| error.starts_with(field)) {
            passed.push(format!("{shown}: {errors:?}"));
        }
        for error in errors {
            assert!(error.len() <= 1024, "{shown}: {} bytes", error.len());
            let steers = error.chars().find(|c| c.is_control() || *c == '\u{202e}');
            assert_eq!(steers, None, "{shown}: {error:?}");
        }
    }
    assert_eq!(passed, Vec::<String>::new());
}
