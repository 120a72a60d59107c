//! Names and addresses: host name, DNS and entries of the hosts file.

use pod::core::{PodDNSConfig, PodSpec};

use crate::field::{Errors, Path};
use crate::formats;
use crate::optional::{list, text};

/// Limits of the C library's resolver, and what it has grown to.
const MAX_NAME_SERVERS: usize = 3;
const MAX_SEARCH_DOMAINS: usize = 32;
const MAX_SEARCH_CHARACTERS: usize = 2048;

/// Longest host name that the kernel takes.
const MAX_HOST_NAME_BYTES: usize = 64;

pub(super) fn validate(spec: &PodSpec, path: Path<'_>, errors: &mut Errors) {
    for (name, value) in [("hostname", &spec.hostname), ("subdomain", &spec.subdomain)] {
        let value = text(value);
        if !value.is_empty() {
            errors.invalid_if(path.child(name), value, formats::dns1123_label(value));
        }
    }
    hostname_override(spec, path.child("hostnameOverride"), errors);
    let policy = text(&spec.dns_policy);
    let policies = &["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];
    errors.one_of(path.child("dnsPolicy"), policy, policies);
    dns(
        spec.dns_config.as_ref(),
        policy,
        path.child("dnsConfig"),
        errors,
    );
    // The API server leaves the indexes out of these paths.
    let aliases = path.child("hostAliases");
    for alias in list(&spec.host_aliases) {
        errors.invalid_if(
            aliases.child("ip"),
            &alias.ip,
            formats::ip_address(&alias.ip),
        );
        for name in list(&alias.hostnames) {
            let problem = formats::dns1123_subdomain(name);
            errors.invalid_if(aliases.child("hostnames"), name, problem);
        }
    }
}

/// A name that stands for all others, as API servers since 1.34 have it.
fn hostname_override(spec: &PodSpec, path: Path<'_>, errors: &mut Errors) {
    let name = text(&spec.hostname_override);
    if name.is_empty() {
        return;
    }
    errors.invalid_if(path, name, formats::dns1123_subdomain(name));
    if name.len() > MAX_HOST_NAME_BYTES {
        errors.invalid(path, name, "must have at most 64 characters");
    }
    for (is_set, field) in [
        (spec.host_network == Some(true), "hostNetwork"),
        (spec.set_hostname_as_fqdn == Some(true), "setHostnameAsFQDN"),
    ] {
        if is_set {
            errors.forbidden(path, &format!("may not be given together with {field}"));
        }
    }
}

fn dns(config: Option<&PodDNSConfig>, policy: &str, path: Path<'_>, errors: &mut Errors) {
    let Some(config) = config else {
        if policy == "None" {
            errors.required(path, "dnsPolicy None needs it");
        }
        return;
    };
    let servers = list(&config.nameservers);
    let servers_path = path.child("nameservers");
    if policy == "None" && servers.is_empty() {
        return errors.required(servers_path, "dnsPolicy None needs at least one");
    }
    if servers.len() > MAX_NAME_SERVERS {
        errors.invalid(servers_path, servers.len(), "must not be more than 3");
    }
    for (index, server) in servers.iter().enumerate() {
        errors.invalid_if(
            servers_path.index(index),
            server,
            formats::ip_address(server),
        );
    }
    let searches = list(&config.searches);
    let searches_path = path.child("searches");
    if searches.len() > MAX_SEARCH_DOMAINS {
        errors.invalid(searches_path, searches.len(), "must not be more than 32");
    }
    if searches.join(" ").len() > MAX_SEARCH_CHARACTERS {
        errors.invalid(
            searches_path,
            "",
            "must not have more than 2048 characters in all",
        );
    }
    for (index, search) in searches.iter().enumerate() {
        let problem = formats::search_domain(search);
        errors.invalid_if(searches_path.index(index), search, problem);
    }
    let options = path.child("options");
    for (index, option) in list(&config.options).iter().enumerate() {
        if text(&option.name).is_empty() {
            errors.required(options.index(index), "must have a name");
        }
    }
}
