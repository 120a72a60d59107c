//! Names of images: `[domain/]path[:tag][@digest]`, by the grammar that registries,
//! runtimes, the API server and the kubelet share. Names are only taken apart: which
//! registry a short one means is the runtime's business.
//!
//! One parser for all: what decides the default pull policy is what is pulled.

/// The tag of a name without tag and digest.
const DEFAULT_TAG: &str = "latest";
/// The registry of a name without a domain, by its two names. Names there that have
/// one component only are in its own part.
const DEFAULT_DOMAINS: [&str; 2] = ["docker.io", "index.docker.io"];
/// That part.
const OFFICIAL: &str = "library/";
/// Longest path.
const MAX_PATH_BYTES: usize = 255;
/// Longest tag.
const MAX_TAG_BYTES: usize = 128;
/// Digits of an image's id: such a name could not be told from one.
const ID_DIGITS: usize = 64;
/// Fewest digits that are taken for a digest at all.
const MIN_DIGEST_DIGITS: usize = 32;

/// Why something is no name of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ReferenceError {
    /// Too long.
    #[error("repository name must not be more than 255 characters")]
    TooLong,
    /// Registries have lower case only.
    #[error("invalid reference format: repository name must be lowercase")]
    UpperCase,
    /// It would be taken for an id.
    #[error("invalid repository name, cannot specify 64-byte hexadecimal strings")]
    LooksLikeId,
    /// A digest by an algorithm that nobody has.
    #[error("unsupported digest algorithm")]
    UnsupportedDigest,
    /// A digest with too many or too few digits for its algorithm.
    #[error("invalid checksum digest length")]
    DigestLength,
    /// A digest with digits that its algorithm does not give.
    #[error("invalid checksum digest format")]
    DigestFormat,
    /// Anything else.
    #[error("invalid reference format")]
    Malformed,
}

/// A name of an image, taken apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImageReference<'a> {
    whole: &'a str,
    tag: Option<&'a str>,
    digest: Option<&'a str>,
}

impl<'a> ImageReference<'a> {
    /// Takes a name apart.
    ///
    /// # Errors
    /// When it is none.
    pub fn parse(image: &'a str) -> Result<ImageReference<'a>, ReferenceError> {
        if image.len() == ID_DIGITS && image.bytes().all(is_lower_hexadecimal) {
            return Err(ReferenceError::LooksLikeId);
        }
        let (_, remainder) = split_domain(image);
        let stated_path = remainder.split(':').next().unwrap_or_default();
        if has_upper_case(stated_path) {
            return Err(ReferenceError::UpperCase);
        }
        let parsed = parse_parts(image);
        if parsed == Err(ReferenceError::Malformed)
            && has_upper_case(image)
            && parse_parts(&image.to_ascii_lowercase()).is_ok()
        {
            return Err(ReferenceError::UpperCase);
        }
        let (tag, digest) = parsed?;
        Ok(ImageReference {
            whole: image,
            tag,
            digest,
        })
    }

    /// The tag that the name stands for: its own, none if it has only a digest, else
    /// `latest`.
    #[must_use]
    pub fn tag(&self) -> Option<&'a str> {
        match (self.tag, self.digest) {
            (None, None) => Some(DEFAULT_TAG),
            (tag, _) => tag,
        }
    }

    /// Whether it stands for whatever is the latest, which is pulled before each start
    /// unless the pod says otherwise.
    #[must_use]
    pub fn is_latest(&self) -> bool {
        self.tag() == Some(DEFAULT_TAG)
    }

    /// The name with the registry that it stands for, without tag and digest:
    /// `docker.io/library/nginx` for `nginx:1`. By it a kubelet finds credentials.
    #[must_use]
    pub fn repository(&self) -> String {
        let name = self.whole.split('@').next().unwrap_or_default();
        let (domain, remainder) = split_domain(name);
        let path = remainder.split(':').next().unwrap_or_default();
        match domain {
            Some(domain) if !DEFAULT_DOMAINS.contains(&domain) => format!("{domain}/{path}"),
            _ if path.contains('/') => format!("{}/{path}", DEFAULT_DOMAINS[0]),
            _ => format!("{}/{OFFICIAL}{path}", DEFAULT_DOMAINS[0]),
        }
    }

