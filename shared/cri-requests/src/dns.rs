//! What a pod resolves names with: its DNS policy applied to the node's resolv.conf
//! and the cluster's DNS, within the limits that resolvers have.

use std::collections::HashSet;

use cri::v1::DnsConfig;
use pod::core::PodDNSConfig;
use pod::{Pod, PodExt};

use crate::node_facts::NodeFacts;

/// Longest resolv.conf that is read, as in the kubelet.
pub const MAX_RESOLV_CONF_BYTES: u64 = 10 << 20;

/// Name servers that resolvers look at.
const MAX_NAME_SERVERS: usize = 3;
/// Search domains that a pod may have.
const MAX_SEARCH_DOMAINS: usize = 32;
/// Characters that they may have together, with a space between each two.
const MAX_SEARCH_CHARACTERS: usize = 2048;
/// Longest search domain; some resolvers abort on longer ones.
const MAX_SEARCH_DOMAIN_LENGTH: usize = 253;

/// Options of a pod that asks the cluster's DNS: short names are tried in the search
/// domains first.
const CLUSTER_OPTIONS: [&str; 1] = ["ndots:5"];

/// What a resolv.conf says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ResolvConf {
    /// All `nameserver` lines.
    pub nameservers: Vec<String>,
    /// The last `search` line, without the dots at the end.
    pub searches: Vec<String>,
    /// Those of all `options` lines, each once.
    pub options: Vec<String>,
}

/// A resolv.conf that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ResolvConfError {
    /// A `nameserver` line without an address.
    #[error("line {line}: nameserver list is empty")]
    EmptyNameserver {
        /// Counted from 1.
        line: usize,
    },
}

/// Reads a resolv.conf the way the kubelet does: addresses and options add up, of `search`
/// the last line holds, and of an option the last value.
pub fn parse_resolv_conf(text: &str) -> Result<ResolvConf, ResolvConfError> {
    let mut parsed = ResolvConf::default();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.starts_with('#') {
            continue;
        }
        let mut words = line.split_whitespace();
        match words.next() {
            Some("nameserver") => match words.next() {
                Some(address) => parsed.nameservers.push(address.to_owned()),
                None => return Err(ResolvConfError::EmptyNameserver { line: index + 1 }),
            },
            Some("search") => parsed.searches = words.filter_map(search_domain).collect(),
            Some("options") => {
                for option in words {
                    let name = option_name(option);
                    set_option(&mut parsed.options, name, option.to_owned());
                }
            }
            _ => {}
        }
    }
    Ok(parsed)
}

/// A lone dot, by which systemd says "no search domain", is left out: resolvers of musl find
/// no name at all with it.
fn search_domain(domain: &str) -> Option<String> {
    let bare = domain.strip_suffix('.').unwrap_or(domain);
    (!bare.is_empty()).then(|| bare.to_owned())
}

fn option_name(option: &str) -> &str {
    option.split_once(':').map_or(option, |(name, _)| name)
}

/// Gives an option this text, in the place that it has already or at the end.
fn set_option(options: &mut Vec<String>, name: &str, text: String) {
    let mut existing = options.iter_mut();
    match existing.find(|existing| option_name(existing) == name) {
        Some(existing) => *existing = text,
        None => options.push(text),
    }
}

/// Something about a pod that its owner should know, as an event of this reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodWarning {
    /// `DNSConfigForming`, `MissingClusterDNS`.
    pub reason: &'static str,
    /// For people.
    pub message: String,
}

/// Whom a pod asks, by its policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DnsSource {
    Cluster,
    Node,
    Nobody,
}

fn dns_source(pod: &Pod) -> DnsSource {
    match pod.spec_or_default().dns_policy.as_deref() {
        Some("None") => DnsSource::Nobody,
        Some("Default") => DnsSource::Node,
        Some("ClusterFirstWithHostNet") => DnsSource::Cluster,
        _ if pod.host_network() => DnsSource::Node,
        _ => DnsSource::Cluster,
    }
}

/// The DNS configuration of a pod. `resolv_conf` is the node's, absent when the node
/// is configured to have none.
pub(super) fn pod_dns(
    pod: &Pod,
    node: &NodeFacts,
    resolv_conf: Option<&ResolvConf>,
) -> (DnsConfig, Vec<PodWarning>) {
    let mut warnings = Vec::new();
    let mut config = match dns_source(pod) {
        DnsSource::Nobody => DnsConfig::default(),
        DnsSource::Cluster if !node.cluster_dns.is_empty() => cluster_dns(pod, node, resolv_conf),
        DnsSource::Cluster => {
            warnings.push(missing_cluster_dns(pod));
            node_dns(node, resolv_conf)
        }
        DnsSource::Node => node_dns(node, resolv_conf),
    };
    if let Some(own) = &pod.spec_or_default().dns_config {
        append(&mut config, own);
    }
    limit_servers(&mut config.servers, &mut warnings);
    limit_searches(&mut config.searches, &mut warnings);
    (config, warnings)
}

