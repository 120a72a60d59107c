//! Contents of a pod's `/etc/hosts`.

use std::fmt::Write as _;
use std::net::IpAddr;

use pod::core::HostAlias;

use crate::hostname::HostNames;

/// First line of the file of a pod with its own network.
pub(crate) const MANAGED_HOSTS_HEADER: &str = "# Kubernetes-managed hosts file.\n";
/// First line of the file of a pod on the node's network.
const HOST_NETWORK_HEADER: &str = "# Kubernetes-managed hosts file (host network).\n";

/// What every pod with its own network finds there: loopback, and the IPv6 multicast
/// names by the addresses that the kubelet gives them.
const COMMON_ENTRIES: &str = "127.0.0.1\tlocalhost\n\
     ::1\tlocalhost ip6-localhost ip6-loopback\n\
     fe00::0\tip6-localnet\n\
     fe00::0\tip6-mcastprefix\n\
     fe00::1\tip6-allnodes\n\
     fe00::2\tip6-allrouters\n";

/// The file of a pod with its own network: itself, under each of its addresses.
pub fn managed_hosts_file(pod_ips: &[IpAddr], names: &HostNames, aliases: &[HostAlias]) -> String {
    let mut text = format!("{MANAGED_HOSTS_HEADER}{COMMON_ENTRIES}");
    let HostNames { host, domain, .. } = names;
    for ip in pod_ips {
        // Writing to a String cannot fail.
        let _ = if domain.is_empty() {
            writeln!(text, "{ip}\t{host}")
        } else {
            writeln!(text, "{ip}\t{host}.{domain}\t{host}")
        };
    }
    push_aliases(&mut text, aliases);
    text
}

/// The file of a pod on the node's network: the node's own, and the aliases.
pub fn node_hosts_file(node_file: &str, aliases: &[HostAlias]) -> String {
    let mut text = format!("{HOST_NETWORK_HEADER}{node_file}");
    push_aliases(&mut text, aliases);
    text
}

fn push_aliases(text: &mut String, aliases: &[HostAlias]) {
    if aliases.is_empty() {
        return;
    }
    text.push_str("\n# Entries added by HostAliases.\n");
    for alias in aliases {
        let hosts = alias.hostnames.as_deref().unwrap_or_default().join("\t");
        let _ = writeln!(text, "{}\t{hosts}", alias.ip);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(host: &str, domain: &str) -> HostNames {
        HostNames {
            host: host.into(),
            domain: domain.into(),
            sandbox: host.into(),
        }
    }

    fn alias(ip: &str, hosts: &[&str]) -> HostAlias {
        let hostnames = hosts.iter().map(|&host| host.to_owned()).collect();
        HostAlias {
            ip: ip.to_owned(),
            hostnames: Some(hostnames),
        }
    }

    #[test]
    fn a_pod_finds_itself_under_each_address() {
        let ips = ["10.0.0.2".parse().unwrap(), "fd00::2".parse().unwrap()];
        let text = managed_hosts_file(&ips, &names("web", ""), &[]);
        assert!(text.starts_with("# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n"));
        assert!(text.ends_with("fe00::2\tip6-allrouters\n10.0.0.2\tweb\nfd00::2\tweb\n"));
        let text = managed_hosts_file(&ips[..1], &names("h", "s.ns.svc.cluster.local"), &[]);
        assert!(
            text.ends_with("\n10.0.0.2\th.s.ns.svc.cluster.local\th\n"),
            "{text}"
        );
    }

    #[test]
    fn aliases_come_last_one_line_for_each_address() {
        let aliases = [alias("1.2.3.4", &["a.b", "c"]), alias("::5", &["d"])];
        let end = "\n\n# Entries added by HostAliases.\n1.2.3.4\ta.b\tc\n::5\td\n";
        let text = managed_hosts_file(&[], &names("web", ""), &aliases);
        assert!(text.ends_with(end), "{text}");
        let text = node_hosts_file("127.0.0.1 node\n", &aliases);
        assert_eq!(
            text,
            format!("# Kubernetes-managed hosts file (host network).\n127.0.0.1 node{end}")
        );
    }
}
