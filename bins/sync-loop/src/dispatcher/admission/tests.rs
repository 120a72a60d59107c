//! Tables of admission: each check, the kubelet's order, reasons and messages.

use bulkhead_api::v1::{NodeCapacity, NodeTaint};
use pod::Pod;
use serde_json::{Value, json};

use super::*;

fn facts(pod: Value) -> PodFacts {
    let pod: Pod = serde_json::from_value(pod).unwrap();
    PodFacts::of(&pod)
}

fn with_spec(spec: Value) -> PodFacts {
    let mut pod = json!({"metadata": {"name": "p", "namespace": "d", "uid": "u"}, "spec": spec});
    if pod["spec"].get("containers").is_none() {
        pod["spec"]["containers"] = json!([{"name": "c"}]);
    }
    facts(pod)
}

fn requesting(requests: Value) -> PodFacts {
    with_spec(json!({"containers": [{"name": "c", "resources": {"requests": requests}}]}))
}

fn node() -> NodeDescription {
    let labels = [
        ("zone", "z1"),
        ("kubernetes.io/os", "linux"),
        ("disk", ""),
        ("size", "10"),
    ];
    NodeDescription {
        name: "node-1".into(),
        labels: labels
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into(),
        taints: Vec::new(),
        allowed_unsafe_sysctls: Vec::new(),
    }
}

fn allocatable() -> Allocatable {
    let capacity = NodeCapacity {
        cpu_millis: 2000,
        memory_bytes: 1000,
        ephemeral_storage_bytes: 500,
        huge_pages: [(1 << 30, 2 << 30)].into(),
        ..NodeCapacity::default()
    };
    Allocatable::new(&capacity, &BTreeMap::new(), &BTreeMap::new(), 3)
}

/// Kernel and runtime that have everything.
fn features() -> NodeFeatures {
    NodeFeatures::default().told(&NodeCapacity {
        kernel_release: "6.1.0".to_owned(),
        app_armor: true,
        supplemental_groups_policy: true,
        ..NodeCapacity::default()
    })
}

fn reason(pod: &PodFacts, others: &[PodFacts]) -> String {
    let others: Vec<&PodFacts> = others.iter().collect();
    match admit(pod, &others, &node(), (&allocatable(), &features())) {
        Ok(()) => "ok".to_owned(),
        Err(rejection) => rejection.reason,
    }
}

#[test]
fn requests_must_fit_in_what_others_leave() {
    let other = || {
        requesting(
            json!({"cpu": "1500m", "memory": "600", "ephemeral-storage": "100",
            "hugepages-1Gi": "1Gi"}),
        )
    };
    for (requests, others, expected) in [
        (json!({}), 1, "ok"),
        (json!({"cpu": "500m"}), 1, "ok"),
        (json!({"cpu": "501m"}), 1, "OutOfcpu"),
        (json!({"cpu": "2"}), 0, "ok"),
        (json!({"memory": "400"}), 1, "ok"),
        (json!({"memory": "401"}), 1, "OutOfmemory"),
        (json!({"ephemeral-storage": "400"}), 1, "ok"),
        (
            json!({"ephemeral-storage": "401"}),
            1,
            "OutOfephemeral-storage",
        ),
        (json!({"cpu": "9", "memory": "9Gi"}), 1, "OutOfcpu"),
        (json!({}), 2, "ok"),
        (json!({"cpu": "9"}), 3, "OutOfpods"),
        (json!({"hugepages-2Mi": "2Mi"}), 0, "OutOfhugepages-2Mi"),
        (json!({"hugepages-1Gi": "1Gi"}), 1, "ok"),
        (json!({"hugepages-1Gi": "2Gi"}), 1, "OutOfhugepages-1Gi"),
        (json!({"hugepages-1024Mi": "2Gi"}), 0, "ok"),
        // One size of pages, whatever it is called.
        (json!({"hugepages-1024Mi": "1Gi"}), 1, "ok"),
        (
            json!({"hugepages-1024Mi": "2Gi"}),
            1,
            "OutOfhugepages-1024Mi",
        ),
        (
            json!({"hugepages-1024Mi": "1Gi", "hugepages-1Gi": "1Gi"}),
            0,
            "ok",
        ),
        (
            json!({"hugepages-1024Mi": "1Gi", "hugepages-1Gi": "1Gi"}),
            1,
            "OutOfhugepages-1024Mi",
        ),
        // What the node does not know is not the node's to count.
        (json!({"vendor.example/device": "4"}), 0, "ok"),
        // More than there is, with nothing requested by this pod.
        (json!({"memory": "1"}), 2, "OutOfmemory"),
        (json!({"cpu": "0"}), 2, "ok"),
    ] {
        let others: Vec<_> = (0..others).map(|_| other()).collect();
        assert_eq!(
            reason(&requesting(requests.clone()), &others),
            expected,
            "{requests}"
        );
    }
}

