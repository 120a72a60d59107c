//! What the name of a registry in a Docker configuration stands for: which images are
//! meant by `https://*.example.com:5000/team`.

/// The part of images that an entry is for. Ordered as a kubelet orders them (by text), so
/// that of two that begin alike the longer one comes last.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Registry(String);

impl Registry {
    /// From the key of an entry: a host, perhaps with a scheme before it and a port and a
    /// path behind it. Docker's own `/v1/` and `/v2/` are no paths.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn parse(key: &str) -> Result<Registry, &'static str> {
        let without_scheme = key
            .strip_prefix("https://")
            .or_else(|| key.strip_prefix("http://"))
            .unwrap_or(key);
        let (host, path) = parts(without_scheme);
        let has = |characters: &[char]| without_scheme.contains(characters);
        if has(&['@']) {
            return Err("a registry's name has no user before it");
        }
        if host.is_empty() || without_scheme.contains(char::is_whitespace) {
            return Err("it is no registry's name");
        }
        let (name, _) = host_and_port(host);
        let is_address = host.starts_with('[') && name.contains(':');
        if has(&['?', '#', '\\', '%']) || (!is_address && has(&['[', ']'])) {
            return Err("a registry's name has no other pattern than `*`");
        }
        let path = match path {
            _ if path.starts_with("/v1/") || path.starts_with("/v2/") => &path[3..],
            _ => path,
        };
        let path = if path == "/" { "" } else { path };
        Ok(Registry(format!("{host}{path}")))
    }

    /// Docker Hub, by the name that it has in Docker's configuration.
    pub(crate) fn is_docker_hub(&self) -> bool {
        self.0 == "index.docker.io"
    }

    /// Whether the entry is for the images of `repository`, a name with its registry and
    /// without a tag. In each part of the host a `*` stands for any text without dots; the
    /// port is the same; the path begins alike.
    pub(crate) fn matches(&self, repository: &str) -> bool {
        let ((host, path), (its_host, its_path)) = (parts(&self.0), parts(repository));
        let ((name, port), (its_name, its_port)) = (host_and_port(host), host_and_port(its_host));
        port == its_port
            && its_path.starts_with(path)
            && name.split('.').count() == its_name.split('.').count()
            && name
                .split('.')
                .zip(its_name.split('.'))
                .all(|(pattern, label)| is_like(pattern, label))
    }
}

/// The images that something is for, in the words of Docker's configuration: a host,
/// perhaps with `*` in its parts, perhaps a port and the beginning of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImagePattern(Registry);

impl ImagePattern {
    /// From its text.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<ImagePattern, &'static str> {
        Registry::parse(text).map(ImagePattern)
    }

    /// Whether it is for the images of `repository`, a name with its registry and without
    /// a tag.
    #[must_use]
    pub fn matches(&self, repository: &str) -> bool {
        self.0.matches(repository)
    }
}

/// Host with its port, and the path with the slash that it begins with.
fn parts(name: &str) -> (&str, &str) {
    name.split_at(name.find('/').unwrap_or(name.len()))
}

/// Host and port, which is empty where there is none. The address of a host of IPv6 is in
/// brackets where it has a port.
fn host_and_port(host: &str) -> (&str, &str) {
    match host.rsplit_once(':') {
        Some((name, port)) if !name.contains(':') => (name, port),
        Some((name, port)) => match name.strip_prefix('[').and_then(|it| it.strip_suffix(']')) {
            Some(address) => (address, port),
            None => (host, ""),
        },
        None => (host, ""),
    }
}

/// Whether `*` in the pattern can stand for what makes it the text.
fn is_like(pattern: &str, text: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else {
        return pattern == text;
    };
    let Some(mut text) = text.strip_prefix(first) else {
        return false;
    };
    let mut pieces: Vec<&str> = rest.split('*').collect();
    let last = pieces.pop().unwrap_or_default();
    for piece in pieces {
        let Some(at) = text.find(piece) else {
            return false;
        };
        text = &text[at + piece.len()..];
    }
    text.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(key: &str, repository: &str) -> bool {
        Registry::parse(key).unwrap().matches(repository)
    }

    /// Those of a kubelet's `TestURLsMatch` that can be written in a configuration, and
    /// some of our own.
    #[test]
    fn hosts_match_part_by_part_ports_exactly_and_paths_from_their_beginning() {
        for (key, repository, expected) in [
            ("*.kubernetes.io", "prefix.kubernetes.io", true),
            ("prefix.*.io", "prefix.kubernetes.io", true),
            ("prefix.kubernetes.*", "prefix.kubernetes.io", true),
            ("*-good.kubernetes.io", "prefix-good.kubernetes.io", true),
            ("*.kubernetes.io/blah", "prefix.kubernetes.io/blah", true),
            ("prefix.*.io/foo", "prefix.kubernetes.io/foo/bar", true),
            ("*.kubernetes.io", "kubernetes.io", false),
            ("*.*.kubernetes.io", "prefix.kubernetes.io", false),
            ("*.*.prefix.kubernetes.io", "prefix.kubernetes.io", false),
            ("kubernetes.io", "kubernetes.com", false),
            ("k*.io", "quay.io", false),
            ("*", "a.b", false),
            ("*", "localhost/a", true),
            ("a*b*c.io", "axbybzc.io/a", true),
            ("a*b*c.io", "axc.io/a", false),
            ("a*a.io", "a.io/a", false),
            (
                "prefix.kubernetes.io:1111",
                "prefix.kubernetes.io:1111/a",
                true,
            ),
            (
                "prefix.kubernetes.io:80",
                "prefix.kubernetes.io:1111/a",
                false,
            ),
            ("prefix.kubernetes.io", "prefix.kubernetes.io:1111/a", false),
            (
                "*.kubernetes.io:1111/blah",
                "prefix.kubernetes.io:1111/blah",
                true,
            ),
            ("https://a.io", "a.io/b/c", true),
            ("http://a.io/v1/", "a.io/b/c", true),
            ("https://a.io/v2/", "a.io/b/c", true),
            ("a.io/v2/b", "a.io/b/c", true),
            ("a.io/v2", "a.io/b/c", false),
            ("a.io/", "a.io/b/c", true),
            ("a.io/b", "a.io/bc", true),
            ("a.io/b/", "a.io/bc", false),
            ("a.io/b/c/d", "a.io/b/c", false),
            ("A.io", "a.io/b", false),
            ("[2001:db8::1]:5000", "[2001:db8::1]:5000/a", true),
            ("[2001:db8::1]:5000", "[2001:db8::2]:5000/a", false),
            ("[2001:db8::1]", "[2001:db8::1]/a", true),
            ("127.0.0.1:5000", "127.0.0.1:5000/a/b", true),
        ] {
            assert_eq!(matches(key, repository), expected, "{key} {repository}");
        }
    }

    #[test]
    fn what_is_no_registry_is_told() {
        for key in [
            "",
            "https://",
            "/a",
            "user:hunter2@a.io",
            "a b.io",
            "a?.io",
            "x[a-c].io",
            "[a-c].io",
            "a.io#b",
            "a%2a.io",
        ] {
            let problem = Registry::parse(key).unwrap_err();
            assert!(!problem.contains("hunter2"), "{key}");
        }
    }
}
