//! Formats of names and values: DNS labels, qualified names, port names and so
//! on. Each function says what is wrong, or `None`.

use pod::identity::{is_dns1123_label, is_dns1123_subdomain};

/// Longest label, label value, and name part of a qualified name.
const MAX_PART: usize = 63;
/// Longest port name (IANA service name).
const MAX_PORT_NAME: usize = 15;
/// Longest key of a ConfigMap or Secret.
const MAX_OBJECT_KEY: usize = 253;
/// Longest domain to search, without a dot at its end.
const MAX_SEARCH_DOMAIN: usize = 253;
/// Longest name of a sysctl.
const MAX_SYSCTL: usize = 253;

pub(crate) fn dns1123_label(value: &str) -> Option<String> {
    let problem = "must be 1 to 63 lower case letters, digits or '-', \
                   with a letter or digit at both ends";
    (!is_dns1123_label(value)).then(|| problem.to_owned())
}

pub(crate) fn dns1123_subdomain(value: &str) -> Option<String> {
    let problem = "must be at most 253 lower case letters, digits, '-' or '.', \
                   with a letter or digit at both ends of each part";
    (!is_dns1123_subdomain(value)).then(|| problem.to_owned())
}

/// A name to which the server appends: it may end with a dash.
pub(crate) fn dns1123_subdomain_prefix(value: &str) -> Option<String> {
    match value.strip_suffix('-') {
        Some(rest) if !rest.is_empty() => {
            let mut characters = rest.chars();
            characters.next_back();
            dns1123_subdomain(&format!("{}a", characters.as_str()))
        }
        _ => dns1123_subdomain(value),
    }
}

/// `[prefix/]name`, as label keys, annotation keys and resource names are.
pub(crate) fn qualified_name(value: &str) -> Option<String> {
    let (prefix, name) = match value.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, value),
    };
    if name.is_empty() || !is_name_part(name) {
        return Some(
            "the name part must be 1 to 63 letters, digits, '-', '_' or '.', \
             with a letter or digit at both ends"
                .to_owned(),
        );
    }
    prefix
        .filter(|prefix| !is_dns1123_subdomain(prefix))
        .map(|_| "the part before '/' must be a DNS-1123 subdomain".to_owned())
}

/// A label's value: like the name part of a qualified name, or empty.
pub(crate) fn label_value(value: &str) -> Option<String> {
    (!value.is_empty() && !is_name_part(value)).then(|| {
        "must be empty or at most 63 letters, digits, '-', '_' or '.', \
         with a letter or digit at both ends"
            .to_owned()
    })
}

fn is_name_part(value: &str) -> bool {
    let bytes = value.as_bytes();
    let ends = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    bytes.len() <= MAX_PART
        && bytes
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte))
        && ends(bytes.first())
        && ends(bytes.last())
}

pub(crate) fn port_number(value: i32) -> Option<String> {
    (!(1..=65535).contains(&value)).then(|| "must be between 1 and 65535".to_owned())
}

pub(crate) fn port_name(value: &str) -> Option<String> {
    let bytes = value.as_bytes();
    let problem = if bytes.len() > MAX_PORT_NAME {
        "must have at most 15 characters"
    } else if !bytes
        .iter()
        .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || *byte == b'-')
    {
        "must be made of lower case letters, digits and '-'"
    } else if !bytes.iter().any(u8::is_ascii_lowercase) {
        "must have at least one letter"
    } else if value.contains("--") || value.starts_with('-') || value.ends_with('-') {
        "may have '-' only between letters or digits"
    } else {
        return None;
    };
    Some(problem.to_owned())
}

/// As API servers since 1.34 have it, where every key of an object makes a variable.
pub(crate) fn environment_variable(value: &str) -> Option<String> {
    let is_allowed = |byte: u8| (b' '..=b'~').contains(&byte) && byte != b'=';
    (value.is_empty() || !value.bytes().all(is_allowed))
        .then(|| "must have printable ASCII characters other than '='".to_owned())
}

