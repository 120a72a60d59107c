//! Which pods and images a grant is for.

use serde::{Deserialize, Serialize};

/// The registry of an image name without one, and the part of it for short names.
const DEFAULT_REGISTRY: &str = "docker.io/";
const OFFICIAL_IMAGES: &str = "library/";

/// Longest `namespace/name` of a pod, which a pattern need not exceed.
const MAX_GLOB_BYTES: usize = 63 + 1 + 253;

/// Longest image prefix: the longest name and digest of an image.
const MAX_IMAGE_BYTES: usize = 512;

/// `namespace/name` of pods, where `*` stands for any characters but `/` and `?` for
/// one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PodGlob(String);

/// The beginning of image names. It ends where a part of the name ends:
/// `example.com/app` is for `example.com/app:1` and `example.com/app/web`, and not for
/// `example.com/application`. All images of an organisation are `docker.io/org/`, with the
/// slash: without it the name is that of an image.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ImagePrefix(String);

impl PodGlob {
    /// Whether it is for this pod.
    #[must_use]
    pub fn matches(&self, namespace: &str, name: &str) -> bool {
        let Some((namespaces, names)) = self.0.split_once('/') else {
            return false;
        };
        glob_matches(namespaces.as_bytes(), namespace.as_bytes())
            && glob_matches(names.as_bytes(), name.as_bytes())
    }
}

impl ImagePrefix {
    /// Whether it is for this image. Short names count as what they stand for, so
    /// `docker.io/library/nginx` is for `nginx`.
    #[must_use]
    pub fn matches(&self, image: &str) -> bool {
        let (prefix, image) = (with_registry(&self.0), with_registry(image));
        image.strip_prefix(&prefix).is_some_and(|rest| {
            rest.is_empty() || prefix.ends_with(is_separator) || rest.starts_with(is_separator)
        })
    }
}

fn is_separator(character: char) -> bool {
    matches!(character, '/' | ':' | '@')
}

/// Tries the last `*` again with one character more whenever the rest does not match.
fn glob_matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut at, mut pattern_at) = (0, 0);
    let mut last_star: Option<(usize, usize)> = None;
    while at < text.len() {
        match pattern.get(pattern_at) {
            Some(b'*') => {
                last_star = Some((pattern_at, at));
                pattern_at += 1;
            }
            Some(byte) if *byte == b'?' || *byte == text[at] => {
                at += 1;
                pattern_at += 1;
            }
            _ => match last_star {
                Some((star, taken)) => {
                    last_star = Some((star, taken + 1));
                    pattern_at = star + 1;
                    at = taken + 1;
                }
                None => return false,
            },
        }
    }
    pattern[pattern_at..].iter().all(|byte| *byte == b'*')
}

/// The name with the registry that it stands for, by the rule that all runtimes share.
fn with_registry(image: &str) -> String {
    let Some((first, rest)) = image.split_once('/') else {
        return format!("{DEFAULT_REGISTRY}{OFFICIAL_IMAGES}{image}");
    };
    if first == "index.docker.io" || first == "docker.io" {
        let in_a_part = rest.is_empty() || rest.contains('/');
        let official = if in_a_part { "" } else { OFFICIAL_IMAGES };
        return format!("{DEFAULT_REGISTRY}{official}{rest}");
    }
    let is_registry = first.contains(['.', ':'])
        || first == "localhost"
        || first.bytes().any(|byte| byte.is_ascii_uppercase());
    if is_registry {
        image.to_owned()
    } else {
        format!("{DEFAULT_REGISTRY}{image}")
    }
}

impl TryFrom<String> for PodGlob {
    type Error = String;

    fn try_from(text: String) -> Result<PodGlob, String> {
        let is_name = |part: &str| {
            let good = |byte: u8| {
                byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.*?".contains(&byte)
            };
            !part.is_empty() && part.bytes().all(good)
        };
        let parts = text.split_once('/');
        let good = parts.is_some_and(|(namespace, name)| is_name(namespace) && is_name(name));
        if good && text.len() <= MAX_GLOB_BYTES {
            Ok(PodGlob(text))
        } else {
            Err(format!(
                "{text:?} is not NAMESPACE/NAME with '*' and '?' as placeholders"
            ))
        }
    }
}

impl From<PodGlob> for String {
    fn from(glob: PodGlob) -> String {
        glob.0
    }
}

impl TryFrom<String> for ImagePrefix {
    type Error = String;

    fn try_from(text: String) -> Result<ImagePrefix, String> {
        let good = |byte: u8| byte.is_ascii_graphic() && byte != b'*' && byte != b'?';
        if !text.is_empty() && text.len() <= MAX_IMAGE_BYTES && text.bytes().all(good) {
            Ok(ImagePrefix(text))
        } else {
            Err(format!("{text:?} is not the beginning of an image name"))
        }
    }
}

impl From<ImagePrefix> for String {
    fn from(prefix: ImagePrefix) -> String {
        prefix.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs_match_within_namespace_and_name() {
        for (glob, namespace, name, expected) in [
            ("default/web", "default", "web", true),
            ("default/web", "default", "web2", false),
            ("default/web", "other", "web", false),
            ("*/*", "a", "b", true),
            ("kube-*/etcd", "kube-system", "etcd", true),
            ("default/web-*", "default", "web-", true),
            ("default/web-*", "default", "web", false),
            ("default/*b", "default", "abab", true),
            ("default/*b?", "default", "abab", false),
            ("default/a*b*c", "default", "aXbYc", true),
            ("default/a*b*c", "default", "aXcYb", false),
            ("default/??", "default", "ab", true),
            ("default/??", "default", "a", false),
        ] {
            let pattern = PodGlob::try_from(glob.to_owned()).unwrap();
            assert_eq!(
                pattern.matches(namespace, name),
                expected,
                "{glob} {namespace}/{name}"
            );
        }
    }

    #[test]
    fn a_glob_names_a_namespace_and_a_name() {
        for wrong in [
            "", "web", "/web", "a/", "a/b/c", "A/b", "a/b c", "a/b\n", "a/[b]",
        ] {
            assert!(PodGlob::try_from(wrong.to_owned()).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_prefix_of_an_image_ends_where_a_part_of_the_name_ends() {
        for (prefix, image, expected) in [
            ("example.com/app", "example.com/app", true),
            ("example.com/app", "example.com/app:1", true),
            ("example.com/app", "example.com/app@sha256:00", true),
            ("example.com/app", "example.com/app/web:1", true),
            ("example.com/app", "example.com/application", false),
            ("example.com/app:1", "example.com/app:10", false),
            ("example.com/", "example.com/app", true),
            ("example.com", "example.com.evil.org/app", false),
            ("example.com/app", "evil.org/example.com/app", false),
            ("nginx", "docker.io/library/nginx:1", true),
            ("docker.io/library/nginx", "nginx", true),
            ("index.docker.io/nginx", "nginx", true),
            ("docker.io/org/app", "org/app:2", true),
            ("docker.io/", "org/app:2", true),
            ("docker.io/", "nginx", true),
            ("nginx", "org/nginx", false),
            ("localhost/", "localhost/test:1", true),
            ("localhost/", "docker.io/localhost/test:1", false),
        ] {
            let selector = ImagePrefix::try_from(prefix.to_owned()).unwrap();
            assert_eq!(selector.matches(image), expected, "{prefix} {image}");
        }
    }
}
