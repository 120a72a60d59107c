//! What a pod sees of networks, names and other processes, and who reaches it.

use std::fs;
use std::net::SocketAddr;

use anyhow::{Context as _, Result};
use cri::RuntimeReads as _;
use e2e::Ground;
use e2e::ground::{TIMEOUT, address};
use serde_json::{Value, json};
use test_support::images::{BUSYBOX, TESTAPP};
use test_support::node::NODE_INTERFACE;
use test_support::observe::{container_id, container_status};
use test_support::{BulkheadOptions, http, wait_for};

/// What admission says about a port that is taken.
const PORT_TAKEN: &str =
    "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports";

#[test]
fn containers_of_a_pod_share_its_address_and_others_reach_it() -> Result<()> {
    let ground = Ground::start(json!({}))?;
    ground.apply(
        "web",
        json!({ "containers": [server("app", 8080), shell()] }),
    )?;
    ground.apply("visitor", json!({ "containers": [shell()] }))?;
    let web = ground.ready("web")?;
    let visitor = ground.ready("visitor")?;

    let address = address(&web, 8080)?;
    assert_ne!(web["status"]["podIP"], visitor["status"]["podIP"]);
    assert_eq!(web["status"]["podIPs"][0]["ip"], web["status"]["podIP"]);
    assert_eq!(hostname_behind(&ground, address)?, own_name(&ground, "web"));
    // Its own containers by loopback, other pods by its address.
    let by_loopback = fetch(&ground, "web", "http://127.0.0.1:8080/hostname")?;
    let from_outside = fetch(&ground, "visitor", &format!("http://{address}/hostname"))?;
    assert_eq!(by_loopback, own_name(&ground, "web"));
    assert_eq!(from_outside, by_loopback);
    // A pod's loopback is its own.
    assert!(fetch(&ground, "visitor", "http://127.0.0.1:8080/").is_err());
    Ok(())
}

#[test]
fn a_port_of_the_node_leads_to_one_pod_and_a_second_one_is_refused() -> Result<()> {
    let ground = Ground::start(json!({}))?;
    let with_port = |protocol: &str| {
        let mut container = server("app", 8080);
        container["ports"] =
            json!([{ "containerPort": 8080, "hostPort": 18080, "protocol": protocol }]);
        json!({ "containers": [container] })
    };
    let port = SocketAddr::from((ground.node().address(), 18080));
    ground.apply("holder", with_port("TCP"))?;
    let holder = ground.ready("holder")?;
    assert_eq!(hostname_behind(&ground, port)?, own_name(&ground, "holder"));

    ground.apply("second", with_port("TCP"))?;
    ground.apply("datagrams", with_port("UDP"))?;
    let refused = wait_until_failed(&ground, "second")?;
    assert_eq!(refused["status"]["reason"], "NodePorts");
    let message = refused["status"]["message"].as_str().unwrap_or_default();
    let holder_name = ground.full_name("holder");
    let taken = format!("{PORT_TAKEN}: 18080/TCP is that of default/{holder_name}");
    assert!(message.contains(&taken), "{message}");
    assert!(container_id(&refused, "app").is_none(), "{refused}");
    // The port of another protocol is another port.
    ground.ready("datagrams")?;

    let now = ground.pod("holder")?;
    assert_eq!(container_id(&now, "app"), container_id(&holder, "app"));
    assert_eq!(hostname_behind(&ground, port)?, own_name(&ground, "holder"));

    // Free again, it goes to who asks next.
    ground.remove("holder")?;
    ground.apply("next", with_port("TCP"))?;
    ground.ready("next")?;
    assert_eq!(hostname_behind(&ground, port)?, own_name(&ground, "next"));
    Ok(())
}

/// What the package loads: `bulkhead-loopback.service`.
const LOOPBACK_RULES: &str = include_str!("../../../systemd/nftables/loopback.nft");

/// How many packets the rules have dropped so far.
fn dropped(ground: &Ground) -> Result<u64> {
    let table = ["list", "table", "ip", "bulkhead_loopback"];
    let shown = ground.node().output("/usr/sbin/nft", &table)?;
    let (_, counted) = shown.split_once("counter packets ").context("no counter")?;
    let number = counted.split(' ').next().unwrap_or_default();
    Ok(number.parse()?)
}

