//! Every field that is not supported is refused by its path.

use super::*;

/// The fields that are refused of a pod with this spec, defaults applied.
fn refused(spec: &str) -> Vec<String> {
    let text = format!(
        r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"p","namespace":"d"}},"spec":{spec}}}"#
    );
    unsupported_fields(&decode(&text))
        .into_iter()
        .map(|error| error.field)
        .collect()
}

fn decode(text: &str) -> Pod {
    let mut pod = serde_json::from_str(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    crate::apply_defaults(&mut pod);
    pod
}

fn container(fields: &str) -> String {
    format!(r#"{{"containers":[{{"name":"c","image":"i:1"{fields}}}]}}"#)
}

#[test]
fn what_is_supported_is_accepted() {
    for fields in [
        "",
        r#","command":["a"],"args":["b"],"workingDir":"/","tty":true,"stdin":true,"stdinOnce":true"#,
        r#","env":[{"name":"A","value":"b"},{"name":"B","valueFrom":{"fieldRef":{"fieldPath":"metadata.name"}}},
            {"name":"C","valueFrom":{"resourceFieldRef":{"resource":"limits.cpu"}}}]"#,
        r#","env":[{"name":"A","valueFrom":{"resourceFieldRef":{"resource":"limits.hugepages-2Mi"}}}]"#,
        r#","ports":[{"containerPort":80,"hostPort":80,"hostIP":"127.0.0.1","protocol":"UDP","name":"a"}]"#,
        r#","resources":{"requests":{"cpu":"1","memory":"1Gi","ephemeral-storage":"1Gi"}}"#,
        r#","resources":{"limits":{"hugepages-2Mi":"4Mi","hugepages-1Gi":"0","cpu":"1"}}"#,
        r#","resources":{"limits":{"ephemeral-storage":"2Gi","memory":"1Gi"}}"#,
        r#","livenessProbe":{"exec":{"command":["a"]},"terminationGracePeriodSeconds":3}"#,
        r#","readinessProbe":{"grpc":{"port":1,"service":"x"}},"startupProbe":{"tcpSocket":{"port":1,"host":"h"}}"#,
        r#","volumeMounts":[{"name":"v","mountPath":"/v","readOnly":true,"mountPropagation":"HostToContainer"}]"#,
        r#","securityContext":{},"lifecycle":{},"terminationMessagePolicy":"FallbackToLogsOnError""#,
        r#","lifecycle":{"preStop":{"exec":{"command":["a"]}},"postStart":{"sleep":{"seconds":1}}}"#,
        r#","resizePolicy":[{"resourceName":"cpu","restartPolicy":"NotRequired"}]"#,
        r#","restartPolicy":"Never","restartPolicyRules":[{"action":"Restart","exitCodes":{"operator":"In","values":[1]}}]"#,
        r#","restartPolicy":"Never","restartPolicyRules":[{"action":"RestartAllContainers","exitCodes":{"operator":"NotIn","values":[0]}}]"#,
        r#","lifecycle":{"preStop":{"httpGet":{"port":"web","scheme":"HTTPS","host":"h","path":"/p"}}}"#,
        r#","lifecycle":{"preStop":{"tcpSocket":{"port":1}},"postStart":{"sleep":{"seconds":0}}}"#,
        r#","lifecycle":{"stopSignal":"SIGUSR1"}"#,
        r#","securityContext":{"privileged":true,"allowPrivilegeEscalation":true,"capabilities":{"add":["NET_ADMIN"]}}"#,
        r#","securityContext":{"allowPrivilegeEscalation":false,"capabilities":{"drop":["ALL"]},
            "readOnlyRootFilesystem":true,"seccompProfile":{"type":"RuntimeDefault"}}"#,
        r#","securityContext":{"runAsUser":0,"runAsGroup":0,"runAsNonRoot":true}"#,
    ] {
        assert_eq!(
            refused(&container(fields)),
            Vec::<String>::new(),
            "{fields}"
        );
    }
    for fields in [
        r#""restartPolicy":"Never","terminationGracePeriodSeconds":0,"activeDeadlineSeconds":5"#,
        r#""dnsPolicy":"None","dnsConfig":{"nameservers":["1.1.1.1"]},"hostAliases":[{"ip":"1.1.1.1"}]"#,
        r#""hostNetwork":true,"hostPID":true,"hostIPC":true,"hostUsers":true"#,
        r#""hostUsers":false"#,
        r#""hostname":"h","subdomain":"s","setHostnameAsFQDN":true,"os":{"name":"linux"}"#,
        r#""nodeSelector":{"a":"b"},"tolerations":[{"operator":"Exists"}],"priority":5"#,
        r#""serviceAccountName":"default","automountServiceAccountToken":true,"securityContext":{}"#,
        r#""volumes":[{"name":"v"},{"name":"m","emptyDir":{"medium":"Memory","sizeLimit":"1Mi"}},
            {"name":"z","emptyDir":{"sizeLimit":"1Gi"}},{"name":"h","hostPath":{"path":"/h","type":"File"}},
            {"name":"i","image":{"reference":"i:1","pullPolicy":"Never"}}]"#,
        r#""affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":
            {"nodeSelectorTerms":[{"matchFields":[{"key":"metadata.name","operator":"In","values":["n"]}]}]}}}"#,
        r#""topologySpreadConstraints":[{"maxSkew":1,"topologyKey":"k","whenUnsatisfiable":"DoNotSchedule"}]"#,
        r#""initContainers":[{"name":"i","image":"i:1"}],"shareProcessNamespace":true"#,
        r#""securityContext":{"runAsUser":1,"runAsGroup":2,"runAsNonRoot":true,"supplementalGroups":[3],
            "fsGroup":4,"fsGroupChangePolicy":"OnRootMismatch","supplementalGroupsPolicy":"Strict",
            "sysctls":[{"name":"a","value":"b"}],"appArmorProfile":{"type":"RuntimeDefault"},
            "seLinuxOptions":{"level":"s0"},"seLinuxChangePolicy":"Recursive",
            "seccompProfile":{"type":"Localhost","localhostProfile":"a/b.json"}}"#,
        r#""initContainers":[{"name":"i","image":"i:1","restartPolicy":"Always","lifecycle":{"preStop":{"sleep":{"seconds":1}}}}]"#,
    ] {
        let spec = format!(r#"{{"containers":[{{"name":"c","image":"i:1"}}],{fields}}}"#);
        assert_eq!(refused(&spec), Vec::<String>::new(), "{fields}");
    }
}

