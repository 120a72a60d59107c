//! Names of images: `[domain/]path[:tag][@digest]`, by the grammar that registries and
//! runtimes share. Only checked, and given the default tag: which registry a short name
//! means is the runtime's business.

/// The tag of a name without tag and digest.
const DEFAULT_TAG: &str = "latest";
/// The domain of a name without one.
const DEFAULT_DOMAIN: &str = "docker.io";
/// Longest name, domain included.
const MAX_NAME_BYTES: usize = 255;
/// Longest tag.
const MAX_TAG_BYTES: usize = 128;
/// Digits of an image's id: such a name could not be told from one.
const ID_DIGITS: usize = 64;

/// Why something is no name of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ReferenceError {
    /// Nothing is left of it.
    #[error("invalid reference format: repository name must have at least one component")]
    Empty,
    /// Too long.
    #[error("repository name must not be more than 255 characters")]
    TooLong,
    /// Registries have lower case only.
    #[error("invalid reference format: repository name must be lowercase")]
    UpperCase,
    /// It would be taken for an id.
    #[error("invalid repository name, cannot specify 64-byte hexadecimal strings")]
    LooksLikeId,
    /// Anything else.
    #[error("invalid reference format")]
    Malformed,
}

/// The name with the default tag, if it has neither tag nor digest.
pub fn with_default_tag(image: &str) -> Result<String, ReferenceError> {
    let (name, tag, digest) = parse(image)?;
    Ok(match (tag, digest) {
        (None, None) => format!("{name}:{DEFAULT_TAG}"),
        _ => image.to_owned(),
    })
}

type Parts<'a> = (&'a str, Option<&'a str>, Option<&'a str>);

fn parse(image: &str) -> Result<Parts<'_>, ReferenceError> {
    if image.is_empty() {
        return Err(ReferenceError::Empty);
    }
    if image.len() == ID_DIGITS && image.bytes().all(is_lower_hexadecimal) {
        return Err(ReferenceError::LooksLikeId);
    }
    let (rest, digest) = match image.split_once('@') {
        Some((rest, digest)) => (rest, Some(digest)),
        None => (image, None),
    };
    if digest.is_some_and(|digest| !is_digest(digest)) {
        return Err(ReferenceError::Malformed);
    }
    let (domain, remainder) = domain_of(rest);
    // A colon in the domain begins a port, the one after it a tag.
    let (path, tag) = match remainder.split_once(':') {
        Some((path, tag)) => (path, Some(tag)),
        None => (remainder, None),
    };
    if tag.is_some_and(|tag| !is_tag(tag)) {
        return Err(ReferenceError::Malformed);
    }
    check_name(domain, path)?;
    Ok((
        &rest[..rest.len() - tag.map_or(0, |tag| tag.len() + 1)],
        tag,
        digest,
    ))
}

/// The first part is a domain if it looks like one; else it is part of the path.
fn domain_of(name: &str) -> (Option<&str>, &str) {
    match name.split_once('/') {
        Some((first, rest))
            if first.contains(['.', ':'])
                || first == "localhost"
                || first.bytes().any(|byte| byte.is_ascii_uppercase()) =>
        {
            (Some(first), rest)
        }
        _ => (None, name),
    }
}

fn check_name(domain: Option<&str>, path: &str) -> Result<(), ReferenceError> {
    if path.bytes().any(|byte| byte.is_ascii_uppercase()) {
        return Err(ReferenceError::UpperCase);
    }
    if path.is_empty() {
        return Err(ReferenceError::Malformed);
    }
    let good = domain.is_none_or(is_domain) && path.split('/').all(is_path_component);
    if !good {
        return Err(ReferenceError::Malformed);
    }
    if domain.unwrap_or(DEFAULT_DOMAIN).len() + 1 + path.len() > MAX_NAME_BYTES {
        return Err(ReferenceError::TooLong);
    }
    Ok(())
}

/// Host name or address, perhaps with a port.
fn is_domain(domain: &str) -> bool {
    let (host, port) = match domain.rfind([':', ']']) {
        Some(last) if domain[last..].starts_with(':') => {
            (&domain[..last], Some(&domain[last + 1..]))
        }
        _ => (domain, None),
    };
    let port_is_good =
        port.is_none_or(|port| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()));
    let address = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'));
    port_is_good
        && match address {
            Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
            None => host.split('.').all(is_domain_label),
        }
}