/// A pod that sends what is for loopback addresses to the node, and takes the answers.
fn visitor_of_loopback(ground: &Ground) -> Result<String> {
    let mut shell = shell();
    shell["securityContext"] = json!({ "capabilities": { "add": ["NET_ADMIN"] } });
    let takes_answers = json!([{ "name": "net.ipv4.conf.all.route_localnet", "value": "1" }]);
    let context = json!({ "sysctls": takes_answers });
    let spec = json!({ "containers": [shell], "securityContext": context });
    ground.apply("visitor", spec)?;
    ground.ready("visitor")?;
    let script = "gateway=$(ip route | sed -n 's/^default via \\([^ ]*\\).*/\\1/p') &&
        ip address delete 127.0.0.1/8 dev lo && ip route add 127.0.0.0/8 via $gateway &&
        echo $gateway";
    let gateway = ground.exec("visitor", "shell", &["sh", "-c", script])?;
    Ok(gateway.trim_end().to_owned())
}

#[test]
fn a_port_of_a_pod_is_served_at_the_nodes_loopback_and_no_pod_reaches_what_else_is_there()
-> Result<()> {
    let sysctls = json!(["net.ipv4.conf.all.route_localnet"]);
    let ground = Ground::start_with(&BulkheadOptions {
        policy: Some("[sources]\nfile = \"privileged\"\n".to_owned()),
        kubelet_configuration: [("allowedUnsafeSysctls".to_owned(), sysctls)]
            .into_iter()
            .collect(),
        ..BulkheadOptions::default()
    })?;
    let on_node = json!({ "hostNetwork": true, "containers": [server("app", 18081)] });
    ground.apply("on-node", on_node)?;
    let mut app = server("app", 8080);
    app["ports"] = json!([{ "containerPort": 8080, "hostPort": 18080 }]);
    ground.apply("holder", json!({ "containers": [app] }))?;
    ground.ready("on-node")?;
    ground.ready("holder")?;
    let gateway = visitor_of_loopback(&ground)?;
    let port = SocketAddr::from(([127, 0, 0, 1], 18080));
    let at_gateway = format!("http://{gateway}:18081/hostname");
    let of_node = hostname_behind(&ground, SocketAddr::new(gateway.parse()?, 18081))?;
    assert_eq!(fetch(&ground, "visitor", &at_gateway)?, of_node);
    let at_loopback = [
        "http://127.0.0.1:18081/hostname",
        "http://127.9.8.7:18081/hostname",
    ];

    // The plugin of host ports has opened all of it.
    assert_eq!(hostname_behind(&ground, port)?, own_name(&ground, "holder"));
    for url in at_loopback {
        assert_eq!(fetch(&ground, "visitor", url)?, of_node);
    }

    let rules = ground.node().directory().join("loopback.nft");
    fs::write(&rules, LOOPBACK_RULES)?;
    let load = ["-f".as_ref(), rules.as_os_str()];
    // A second time, they take the place of the first.
    for _ in 0..2 {
        ground.node().output("/usr/sbin/nft", &load)?;
    }
    assert_eq!(dropped(&ground)?, 0);
    for url in at_loopback {
        let before = dropped(&ground)?;
        let command = ["timeout", "2", "wget", "-q", "-O", "-", url];
        assert!(ground.exec("visitor", "shell", &command).is_err(), "{url}");
        assert!(dropped(&ground)? > before, "{url}");
    }
    assert_eq!(hostname_behind(&ground, port)?, own_name(&ground, "holder"));
    assert_eq!(fetch(&ground, "visitor", &at_gateway)?, of_node);
    Ok(())
}