#[test]
fn what_a_pod_needs_is_what_its_containers_need_together_or_its_init_containers_alone() {
    let pod = |init: &str, app: &str| {
        let container =
            |name: &str, cpu: &str| json!({"name": name, "resources": {"requests": {"cpu": cpu}}});
        with_spec(json!({
            "initContainers": [container("i", init)],
            "containers": [container("c", app), container("d", app)],
        }))
    };
    assert_eq!(reason(&pod("2", "1"), &[]), "ok");
    assert_eq!(reason(&pod("2001m", "1"), &[]), "OutOfcpu");
    assert_eq!(reason(&pod("1", "1001m"), &[]), "OutOfcpu");
}

#[test]
fn what_is_reserved_or_kept_back_is_not_allocatable() {
    let reserved = [
        ("cpu", "500m"),
        ("memory", "1Ki"),
        ("ephemeral-storage", "nonsense"),
    ];
    let reserved = reserved
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into();
    let capacity = NodeCapacity {
        cpu_millis: 2000,
        memory_bytes: 1000,
        ephemeral_storage_bytes: 500,
        ..NodeCapacity::default()
    };
    let kept = [("ephemeral-storage", 100)].into();
    let allocatable = Allocatable::new(&capacity, &reserved, &kept, 3);
    for (requests, expected) in [
        (json!({"cpu": "1500m"}), None),
        (json!({"cpu": "1501m"}), Some("OutOfcpu")),
        (json!({"memory": "1"}), Some("OutOfmemory")),
        (json!({"ephemeral-storage": "400"}), None),
        (
            json!({"ephemeral-storage": "401"}),
            Some("OutOfephemeral-storage"),
        ),
    ] {
        let result = admit(
            &requesting(requests.clone()),
            &[],
            &node(),
            (&allocatable, &features()),
        );
        assert_eq!(
            result.err().map(|rejection| rejection.reason).as_deref(),
            expected,
            "{requests}"
        );
    }
}

#[test]
fn the_kubelets_words_are_used() {
    let other = requesting(json!({"cpu": "1500m"}));
    for (pod, reason, message) in [
        (
            requesting(json!({"cpu": "1"})),
            "OutOfcpu",
            "Node didn't have enough resource: cpu, requested: 1000, used: 1500, capacity: 2000",
        ),
        (
            with_spec(json!({"nodeSelector": {"zone": "z2"}})),
            "NodeAffinity",
            "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector",
        ),
        (
            with_spec(json!({"os": {"name": "windows"}})),
            "PodOSNotSupported",
            "Failed to admit pod as the OS field doesn't match node OS",
        ),
    ] {
        let rejection = admit(&pod, &[&other], &node(), (&allocatable(), &features())).unwrap_err();
        assert_eq!(
            (rejection.reason.as_str(), rejection.message.as_str()),
            (reason, message)
        );
    }
}

