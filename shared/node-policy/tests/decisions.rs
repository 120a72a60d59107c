//! Decisions of whole policies: which grants give what, what only a grant that names it
//! gives, and what refusals say.

use node_policy::{Demand, Policy, Protected, Rule, Subject};
use pod::{Pod, PodSource};

fn protected() -> Protected {
    let mut protected = Protected::default();
    let mut added = vec![protected.add_runtime_socket("/run/containerd/containerd.sock")];
    for (path, what) in [
        ("/run/bulkhead", "the agent's run directory"),
        ("/var/lib/bulkhead", "the agent's state"),
    ] {
        added.push(protected.add_path(path, what));
    }
    assert!(added.iter().all(Result::is_ok), "{added:?}");
    protected.add_user(60001, "the user of pleg");
    protected.add_group(60001, "the group of pleg");
    protected
}

fn policy(text: &str) -> Policy {
    Policy::parse(text, protected()).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn web(images: &[&str]) -> Subject {
    let images = images.iter().map(|image| (*image).to_owned()).collect();
    Subject::new(PodSource::File, "default", "web-n1", "n1", images)
}

fn path(path: &str) -> Demand {
    Demand::HostPath {
        path: path.to_owned(),
        read_only: false,
    }
}

fn reads(path: &str) -> Demand {
    Demand::HostPath {
        path: path.to_owned(),
        read_only: true,
    }
}

fn allowed(text: &str, demand: &Demand) -> bool {
    let permit = policy(text).permit_for(&web(&["example.com/app:1"]));
    permit.check(demand, Some("example.com/app:1")).is_ok()
}

fn granted(grant: &str, demand: &Demand) -> bool {
    allowed(
        &format!("[[grants]]\npods = [\"default/web\"]\n{grant}"),
        demand,
    )
}

#[test]
fn without_a_file_every_source_is_baseline() {
    let policy = Policy::without_file(protected());
    for source in PodSource::ALL {
        let subject = Subject::new(source, "a", "b", "n", Vec::new());
        let permit = policy.permit_for(&subject);
        assert!(
            permit.check(&Demand::HostNetwork, None).is_err(),
            "{source}"
        );
        assert!(
            permit.check(&Demand::MayRunAsRoot, None).is_ok(),
            "{source}"
        );
    }
    assert_eq!(Policy::parse("", protected()), Ok(policy));
}

#[test]
fn each_source_has_its_own_level() {
    let policy = policy("[sources]\nfile = \"privileged\"\napi = \"restricted\"");
    for (source, network, root) in [
        (PodSource::File, true, true),
        (PodSource::Http, false, true),
        (PodSource::Api, false, false),
    ] {
        let permit = policy.permit_for(&Subject::new(source, "a", "b", "n", Vec::new()));
        assert_eq!(
            permit.check(&Demand::HostNetwork, None).is_ok(),
            network,
            "{source}"
        );
        assert_eq!(
            permit.check(&Demand::MayRunAsRoot, None).is_ok(),
            root,
            "{source}"
        );
    }
}

fn gives_and_keeps<const N: usize>(table: [(&str, Demand, Demand); N]) {
    for (grant, given, kept) in table {
        assert!(granted(grant, &given), "{grant} gives {given}");
        assert!(!granted(grant, &kept), "{grant} does not give {kept}");
    }
}

#[test]
fn a_grant_gives_what_it_names_and_nothing_else() {
    let privileged = |name: &str| Demand::Capability(name.to_owned());
    gives_and_keeps([
        ("hostNetwork = true", Demand::HostNetwork, Demand::HostPid),
        ("hostPID = true", Demand::HostPid, Demand::HostIpc),
        ("hostIPC = true", Demand::HostIpc, Demand::HostNetwork),
        (
            "hostProcess = true",
            Demand::WindowsHostProcess,
            Demand::Privileged,
        ),
        (
            "privileged = true",
            Demand::Privileged,
            privileged("SYS_ADMIN"),
        ),
        (
            "capabilities = [\"CAP_NET_ADMIN\"]",
            privileged("NET_ADMIN"),
            privileged("ALL"),
        ),
        (
            "capabilities = [\"ALL\"]",
            privileged("ALL"),
            Demand::Privileged,
        ),
        (
            "hostPorts = [80, \"8000-8010\"]",
            Demand::HostPort(8010),
            Demand::HostPort(8011),
        ),
        (
            "sysctls = [\"net.core.*\"]",
            Demand::sysctl("net.core.somaxconn"),
            Demand::sysctl("net.corex"),
        ),
        (
            "sysctls = [\"kernel.msgmax\"]",
            Demand::sysctl("kernel.msgmax"),
            Demand::sysctl("kernel.msgmaxx"),
        ),
        (
            "seccompUnconfined = true",
            Demand::SeccompUnconfined,
            Demand::AppArmorUnconfined,
        ),
        (
            "appArmorUnconfined = true",
            Demand::AppArmorUnconfined,
            Demand::SeccompUnconfined,
        ),
        ("unmaskedProc = true", Demand::UnmaskedProc, path("/proc")),
        (
            "probeHosts = [\"127.0.0.1\"]",
            Demand::ProbeHost("127.0.0.1".to_owned()),
            Demand::ProbeHost("127.0.0.2".to_owned()),
        ),
        ("exec = true", Demand::Exec, Demand::Privileged),
        ("privileged = true", Demand::Privileged, Demand::Exec),
    ]);
}

#[test]
fn a_grant_of_a_path_gives_what_is_below_it() {
    gives_and_keeps([
        (
            "hostPaths = [{ prefix = \"/srv/a\" }]",
            path("/srv/a/b"),
            path("/srv/ab"),
        ),
        (
            "hostPaths = [{ prefix = \"/srv/a\", readOnly = true }]",
            reads("/srv/a"),
            path("/srv/a"),
        ),
        (
            "hostPaths = [{ prefix = \"/srv/a\" }]",
            reads("/srv//./a/"),
            reads("/srv"),
        ),
        (
            "devices = [\"/dev/fuse\"]",
            Demand::Device {
                path: "/dev/fuse".to_owned(),
                block: false,
            },
            Demand::Device {
                path: "/dev/fuse2".to_owned(),
                block: false,
            },
        ),
    ]);
}

#[test]
fn beyond_the_restricted_level_grants_count_too() {
    for (grant, given) in [
        ("users = [0]", Demand::User(0)),
        ("users = [\"0-10\"]", Demand::MayRunAsRoot),
        ("privilegeEscalation = true", Demand::PrivilegeEscalation),
        ("defaultCapabilities = true", Demand::DefaultCapabilities),
        ("seccompUnconfined = true", Demand::SeccompUnset),
        (
            "volumeKinds = [\"nfs\"]",
            Demand::VolumeKind("nfs".to_owned()),
        ),
        (
            "capabilities = [\"CHOWN\"]",
            Demand::Capability("CHOWN".to_owned()),
        ),
    ] {
        let restricted = "[sources]\nfile = \"restricted\"\n[[grants]]\npods = [\"default/web\"]\n";
        assert!(allowed(&format!("{restricted}{grant}"), &given), "{grant}");
        assert!(
            !allowed(&format!("{restricted}hostPID = true"), &given),
            "{grant}"
        );
    }
}

#[test]
fn no_level_gives_what_is_protected() {
    let privileged = "[sources]\nfile = \"privileged\"";
    for demand in [
        path("/run/containerd/containerd.sock"),
        path("/run/containerd"),
        path("/var/run/containerd/containerd.sock"),
        path("/run/containerd/other.sock"),
        reads("/run/bulkhead"),
        reads("/var/lib/bulkhead/pod-worker-pool"),
        reads("/proc"),
        reads("/proc/1/root"),
        reads("/dev"),
        reads("/dev/sda"),
        // Above something protected.
        reads("/"),
        reads("/run"),
        reads("/var/run"),
        reads("/var"),
        Demand::Device {
            path: "/srv/disk".to_owned(),
            block: true,
        },
        Demand::User(60001),
        Demand::Group(60001),
    ] {
        assert!(!allowed(privileged, &demand), "{demand}");
    }
    for demand in [
        path("/srv"),
        path("/run/other"),
        Demand::User(0),
        Demand::User(60002),
    ] {
        assert!(allowed(privileged, &demand), "{demand}");
    }
}

#[test]
fn what_is_protected_is_given_by_a_grant_that_names_it() {
    for (grant, demand, expected) in [
        (
            "{ prefix = \"/\" }",
            path("/run/containerd/containerd.sock"),
            false,
        ),
        (
            "{ prefix = \"/run\" }",
            path("/run/containerd/containerd.sock"),
            false,
        ),
        ("{ prefix = \"/run\" }", path("/run/other"), true),
        ("{ prefix = \"/run\" }", path("/run"), false),
        (
            "{ prefix = \"/run/containerd\" }",
            path("/run/containerd/containerd.sock"),
            true,
        ),
        (
            "{ prefix = \"/run/containerd\" }",
            path("/run/containerd"),
            true,
        ),
        (
            "{ prefix = \"/var/run/containerd\" }",
            path("/run/containerd"),
            true,
        ),
        (
            "{ prefix = \"/run/containerd/containerd.sock\" }",
            path("/run/containerd/containerd.sock"),
            true,
        ),
        (
            "{ prefix = \"/run/containerd/containerd.sock\" }",
            path("/run/containerd"),
            false,
        ),
        ("{ prefix = \"/dev/kmsg\" }", path("/dev/kmsg"), true),
        ("{ prefix = \"/dev/kmsg\" }", path("/dev/mem"), false),
        (
            "{ prefix = \"/\", includesProtected = true }",
            path("/"),
            true,
        ),
        (
            "{ prefix = \"/\", includesProtected = true }",
            path("/dev"),
            true,
        ),
        (
            "{ prefix = \"/\", readOnly = true, includesProtected = true }",
            path("/"),
            false,
        ),
        (
            "{ prefix = \"/\", readOnly = true, includesProtected = true }",
            reads("/"),
            true,
        ),
    ] {
        let found = granted(&format!("hostPaths = [{grant}]"), &demand);
        assert_eq!(found, expected, "{grant}: {demand}");
    }
    let disk = Demand::Device {
        path: "/srv/disk".to_owned(),
        block: true,
    };
    assert!(granted("devices = [\"/srv/disk\"]", &disk));
    assert!(!granted("devices = [\"/srv\"]", &disk));
}

#[test]
fn a_user_of_the_agent_is_named_by_itself_and_not_by_a_range() {
    for (grant, expected) in [
        ("users = [60001]", true),
        ("users = [\"60001-60001\"]", true),
        ("users = [\"60000-60002\"]", false),
        ("users = [\"0-4294967295\"]", false),
        ("groups = [60001]", false),
    ] {
        assert_eq!(granted(grant, &Demand::User(60001)), expected, "{grant}");
    }
    assert!(granted("groups = [60001]", &Demand::Group(60001)));
    assert!(!granted("users = [60001]", &Demand::Group(60001)));
}

#[test]
fn no_grant_gives_a_path_that_steps_back() {
    for text in ["../etc", "/srv/../etc", "etc", ""] {
        let everything = "hostPaths = [{ prefix = \"/\", includesProtected = true }]";
        assert!(!granted(everything, &path(text)), "{text:?}");
        let permit = policy("[sources]\nfile = \"privileged\"").permit_for(&web(&[]));
        let refusal = permit.check(&path(text), None).unwrap_err();
        assert!(matches!(refusal.rule, Rule::Path(_)), "{refusal}");
        assert_eq!(refusal.grant, None);
    }
}

#[test]
fn a_grant_is_for_the_pods_sources_and_images_that_it_names() {
    let subject = web(&["example.com/app:1", "example.com/side:1"]);
    for (selector, of_container, of_pod) in [
        ("pods = [\"default/web\"]", true, true),
        ("pods = [\"default/web-n1\"]", false, false),
        ("pods = [\"other/*\", \"*/w?b\"]", true, true),
        ("pods = [\"default/web\"]\nsources = [\"file\"]", true, true),
        (
            "pods = [\"default/web\"]\nsources = [\"http\", \"api\"]",
            false,
            false,
        ),
        ("images = [\"example.com/app\"]", true, false),
        ("images = [\"example.com/\"]", true, true),
        ("images = [\"example.com/side\"]", false, false),
        (
            "pods = [\"default/other\"]\nimages = [\"example.com/\"]",
            false,
            false,
        ),
    ] {
        let policy = policy(&format!("[[grants]]\n{selector}\nhostIPC = true"));
        let permit = policy.permit_for(&subject);
        let container = permit.check(&Demand::HostIpc, Some("example.com/app:1"));
        assert_eq!(container.is_ok(), of_container, "{selector}: container");
        assert_eq!(
            permit.check(&Demand::HostIpc, None).is_ok(),
            of_pod,
            "{selector}: pod"
        );
    }
}

#[test]
fn an_image_grant_gives_nothing_to_a_pod_without_images() {
    let policy = policy("[[grants]]\nimages = [\"example.com/\"]\nhostPID = true");
    assert!(
        policy
            .permit_for(&web(&[]))
            .check(&Demand::HostPid, None)
            .is_err()
    );
}

#[test]
fn a_refusal_says_the_rule_and_the_grant_that_would_allow_it() {
    let permit = Policy::without_file(protected()).permit_for(&web(&[]));
    for (demand, expected) in [
        (
            Demand::HostNetwork,
            "the node's network (hostNetwork) is not allowed at level baseline; this grant would \
             allow it: { pods = [\"default/web\"], sources = [\"file\"], hostNetwork = true }",
        ),
        (
            reads("/run/containerd"),
            "reading the node's path \"/run/containerd\" is not allowed without a grant that names \
             it: it is the directory of the container runtime's socket; this grant would allow it: \
             { pods = [\"default/web\"], sources = [\"file\"], hostPaths = [{ prefix = \
             \"/run/containerd\", readOnly = true }] }",
        ),
        (
            path("/"),
            "writing the node's path \"/\" is not allowed without a grant that names it: it \
             contains the node's devices; this grant would allow it: { pods = [\"default/web\"], \
             sources = [\"file\"], hostPaths = [{ includesProtected = true, prefix = \"/\" }] }",
        ),
        (
            path("/a/../b"),
            "writing the node's path \"/a/../b\" is refused: \"/a/../b\" has a component '..'",
        ),
    ] {
        assert_eq!(
            permit.check(&demand, None).unwrap_err().to_string(),
            expected
        );
    }
}

#[test]
fn the_grant_of_a_refusal_can_be_appended_to_the_policy() {
    let text = "mode = \"audit\"\n[sources]\nfile = \"restricted\"\n";
    let permit = policy(text).permit_for(&web(&[]));
    let refusal = permit.check(&reads("/"), None).unwrap_err();
    let appended = format!("{text}{}", refusal.grant.unwrap().to_toml());
    let permit = policy(&appended).permit_for(&web(&[]));
    assert_eq!(permit.check(&reads("/"), None), Ok(()));
}

#[test]
fn a_judgement_names_each_field_and_container() {
    let pod: Pod = serde_json::from_str(
        r#"{"metadata":{"namespace":"default","name":"web-n1"},"spec":{"hostNetwork":true,
            "containers":[{"name":"c","image":"i","securityContext":{"privileged":true}}]}}"#,
    )
    .unwrap();
    let subject = Subject::of(PodSource::File, &pod, "n1");
    let denials = Policy::without_file(protected())
        .judge(&subject, &pod)
        .unwrap_err();
    let found: Vec<_> = denials
        .iter()
        .map(|denial| (denial.field.as_str(), denial.container.as_deref()))
        .collect();
    let expected = [
        ("spec.hostNetwork", None),
        ("spec.containers[0].securityContext.privileged", Some("c")),
    ];
    assert_eq!(found, expected);
}