#[test]
fn a_pod_may_be_on_the_nodes_network_and_see_its_processes_and_ipc() -> Result<()> {
    let ground = Ground::start(json!({}))?;
    let plain = json!({ "containers": [shell()] });
    let on_node = json!({
        "hostNetwork": true,
        "containers": [server("app", 18081), shell()],
        "hostAliases": [{ "ip": "192.0.2.7", "hostnames": ["alias"] }],
    });
    let with_processes = json!({ "hostPID": true, "containers": [shell()] });
    let with_ipc = json!({ "hostIPC": true, "containers": [shell()] });
    let pods = [
        ("plain", plain),
        ("network", on_node),
        ("processes", with_processes),
        ("ipc", with_ipc),
    ];
    for (name, spec) in &pods {
        ground.apply(name, spec.clone())?;
    }
    for (name, _) in &pods {
        ground.ready(name)?;
    }

    let network = ground.pod("network")?;
    let node_ip = ground.node().address().to_string();
    assert_eq!(network["status"]["podIP"], node_ip.as_str());
    assert_eq!(network["status"]["hostIP"], node_ip.as_str());
    let port = SocketAddr::from((ground.node().address(), 18081));
    assert_eq!(
        http::request(ground.node(), "GET", port, "/healthz")?.status,
        200
    );
    let hosts = ground.exec("network", "shell", &["cat", "/etc/hosts"])?;
    let of_node = fs::read_to_string("/etc/hosts").context("/etc/hosts")?;
    assert!(
        hosts.starts_with("# Kubernetes-managed hosts file (host network).\n"),
        "{hosts}"
    );
    assert!(hosts.contains(&of_node), "{hosts}");
    assert!(hosts.contains("\n192.0.2.7\talias\n"), "{hosts}");

    let containerd = ground.containerd.pid().context("containerd runs")?;
    let name_of_process = format!("/proc/{containerd}/comm");
    let own_ipc = fs::read_link("/proc/self/ns/ipc")?;
    let own_ipc = own_ipc.to_string_lossy();
    for (name, _) in &pods {
        let interfaces = ground.exec(name, "shell", &["cat", "/proc/net/dev"])?;
        assert_eq!(
            interfaces.contains(NODE_INTERFACE),
            *name == "network",
            "{name}"
        );
        let process = ground.exec(name, "shell", &["cat", &name_of_process]);
        let sees_containerd = process.is_ok_and(|process| process == "containerd\n");
        assert_eq!(sees_containerd, *name == "processes", "{name}");
        let ipc = ground.exec(name, "shell", &["readlink", "/proc/self/ns/ipc"])?;
        assert_eq!(ipc.trim_end() == own_ipc, *name == "ipc", "{name}");
    }
    Ok(())
}

#[test]
fn containers_see_each_others_processes_only_when_they_share_them() -> Result<()> {
    let ground = Ground::start(json!({}))?;
    for (name, share) in [("shared", true), ("apart", false)] {
        let containers = json!([server("app", 8080), shell()]);
        let spec = json!({ "shareProcessNamespace": share, "containers": containers });
        ground.apply(name, spec)?;
    }
    for (name, share) in [("shared", true), ("apart", false)] {
        ground.ready(name)?;
        let processes = ground.exec(name, "shell", &["ps", "-o", "pid,args"])?;
        assert_eq!(processes.contains("testapp --http"), share, "{processes}");
        let first = ground.exec(name, "shell", &["cat", "/proc/1/comm"])?;
        assert_eq!(first, if share { "pause\n" } else { "sh\n" });
    }

    // A container that ends takes nobody along who shares its processes.
    let before = ground.pod("shared")?;
    let app = address(&before, 8080)?;
    http::request(ground.node(), "POST", app, "/exit?code=3")?;
    let what = "to have its server started again";
    ground
        .bulkhead
        .wait_for_pod("shared", what, TIMEOUT, |pod| {
            let status = container_status(pod, "app").ok_or("no status")?;
            match status["restartCount"].as_u64() {
                Some(1) if status["state"]["running"].is_object() => Ok(()),
                _ => Err("not yet".to_owned()),
            }
        })?;
    let after = ground.pod("shared")?;
    assert_eq!(
        container_id(&after, "shell"),
        container_id(&before, "shell")
    );
    Ok(())
}