#[test]
fn a_pod_that_does_not_tolerate_the_node_is_refused_unless_it_is_the_nodes_own() {
    let taint = |key: &str, value: &str, effect: &str| NodeTaint {
        key: key.to_owned(),
        value: value.to_owned(),
        effect: effect.to_owned(),
    };
    let node = node().held_as(ApiNode {
        exists: true,
        taints: vec![taint("k", "v", "NoExecute"), taint("l", "", "NoSchedule")],
        ..ApiNode::default()
    });
    let found = |source: &str, tolerations: Value| {
        let mut pod = json!({
            "metadata": {"name": "p", "namespace": "d", "uid": "u",
                         "annotations": {"kubernetes.io/config.source": source}},
            "spec": {"containers": [{"name": "c"}], "tolerations": [tolerations]},
        });
        if tolerations.is_null() {
            pod["spec"]["tolerations"] = Value::Null;
        }
        let found = admit(&facts(pod), &[], &node, (&allocatable(), &features()));
        found.map_err(|rejection| (rejection.reason, rejection.message))
    };
    let refused = Err((
        "TaintToleration".to_owned(),
        "Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate"
            .to_owned(),
    ));
    for (source, toleration, expected) in [
        ("api", Value::Null, refused.clone()),
        ("file", Value::Null, Ok(())),
        ("api", json!({"operator": "Exists"}), Ok(())),
        ("api", json!({"key": "k", "operator": "Exists"}), Ok(())),
        ("api", json!({"key": "k", "value": "v"}), Ok(())),
        (
            "api",
            json!({"key": "k", "value": "v", "effect": "NoExecute"}),
            Ok(()),
        ),
        (
            "api",
            json!({"key": "k", "operator": "Equal", "value": "w"}),
            refused.clone(),
        ),
        (
            "api",
            json!({"key": "k", "operator": "Exists", "effect": "NoSchedule"}),
            refused.clone(),
        ),
        (
            "api",
            json!({"key": "l", "operator": "Exists"}),
            refused.clone(),
        ),
        (
            "api",
            json!({"key": "k", "operator": "Lt", "value": "v"}),
            refused,
        ),
    ] {
        assert_eq!(
            found(source, toleration.clone()),
            expected,
            "{source} {toleration}"
        );
    }
}

#[test]
fn the_first_check_that_fails_names_the_reason() {
    let all_wrong = |os: &str, cpu: &str, zone: &str, node: &str| {
        with_spec(json!({
            "os": {"name": os},
            "nodeName": node,
            "nodeSelector": {"zone": zone},
            "containers": [{
                "name": "c",
                "resources": {"requests": {"cpu": cpu}},
                "ports": [{"containerPort": 80, "hostPort": 80}],
            }],
        }))
    };
    let taken = with_spec(
        json!({"containers": [{"name": "c", "ports": [{"containerPort": 1, "hostPort": 80}]}]}),
    );
    let taken = [taken];
    assert_eq!(
        reason(&all_wrong("windows", "9", "z2", "n"), &taken),
        "PodOSNotSupported"
    );
    assert_eq!(
        reason(&all_wrong("linux", "9", "z2", "n"), &taken),
        "OutOfcpu"
    );
    assert_eq!(
        reason(&all_wrong("linux", "1", "z2", "n"), &taken),
        "NodeAffinity"
    );
    assert_eq!(
        reason(&all_wrong("linux", "1", "z1", "n"), &taken),
        "NodeName"
    );
    assert_eq!(
        reason(&all_wrong("linux", "1", "z1", "node-1"), &taken),
        "NodePorts"
    );
    assert_eq!(reason(&all_wrong("linux", "1", "z1", "node-1"), &[]), "ok");
}

#[test]
fn pods_of_other_operating_systems_are_refused() {
    let labelled = |system: &str| {
        facts(json!({
            "metadata": {"name": "p", "namespace": "d", "uid": "u", "labels": {"kubernetes.io/os": system}},
            "spec": {"containers": []},
        }))
    };
    assert_eq!(reason(&labelled("linux"), &[]), "ok");
    assert_eq!(
        reason(&labelled("windows"), &[]),
        "PodOSSelectorNodeLabelDoesNotMatch"
    );
    assert_eq!(
        reason(&with_spec(json!({"os": {"name": "linux"}})), &[]),
        "ok"
    );
    let selector = json!({"nodeSelector": {"kubernetes.io/os": "windows"}});
    assert_eq!(reason(&with_spec(selector), &[]), "NodeAffinity");
}