    /// The name as runtimes list it: the repository with the digest, or else with the tag.
    #[must_use]
    pub fn listed(&self) -> String {
        let repository = self.repository();
        match self.digest {
            Some(digest) => format!("{repository}@{digest}"),
            None => format!("{repository}:{}", self.tag.unwrap_or(DEFAULT_TAG)),
        }
    }

    /// The name with the tag that it stands for.
    #[must_use]
    pub fn with_default_tag(&self) -> String {
        match (self.tag, self.digest) {
            (None, None) => format!("{}:{DEFAULT_TAG}", self.whole),
            _ => self.whole.to_owned(),
        }
    }
}

type TagAndDigest<'a> = (Option<&'a str>, Option<&'a str>);

fn parse_parts(image: &str) -> Result<TagAndDigest<'_>, ReferenceError> {
    let (rest, digest) = match image.split_once('@') {
        Some((rest, digest)) => (rest, Some(digest)),
        None => (image, None),
    };
    let (domain, remainder) = split_domain(rest);
    // A colon in the domain begins a port, the one after it a tag.
    let (path, tag) = match remainder.split_once(':') {
        Some((path, tag)) => (path, Some(tag)),
        None => (remainder, None),
    };
    if tag.is_some_and(|tag| !is_tag(tag)) || digest.is_some_and(|digest| !is_like_digest(digest)) {
        return Err(ReferenceError::Malformed);
    }
    check_name(domain, path)?;
    digest.map_or(Ok(()), check_digest)?;
    Ok((tag, digest))
}

/// The first part is a domain if it looks like one; else it is part of the path.
fn split_domain(name: &str) -> (Option<&str>, &str) {
    match name.split_once('/') {
        Some((first, rest))
            if first.contains(['.', ':']) || first == "localhost" || has_upper_case(first) =>
        {
            (Some(first), rest)
        }
        _ => (None, name),
    }
}