#[test]
fn names_are_those_that_the_pod_asks_for() -> Result<()> {
    let ground = Ground::start(json!({ "clusterDomain": "cluster.test" }))?;
    let aliases = json!([
        { "ip": "192.0.2.7", "hostnames": ["one", "two.example"] },
        { "ip": "2001:db8::7", "hostnames": ["six"] },
    ]);
    let pods = [
        ("plain", json!({})),
        (
            "named",
            json!({ "hostname": "alice", "hostAliases": aliases }),
        ),
        ("placed", json!({ "hostname": "bob", "subdomain": "crew" })),
        (
            "full",
            json!({ "hostname": "carol", "subdomain": "crew", "setHostnameAsFQDN": true }),
        ),
    ];
    for (name, fields) in &pods {
        let mut spec = fields.clone();
        spec["containers"] = json!([shell()]);
        ground.apply(name, spec)?;
    }
    let plain = own_name(&ground, "plain");
    for (name, host, entry) in [
        ("plain", plain.as_str(), plain.as_str()),
        ("named", "alice", "alice"),
        ("placed", "bob", "bob.crew.default.svc.cluster.test\tbob"),
        (
            "full",
            "carol.crew.default.svc.cluster.test",
            "carol.crew.default.svc.cluster.test\tcarol",
        ),
    ] {
        let pod = ground.ready(name)?;
        let ip = pod["status"]["podIP"].as_str().context("no address")?;
        assert_eq!(ground.exec(name, "shell", &["hostname"])?.trim_end(), host);
        let hosts = ground.exec(name, "shell", &["cat", "/etc/hosts"])?;
        assert!(
            hosts.starts_with("# Kubernetes-managed hosts file.\n"),
            "{hosts}"
        );
        assert!(hosts.contains("\n127.0.0.1\tlocalhost\n"), "{hosts}");
        assert!(hosts.contains(&format!("\n{ip}\t{entry}\n")), "{hosts}");
        let aliased = hosts.contains("\n192.0.2.7\tone\ttwo.example\n2001:db8::7\tsix\n");
        assert_eq!(aliased, name == "named", "{hosts}");
    }
    // Any user of the pod may read it, and tell why it ends.
    let files = ["stat", "-c", "%a", "/etc/hosts", "/dev/termination-log"];
    assert_eq!(ground.exec("plain", "shell", &files)?, "644\n666\n");
    // The file is what programs look names up in.
    let found = ground.exec(
        "named",
        "shell",
        &["ping", "-c", "1", "-w", "1", "two.example"],
    );
    let answer = format!("{found:?}");
    assert!(answer.contains("(192.0.2.7)"), "{answer}");
    Ok(())
}

#[test]
fn names_are_resolved_as_policy_and_configuration_of_the_pod_say() -> Result<()> {
    let ground = Ground::start(json!({
        "clusterDomain": "cluster.test",
        "clusterDNS": ["10.96.0.10"],
    }))?;
    let own = json!({
        "nameservers": ["192.0.2.53"],
        "searches": ["own.example"],
        "options": [{ "name": "timeout", "value": "1" }, { "name": "rotate" }],
    });
    let cluster = "search default.svc.cluster.test svc.cluster.test cluster.test\n\
                   nameserver 10.96.0.10\noptions ndots:5\n";
    let node = "nameserver 127.0.0.1\n";
    let cases = [
        ("unsaid", json!({}), cluster),
        ("cluster", json!({ "dnsPolicy": "ClusterFirst" }), cluster),
        ("default", json!({ "dnsPolicy": "Default" }), node),
        ("onnode", json!({ "hostNetwork": true }), node),
        (
            "onnodecluster",
            json!({ "hostNetwork": true, "dnsPolicy": "ClusterFirstWithHostNet" }),
            cluster,
        ),
        (
            "none",
            json!({ "dnsPolicy": "None", "dnsConfig": own.clone() }),
            "search own.example\nnameserver 192.0.2.53\noptions timeout:1 rotate\n",
        ),
        (
            "merged",
            json!({ "dnsPolicy": "ClusterFirst", "dnsConfig": own }),
            "search default.svc.cluster.test svc.cluster.test cluster.test own.example\n\
             nameserver 10.96.0.10\nnameserver 192.0.2.53\noptions ndots:5 timeout:1 rotate\n",
        ),
    ];
    for (name, fields, _) in &cases {
        let mut spec = fields.clone();
        spec["containers"] = json!([shell()]);
        ground.apply(name, spec)?;
    }
    for (name, _, expected) in &cases {
        ground.ready(name)?;
        let file = ground.exec(name, "shell", &["cat", "/etc/resolv.conf"])?;
        assert_eq!(
            sorted_words(&file),
            sorted_words(expected),
            "{name}: {file}"
        );
    }
    Ok(())
}

