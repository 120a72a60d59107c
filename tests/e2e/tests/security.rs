//! Security contexts: whether what a pod asks for holds in its containers, read from
//! inside and from the OCI specification that the runtime made of it.

use std::fs;
use std::time::Duration;

use anyhow::{Context as _, Result};
use cri::{RuntimeChanges as _, RuntimeReads as _};
use e2e::Ground;
use e2e::ground::TIMEOUT;
use serde_json::{Value, json};
use test_support::BulkheadOptions;
use test_support::images::{BUSYBOX, TESTAPP_AGENT_NAME, TESTAPP_NONROOT};
use test_support::observe::container_id;

/// Number of the capability in the masks of `/proc/self/status`.
const NET_BIND_SERVICE: u64 = 10;
const NET_ADMIN: u64 = 12;
const NET_RAW: u64 = 13;
const SYS_ADMIN: u64 = 21;

fn with_policy(policy: &str, kubelet_configuration: Value) -> BulkheadOptions {
    BulkheadOptions {
        policy: Some(policy.to_owned()),
        kubelet_configuration: match kubelet_configuration {
            Value::Object(fields) => fields,
            _ => serde_json::Map::new(),
        },
        ..BulkheadOptions::default()
    }
}

/// A container that only runs, with this security context.
fn shell(security_context: &Value) -> Value {
    json!({
        "name": "c", "image": BUSYBOX, "command": ["sleep", "1000000"],
        "securityContext": security_context,
    })
}

fn pod(security_context: &Value) -> Value {
    json!({ "containers": [shell(security_context)] })
}

fn sh(ground: &Ground, pod: &str, script: &str) -> Result<String> {
    let output = ground.exec(pod, "c", &["sh", "-c", script])?;
    Ok(output.trim().to_owned())
}

/// A line of `/proc/self/status` of a process in the container.
fn status_line(ground: &Ground, pod: &str, name: &str) -> Result<String> {
    let script = format!("grep '^{name}:' /proc/self/status | cut -d: -f2");
    sh(ground, pod, &script)
}

fn effective(ground: &Ground, pod: &str) -> Result<u64> {
    let mask = status_line(ground, pod, "CapEff")?;
    u64::from_str_radix(&mask, 16).with_context(|| mask.clone())
}

fn has(mask: u64, capability: u64) -> bool {
    mask & (1 << capability) != 0
}

/// The OCI specification of a pod's container.
fn oci(ground: &Ground, name: &str) -> Result<Value> {
    let pod = ground.pod(name)?;
    let id = container_id(&pod, "c").context("the container never ran")?;
    let client = ground.containerd.client();
    let info = ground.containerd.block_on(client.container_info(id))?;
    let info: Value = serde_json::from_str(info.get("info").context("nothing is told")?)?;
    Ok(info["runtimeSpec"].clone())
}

/// Waits until a pod's container waits for this reason; the message.
fn waits(ground: &Ground, name: &str, reason: &str) -> Result<String> {
    let what = format!("to wait because of {reason}");
    let found = ground.bulkhead.wait_for_pod(name, &what, TIMEOUT, |pod| {
        let waiting = &pod["status"]["containerStatuses"][0]["state"]["waiting"];
        match waiting["reason"] == reason {
            true => Ok(waiting["message"].as_str().unwrap_or_default().to_owned()),
            false => Err(pod["status"].to_string()),
        }
    });
    found.with_context(|| ground.bulkhead.log_ends())
}

#[test]
fn users_groups_and_a_read_only_root_hold_in_the_container() -> Result<()> {
    let ground = Ground::start(json!({}))?;
    let mut of_pod = pod(&json!({ "readOnlyRootFilesystem": true }));
    of_pod["securityContext"] = json!({
        "runAsUser": 1234, "runAsGroup": 2345, "supplementalGroups": [3456, 3457],
        "runAsNonRoot": true,
    });
    ground.apply("of-pod", of_pod)?;
    let mut of_container = pod(&json!({ "runAsUser": 77, "runAsGroup": 78 }));
    of_container["securityContext"] = json!({ "runAsUser": 1234, "runAsGroup": 2345 });
    ground.apply("of-container", of_container)?;
    ground.ready("of-pod")?;
    ground.ready("of-container")?;

    let ids = sh(&ground, "of-pod", "id -u; id -g; id -G")?;
    assert_eq!(ids, "1234\n2345\n2345 3456 3457");
    assert!(sh(&ground, "of-pod", "touch /new").is_err());
    let spec = oci(&ground, "of-pod")?;
    assert_eq!(spec["root"]["readonly"], true, "{spec}");
    let user = &spec["process"]["user"];
    assert_eq!((&user["uid"], &user["gid"]), (&json!(1234), &json!(2345)));

    assert_eq!(sh(&ground, "of-container", "id -u; id -g")?, "77\n78");
    assert!(oci(&ground, "of-container")?["root"]["readonly"] != true);
    Ok(())
}

