//! The smallest grants: enough for any pod, and no more than it asks for.

use node_policy::{Demand, Grant, Policy, Protected, Subject, demands_of, grants_for};
use pod::{Pod, PodSource};
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};

fn protected() -> Protected {
    let mut protected = Protected::default();
    let added = protected.add_runtime_socket("/run/containerd/containerd.sock");
    assert_eq!(added, Ok(()));
    protected.add_user(60001, "an agent");
    protected.add_group(60001, "an agent");
    protected
}

/// One of them, or nothing.
fn maybe(values: Vec<Value>) -> impl Strategy<Value = Option<Value>> {
    prop::option::of(select(values))
}

fn words(values: &[&str]) -> Vec<Value> {
    values.iter().map(|value| json!(value)).collect()
}

/// A security context of a container or pod: fields that the other does not have are
/// not read.
fn context() -> impl Strategy<Value = Value> {
    let flags = (
        maybe(vec![json!(true), json!(false)]),
        maybe(vec![json!(true), json!(false)]),
        maybe(vec![json!(true), json!(false)]),
        maybe(vec![json!(0), json!(7), json!(60001), json!(-3)]),
        maybe(vec![json!(0), json!(60001)]),
        maybe(vec![json!(0), json!(60001), json!(5)]),
    );
    let profile = || words(&["Unconfined", "RuntimeDefault", "Localhost", "", "other"]);
    let profiles = (
        maybe(profile()),
        maybe(profile()),
        maybe(words(&["Default", "Unmasked", "\u{7f}\""])),
        maybe(words(&["spc_t", "container_t", "", "a\nb"])),
        prop::collection::vec("[A-Za-z_*\"'\\\\\n ]{0,8}|NET_ADMIN|ALL|CHOWN", 0..3),
        prop::collection::vec("net\\.[a-z*/.]{0,6}|kernel/[a-z]{1,3}|", 0..3),
    );
    (flags, profiles).prop_map(|(flags, profiles)| {
        let (privileged, escalation, non_root, user, group, fs_group) = flags;
        let (seccomp, apparmor, proc, selinux, capabilities, sysctls) = profiles;
        let typed = |value: Option<Value>| value.map(|value| json!({ "type": value }));
        let sysctl = |name| json!({ "name": name, "value": "1" });
        json!({
            "privileged": privileged,
            "allowPrivilegeEscalation": escalation,
            "runAsNonRoot": non_root,
            "runAsUser": user,
            "runAsGroup": group,
            "fsGroup": fs_group,
            "supplementalGroups": fs_group.map(|group| json!([group, 7])),
            "seccompProfile": typed(seccomp),
            "appArmorProfile": typed(apparmor),
            "procMount": proc,
            "seLinuxOptions": typed(selinux),
            "capabilities": { "add": capabilities },
            "sysctls": sysctls.into_iter().map(sysctl).collect::<Vec<_>>(),
        })
    })
}

fn volume() -> impl Strategy<Value = Value> {
    let paths = [
        "/",
        "/srv",
        "/srv/",
        "/srv/a b\"c",
        "/run",
        "/var/run/containerd",
        "/dev/sda",
        "/proc/1",
        "/run/containerd/containerd.sock",
        "/a/../b",
        "relative",
        "",
    ];
    let kinds = words(&["", "Directory", "DirectoryOrCreate", "BlockDevice", "File"]);
    (select(paths.to_vec()), maybe(kinds), prop::bool::ANY).prop_map(|(path, kind, is_path)| {
        if is_path {
            json!({ "name": "v", "hostPath": { "path": path, "type": kind } })
        } else {
            json!({ "name": "v", "nfs": { "server": path, "path": path } })
        }
    })
}

fn container() -> impl Strategy<Value = Value> {
    let host = maybe(words(&["", "127.0.0.1", "a\"b"]));
    let port = maybe(vec![json!(0), json!(80), json!(65535), json!(70000)]);
    let mount = maybe(vec![json!(true), json!(false)]);
    (
        context(),
        host,
        port,
        prop::option::of(mount),
        "[a-z/:.]{0,12}",
    )
        .prop_map(|(context, host, port, mount, image)| {
            let mount = mount.map(
                |read_only| json!([{ "name": "v", "mountPath": "/m", "readOnly": read_only }]),
            );
            json!({
                "name": "c",
                "image": image,
                "securityContext": context,
                "livenessProbe": { "httpGet": { "port": 1, "host": host } },
                "ports": [{ "containerPort": 1, "hostPort": port }],
                "volumeMounts": mount,
            })
        })
}