/// As API servers since 1.34 have it: the root alone, so that the name itself is tried first,
/// or a domain in which '_' may be, as in the names of services.
pub(crate) fn search_domain(value: &str) -> Option<String> {
    let domain = value.strip_suffix('.').unwrap_or(value);
    let parts = domain.split('.');
    let parts = parts.map(|part| part.strip_prefix('_').unwrap_or(part).replace('_', "-"));
    let is_domain = domain.len() <= MAX_SEARCH_DOMAIN
        && is_dns1123_subdomain(&parts.collect::<Vec<_>>().join("."));
    (value != "." && !is_domain).then(|| {
        "must be '.', or at most 253 lower case letters, digits, '-', '_' or '.', with a letter \
         or digit at both ends of each part, before which one '_' may be"
            .to_owned()
    })
}

pub(crate) fn object_key(value: &str) -> Option<String> {
    let bytes = value.as_bytes();
    if bytes.len() > MAX_OBJECT_KEY {
        return Some("must have at most 253 characters".to_owned());
    }
    if bytes.is_empty()
        || !bytes
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(byte))
    {
        return Some("must be made of letters, digits, '-', '_' and '.'".to_owned());
    }
    dot_prefix(value)
}

/// Names that would mean a directory.
fn dot_prefix(value: &str) -> Option<String> {
    (value == "." || value.starts_with(".."))
        .then(|| "must not be '.' or begin with '..'".to_owned())
}

pub(crate) fn http_header_name(value: &str) -> Option<String> {
    let valid = !value.is_empty()
        && value
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    (!valid).then(|| "must be made of letters, digits and '-'".to_owned())
}

pub(crate) fn ip_address(value: &str) -> Option<String> {
    value
        .parse::<std::net::IpAddr>()
        .is_err()
        .then(|| "must be an IPv4 or IPv6 address".to_owned())
}

/// A user or group id.
pub(crate) fn user_id(value: i64) -> Option<String> {
    i32::try_from(value)
        .map_or(true, |value| value < 0)
        .then(|| "must be between 0 and 2147483647".to_owned())
}

/// Segments of lower case letters, digits, '-' and '_', joined by '.' or '/'.
pub(crate) fn sysctl_name(value: &str) -> Option<String> {
    let segment = |segment: &str| {
        let bytes = segment.as_bytes();
        let inner = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        bytes.iter().all(|byte| inner(byte) || b"-_".contains(byte))
            && bytes.first().is_some_and(inner)
            && bytes.last().is_some_and(inner)
    };
    (value.len() > MAX_SYSCTL || !value.split(['.', '/']).all(segment)).then(|| {
        "must be at most 253 characters: segments of lower case letters, digits, '-' and '_', \
         joined by '.' or '/'"
            .to_owned()
    })
}

/// Permission bits of a file.
pub(crate) fn file_mode(value: i32) -> Option<String> {
    (!(0..=0o777).contains(&value)).then(|| "must be between 0 and 0777 (octal)".to_owned())
}

/// A path without an element `..`.
pub(crate) fn no_backsteps(value: &str) -> Option<String> {
    value
        .split('/')
        .any(|element| element == "..")
        .then(|| "must not contain '..'".to_owned())
}

/// A relative path that does not leave its directory.
pub(crate) fn descending_path(value: &str) -> Option<String> {
    if value.starts_with('/') {
        return Some("must be a relative path".to_owned());
    }
    no_backsteps(value)
}