#[test]
fn a_pod_is_beyond_baseline_with_one_thing_that_not_every_pod_may_have() {
    let permit = policy("").permit_for(&web(&["example.com/app:1"]));
    for (spec, container, is_beyond) in [
        ("", "", false),
        ("", r#","securityContext":{"runAsUser":0}"#, false),
        ("", r#","securityContext":{"runAsUser":60001}"#, true),
        ("", r#","securityContext":{"privileged":true}"#, true),
        (
            "",
            r#","securityContext":{"capabilities":{"add":["CHOWN"]}}"#,
            false,
        ),
        (
            "",
            r#","securityContext":{"capabilities":{"add":["SYS_ADMIN"]}}"#,
            true,
        ),
        (r#""hostPID":true,"#, "", true),
        (
            r#""volumes":[{"name":"v","hostPath":{"path":"/srv"}}],"#,
            r#","volumeMounts":[{"name":"v","mountPath":"/v"}]"#,
            true,
        ),
    ] {
        let text = format!(
            r#"{{"spec":{{{spec}"containers":[{{"name":"c","image":"example.com/app:1"{container}}}]}}}}"#
        );
        let pod: Pod = serde_json::from_str(&text).expect("it is a pod");
        assert_eq!(permit.is_beyond_baseline(&pod), is_beyond, "{text}");
    }
}