#[test]
fn a_container_that_must_not_be_root_runs_only_if_it_is_known_not_to_be() -> Result<()> {
    let ground = Ground::start(json!({}))?;
    let non_root = json!({ "runAsNonRoot": true });
    let of_image = |image: &str| {
        let container = json!({ "name": "c", "image": image, "securityContext": non_root });
        json!({ "containers": [container] })
    };
    ground.apply("number", of_image(TESTAPP_NONROOT))?;
    ground.apply("name", of_image(TESTAPP_AGENT_NAME))?;
    ground.apply("root", pod(&non_root))?;
    ground.apply(
        "zero",
        pod(&json!({ "runAsNonRoot": true, "runAsUser": 0 })),
    )?;
    ground.ready("number")?;
    for (name, words) in [
        (
            "root",
            "container has runAsNonRoot and image will run as root",
        ),
        (
            "name",
            "container has runAsNonRoot and image has non-numeric user (agent), cannot verify \
             user is non-root",
        ),
        ("zero", "container's runAsUser breaks non-root policy"),
    ] {
        let message = waits(&ground, name, "CreateContainerConfigError")?;
        assert!(message.contains(words), "{message}");
        assert!(ground.containers(name)?.is_empty());
    }
    Ok(())
}

#[test]
fn a_capability_is_dropped_and_added_in_every_spelling() -> Result<()> {
    let ground = Ground::start(json!({}))?;
    let with =
        |add: &[&str], drop: &[&str]| pod(&json!({ "capabilities": { "add": add, "drop": drop } }));
    ground.apply("usual", pod(&json!({})))?;
    let dropped = ["NET_RAW", "CAP_NET_RAW", "net_raw", "cap_net_raw"];
    let added = [
        ("NET_BIND_SERVICE", "ALL"),
        ("CAP_NET_BIND_SERVICE", "CAP_ALL"),
        ("cap_net_bind_service", "cap_all"),
    ];
    for (index, name) in dropped.iter().enumerate() {
        ground.apply(&format!("drops-{index}"), with(&[], &[name]))?;
    }
    for (index, (add, drop)) in added.iter().enumerate() {
        ground.apply(&format!("adds-{index}"), with(&[add], &[drop]))?;
    }
    ground.apply("unknown", with(&[], &["KILL", "NET_ROW"]))?;

    ground.ready("usual")?;
    let usual = effective(&ground, "usual")?;
    assert!(has(usual, NET_RAW), "{usual:x}");
    for (index, name) in dropped.iter().enumerate() {
        let pod = format!("drops-{index}");
        ground.ready(&pod)?;
        let expected = usual & !(1 << NET_RAW);
        assert_eq!(effective(&ground, &pod)?, expected, "{name}");
    }
    for (index, names) in added.iter().enumerate() {
        let pod = format!("adds-{index}");
        ground.ready(&pod)?;
        let expected = 1 << NET_BIND_SERVICE;
        assert_eq!(effective(&ground, &pod)?, expected, "{names:?}");
    }

    let message = waits(&ground, "unknown", "CreateContainerConfigError")?;
    let expected = "container \"c\": securityContext.capabilities.drop[1]: \"NET_ROW\" is not a \
                    capability of Linux";
    assert_eq!(message, expected);
    Ok(())
}