fn is_domain_label(label: &str) -> bool {
    !label.is_empty()
        && label
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        && !label.starts_with('-')
        && !label.ends_with('-')
}

/// Lower-case words, joined by a dot, one or two underscores, or dashes.
fn is_path_component(component: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = component.as_bytes();
    if !bytes.first().copied().is_some_and(is_word) || !bytes.last().copied().is_some_and(is_word) {
        return false;
    }
    let separators = component.split(|character: char| u8::try_from(character).is_ok_and(is_word));
    separators
        .filter(|separator| !separator.is_empty())
        .all(|separator| {
            matches!(separator, "." | "_" | "__") || separator.bytes().all(|byte| byte == b'-')
        })
}

fn is_tag(tag: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    tag.len() <= MAX_TAG_BYTES
        && tag.bytes().next().is_some_and(is_word)
        && tag
            .bytes()
            .all(|byte| is_word(byte) || matches!(byte, b'.' | b'-'))
}

fn is_digest(digest: &str) -> bool {
    let Some((algorithm, digits)) = digest.split_once(':') else {
        return false;
    };
    let length = match algorithm {
        "sha256" => 64,
        "sha384" => 96,
        "sha512" => 128,
        _ => return false,
    };
    digits.len() == length && digits.bytes().all(is_lower_hexadecimal)
}

fn is_lower_hexadecimal(byte: u8) -> bool {
    byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_without_tag_and_digest_is_the_latest() {
        let digest = format!("busybox@sha256:{}", "a".repeat(64));
        let tagged = format!("busybox:1@sha256:{}", "a".repeat(64));
        let id = format!("sha256:{}", "b".repeat(64));
        for (image, expected) in [
            ("busybox", "busybox:latest"),
            ("busybox:1.29-4", "busybox:1.29-4"),
            ("library/busybox", "library/busybox:latest"),
            (
                "registry.k8s.io/a/b_c/d--e:v1",
                "registry.k8s.io/a/b_c/d--e:v1",
            ),
            ("localhost/busybox", "localhost/busybox:latest"),
            ("localhost:5000/busybox", "localhost:5000/busybox:latest"),
            ("host:5000/a/b:t", "host:5000/a/b:t"),
            ("[fe80::1]:5000/a", "[fe80::1]:5000/a:latest"),
            ("UPPER.example/a", "UPPER.example/a:latest"),
            (digest.as_str(), digest.as_str()),
            (tagged.as_str(), tagged.as_str()),
            (id.as_str(), id.as_str()),
            ("a__b", "a__b:latest"),
        ] {
            assert_eq!(with_default_tag(image).as_deref(), Ok(expected), "{image}");
        }
    }

    #[test]
    fn what_is_no_name_is_told_why() {
        let id = "c".repeat(64);
        let long = "d".repeat(246);
        let short_digest = format!("a@sha256:{}", "a".repeat(63));
        let long_tag = format!("a:{}", "t".repeat(129));
        for (image, expected) in [
            ("", ReferenceError::Empty),
            (id.as_str(), ReferenceError::LooksLikeId),
            (long.as_str(), ReferenceError::TooLong),
            ("Busybox", ReferenceError::UpperCase),
            ("example.com/Busybox:1", ReferenceError::UpperCase),
            ("busybox:", ReferenceError::Malformed),
            ("busybox:-x", ReferenceError::Malformed),
            (":tag", ReferenceError::Malformed),
            ("/a", ReferenceError::Malformed),
            ("a/", ReferenceError::Malformed),
            ("a//b", ReferenceError::Malformed),
            ("a b", ReferenceError::Malformed),
            ("-a", ReferenceError::Malformed),
            ("a..b", ReferenceError::Malformed),
            ("a___b", ReferenceError::Malformed),
            ("a@", ReferenceError::Malformed),
            ("a@md5:00", ReferenceError::Malformed),
            (short_digest.as_str(), ReferenceError::Malformed),
            (long_tag.as_str(), ReferenceError::Malformed),
            ("host.x:port/a", ReferenceError::Malformed),
            ("-host.x/a", ReferenceError::Malformed),
            ("[zz]:1/a", ReferenceError::Malformed),
            ("a\nb", ReferenceError::Malformed),
            ("ä", ReferenceError::Malformed),
        ] {
            assert_eq!(with_default_tag(image), Err(expected), "{image:?}");
        }
        // 245 characters and "docker.io/" are just what fits.
        assert!(with_default_tag(&"d".repeat(245)).is_ok());
    }
}