/// Fields of a container, and the one among them that is refused.
const REFUSED_OF_CONTAINERS: &[(&str, &str)] = &[
    (
        r#","volumeDevices":[{"name":"v","devicePath":"/d"}]"#,
        "volumeDevices",
    ),
    (
        r#","volumeMounts":[{"name":"v","mountPath":"/v","bindMountOptions":["noexec"]}]"#,
        "volumeMounts[0].bindMountOptions",
    ),
    (
        r#","securityContext":{"windowsOptions":{}}"#,
        "securityContext.windowsOptions",
    ),
    (
        r#","lifecycle":{"postStart":{"httpGet":{"port":1,"protocol":"HTTP2"}}}"#,
        "lifecycle.postStart.httpGet.protocol",
    ),
    (
        r#","resources":{"requests":{"example.com/gpu":"1"}}"#,
        "resources.requests[example.com/gpu]",
    ),
    (
        r#","resources":{"claims":[{"name":"x"}]}"#,
        "resources.claims",
    ),
];

#[test]
fn what_is_not_supported_in_a_container_is_named() {
    for (fields, expected) in REFUSED_OF_CONTAINERS {
        let spec = container(fields);
        assert_eq!(
            refused(&spec),
            [format!("spec.containers[0].{expected}")],
            "{fields}"
        );
        let init = spec.replace("containers", "initContainers");
        assert_eq!(
            refused(&init),
            [format!("spec.initContainers[0].{expected}")],
            "{fields}"
        );
    }
}

#[test]
fn a_probe_is_refused_when_it_is_larger_than_its_message() {
    let http = |bytes: usize| {
        let path = "x".repeat(bytes);
        container(&format!(
            r#","startupProbe":{{"httpGet":{{"port":1,"path":"/{path}"}}}}"#
        ))
    };
    let exec = |bytes: usize| {
        let argument = "x".repeat(bytes);
        container(&format!(
            r#","startupProbe":{{"exec":{{"command":["{argument}"]}}}}"#
        ))
    };
    let none = [""; 0];
    assert_eq!(refused(&http(15 << 10)), none);
    assert_eq!(
        refused(&http(16 << 10)),
        ["spec.containers[0].startupProbe"]
    );
    // A command is not in the message.
    assert_eq!(refused(&exec(100 << 10)), none);
}