#[test]
fn capabilities_and_privileges_are_those_that_are_granted() -> Result<()> {
    let policy = "[[grants]]\npods = [\"default/admin\"]\ncapabilities = [\"NET_ADMIN\"]\n\
                  [[grants]]\npods = [\"default/all\"]\nprivileged = true\n";
    let ground = Ground::start_with(&with_policy(policy, json!({})))?;
    let add = |name: &str| json!({ "capabilities": { "add": [name], "drop": ["ALL"] } });
    let mut modest = add("NET_BIND_SERVICE");
    modest["allowPrivilegeEscalation"] = json!(false);
    ground.apply("modest", pod(&modest))?;
    ground.apply("plain", pod(&json!({})))?;
    ground.apply("admin", pod(&add("NET_ADMIN")))?;
    ground.apply("all", pod(&json!({ "privileged": true })))?;
    ground.apply("greedy", pod(&add("NET_ADMIN")))?;
    ground.apply("greedier", pod(&json!({ "privileged": true })))?;

    for name in ["modest", "plain", "admin", "all"] {
        ground.ready(name)?;
    }
    assert_eq!(effective(&ground, "modest")?, 1 << NET_BIND_SERVICE);
    assert_eq!(status_line(&ground, "modest", "NoNewPrivs")?, "1");
    let spec = oci(&ground, "modest")?;
    let bounding = &spec["process"]["capabilities"]["bounding"];
    assert_eq!(bounding, &json!(["CAP_NET_BIND_SERVICE"]));
    assert_eq!(spec["process"]["noNewPrivileges"], true);

    let mask = effective(&ground, "plain")?;
    assert!(has(mask, NET_BIND_SERVICE) && !has(mask, NET_ADMIN));
    assert_eq!(status_line(&ground, "plain", "NoNewPrivs")?, "0");

    assert_eq!(effective(&ground, "admin")?, 1 << NET_ADMIN);
    sh(
        &ground,
        "admin",
        "ip link add dummy7 type veth && ip link del dummy7",
    )?;

    assert!(has(effective(&ground, "all")?, SYS_ADMIN));
    sh(&ground, "all", "mkdir /m && mount -t tmpfs none /m")?;
    assert!(sh(&ground, "plain", "mkdir /m && mount -t tmpfs none /m").is_err());

    for (name, grant) in [
        ("greedy", "capabilities = [\"NET_ADMIN\"]"),
        ("greedier", "privileged = true"),
    ] {
        let message = waits(&ground, name, "RefusedByNodePolicy")?;
        assert!(message.contains(grant), "{message}");
        assert!(ground.sandboxes(name)?.is_empty());
    }
    Ok(())
}

/// A profile that lets everything through but making directories.
const NO_DIRECTORIES: &str = r#"{
    "defaultAction": "SCMP_ACT_ALLOW",
    "syscalls": [{ "names": ["mkdir", "mkdirat"], "action": "SCMP_ACT_ERRNO" }]
}"#;

#[test]
fn a_seccomp_profile_filters_what_it_says() -> Result<()> {
    let policy = "[[grants]]\npods = [\"default/free\"]\nseccompUnconfined = true\n";
    let ground = Ground::start_with(&with_policy(policy, json!({})))?;
    let profiles = ground.bulkhead.paths().root.join("seccomp/mine");
    fs::create_dir_all(&profiles)?;
    fs::write(profiles.join("no-directories.json"), NO_DIRECTORIES)?;
    let profile = |kind: &str, file: Option<&str>| {
        pod(&json!({ "seccompProfile": { "type": kind, "localhostProfile": file } }))
    };
    ground.apply("default", profile("RuntimeDefault", None))?;
    let file = Some("mine/no-directories.json");
    ground.apply("local", profile("Localhost", file))?;
    ground.apply("missing", profile("Localhost", Some("mine/missing.json")))?;
    ground.apply("free", profile("Unconfined", None))?;
    ground.apply("refused", profile("Unconfined", None))?;
    ground.apply("silent", pod(&json!({})))?;

    for (name, mode) in [
        ("default", "2"),
        ("local", "2"),
        ("free", "0"),
        ("silent", "0"),
    ] {
        ground.ready(name)?;
        assert_eq!(status_line(&ground, name, "Seccomp")?, mode, "{name}");
        let is_filtered = !oci(&ground, name)?["linux"]["seccomp"].is_null();
        assert_eq!(is_filtered, mode == "2", "{name}");
    }
    assert!(sh(&ground, "local", "mkdir /x").is_err());
    sh(&ground, "default", "mkdir /x")?;
    let message = waits(&ground, "missing", "CreateContainerError")?;
    assert!(message.contains("mine/missing.json"), "{message}");
    let message = waits(&ground, "refused", "RefusedByNodePolicy")?;
    assert!(message.contains("seccompUnconfined = true"), "{message}");
    Ok(())
}