/// A descending path that does not begin with two dots: such names are used for
/// switching a volume's content at once.
pub(crate) fn unreserved_path(value: &str) -> Option<String> {
    descending_path(value).or_else(|| {
        value
            .starts_with("..")
            .then(|| "must not begin with '..'".to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_qualified_name_is_one_word_with_or_without_a_domain() {
        for good in ["a", "A.b_c-d", "example.com/a", "kubernetes.io/os", "1"] {
            assert_eq!(qualified_name(good), None, "{good}");
        }
        let long = "x".repeat(64);
        for bad in [
            "", "a b", "-a", "a-", "a/b/c", "/a", "a/", "A.com/b", "é", &long,
        ] {
            assert!(qualified_name(bad).is_some(), "{bad}");
        }
    }

    #[test]
    fn a_port_name_is_short_lower_case_and_has_a_letter() {
        for good in ["a", "http", "a-1", "1a"] {
            assert_eq!(port_name(good), None, "{good}");
        }
        for bad in [
            "",
            "80",
            "HTTP",
            "a--b",
            "-a",
            "a-",
            "abcdefghijklmnop",
            "a_b",
        ] {
            assert!(port_name(bad).is_some(), "{bad}");
        }
    }

    #[test]
    fn a_variable_has_any_printable_character_but_the_one_after_its_name() {
        for good in ["A", "a.b-c_d", "1PASSWORD", "a:b", "a b", ".", "..a", "~"] {
            assert_eq!(environment_variable(good), None, "{good}");
        }
        for bad in ["", "A=B", "=", "a\tb", "a\0", "\x7f", "é"] {
            assert!(environment_variable(bad).is_some(), "{bad}");
        }
    }

    #[test]
    fn a_domain_to_search_is_the_root_or_has_only_one_underscore_before_a_part() {
        let longest = format!("_{}.a.", "x".repeat(250));
        for good in [".", "a", "a.b.", "_tcp.example.org", "a_b.c", &longest] {
            assert_eq!(search_domain(good), None, "{good}");
        }
        let long = format!("_{}.a", "x".repeat(251));
        for bad in [
            "", "..", ".a", "a..b", "A", "_", "__a", "_-a", "a_", "a._.b", "a b", &long,
        ] {
            assert!(search_domain(bad).is_some(), "{bad}");
        }
    }

    #[test]
    fn a_sysctl_name_has_no_empty_part() {
        for good in [
            "kernel.shm_rmid_forced",
            "net/ipv4/conf",
            "a",
            "net.ipv4.conf.eth0-1.x",
        ] {
            assert_eq!(sysctl_name(good), None, "{good}");
        }
        for bad in ["", "a b", ".a", "a.", "A", "a..b", "-a"] {
            assert!(sysctl_name(bad).is_some(), "{bad}");
        }
    }

    #[test]
    fn a_generated_names_prefix_may_end_with_a_dash() {
        assert_eq!(dns1123_subdomain_prefix("g-"), None);
        assert_eq!(dns1123_subdomain_prefix("ab-"), None);
        assert!(dns1123_subdomain_prefix("-").is_some());
        assert!(dns1123_subdomain_prefix("A-").is_none());
        assert!(dns1123_subdomain_prefix("AB-").is_some());
        assert!(dns1123_subdomain("g-").is_some());
    }

    #[test]
    fn a_descending_path_never_leaves_its_directory() {
        for good in ["a", "a/b", "a..b", "..."] {
            assert_eq!(descending_path(good), None, "{good}");
        }
        for bad in ["/a", "..", "a/../b", "../a"] {
            assert!(descending_path(bad).is_some(), "{bad}");
        }
    }

    #[test]
    fn a_path_that_begins_with_dots_is_the_kubelets_own() {
        assert_eq!(unreserved_path(".data"), None);
        assert!(unreserved_path("..data").is_some());
    }

    #[test]
    fn an_address_has_one_spelling_without_zone_or_prefix() {
        for good in ["1.2.3.4", "::1", "::ffff:1.2.3.4"] {
            assert_eq!(ip_address(good), None, "{good}");
        }
        for bad in ["", "1.2.3", "1.2.3.4/8", "01.2.3.4", "fe80::1%eth0", "a"] {
            assert!(ip_address(bad).is_some(), "{bad}");
        }
    }

    #[test]
    fn a_user_id_is_neither_negative_nor_beyond_32_bits() {
        assert_eq!(user_id(0), None);
        assert!(user_id(-1).is_some());
        assert!(user_id(1 << 32).is_some());
    }
}