#[test]
fn a_hook_is_refused_when_it_is_larger_than_its_annotation() {
    let exec = |hook: &str, bytes: usize| {
        let argument = "x".repeat(bytes);
        container(&format!(
            r#","lifecycle":{{"{hook}":{{"exec":{{"command":["{argument}"]}}}}}}"#
        ))
    };
    let http = |hook: &str, bytes: usize| {
        let header = format!(r#"{{"name":"A","value":"{}"}}"#, "x".repeat(bytes));
        container(&format!(
            r#","lifecycle":{{"{hook}":{{"httpGet":{{"port":1,"httpHeaders":[{header}]}}}}}}"#
        ))
    };
    for hook in ["postStart", "preStop"] {
        let expected = [format!("spec.containers[0].lifecycle.{hook}")];
        for spec in [exec(hook, 31 << 10), http(hook, 31 << 10)] {
            assert_eq!(refused(&spec), [""; 0], "{hook}");
        }
        for spec in [exec(hook, 32 << 10), http(hook, 32 << 10)] {
            assert_eq!(refused(&spec), expected, "{hook}");
        }
    }
}

#[test]
fn what_is_not_supported_in_a_pod_is_named() {
    for (fields, expected) in [
        (r#""serviceAccountName":"builder""#, "serviceAccountName"),
        (r#""serviceAccount":"builder""#, "serviceAccountName"),
        (
            r#""readinessGates":[{"conditionType":"a"}]"#,
            "readinessGates",
        ),
        (r#""schedulingGates":[{"name":"a"}]"#, "schedulingGates"),
        (r#""resourceClaims":[{"name":"a"}]"#, "resourceClaims"),
        (
            r#""volumes":[{"name":"v","nfs":{"server":"s","path":"/"}}]"#,
            "volumes[0].nfs",
        ),
        (
            r#""volumes":[{"name":"v","projected":{"sources":[{"serviceAccountToken":{"path":"t"}}]}}]"#,
            "volumes[0].projected.sources[0].serviceAccountToken",
        ),
        (
            r#""volumes":[{"name":"v","emptyDir":{"medium":"Disk"}}]"#,
            "volumes[0].emptyDir.medium",
        ),
    ] {
        let spec = format!(r#"{{"containers":[{{"name":"c","image":"i:1"}}],{fields}}}"#);
        assert_eq!(refused(&spec), [format!("spec.{expected}")], "{fields}");
    }
}

#[test]
fn metadata_that_only_an_api_server_can_honour_is_refused_with_its_reason() {
    let judged = |fields: &str| {
        let text = format!(
            r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"p"{fields}}},"spec":{{"containers":[]}}}}"#
        );
        static_pod_restrictions(&decode(&text))
    };
    for (fields, expected) in [
        (
            r#","deletionTimestamp":"2024-01-01T00:00:00Z""#,
            "deletionTimestamp",
        ),
        (
            r#","deletionGracePeriodSeconds":0"#,
            "deletionGracePeriodSeconds",
        ),
        (r#","finalizers":["example.com/a"]"#, "finalizers"),
        (
            r#","ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"r","uid":"u"}]"#,
            "ownerReferences",
        ),
        (
            r#","annotations":{"kubernetes.io/config.mirror":"a","note":"b"}"#,
            "annotations[kubernetes.io/config.mirror]",
        ),
    ] {
        let errors = judged(fields);
        assert_eq!(errors.len(), 1, "{fields}: {errors:?}");
        assert_eq!(errors[0].field, format!("metadata.{expected}"));
        assert_eq!(errors[0].reason, crate::Reason::Forbidden);
        assert!(!errors[0].detail.is_empty(), "{fields}");
    }
    for fields in [
        r#","finalizers":[],"ownerReferences":[],"deletionGracePeriodSeconds":null,"deletionTimestamp":null"#,
        r#","creationTimestamp":null"#,
        r#","creationTimestamp":"2024-01-01T00:00:00Z","resourceVersion":"1","generation":1,"selfLink":"/x""#,
        r#","generateName":"p-","uid":"a","labels":{"a":"b"},"annotations":{"a":"b"},"namespace":"d""#,
        r#","managedFields":[{"manager":"kubectl"}]"#,
    ] {
        assert_eq!(judged(fields), [], "{fields}");
    }
}