#[test]
fn host_ports_conflict_by_address_protocol_and_number() {
    let using = |port: Value| with_spec(json!({"containers": [{"name": "c", "ports": [port]}]}));
    let port = |ip: &str, protocol: &str, number: i32| {
        using(json!({"containerPort": 1, "hostPort": number, "hostIP": ip, "protocol": protocol}))
    };
    for (taken, wanted, conflict) in [
        (("", "TCP", 80), ("", "TCP", 80), true),
        (("", "TCP", 80), ("", "TCP", 81), false),
        (("", "TCP", 80), ("", "UDP", 80), false),
        (("127.0.0.1", "TCP", 80), ("", "TCP", 80), true),
        (("", "TCP", 80), ("127.0.0.1", "TCP", 80), true),
        (("0.0.0.0", "TCP", 80), ("127.0.0.1", "TCP", 80), true),
        (("127.0.0.1", "TCP", 80), ("127.0.0.2", "TCP", 80), false),
        (("127.0.0.1", "TCP", 80), ("127.0.0.1", "TCP", 80), true),
    ] {
        let others = [port(taken.0, taken.1, taken.2)];
        let expected = if conflict { "NodePorts" } else { "ok" };
        assert_eq!(
            reason(&port(wanted.0, wanted.1, wanted.2), &others),
            expected,
            "{taken:?} {wanted:?}"
        );
    }
    // Of many, one is enough.
    let many = |from: i32, to: i32, ip: &str| {
        let ports =
            (from..to).map(|number| json!({"containerPort": 1, "hostPort": number, "hostIP": ip}));
        let ports = ports.collect::<Vec<_>>();
        with_spec(json!({"containers": [{"name": "c", "ports": ports}]}))
    };
    let others = [many(1, 9_000, ""), many(20_000, 29_000, "127.0.0.1")];
    for (wanted, expected) in [
        (many(10_000, 19_000, ""), "ok"),
        (many(10_000, 20_000, ""), "ok"),
        (many(11_001, 20_001, ""), "NodePorts"),
        (many(20_000, 29_000, "127.0.0.2"), "ok"),
        (many(8_999, 17_000, "127.0.0.2"), "NodePorts"),
    ] {
        assert_eq!(reason(&wanted, &others), expected);
    }
    // The protocol is TCP unless it is named; ports of the pod alone are free.
    let unnamed = [using(json!({"containerPort": 1, "hostPort": 80}))];
    assert_eq!(reason(&port("", "TCP", 80), &unnamed), "NodePorts");
    assert_eq!(reason(&using(json!({"containerPort": 80})), &unnamed), "ok");
    // In the node's network each port is the node's; sidecars count, init containers do not.
    let host = |containers: &str| {
        let mut spec = json!({"hostNetwork": true});
        spec[containers] = json!([{"name": "x", "ports": [{"containerPort": 80}]}]);
        if containers == "sidecar" {
            spec["initContainers"] = spec["sidecar"].take();
            spec["initContainers"][0]["restartPolicy"] = json!("Always");
        }
        spec.as_object_mut().unwrap().remove("sidecar");
        with_spec(spec)
    };
    assert_eq!(reason(&host("containers"), &unnamed), "NodePorts");
    assert_eq!(reason(&host("sidecar"), &unnamed), "NodePorts");
    assert_eq!(reason(&host("initContainers"), &unnamed), "ok");
}

#[test]
fn node_selectors_need_every_label() {
    for (selector, expected) in [
        (json!({}), "ok"),
        (json!({"zone": "z1"}), "ok"),
        (json!({"zone": "z1", "disk": ""}), "ok"),
        (json!({"zone": "z1", "gpu": "yes"}), "NodeAffinity"),
        (json!({"disk": "ssd"}), "NodeAffinity"),
    ] {
        let pod = with_spec(json!({"nodeSelector": selector}));
        assert_eq!(reason(&pod, &[]), expected, "{selector}");
    }
}

#[test]
fn each_affinity_operator_means_what_the_scheduler_means() {
    let expression = |key: &str, operator: &str, values: &[&str]| json!({"key": key, "operator": operator, "values": values});
    for (key, operator, values, matches) in [
        ("zone", "In", &["z1", "z2"][..], true),
        ("zone", "In", &["z2"], false),
        ("gpu", "In", &["z1"], false),
        ("zone", "NotIn", &["z2"], true),
        ("zone", "NotIn", &["z1"], false),
        ("gpu", "NotIn", &["z1"], true),
        ("disk", "Exists", &[], true),
        ("gpu", "Exists", &[], false),
        ("gpu", "DoesNotExist", &[], true),
        ("disk", "DoesNotExist", &[], false),
        ("size", "Gt", &["9"], true),
        ("size", "Gt", &["10"], false),
        ("size", "Lt", &["11"], true),
        ("size", "Lt", &["10"], false),
        ("zone", "Gt", &["1"], false),
        ("gpu", "Lt", &["1"], false),
        ("size", "Gt", &["nonsense"], false),
        ("size", "Gt", &["1", "2"], false),
        ("size", "Like", &["1"], false),
    ] {
        let terms = json!([{"matchExpressions": [expression(key, operator, values)]}]);
        let expected = if matches { "ok" } else { "NodeAffinity" };
        assert_eq!(
            reason(&with_affinity(terms), &[]),
            expected,
            "{key} {operator} {values:?}"
        );
    }
}

