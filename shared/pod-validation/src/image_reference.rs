//! The tag of a container image's name, which decides the default pull policy.

/// Longest repository name.
const MAX_NAME: usize = 255;
/// Longest tag.
const MAX_TAG: usize = 128;

/// The tag that an image's name stands for: its own, none if it has a digest,
/// else `latest`. `None` also if the name is not well formed: then it is left
/// to the runtime to refuse it, as with the API server.
pub(crate) fn tag(image: &str) -> Option<&str> {
    let (rest, digest) = match image.split_once('@') {
        Some((rest, digest)) => (rest, Some(digest)),
        None => (image, None),
    };
    if !digest.is_none_or(is_digest) || is_identifier(image) {
        return None;
    }
    let path_start = domain_length(rest);
    let (path, tag) = match rest[path_start..].split_once(':') {
        Some((path, tag)) => (path, Some(tag)),
        None => (&rest[path_start..], None),
    };
    let domain = rest[..path_start].trim_end_matches('/');
    if path_start + path.len() > MAX_NAME
        || !(domain.is_empty() || is_domain(domain))
        || !path.split('/').all(is_path_component)
        || !tag.is_none_or(is_tag)
    {
        return None;
    }
    match (tag, digest) {
        (Some(tag), _) => Some(tag),
        (None, Some(_)) => None,
        (None, None) => Some("latest"),
    }
}

/// Length of the registry's part, its slash included; 0 if there is none.
fn domain_length(name: &str) -> usize {
    match name.split_once('/') {
        Some((first, _)) if first.contains(['.', ':']) || first == "localhost" => first.len() + 1,
        _ => 0,
    }
}

fn is_domain(domain: &str) -> bool {
    let (host, port) = match domain.split_once(':') {
        Some((host, port)) => (host, Some(port)),
        None => (domain, None),
    };
    let component = |component: &str| {
        let bytes = component.as_bytes();
        bytes
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || *byte == b'-')
            && bytes.first().is_some_and(u8::is_ascii_alphanumeric)
            && bytes.last().is_some_and(u8::is_ascii_alphanumeric)
    };
    host.split('.').all(component)
        && port
            .is_none_or(|port| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Lower case letters and digits, with `.`, `_`, `__` or dashes between them.
fn is_path_component(component: &str) -> bool {
    let letter = |character: char| character.is_ascii_lowercase() || character.is_ascii_digit();
    let mut separators = component.split(letter);
    component.starts_with(letter)
        && component.ends_with(letter)
        && separators.all(|separator| {
            matches!(separator, "" | "." | "_" | "__") || separator.bytes().all(|byte| byte == b'-')
        })
}

fn is_tag(tag: &str) -> bool {
    let word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    tag.len() <= MAX_TAG
        && tag.bytes().next().is_some_and(word)
        && tag
            .bytes()
            .all(|byte| word(byte) || byte == b'.' || byte == b'-')
}

fn is_digest(digest: &str) -> bool {
    digest.split_once(':').is_some_and(|(algorithm, value)| {
        let parts_are_words = algorithm.split(['-', '_', '+', '.']).all(|part| {
            part.bytes()
                .next()
                .is_some_and(|byte| byte.is_ascii_alphabetic())
                && part.bytes().all(|byte| byte.is_ascii_alphanumeric())
        });
        parts_are_words && value.len() >= 32 && value.bytes().all(|byte| byte.is_ascii_hexdigit())
    })
}

/// An image ID is no name.
fn is_identifier(image: &str) -> bool {
    image.len() == 64
        && image
            .bytes()
            .all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tag_is_found() {
        let digest = format!("sha256:{}", "0".repeat(64));
        for (image, expected) in [
            ("a", Some("latest")),
            ("a:latest", Some("latest")),
            ("a:1", Some("1")),
            ("r:5000/a", Some("latest")),
            ("r:5000/a:2", Some("2")),
            ("localhost/a/b:x", Some("x")),
            ("example.com/a__b/c-d.e", Some("latest")),
            (format!("a@{digest}").as_str(), None),
            (format!("a:1@{digest}").as_str(), Some("1")),
            ("IMG:UP", None),
            ("IMG", None),
            ("a:", None),
            ("a:-", None),
            ("a//b", None),
            ("a_-b", None),
            ("-a", None),
            ("a@sha256:12", None),
            ("0".repeat(64).as_str(), None),
            ("ü", None),
            ("", None),
            ("a:b:c", None),
        ] {
            assert_eq!(tag(image), expected, "{image}");
        }
    }
}