/// What looks like a domain and is none may still be part of the path: `a_b.c/d`.
fn check_name(domain: Option<&str>, path: &str) -> Result<(), ReferenceError> {
    if !path.split('/').all(is_path_component) {
        return Err(ReferenceError::Malformed);
    }
    let length = match domain {
        Some(domain) if !is_domain(domain) => {
            if !is_path_component(domain) {
                return Err(ReferenceError::Malformed);
            }
            domain.len() + 1 + path.len()
        }
        domain => {
            let is_default = domain.is_none_or(|domain| DEFAULT_DOMAINS.contains(&domain));
            let is_official = is_default && !path.contains('/');
            path.len() + if is_official { OFFICIAL.len() } else { 0 }
        }
    };
    if length > MAX_PATH_BYTES {
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
            // Whether it is one is for the runtime to find out, as with a host name.
            Some(address) => {
                let is_digit = |byte: u8| byte.is_ascii_hexdigit() || byte == b':';
                !address.is_empty() && address.bytes().all(is_digit)
            }
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
    let is_word = |character: char| character.is_ascii_lowercase() || character.is_ascii_digit();
    component.starts_with(is_word)
        && component.ends_with(is_word)
        && component.split(is_word).all(|separator| {
            matches!(separator, "" | "." | "_" | "__") || separator.bytes().all(|byte| byte == b'-')
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

/// Whether something has the form of a digest by any algorithm.
fn is_like_digest(digest: &str) -> bool {
    digest.split_once(':').is_some_and(|(algorithm, digits)| {
        let mut parts = algorithm.split(['-', '_', '+', '.']);
        parts.all(|part| {
            part.starts_with(|first: char| first.is_ascii_alphabetic())
                && part.bytes().all(|byte| byte.is_ascii_alphanumeric())
        }) && digits.len() >= MIN_DIGEST_DIGITS
            && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
    })
}

fn check_digest(digest: &str) -> Result<(), ReferenceError> {
    let (algorithm, digits) = digest.split_once(':').ok_or(ReferenceError::Malformed)?;
    let length = match algorithm {
        "sha256" => 64,
        "sha384" => 96,
        "sha512" => 128,
        _ => return Err(ReferenceError::UnsupportedDigest),
    };
    if digits.len() != length {
        return Err(ReferenceError::DigestLength);
    }
    if !digits.bytes().all(is_lower_hexadecimal) {
        return Err(ReferenceError::DigestFormat);
    }
    Ok(())
}

fn is_lower_hexadecimal(byte: u8) -> bool {
    byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte)
}

fn has_upper_case(text: &str) -> bool {
    text.bytes().any(|byte| byte.is_ascii_uppercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_without_tag_and_digest_is_the_latest() {
        let digest = format!("busybox@sha256:{}", "a".repeat(64));
        let tagged = format!("busybox:1@sha256:{}", "a".repeat(64));
        let latest = format!("busybox:latest@sha512:{}", "0".repeat(128));
        let id = format!("sha256:{}", "b".repeat(64));
        let unchanged: &[(&str, Option<&str>)] = &[
            ("busybox:1.29-4", Some("1.29-4")),
            ("busybox:latest", Some("latest")),
            ("busybox:UP_.-", Some("UP_.-")),
            ("example.com/a/b_c/d--e:v1", Some("v1")),
            ("host:5000/a/b:t", Some("t")),
            ("[::1]:5000/app:1", Some("1")),
            ("Foo/app:1", Some("1")),
            (&digest, None),
            (&tagged, Some("1")),
            (&latest, Some("latest")),
            // No digest: a name and its tag.
            (&id, Some(&id[7..])),
        ];
        for (image, tag) in unchanged {
            let reference = ImageReference::parse(image);
            let reference = reference.unwrap_or_else(|error| panic!("{image}: {error}"));
            assert_eq!(reference.tag(), *tag, "{image}");
            assert_eq!(reference.is_latest(), *tag == Some("latest"), "{image}");
            assert_eq!(reference.with_default_tag(), *image);
        }
        for image in [
            "busybox",
            "library/busybox",
            "localhost/busybox",
            "localhost:5000/busybox",
            "example.com/a__b/c-d.e",
            "[::1]:5000/app",
            "[fe80::1]/a",
            // Whether it is an address is not the grammar's question.
            "[a:b:c]/a",
            "127.0.0.1:5000/a",
            "UPPER.example/a",
            "Foo/app",
            "HOST:1/a/b",
            "a__b",
            "a---b",
            "sha256",
            // No domain, as it has an underscore, and so a path.
            "a_b.c/d",
        ] {
            let reference = ImageReference::parse(image);
            let reference = reference.unwrap_or_else(|error| panic!("{image}: {error}"));
            assert!(reference.is_latest(), "{image}");
            assert_eq!(reference.with_default_tag(), format!("{image}:latest"));
        }
    }

    #[test]
    fn a_repository_is_named_with_its_registry() {
        let digest = format!("a.io:1/b/c:2@sha256:{}", "a".repeat(64));
        for (image, expected) in [
            ("busybox", "docker.io/library/busybox"),
            ("busybox:1", "docker.io/library/busybox"),
            ("team/web:1", "docker.io/team/web"),
            ("docker.io/busybox", "docker.io/library/busybox"),
            ("index.docker.io/team/web", "docker.io/team/web"),
            ("localhost/web:1", "localhost/web"),
            ("localhost:5000/web", "localhost:5000/web"),
            ("[::1]:5000/web:1", "[::1]:5000/web"),
            ("quay.io/coreos/etcd:v3", "quay.io/coreos/etcd"),
            (&digest, "a.io:1/b/c"),
        ] {
            let reference = ImageReference::parse(image).unwrap();
            assert_eq!(reference.repository(), expected, "{image}");
        }
    }

    #[test]
    fn runtimes_list_a_name_with_its_registry_and_a_digest_without_the_tag() {
        let digest = format!("sha256:{}", "a".repeat(64));
        for (image, expected) in [
            (
                "busybox".to_owned(),
                "docker.io/library/busybox:latest".to_owned(),
            ),
            ("a.io:1/b:2".to_owned(), "a.io:1/b:2".to_owned()),
            (
                format!("b:2@{digest}"),
                format!("docker.io/library/b@{digest}"),
            ),
        ] {
            assert_eq!(ImageReference::parse(&image).unwrap().listed(), expected);
        }
    }

    #[test]
    fn what_is_no_name_is_told_why() {
        use ReferenceError::{
            DigestFormat, DigestLength, LooksLikeId, Malformed, UnsupportedDigest, UpperCase,
        };
        let digest = |algorithm: &str, digits: &str, count: usize| {
            format!("a@{algorithm}:{}", digits.repeat(count))
        };
        let (id, long_tag) = ("c".repeat(64), format!("a:{}", "t".repeat(129)));
        for (image, expected) in [
            ("", Malformed),
            (id.as_str(), LooksLikeId),
            ("Busybox", UpperCase),
            ("IMG:UP", UpperCase),
            ("example.com/Busybox:1", UpperCase),
            ("Foo/Bar", UpperCase),
            ("A_b.c/d", UpperCase),
            ("busybox:", Malformed),
            ("busybox:-x", Malformed),
            ("busybox:a:b", Malformed),
            (":tag", Malformed),
            ("/a", Malformed),
            ("a/", Malformed),
            ("a//b", Malformed),
            ("a b", Malformed),
            ("-a", Malformed),
            ("a_-b", Malformed),
            ("a..b", Malformed),
            ("a..b/c", Malformed),
            ("a___b", Malformed),
            ("a@", Malformed),
            ("a@sha256", Malformed),
            (&digest("md5", "0", 31), Malformed),
            (&digest("sha256", "g", 64), Malformed),
            (&digest("1md", "0", 32), Malformed),
            (&digest("md5", "0", 32), UnsupportedDigest),
            (&digest("sha256+b64", "0", 32), UnsupportedDigest),
            (&digest("sha256", "a", 63), DigestLength),
            (&digest("sha512", "a", 64), DigestLength),
            (&digest("sha256", "A", 64), DigestFormat),
            (long_tag.as_str(), Malformed),
            ("host.x:port/a", Malformed),
            ("host.x:/a", Malformed),
            ("-host.x/a", Malformed),
            ("host-.x/a", Malformed),
            ("[zz]:1/a", Malformed),
            ("[]/a", Malformed),
            ("[::1/a", Malformed),
            ("::1/a", Malformed),
            ("http://host/a", Malformed),
            ("a\nb", Malformed),
            ("ä", Malformed),
            ("Ä/a", Malformed),
        ] {
            assert_eq!(ImageReference::parse(image), Err(expected), "{image:?}");
        }
    }

    #[test]
    fn a_path_has_255_characters_at_most_wherever_it_is() {
        for (prefix, fits) in [
            ("", 247),
            ("docker.io/", 247),
            ("index.docker.io/", 247),
            ("example.com/", 255),
            ("library/", 247),
            ("Foo/", 255),
            ("a_b.c/", 249),
        ] {
            let name = |length: usize| format!("{prefix}{}", "d".repeat(length));
            assert!(ImageReference::parse(&name(fits)).is_ok(), "{prefix}");
            let longer = name(fits + 1);
            let refused = ImageReference::parse(&longer);
            assert_eq!(refused, Err(ReferenceError::TooLong), "{prefix}");
        }
    }
}