#[test]
fn with_seccomp_default_who_chooses_no_profile_gets_the_runtimes() -> Result<()> {
    let policy = "[[grants]]\npods = [\"default/free\"]\nseccompUnconfined = true\n";
    let options = with_policy(policy, json!({ "seccompDefault": true }));
    let ground = Ground::start_with(&options)?;
    ground.apply("silent", pod(&json!({})))?;
    let unconfined = json!({ "seccompProfile": { "type": "Unconfined" } });
    ground.apply("free", pod(&unconfined))?;
    for (name, mode) in [("silent", "2"), ("free", "0")] {
        ground.ready(name)?;
        assert_eq!(status_line(&ground, name, "Seccomp")?, mode, "{name}");
    }
    Ok(())
}

#[test]
fn volumes_belong_to_the_group_of_the_pod() -> Result<()> {
    let ground = Ground::start(json!({}))?;
    let mut container = shell(&json!({}));
    container["volumeMounts"] = json!([
        { "name": "disk", "mountPath": "/disk" },
        { "name": "memory", "mountPath": "/memory" },
    ]);
    let spec = json!({
        "containers": [container],
        "securityContext": {
            "runAsUser": 1234, "runAsGroup": 2345, "fsGroup": 4567,
            "fsGroupChangePolicy": "OnRootMismatch",
        },
        "volumes": [
            { "name": "disk", "emptyDir": {} },
            { "name": "memory", "emptyDir": { "medium": "Memory" } },
        ],
    });
    ground.apply("group", spec)?;
    let pod = ground.ready("group")?;
    assert_eq!(sh(&ground, "group", "id -G")?, "2345 4567");
    let owners = sh(&ground, "group", "stat -c '%g %a' /disk /memory")?;
    assert_eq!(owners, "4567 2777\n4567 3777");
    let made = sh(
        &ground,
        "group",
        "echo x > /disk/a && echo x > /memory/a && stat -c '%u %g' /disk/a /memory/a",
    )?;
    assert_eq!(made, "1234 4567\n1234 4567");
    // What a container without root says at its end is heard.
    sh(
        &ground,
        "group",
        "echo bye > /dev/termination-log && chmod 600 /disk/a",
    )?;
    // Neither a restart of the pool nor of the container looks at what is in it again.
    let id = container_id(&pod, "c").context("no container")?.to_owned();
    ground.printed(&["restart", "pod-worker-pool"])?;
    let client = ground.containerd.client();
    ground
        .containerd
        .block_on(client.stop_container(&id, Duration::ZERO))?;
    ground
        .bulkhead
        .wait_for_pod("group", "to be restarted", TIMEOUT, |pod| {
            let is_new = container_id(pod, "c").is_some_and(|new| new != id);
            let status = &pod["status"]["containerStatuses"][0];
            if is_new && status["ready"] == true {
                Ok(())
            } else {
                Err(status.to_string())
            }
        })?;
    let kept = sh(&ground, "group", "stat -c '%u %g %a' /disk/a")?;
    assert_eq!(kept, "1234 4567 600");
    Ok(())
}

/// Waits until a pod was rejected; reason and message.
fn rejected(ground: &Ground, name: &str) -> Result<(String, String)> {
    let pod = ground.phase(name, "Failed")?;
    let text = |field: &str| pod["status"][field].as_str().unwrap_or_default();
    // The kubelet's words before any reason.
    let message = text("message").trim_start_matches("Pod was rejected: ");
    Ok((text("reason").to_owned(), message.to_owned()))
}