/// Lines in any order; the options, which nobody reads in order, too.
fn sorted_words(resolv_conf: &str) -> Vec<Vec<&str>> {
    let words = |line| {
        let mut words: Vec<&str> = str::split_whitespace(line).collect();
        if words.first() == Some(&"options") {
            words.sort_unstable();
        }
        words
    };
    let mut lines: Vec<_> = resolv_conf.lines().map(words).collect();
    // Stable, so that name servers keep their order.
    lines.sort_by_key(|words| words.first().copied());
    lines
}

fn server(name: &str, port: u16) -> Value {
    json!({
        "name": name,
        "image": TESTAPP,
        "args": ["--http", port.to_string()],
    })
}

fn shell() -> Value {
    json!({
        "name": "shell",
        "image": BUSYBOX,
        "command": ["sh", "-c", "trap 'exit 0' TERM; while true; do sleep 1 & wait; done"],
    })
}

/// What the host of a pod without a name of its own is called.
fn own_name(ground: &Ground, pod: &str) -> String {
    format!("{pod}-{}", ground.bulkhead.node_name())
}

/// Asks for a page from inside a pod.
fn fetch(ground: &Ground, pod: &str, url: &str) -> Result<String> {
    let command = ["wget", "-q", "-O", "-", url];
    Ok(ground.exec(pod, "shell", &command)?.trim_end().to_owned())
}

/// Asks for the host name from the node, once somebody answers.
fn hostname_behind(ground: &Ground, address: SocketAddr) -> Result<String> {
    let answer = wait_for("an answer", TIMEOUT, || {
        http::request(ground.node(), "GET", address, "/hostname")
    })?;
    Ok(answer.body.trim_end().to_owned())
}

fn wait_until_failed(ground: &Ground, name: &str) -> Result<Value> {
    let found = ground
        .bulkhead
        .wait_for_pod(name, "to be rejected", TIMEOUT, |pod| {
            if pod["status"]["phase"] == "Failed" {
                Ok(pod.clone())
            } else {
                Err("not Failed".to_owned())
            }
        });
    Ok(found?)
}

#[test]
fn without_a_pod_network_pods_on_the_nodes_own_start_and_others_say_why_not() -> Result<()> {
    let ground = Ground::start(json!({}))?;
    let directory = ground.containerd.socket().with_file_name("network");
    let configuration = directory.join("10-bridge.conflist");
    let text = fs::read(&configuration)?;
    fs::remove_file(&configuration)?;
    wait_for("the runtime to notice", TIMEOUT, || {
        let status = ground.containerd.client().status(false);
        let status = ground.containerd.block_on(status);
        let status = status.map_err(|error| error.to_string())?;
        let mut conditions = status.status.iter().flat_map(|it| &it.conditions);
        let has_lost_it = conditions.any(|it| it.r#type == "NetworkReady" && !it.status);
        has_lost_it.then_some(()).ok_or(format!("{status:?}"))
    })?;

    let mut on_node = json!({ "containers": [server("app", 8080)] });
    ground.apply("pod-network", on_node.clone())?;
    on_node["hostNetwork"] = json!(true);
    ground.apply("on-node", on_node)?;
    ground.ready("on-node")?;
    ground.event("pod-network", "NetworkNotReady", "network is not ready: ")?;
    assert_eq!(ground.pod("pod-network")?["status"]["phase"], "Pending");

    fs::write(&configuration, text)?;
    ground.ready("pod-network")?;
    Ok(())
}