fn with_affinity(terms: Value) -> PodFacts {
    let required =
        json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}});
    with_spec(json!({"affinity": {"nodeAffinity": required}}))
}

#[test]
fn terms_are_alternatives_and_their_parts_are_not() {
    let zone = json!({"key": "zone", "operator": "In", "values": ["z1"]});
    let gpu = json!({"key": "gpu", "operator": "Exists"});
    let name = |operator: &str, name: &str| json!({"key": "metadata.name", "operator": operator, "values": [name]});
    for (terms, expected) in [
        (json!([{"matchExpressions": [zone, gpu]}]), "NodeAffinity"),
        (
            json!([{"matchExpressions": [gpu]}, {"matchExpressions": [zone]}]),
            "ok",
        ),
        (json!([]), "NodeAffinity"),
        (json!([{}]), "NodeAffinity"),
        (json!([{}, {"matchExpressions": [zone]}]), "ok"),
        (json!([{"matchFields": [name("In", "node-1")]}]), "ok"),
        (
            json!([{"matchFields": [name("In", "node-2")]}]),
            "NodeAffinity",
        ),
        (json!([{"matchFields": [name("NotIn", "node-2")]}]), "ok"),
        (
            json!([{"matchFields": [name("NotIn", "node-1")]}]),
            "NodeAffinity",
        ),
        (
            json!([{"matchFields": [name("Exists", "node-1")]}]),
            "NodeAffinity",
        ),
        (
            json!([{"matchFields": [{"key": "metadata.uid", "operator": "NotIn", "values": ["x"]}]}]),
            "NodeAffinity",
        ),
        (
            json!([{"matchFields": [name("In", "node-1")], "matchExpressions": [gpu]}]),
            "NodeAffinity",
        ),
        (
            json!([{"matchFields": [name("In", "node-1")], "matchExpressions": [zone]}]),
            "ok",
        ),
    ] {
        assert_eq!(
            reason(&with_affinity(terms.clone()), &[]),
            expected,
            "{terms}"
        );
    }
}

#[test]
fn records_are_read_as_they_were_written() {
    let mut records = AdmissionRecords::default();
    let admitted = || AdmissionRecord::Admitted(Allocation::of(&with_spec(json!({}))));
    assert!(records.set("a", admitted()));
    assert!(!records.set("a", admitted()));
    let rejected = Rejection {
        reason: "r".into(),
        message: "m".into(),
    };
    let rejected = AdmissionRecord::rejected(&rejected, &with_spec(json!({})));
    assert!(records.set("b", rejected));
    let text = serde_json::to_string(&records).unwrap();
    assert_eq!(
        serde_json::from_str::<AdmissionRecords>(&text).unwrap(),
        records
    );
    assert!(records.retain(|uid| uid == "a"));
    assert!(!records.retain(|uid| uid == "a"));
    assert!(records.remove("a") && !records.remove("a"));
    assert!(records.is_empty());
}

/// What is said of a pod with this sysctl; nothing when it is admitted.
fn forbidden(name: &str, fields: Value, allowed: &[&str], release: &str) -> String {
    let mut spec = fields;
    spec["securityContext"] = json!({ "sysctls": [{ "name": name, "value": "1" }] });
    let mut node = node();
    node.allowed_unsafe_sysctls = allowed.iter().map(|&it| it.to_owned()).collect();
    let features = NodeFeatures::default().told(&NodeCapacity {
        kernel_release: release.to_owned(),
        ..NodeCapacity::default()
    });
    let result = admit(&with_spec(spec), &[], &node, (&allocatable(), &features));
    let Err(rejection) = result else {
        return String::new();
    };
    assert_eq!(rejection.reason, "SysctlForbidden");
    let words = rejection.message.strip_prefix("forbidden sysctl: ");
    words.expect("the kubelet's words").to_owned()
}

