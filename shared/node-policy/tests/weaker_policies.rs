//! Policies that are weaker than the one without a file: each shows in what is never to be
//! granted by chance, and in nothing else.

use node_policy::{Demand, Policy, Protected, SeLinuxOption, Subject};
use pod::PodSource;

const IMAGE: &str = "example.com/app:1";

fn protected() -> Protected {
    let mut protected = Protected::default();
    let added = protected.add_runtime_socket("/run/containerd/containerd.sock");
    assert!(added.is_ok(), "{added:?}");
    protected.add_user(60001, "the user of pleg");
    protected.add_group(60001, "the group of pleg");
    protected
}

/// What a pod asks for that would be the node, or a part of the agent.
fn hostile() -> Vec<Demand> {
    let path = |path: &str, read_only| Demand::HostPath {
        path: path.to_owned(),
        read_only,
    };
    let disk = Demand::Device {
        path: "/dev/sda".to_owned(),
        block: true,
    };
    vec![
        Demand::Privileged,
        Demand::HostNetwork,
        Demand::HostPid,
        Demand::HostIpc,
        Demand::WindowsHostProcess,
        Demand::UnmaskedProc,
        Demand::SeccompUnconfined,
        Demand::AppArmorUnconfined,
        Demand::SeLinux(SeLinuxOption::Type, "spc_t".to_owned()),
        Demand::Capability("ALL".to_owned()),
        Demand::Capability("SYS_ADMIN".to_owned()),
        Demand::Capability("NET_RAW".to_owned()),
        Demand::HostPort(80),
        Demand::ProbeHost("127.0.0.1".to_owned()),
        Demand::Exec,
        Demand::sysctl("kernel.msgmax"),
        Demand::User(60001),
        Demand::Group(60001),
        path("/srv", true),
        path("/etc", false),
        path("/run/containerd/containerd.sock", false),
        path("/proc", true),
        disk,
    ]
}

/// The hostile demands that a policy lets through.
fn let_through(policy: &str) -> Vec<String> {
    let policy =
        Policy::parse(policy, protected()).unwrap_or_else(|error| panic!("{policy}: {error}"));
    let images = vec![IMAGE.to_owned()];
    let subject = Subject::new(PodSource::File, "default", "web-n1", "n1", images);
    let permit = policy.permit_for(&subject);
    let demands = hostile().into_iter();
    let through = demands.filter(|demand| permit.check(demand, Some(IMAGE)).is_ok());
    through.map(|demand| format!("{demand:?}")).collect()
}

#[test]
fn the_policy_without_a_file_lets_no_hostile_demand_through() {
    assert_eq!(let_through(""), Vec::<String>::new());
}

#[test]
fn a_weaker_policy_shows() {
    for (grant, fewest) in [
        ("privileged = true", 1),
        ("hostNetwork = true", 1),
        ("hostPID = true", 1),
        ("hostIPC = true", 1),
        ("hostProcess = true", 1),
        ("unmaskedProc = true", 1),
        ("seccompUnconfined = true", 1),
        ("appArmorUnconfined = true", 1),
        ("capabilities = [\"ALL\"]", 1),
        ("capabilities = [\"cap_sys_admin\"]", 1),
        ("capabilities = [\"NET_RAW\"]", 1),
        ("hostPorts = [\"1-65535\"]", 1),
        ("probeHosts = [\"127.0.0.1\"]", 1),
        ("exec = true", 1),
        ("sysctls = [\"kernel.*\"]", 1),
        ("hostPaths = [{ prefix = \"/srv\", readOnly = true }]", 1),
        ("hostPaths = [{ prefix = \"/etc\" }]", 1),
        ("hostPaths = [{ prefix = \"/\" }]", 2),
        (
            "hostPaths = [{ prefix = \"/\", includesProtected = true }]",
            4,
        ),
    ] {
        for pods in ["default/web", "*/*"] {
            let weaker = format!("[[grants]]\npods = [\"{pods}\"]\n{grant}\n");
            let through = let_through(&weaker);
            assert_eq!(through.len(), fewest, "{weaker}: {through:?}");
        }
        let of_another = format!("[[grants]]\npods = [\"default/other\"]\n{grant}\n");
        assert_eq!(let_through(&of_another), Vec::<String>::new());
    }
    for (level, fewest) in [("privileged", 18), ("baseline", 0), ("restricted", 0)] {
        let through = let_through(&format!("[sources]\nfile = \"{level}\"\n"));
        assert_eq!(through.len(), fewest, "{level}: {through:?}");
    }
}
