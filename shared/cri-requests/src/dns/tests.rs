//! What pods resolve names with, policy by policy and limit by limit.

use super::*;
use crate::test_pods::{node, pod};

fn pod_with(spec: &str) -> Pod {
    pod(&format!(
        r#"{{"metadata":{{"name":"p","namespace":"ns","uid":"u"}},"spec":{{"containers":[]{spec}}}}}"#
    ))
}

fn node_file() -> ResolvConf {
    parse_resolv_conf("nameserver 8.8.8.8\nsearch example.org\noptions ndots:2\n").unwrap()
}

fn line(config: &DnsConfig) -> String {
    let DnsConfig {
        servers,
        searches,
        options,
    } = config;
    format!(
        "{} | {} | {}",
        servers.join(" "),
        searches.join(" "),
        options.join(" ")
    )
}

#[test]
fn addresses_and_options_add_up_and_the_last_search_line_holds() {
    let text = "# comment\n; other\nnameserver 1.1.1.1\n\tnameserver  2.2.2.2 ignored\n\
                search a.b. c.d\nsearch e.f. .\noptions ndots:1 rotate ndots:2\n\
                options timeout:2 ndots:3\nsortlist 1.2.3.4\nnameserver fe80::1%eth0\n";
    let parsed = parse_resolv_conf(text).unwrap();
    assert_eq!(parsed.nameservers, ["1.1.1.1", "2.2.2.2", "fe80::1%eth0"]);
    assert_eq!(parsed.searches, ["e.f"]);
    assert_eq!(parsed.options, ["ndots:3", "rotate", "timeout:2"]);
    assert_eq!(parse_resolv_conf("").unwrap(), ResolvConf::default());
    assert_eq!(
        parse_resolv_conf("search x\nnameserver\n"),
        Err(ResolvConfError::EmptyNameserver { line: 2 })
    );
    // An empty search line takes an earlier one back.
    assert_eq!(
        parse_resolv_conf("search a.b\nsearch\n").unwrap().searches,
        [""; 0]
    );
}