const KERNEL: &str = "6.1.0-18-amd64";

#[test]
fn a_sysctl_must_be_safe_or_allowed() {
    let unknown = |name: &str| format!("{name:?} not allowlisted");
    let none = String::new;
    for (name, allowed, release, expected) in [
        ("net.ipv4.tcp_syncookies", &[][..], "", none()),
        ("net/ipv4/tcp_syncookies", &[], "", none()),
        ("net.ipv4.tcp_rmem", &[], KERNEL, none()),
        (
            "net.ipv4.tcp_rmem",
            &[],
            "4.4.0",
            unknown("net.ipv4.tcp_rmem"),
        ),
        (
            "net.core.somaxconn",
            &[],
            KERNEL,
            unknown("net.core.somaxconn"),
        ),
        ("net.core.somaxconn", &["net.core.*"], KERNEL, none()),
        (
            "kernel.msgmax",
            &["kernel.msg*", "net.core.*"],
            KERNEL,
            none(),
        ),
        ("kernel/msgmax", &["kernel.msgmax"], KERNEL, none()),
        (
            "kernel.msgmax",
            &["kernel.msg"],
            KERNEL,
            unknown("kernel.msgmax"),
        ),
        (
            "kernel.panic",
            &["kernel.*"],
            KERNEL,
            unknown("kernel.panic"),
        ),
    ] {
        let found = forbidden(name, json!({}), allowed, release);
        assert_eq!(found, expected, "{name}");
    }
}

#[test]
fn no_setting_of_a_namespace_that_the_node_shares_may_be_changed() {
    let (network, ipc) = (json!({"hostNetwork": true}), json!({"hostIPC": true}));
    for (name, fields, expected) in [
        (
            "net.ipv4.tcp_syncookies",
            &network,
            "\"net.ipv4.tcp_syncookies\" not allowed with host net enabled",
        ),
        (
            "kernel.shm_rmid_forced",
            &ipc,
            "\"kernel.shm_rmid_forced\" not allowed with host ipc enabled",
        ),
        ("kernel.shm_rmid_forced", &network, ""),
        ("net.ipv4.tcp_syncookies", &ipc, ""),
    ] {
        assert_eq!(forbidden(name, fields.clone(), &[], KERNEL), expected);
    }
}

#[test]
fn what_kernel_or_runtime_lack_is_refused_in_the_kubelets_words() {
    let strict = || with_spec(json!({"securityContext": {"supplementalGroupsPolicy": "Strict"}}));
    let profile = |kind: &str| json!({"appArmorProfile": {"type": kind}});
    let of_container = |kind: &str| {
        with_spec(json!({"containers": [{"name": "c", "securityContext": profile(kind)}]}))
    };
    let confined = || with_spec(json!({"securityContext": profile("RuntimeDefault")}));
    let none = NodeFeatures::default().told(&NodeCapacity::default());
    for (pod, expected) in [
        (strict(), "SupplementalGroupsPolicyNotSupported"),
        (confined(), "AppArmor"),
        (of_container("Localhost"), "AppArmor"),
        (of_container("Unconfined"), "ok"),
        (
            with_spec(json!({"securityContext": {"supplementalGroupsPolicy": "Merge"}})),
            "ok",
        ),
    ] {
        let lacking = admit(&pod, &[], &node(), (&allocatable(), &none));
        let reason = lacking.err().map_or("ok".to_owned(), |it| it.reason);
        assert_eq!(reason, expected);
        assert_eq!(
            admit(&pod, &[], &node(), (&allocatable(), &features())),
            Ok(())
        );
    }
}

#[test]
fn a_runtime_that_is_away_says_nothing_about_its_features() {
    let strict = with_spec(json!({"securityContext": {"supplementalGroupsPolicy": "Strict"}}));
    let away = NodeCapacity {
        runtime_error: "down".to_owned(),
        ..NodeCapacity::default()
    };
    let unknown = NodeFeatures::default().told(&away);
    assert!(!unknown.can_judge(&strict));
    assert!(unknown.can_judge(&with_spec(json!({}))));
    assert!(features().told(&away).can_judge(&strict));
    assert_eq!(features().told(&away).strict_groups, Some(true));
}