fn pod() -> impl Strategy<Value = Pod> {
    let flag = || maybe(vec![json!(true), json!(false)]);
    (
        (flag(), flag(), flag(), flag()),
        context(),
        prop::collection::vec(container(), 0..3),
        prop::collection::vec(container(), 0..2),
        prop::option::of(volume()),
        select(vec!["web", "web-n1", "a.b-c", "*", "A b"]),
    )
        .prop_map(|(host, context, containers, init, volume, name)| {
            let (network, pid, ipc, users) = host;
            let pod = json!({
                "metadata": { "namespace": "default", "name": name },
                "spec": {
                    "hostNetwork": network,
                    "hostPID": pid,
                    "hostIPC": ipc,
                    "hostUsers": users,
                    "securityContext": context,
                    "containers": containers,
                    "initContainers": init,
                    "volumes": volume.map(|volume| json!([volume])),
                },
            });
            serde_json::from_value(pod).unwrap_or_default()
        })
}

/// Whether no grant can allow it.
fn is_ungrantable(subject: &Subject, demand: &Demand) -> bool {
    let bad_path = |path: &str| !path.starts_with('/') || path.contains("..");
    subject.name.contains(['*', 'A'])
        || match demand {
            Demand::HostPath { path, .. } | Demand::Device { path, .. } => bad_path(path),
            Demand::Sysctl(name) => name.is_empty() || name.contains('*'),
            Demand::Capability(name) => name.is_empty(),
            _ => false,
        }
}

/// Everything that a grant gives, as single fields.
fn parts(grant: &Grant) -> usize {
    grant
        .to_toml()
        .lines()
        .filter(|line| line.contains(" = "))
        .count()
}

fn levels() -> impl Strategy<Value = &'static str> {
    select(vec!["restricted", "baseline", "privileged"])
}

proptest! {
    #[test]
    fn with_its_smallest_grants_appended_every_pod_is_allowed(pod in pod(), level in levels()) {
        let before = format!("[sources]\nfile = \"{level}\"\n");
        let policy = Policy::parse(&before, protected()).expect("a policy");
        let subject = Subject::of(PodSource::File, &pod, "n1");
        let grants = grants_for(&[(subject.clone(), &pod)], &policy);
        let text: String = grants.iter().map(Grant::to_toml).collect();
        let after = Policy::parse(&format!("{before}{text}"), protected());
        let after = after.unwrap_or_else(|error| panic!("{error}\n{text}"));
        for denial in after.judge(&subject, &pod).err().unwrap_or_default() {
            prop_assert!(is_ungrantable(&subject, &denial.refusal.demand), "{denial}\n{text}");
            prop_assert_eq!(denial.refusal.grant, None);
        }
    }

    #[test]
    fn the_smallest_grants_give_nothing_that_was_not_refused(pod in pod(), level in levels()) {
        let before = format!("[sources]\nfile = \"{level}\"\n");
        let policy = Policy::parse(&before, protected()).expect("a policy");
        let subject = Subject::of(PodSource::File, &pod, "n1");
        let denials = policy.judge(&subject, &pod).err().unwrap_or_default();
        let grants = grants_for(&[(subject.clone(), &pod)], &policy);
        // Another pod, another source: nothing.
        let after = policy.clone().with_grants(grants.clone());
        for other in [
            Subject::new(PodSource::File, "default", "other", "n1", subject.images.clone()),
            Subject::new(PodSource::Api, "default", &subject.name, "n1", subject.images.clone()),
        ] {
            prop_assert_eq!(after.permit_for(&other), policy.permit_for(&other));
        }
        // Every part of a grant answers a demand: without any one demand it is another.
        for grant in &grants {
            prop_assert!(parts(grant) <= 2 + denials.len(), "{}", grant.to_toml());
        }
        let permit = after.permit_for(&subject);
        let asked: Vec<Demand> = demands_of(&pod).into_iter().map(|asked| asked.demand).collect();
        for demand in [
            Demand::HostNetwork,
            Demand::HostPid,
            Demand::HostIpc,
            Demand::Privileged,
            Demand::SeccompUnconfined,
            Demand::AppArmorUnconfined,
            Demand::UnmaskedProc,
            Demand::HostPort(81),
            Demand::capability("SYS_ADMIN"),
            Demand::sysctl("net.a"),
            Demand::User(60001),
            Demand::Group(60001),
            Demand::HostPath { path: "/etc".to_owned(), read_only: true },
            Demand::Device { path: "/dev/sdb".to_owned(), block: true },
        ] {
            let was_allowed = policy.permit_for(&subject).check(&demand, None).is_ok();
            let shared = match demand {
                Demand::SeccompUnconfined => asked.contains(&Demand::SeccompUnset),
                Demand::UnmaskedProc => asked.contains(&Demand::UnmaskedProcOfOwnUsers),
                _ => false,
            };
            let root = matches!(demand, Demand::HostPath { .. }) && asked.iter().any(
                |asked| matches!(asked, Demand::HostPath { path, .. } if path == "/"));
            if !was_allowed && !asked.contains(&demand) && !shared && !root {
                prop_assert!(permit.check(&demand, None).is_err(), "{demand}");
            }
        }
    }
}