fn cluster_dns(pod: &Pod, node: &NodeFacts, resolv_conf: Option<&ResolvConf>) -> DnsConfig {
    let mut searches = Vec::new();
    let domain = &node.cluster_domain;
    if !domain.is_empty() {
        searches.push(format!("{}.svc.{domain}", pod.namespace()));
        searches.push(format!("svc.{domain}"));
        searches.push(domain.clone());
    }
    searches.extend(
        resolv_conf
            .iter()
            .flat_map(|file| file.searches.iter().cloned()),
    );
    DnsConfig {
        servers: node.cluster_dns.iter().map(ToString::to_string).collect(),
        searches: without_duplicates(searches),
        options: CLUSTER_OPTIONS.map(str::to_owned).to_vec(),
    }
}

/// The node's own; a node that is configured to have none gets a resolver that nobody
/// answers on, because an empty list would make the runtime use the node's file.
fn node_dns(node: &NodeFacts, resolv_conf: Option<&ResolvConf>) -> DnsConfig {
    if let Some(file) = resolv_conf {
        return DnsConfig {
            servers: file.nameservers.clone(),
            searches: file.searches.clone(),
            options: file.options.clone(),
        };
    }
    let loopback = |ipv6| {
        if ipv6 {
            "::1".to_owned()
        } else {
            "127.0.0.1".to_owned()
        }
    };
    let mut servers: Vec<_> = node
        .node_ips
        .iter()
        .map(|ip| loopback(ip.is_ipv6()))
        .collect();
    if servers.is_empty() {
        servers.push(loopback(false));
    }
    DnsConfig {
        servers,
        searches: vec![".".to_owned()],
        options: Vec::new(),
    }
}

fn missing_cluster_dns(pod: &Pod) -> PodWarning {
    let (name, namespace, uid) = (pod.name(), pod.namespace(), pod.uid());
    PodWarning {
        reason: "MissingClusterDNS",
        message: format!(
            "pod: \"{name}_{namespace}({uid})\". kubelet does not have ClusterDNS IP configured \
             and cannot create Pod using \"ClusterFirst\" policy. Falling back to \"Default\" \
             policy."
        ),
    }
}

/// Adds what the pod states itself; of an option that is there already, the pod's
/// value holds.
fn append(config: &mut DnsConfig, own: &PodDNSConfig) {
    config
        .servers
        .extend(own.nameservers.iter().flatten().cloned());
    config.servers = without_duplicates(std::mem::take(&mut config.servers));
    config
        .searches
        .extend(own.searches.iter().flatten().cloned());
    config.searches = without_duplicates(std::mem::take(&mut config.searches));
    for option in own.options.iter().flatten() {
        let name = option.name.as_deref().unwrap_or_default();
        let text = match option.value.as_deref().filter(|value| !value.is_empty()) {
            Some(value) => format!("{name}:{value}"),
            None => name.to_owned(),
        };
        set_option(&mut config.options, name, text);
    }
}

fn without_duplicates(items: Vec<String>) -> Vec<String> {
    let mut seen = HashSet::new();
    items
        .into_iter()
        .filter(|item| seen.insert(item.clone()))
        .collect()
}

fn limit_servers(servers: &mut Vec<String>, warnings: &mut Vec<PodWarning>) {
    if servers.len() <= MAX_NAME_SERVERS {
        return;
    }
    servers.truncate(MAX_NAME_SERVERS);
    warnings.push(PodWarning {
        reason: "DNSConfigForming",
        message: format!(
            "Nameserver limits were exceeded, some nameservers have been omitted, the applied \
             nameserver line is: {}",
            servers.join(" ")
        ),
    });
}

fn limit_searches(searches: &mut Vec<String>, warnings: &mut Vec<PodWarning>) {
    let before = searches.len();
    searches.truncate(MAX_SEARCH_DOMAINS);
    searches.retain(|domain| domain.len() <= MAX_SEARCH_DOMAIN_LENGTH);
    let joined = |searches: &[String]| {
        searches.iter().map(String::len).sum::<usize>() + searches.len().saturating_sub(1)
    };
    while joined(searches) > MAX_SEARCH_CHARACTERS {
        searches.pop();
    }
    if searches.len() < before {
        warnings.push(PodWarning {
            reason: "DNSConfigForming",
            message: format!(
                "Search Line limits were exceeded, some search paths have been omitted, the \
                 applied search line is: {}",
                searches.join(" ")
            ),
        });
    }
}

#[cfg(test)]
mod tests;