#[test]
fn the_policy_decides_whom_a_pod_asks() {
    let cluster = "10.96.0.10 | ns.svc.cluster.local svc.cluster.local cluster.local \
                   example.org | ndots:5";
    let default = "8.8.8.8 | example.org | ndots:2";
    for (spec, expected) in [
        ("", cluster),
        (r#","dnsPolicy":"ClusterFirst""#, cluster),
        (r#","dnsPolicy":"ClusterFirst","hostNetwork":true"#, default),
        (
            r#","dnsPolicy":"ClusterFirstWithHostNet","hostNetwork":true"#,
            cluster,
        ),
        (r#","dnsPolicy":"Default""#, default),
        (r#","dnsPolicy":"None""#, " |  | "),
        (
            r#","dnsPolicy":"None","dnsConfig":{"nameservers":["9.9.9.9"],"searches":["x.y"],
                "options":[{"name":"ndots","value":"3"},{"name":"edns0"}]}"#,
            "9.9.9.9 | x.y | ndots:3 edns0",
        ),
        // The pod's own come after, duplicates vanish, its options win.
        (
            r#","dnsPolicy":"Default","dnsConfig":{"nameservers":["9.9.9.9","8.8.8.8"],
                "searches":["example.org","x.y"],"options":[{"name":"ndots","value":"7"}]}"#,
            "8.8.8.8 9.9.9.9 | example.org x.y | ndots:7",
        ),
    ] {
        let (config, warnings) = pod_dns(&pod_with(spec), &node(), Some(&node_file()));
        assert_eq!(line(&config), expected, "{spec}");
        assert_eq!(warnings, [], "{spec}");
    }
}

/// systemd writes it where a node's name is a whole one; with it no program of musl finds
/// any name.
#[test]
fn no_pod_gets_the_lone_dot_of_the_nodes_file() {
    let file = parse_resolv_conf("nameserver 127.0.0.53\nsearch .\n").unwrap();
    for (policy, expected) in [
        ("Default", ""),
        (
            "ClusterFirst",
            "ns.svc.cluster.local svc.cluster.local cluster.local",
        ),
    ] {
        let pod = pod_with(&format!(r#","dnsPolicy":"{policy}""#));
        let (config, _) = pod_dns(&pod, &node(), Some(&file));
        assert_eq!(config.searches.join(" "), expected, "{policy}");
    }
}

#[test]
fn without_cluster_dns_a_pod_falls_back_to_the_nodes_and_says_so() {
    let mut node = node();
    node.cluster_dns.clear();
    let (config, warnings) = pod_dns(&pod_with(""), &node, Some(&node_file()));
    assert_eq!(line(&config), "8.8.8.8 | example.org | ndots:2");
    assert_eq!(warnings[0].reason, "MissingClusterDNS");
    assert!(
        warnings[0].message.starts_with("pod: \"p_ns(u)\". "),
        "{}",
        warnings[0].message
    );
}

#[test]
fn without_a_cluster_domain_only_the_nodes_searches_are_left() {
    let mut node = node();
    node.cluster_domain.clear();
    let (config, _) = pod_dns(&pod_with(""), &node, Some(&node_file()));
    assert_eq!(line(&config), "10.96.0.10 | example.org | ndots:5");
}

#[test]
fn a_node_without_resolv_conf_gives_a_resolver_of_its_own_family() {
    let mut node = node();
    node.node_ips = vec!["10.0.0.1".parse().unwrap(), "fd00::1".parse().unwrap()];
    let pod = pod_with(r#","dnsPolicy":"Default""#);
    assert_eq!(line(&pod_dns(&pod, &node, None).0), "127.0.0.1 ::1 | . | ");
    node.node_ips.clear();
    assert_eq!(line(&pod_dns(&pod, &node, None).0), "127.0.0.1 | . | ");
}

#[test]
fn what_resolvers_do_not_take_is_left_out_with_a_warning() {
    let pod = pod_with(r#","dnsPolicy":"Default""#);
    let limited = |file: ResolvConf| pod_dns(&pod, &node(), Some(&file));

    let nameservers = ["1.1.1.1", "2.2.2.2", "3.3.3.3", "4.4.4.4"]
        .map(str::to_owned)
        .to_vec();
    let (config, warnings) = limited(ResolvConf {
        nameservers,
        ..ResolvConf::default()
    });
    assert_eq!(config.servers, ["1.1.1.1", "2.2.2.2", "3.3.3.3"]);
    assert!(
        warnings[0]
            .message
            .ends_with("line is: 1.1.1.1 2.2.2.2 3.3.3.3")
    );

    let searches = (0..40).map(|index| format!("d{index}")).collect();
    let (config, warnings) = limited(ResolvConf {
        searches,
        ..ResolvConf::default()
    });
    assert_eq!(config.searches.len(), 32);
    assert_eq!(warnings.len(), 1);

    let searches = vec!["a".repeat(254), "b".repeat(253)];
    let (config, warnings) = limited(ResolvConf {
        searches,
        ..ResolvConf::default()
    });
    assert_eq!(config.searches, ["b".repeat(253)]);
    assert_eq!(warnings[0].reason, "DNSConfigForming");

    // 2048 characters fit, with the spaces; one more does not.
    let mut searches: Vec<_> = (0..8)
        .map(|index| format!("{index}{}", "c".repeat(226)))
        .collect();
    searches.push("d".repeat(224));
    let (config, warnings) = limited(ResolvConf {
        searches: searches.clone(),
        ..ResolvConf::default()
    });
    assert_eq!((config.searches.join(" ").len(), warnings.len()), (2048, 0));
    searches[8].push('d');
    let (config, warnings) = limited(ResolvConf {
        searches,
        ..ResolvConf::default()
    });
    assert_eq!((config.searches.len(), warnings.len()), (8, 1));
}