#[test]
fn a_path_that_is_read_and_written_is_granted_once() {
    let pod: Pod = serde_json::from_value(json!({
        "metadata": { "namespace": "a", "name": "b" },
        "spec": {
            "volumes": [{ "name": "v", "hostPath": { "path": "/srv//x/" } },
                        { "name": "w", "hostPath": { "path": "/srv/x" } }],
            "containers": [
                { "name": "r", "volumeMounts": [{ "name": "v", "mountPath": "/m", "readOnly": true }] },
                { "name": "w", "volumeMounts": [{ "name": "w", "mountPath": "/m" }] },
            ],
        },
    }))
    .expect("a pod");
    let policy = Policy::without_file(protected());
    let subject = Subject::of(PodSource::File, &pod, "n");
    let grants = grants_for(&[(subject, &pod)], &policy);
    let text: Vec<String> = grants.iter().map(Grant::to_toml).collect();
    let expected = "[[grants]]\npods = [\"a/b\"]\nsources = [\"file\"]\n\
                    hostPaths = [{ prefix = \"/srv/x\" }]\n";
    assert_eq!(text, [expected]);
}

/// As kubeadm writes etcd and kube-apiserver: what they say of security needs no grant.
#[test]
fn a_control_plane_needs_its_network_its_paths_and_its_probes() {
    let probe =
        |port: u16| json!({ "httpGet": { "host": "127.0.0.1", "path": "/livez", "port": port } });
    let host_path = |name: &str, path: &str, kind: &str| json!({ "name": name, "hostPath": { "path": path, "type": kind } });
    let mount = |name: &str, path: &str, read_only: bool| json!({ "name": name, "mountPath": path, "readOnly": read_only });
    let pod = |name: &str, port: u16, mounts: Value, volumes: Value| -> Pod {
        serde_json::from_value(json!({
            "metadata": { "namespace": "kube-system", "name": name },
            "spec": {
                "hostNetwork": true,
                "priorityClassName": "system-node-critical",
                "securityContext": { "seccompProfile": { "type": "RuntimeDefault" } },
                "containers": [{
                    "name": name, "image": format!("registry.k8s.io/{name}:1"),
                    "livenessProbe": probe(port), "startupProbe": probe(port),
                    "volumeMounts": mounts,
                }],
                "volumes": volumes,
            },
        }))
        .expect("a pod")
    };
    let pods = [
        pod(
            "etcd",
            2381,
            json!([
                mount("data", "/var/lib/etcd", false),
                mount("certs", "/etc/kubernetes/pki/etcd", false)
            ]),
            json!([
                host_path("certs", "/etc/kubernetes/pki/etcd", "DirectoryOrCreate"),
                host_path("data", "/var/lib/etcd", "DirectoryOrCreate"),
            ]),
        ),
        pod(
            "kube-apiserver",
            6443,
            json!([
                mount("ca", "/etc/ssl/certs", true),
                mount("pki", "/etc/kubernetes/pki", true)
            ]),
            json!([
                host_path("ca", "/etc/ssl/certs", "Directory"),
                host_path("pki", "/etc/kubernetes/pki", "Directory"),
            ]),
        ),
    ];
    let subjects = pods
        .iter()
        .map(|pod| (Subject::of(PodSource::File, pod, "n"), pod));
    let grants = grants_for(
        &subjects.collect::<Vec<_>>(),
        &Policy::without_file(protected()),
    );
    let text: Vec<String> = grants.iter().map(Grant::to_toml).collect();
    let expected = [
        "[[grants]]\npods = [\"kube-system/etcd\"]\nsources = [\"file\"]\n\
         hostNetwork = true\n\
         hostPaths = [{ prefix = \"/etc/kubernetes/pki/etcd\" }, { prefix = \"/var/lib/etcd\" }]\n\
         probeHosts = [\"127.0.0.1\"]\n",
        "[[grants]]\npods = [\"kube-system/kube-apiserver\"]\nsources = [\"file\"]\n\
         hostNetwork = true\n\
         hostPaths = [{ prefix = \"/etc/kubernetes/pki\", readOnly = true }, \
         { prefix = \"/etc/ssl/certs\", readOnly = true }]\n\
         probeHosts = [\"127.0.0.1\"]\n",
    ];
    assert_eq!(text, expected);
}

#[test]
fn pods_of_one_name_share_a_grant_and_allowed_pods_have_none() {
    let pod = |name: &str, fields: Value| -> Pod {
        let mut spec = fields;
        spec["containers"] = json!([]);
        serde_json::from_value(
            json!({ "metadata": { "namespace": "a", "name": name }, "spec": spec }),
        )
        .expect("a pod")
    };
    let pods = [
        pod("x", json!({ "hostPID": true })),
        pod("x", json!({ "hostIPC": true })),
        pod("y", json!({})),
    ];
    let subjects = pods
        .iter()
        .map(|pod| (Subject::of(PodSource::Http, pod, "n"), pod));
    let grants = grants_for(
        &subjects.collect::<Vec<_>>(),
        &Policy::without_file(protected()),
    );
    let text: Vec<String> = grants.iter().map(Grant::to_toml).collect();
    let expected =
        "[[grants]]\npods = [\"a/x\"]\nsources = [\"http\"]\nhostIPC = true\nhostPID = true\n";
    assert_eq!(text, [expected]);
}