#[test]
fn sysctls_hold_in_the_pod_and_others_are_refused() -> Result<()> {
    let policy = "[[grants]]\npods = [\"default/allowed\", \"default/not-allowed\"]\n\
                  sysctls = [\"net.core.*\", \"kernel.msgmax\"]\n\
                  [[grants]]\npods = [\"default/on-network\"]\nhostNetwork = true\n";
    let configuration = json!({ "allowedUnsafeSysctls": ["net.core.*"] });
    let ground = Ground::start_with(&with_policy(policy, configuration))?;
    let with = |sysctls: Value| {
        let mut spec = pod(&json!({}));
        spec["securityContext"] = json!({ "sysctls": sysctls });
        spec
    };
    let one = |name: &str, value: &str| json!([{ "name": name, "value": value }]);
    ground.apply(
        "safe",
        with(json!([
            { "name": "net.ipv4.ip_unprivileged_port_start", "value": "1" },
            { "name": "kernel/shm_rmid_forced", "value": "1" },
            { "name": "net.ipv4.tcp_rmem", "value": "4096 8192 16384" },
        ])),
    )?;
    ground.apply("allowed", with(one("net.core.somaxconn", "77")))?;
    ground.apply("not-granted", with(one("net.core.somaxconn", "77")))?;
    ground.apply("not-allowed", with(one("kernel.msgmax", "9000")))?;
    let mut on_network = with(one("net.ipv4.tcp_syncookies", "1"));
    on_network["hostNetwork"] = json!(true);
    ground.apply("on-network", on_network)?;
    ground.ready("safe")?;
    ground.ready("allowed")?;
    let read = |name: &str, file: &str| sh(&ground, name, &format!("cat /proc/sys/{file}"));
    assert_eq!(read("safe", "net/ipv4/ip_unprivileged_port_start")?, "1");
    assert_eq!(read("safe", "kernel/shm_rmid_forced")?, "1");
    assert_eq!(read("safe", "net/ipv4/tcp_rmem")?, "4096\t8192\t16384");
    assert_eq!(read("allowed", "net/core/somaxconn")?, "77");
    for (name, words) in [
        (
            "not-allowed",
            "forbidden sysctl: \"kernel.msgmax\" not allowlisted",
        ),
        (
            "on-network",
            "forbidden sysctl: \"net.ipv4.tcp_syncookies\" not allowed with host net enabled",
        ),
    ] {
        let (reason, message) = rejected(&ground, name)?;
        assert_eq!(
            (reason.as_str(), message.as_str()),
            ("SysctlForbidden", words)
        );
        assert!(ground.sandboxes(name)?.is_empty());
    }
    let message = waits(&ground, "not-granted", "RefusedByNodePolicy")?;
    assert!(message.contains("net.core.somaxconn"), "{message}");
    Ok(())
}

#[test]
fn what_kernel_and_runtime_cannot_do_is_refused() -> Result<()> {
    let ground = Ground::start(json!({}))?;
    let with = |context: Value| {
        let mut spec = pod(&json!({}));
        spec["securityContext"] = context;
        spec
    };
    ground.apply(
        "armor",
        with(json!({ "appArmorProfile": { "type": "RuntimeDefault" } })),
    )?;
    ground.apply(
        "strict",
        with(json!({ "supplementalGroupsPolicy": "Strict" })),
    )?;
    ground.apply(
        "labelled",
        with(json!({ "seLinuxOptions": { "level": "s0:c1" } })),
    )?;
    ground.apply(
        "merged",
        with(json!({ "supplementalGroupsPolicy": "Merge" })),
    )?;
    ground.ready("labelled")?;
    ground.ready("merged")?;
    let has_app_armor = std::path::Path::new("/sys/kernel/security/apparmor").exists();
    if !has_app_armor {
        let (reason, message) = rejected(&ground, "armor")?;
        assert_eq!(reason, "AppArmor");
        let words = "Cannot enforce AppArmor: AppArmor is not enabled on the host";
        assert_eq!(message, words);
    }
    let client = ground.containerd.client();
    let status = ground.containerd.block_on(client.status(false))?;
    if status.features.is_none() {
        let (reason, message) = rejected(&ground, "strict")?;
        assert_eq!(reason, "SupplementalGroupsPolicyNotSupported");
        let words = "SupplementalGroupsPolicy=Strict is not supported in this node";
        assert_eq!(message, words);
    }
    Ok(())
}

#[test]
fn proc_is_masked_and_annotations_mean_fields() -> Result<()> {
    let ground = Ground::start(json!({}))?;
    ground.apply("plain", pod(&json!({ "procMount": "Default" })))?;
    let manifest = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": "annotated",
            "annotations": { "container.seccomp.security.alpha.kubernetes.io/c": "runtime/default" },
        },
        "spec": pod(&json!({})),
    });
    ground
        .bulkhead
        .write_manifest("annotated.json", &manifest.to_string())?;
    ground.ready("plain")?;
    ground.ready("annotated")?;
    assert_eq!(status_line(&ground, "annotated", "Seccomp")?, "2");
    // Neither what is hidden nor what is protected.
    assert_eq!(sh(&ground, "plain", "head -c 1 /proc/kcore | wc -c")?, "0");
    assert_eq!(sh(&ground, "plain", "wc -c < /proc/interrupts")?, "0");
    assert!(sh(&ground, "plain", "echo 1 > /proc/sys/kernel/panic").is_err());
    let spec = oci(&ground, "plain")?;
    let lists = |list: &str, path: &str| {
        let listed = spec["linux"][list].as_array();
        listed.is_some_and(|listed| listed.iter().any(|it| it == path))
    };
    assert!(lists("maskedPaths", "/proc/kcore"));
    assert!(lists("readonlyPaths", "/proc/sys"));
    Ok(())
}
