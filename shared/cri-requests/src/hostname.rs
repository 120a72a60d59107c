//! Host names of a pod: what its sandbox is called and what its hosts file says.

use pod::{Pod, PodExt};

use crate::error::BuildError;

/// Longest host name in a pod: the kernel's 64 bytes with their terminator.
const MAX_HOST_NAME_BYTES: usize = 63;
/// Longest fully qualified name that `setHostnameAsFQDN` may come to.
const MAX_FQDN_BYTES: usize = 64;

/// The names of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostNames {
    /// Without the domain.
    pub host: String,
    /// `<subdomain>.<namespace>.svc.<cluster domain>`; empty without a subdomain.
    pub domain: String,
    /// What the sandbox is called: the host, or all of it with `setHostnameAsFQDN`.
    pub sandbox: String,
}

/// The names of a pod: `spec.hostnameOverride` alone, or `spec.hostname` or the pod's name
/// with its domain; cut to what the kernel takes.
pub fn host_names(pod: &Pod, cluster_domain: &str) -> Result<HostNames, BuildError> {
    let spec = pod.spec_or_default();
    let name = spec.hostname_override.as_deref();
    if let Some(name) = name.filter(|name| !name.is_empty()) {
        if !pod::identity::is_dns1123_subdomain(name) {
            let reason = format!("{name:?} is not a DNS-1123 subdomain");
            return Err(BuildError::invalid("spec.hostnameOverride", reason));
        }
        let host = truncated(name).to_owned();
        return Ok(HostNames {
            sandbox: host.clone(),
            host,
            domain: String::new(),
        });
    }
    let host = match spec.hostname.as_deref().filter(|host| !host.is_empty()) {
        Some(host) => label("spec.hostname", host)?,
        None => pod.name(),
    };
    let host = truncated(host).to_owned();
    let domain = match spec
        .subdomain
        .as_deref()
        .filter(|subdomain| !subdomain.is_empty())
    {
        Some(subdomain) => {
            let subdomain = label("spec.subdomain", subdomain)?;
            format!("{subdomain}.{}.svc.{cluster_domain}", pod.namespace())
        }
        None => String::new(),
    };
    let sandbox = if spec.set_hostname_as_fqdn == Some(true) && !domain.is_empty() {
        let name = format!("{host}.{domain}");
        let length = name.len();
        if length > MAX_FQDN_BYTES {
            return Err(BuildError::HostNameTooLong {
                name,
                limit: MAX_FQDN_BYTES,
                length,
            });
        }
        name
    } else {
        host.clone()
    };
    Ok(HostNames {
        host,
        domain,
        sandbox,
    })
}

fn label<'a>(field: &str, value: &'a str) -> Result<&'a str, BuildError> {
    if pod::identity::is_dns1123_label(value) {
        return Ok(value);
    }
    Err(BuildError::invalid(
        field,
        format!("{value:?} is not a DNS-1123 label"),
    ))
}

/// Cut to 63 bytes, and not ending in a dash or dot for it.
fn truncated(host: &str) -> &str {
    if host.len() <= MAX_HOST_NAME_BYTES {
        return host;
    }
    host[..host.floor_char_boundary(MAX_HOST_NAME_BYTES)].trim_end_matches(['-', '.'])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_pods::pod;

    fn names(name: &str, spec: &str) -> Result<HostNames, BuildError> {
        let pod = pod(&format!(
            r#"{{"metadata":{{"name":"{name}","namespace":"ns"}},"spec":{{"containers":[]{spec}}}}}"#
        ));
        host_names(&pod, "cluster.local")
    }

    #[test]
    fn a_pod_is_called_by_its_host_name_or_its_own() {
        let plain = names("web", "").unwrap();
        assert_eq!((plain.host.as_str(), plain.domain.as_str()), ("web", ""));
        let named = names("web", r#","hostname":"h","subdomain":"s""#).unwrap();
        assert_eq!(named.sandbox, "h");
        assert_eq!(named.domain, "s.ns.svc.cluster.local");
    }

    #[test]
    fn an_override_is_the_whole_name_whatever_else_is_said() {
        let others = r#","hostname":"h","subdomain":"s""#;
        let found = names(
            "web",
            &format!(r#"{others},"hostnameOverride":"a.example.org""#),
        );
        let found = found.unwrap();
        assert_eq!(
            (found.host.as_str(), found.domain.as_str()),
            ("a.example.org", "")
        );
        assert_eq!(found.sandbox, "a.example.org");
        let empty = names("web", r#","hostnameOverride":"""#).unwrap();
        assert_eq!(empty.sandbox, "web");
        let long = names(
            "web",
            &format!(r#","hostnameOverride":"{}.b""#, "a".repeat(62)),
        );
        assert_eq!(long.unwrap().sandbox, "a".repeat(62));
        let error = names("web", r#","hostnameOverride":"A_B""#).unwrap_err();
        assert_eq!(
            error.to_string(),
            r#"spec.hostnameOverride: "A_B" is not a DNS-1123 subdomain"#
        );
    }

    #[test]
    fn a_long_name_is_cut_and_does_not_end_in_punctuation() {
        let exact = "a".repeat(63);
        assert_eq!(names(&exact, "").unwrap().host, exact);
        assert_eq!(names(&format!("{exact}b"), "").unwrap().host, exact);
        let dashed = format!("{}--.-bbb", "a".repeat(59));
        assert_eq!(names(&dashed, "").unwrap().host, "a".repeat(59));
    }

    #[test]
    fn the_whole_name_is_used_only_when_asked_for_and_only_when_it_fits() {
        let fqdn = r#","hostname":"h","subdomain":"s","setHostnameAsFQDN":true"#;
        assert_eq!(
            names("web", fqdn).unwrap().sandbox,
            "h.s.ns.svc.cluster.local"
        );
        // Without a subdomain there is nothing to qualify it with.
        let alone = names("web", r#","setHostnameAsFQDN":true"#).unwrap();
        assert_eq!(alone.sandbox, "web");
        let long = "a".repeat(42);
        let error = names(&long, r#","subdomain":"s","setHostnameAsFQDN":true"#).unwrap_err();
        assert!(
            matches!(error, BuildError::HostNameTooLong { length: 65, .. }),
            "{error}"
        );
        assert!(
            error.to_string().contains("(64 characters is the max, "),
            "{error}"
        );
    }

    #[test]
    fn names_that_are_no_labels_are_refused_with_their_field() {
        let error = names("web", r#","hostname":"a.b""#).unwrap_err();
        assert_eq!(
            error.to_string(),
            r#"spec.hostname: "a.b" is not a DNS-1123 label"#
        );
        assert!(names("web", r#","subdomain":"../x""#).is_err());
    }
}
