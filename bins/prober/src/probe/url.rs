//! The URLs of HTTP probes: what a probe asks for and where a redirect leads.
//! Pure; RFC 3986 as far as an HTTP client needs it.

use std::fmt;

use super::request_target::{self, split_scheme};
use crate::spec::Scheme;

/// Longest URL that is followed.
const MAX_URL_BYTES: usize = 8 << 10;

/// An HTTP URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Url {
    pub(crate) scheme: Scheme,
    /// Name or address, without brackets.
    pub(crate) host: String,
    pub(crate) port: u16,
    /// Host and port as they go into the `Host` header.
    pub(crate) authority: String,
    /// Path and query, percent-encoded, beginning with a slash.
    pub(crate) target: String,
}

impl fmt::Display for Url {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match self.scheme {
            Scheme::Http => "http",
            Scheme::Https => "https",
        };
        write!(formatter, "{scheme}://{}{}", self.authority, self.target)
    }
}

/// The path of a probe is a URL without a host.
#[derive(Debug, thiserror::Error)]
#[error("the path {0:?} reads as a URL without a host: let it begin with a slash")]
pub(crate) struct NoHost(String);

/// Where a redirect leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Redirect {
    /// To the same host. `relative`: the location names no host, so that a custom
    /// `Host` header stays right.
    SameHost { url: Url, relative: bool },
    /// Elsewhere.
    OtherHost,
    /// Nowhere that is understood.
    Invalid,
}

impl Url {
    /// The URL of a probe: `path` is what its author wrote, in any shape.
    ///
    /// # Errors
    /// Where a kubelet asks nobody.
    pub(crate) fn new(scheme: Scheme, host: &str, port: u16, path: &str) -> Result<Url, NoHost> {
        let target = request_target::of_get(path).ok_or_else(|| NoHost(path.to_owned()))?;
        let authority = match host.contains(':') {
            true => format!("[{host}]:{port}"),
            false => format!("{host}:{port}"),
        };
        Ok(Url {
            scheme,
            host: host.to_owned(),
            port,
            authority,
            target,
        })
    }

    /// Where a `Location` of an answer from this URL leads.
    pub(crate) fn redirect(&self, location: &str) -> Redirect {
        let location = location.trim();
        if location.is_empty() || location.len() > MAX_URL_BYTES {
            return Redirect::Invalid;
        }
        let (scheme, rest) = match split_scheme(location) {
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("http") => {
                (Some(Scheme::Http), rest)
            }
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("https") => {
                (Some(Scheme::Https), rest)
            }
            // Another protocol is elsewhere, whatever host it names.
            Some(_) => return Redirect::OtherHost,
            None => (None, location),
        };
        let Some(rest) = rest.strip_prefix("//") else {
            return match scheme {
                // `http:something` names no host at all.
                Some(_) => Redirect::Invalid,
                None => Redirect::SameHost {
                    url: Url {
                        target: join(&self.target, rest),
                        ..self.clone()
                    },
                    relative: true,
                },
            };
        };
        let scheme = scheme.unwrap_or(self.scheme);
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        let authority = authority.rsplit('@').next().unwrap_or(authority);
        let Some((host, port)) = split_authority(authority, scheme) else {
            return Redirect::Invalid;
        };
        if !host.eq_ignore_ascii_case(&self.host) {
            return Redirect::OtherHost;
        }
        Redirect::SameHost {
            url: Url {
                scheme,
                host: self.host.clone(),
                port,
                authority: authority.to_owned(),
                target: join("/", path),
            },
            relative: false,
        }
    }
}

/// Host without brackets, and port. `None` when it is neither a name nor an
/// address with an optional port.
fn split_authority(authority: &str, scheme: Scheme) -> Option<(&str, u16)> {
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (host, rest) = rest.split_once(']')?;
            (host, rest.strip_prefix(':').unwrap_or(rest))
        }
        None => authority.split_once(':').unwrap_or((authority, "")),
    };
    let usual = |c: char| c.is_ascii_graphic() && !matches!(c, '"' | '<' | '>' | '\\' | '^' | '`');
    if host.is_empty() || !host.chars().all(usual) {
        return None;
    }
    let default = match scheme {
        Scheme::Http => 80,
        Scheme::Https => 443,
    };
    match port {
        "" => Some((host, default)),
        port => {
            let port = port.parse().ok().filter(|port| *port > 0)?;
            Some((host, port))
        }
    }
}

/// A relative reference resolved against the target that it came from, encoded.
fn join(base: &str, reference: &str) -> String {
    let reference = reference.split('#').next().unwrap_or_default();
    let base_path = base.split('?').next().unwrap_or_default();
    if reference.is_empty() {
        return base.to_owned();
    }
    if let Some(query) = reference.strip_prefix('?') {
        return request_target::from_parts(base_path, Some(query));
    }
    let (path, query) = match reference.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (reference, None),
    };
    let merged = if path.starts_with('/') {
        path.to_owned()
    } else {
        let directory = base_path.rfind('/').map_or("/", |last| &base_path[..=last]);
        format!("{directory}{path}")
    };
    request_target::from_parts(&without_dots(&merged), query)
}

/// The path without its `.` and `..` segments.
fn without_dots(path: &str) -> String {
    let mut segments: Vec<&str> = Vec::new();
    let mut parts = path.trim_start_matches('/').split('/').peekable();
    while let Some(part) = parts.next() {
        let last = parts.peek().is_none();
        match part {
            "." | ".." => {
                if part == ".." {
                    segments.pop();
                }
                if last {
                    segments.push("");
                }
            }
            other => segments.push(other),
        }
    }
    format!("/{}", segments.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn base() -> Url {
        Url::new(Scheme::Http, "10.0.0.1", 8080, "/a/b?c=d").unwrap()
    }

    #[test]
    fn an_ipv6_address_gets_its_brackets() {
        let url = Url::new(Scheme::Https, "fd00::1", 443, "/").unwrap();
        assert_eq!(url.to_string(), "https://[fd00::1]:443/");
        assert_eq!(url.host, "fd00::1");
    }

    #[test]
    fn relative_locations_stay_at_the_host() {
        for (location, target) in [
            ("/x", "/x"),
            ("x", "/a/x"),
            ("../x", "/x"),
            ("../../../x", "/x"),
            ("./", "/a/"),
            ("..", "/"),
            ("?q", "/a/b?q"),
            ("#f", "/a/b?c=d"),
            ("/x?next=http://other/", "/x?next=http://other/"),
            ("x y", "/a/x%20y"),
        ] {
            let Redirect::SameHost { url, relative } = base().redirect(location) else {
                panic!("{location} leads elsewhere");
            };
            assert!(relative, "{location}");
            assert_eq!(url.target, target, "{location}");
            assert_eq!((url.port, url.scheme), (8080, Scheme::Http));
            assert_eq!(url.authority, "10.0.0.1:8080");
        }
    }

    #[test]
    fn absolute_locations_may_change_scheme_and_port_but_not_the_host() {
        for (location, expected, port) in [
            ("http://10.0.0.1/x", "http://10.0.0.1/x", 80),
            ("HTTPS://10.0.0.1", "https://10.0.0.1/", 443),
            ("//10.0.0.1:9/x/../y?z", "http://10.0.0.1:9/y?z", 9),
            (
                "http://user:secret@10.0.0.1:8081/",
                "http://10.0.0.1:8081/",
                8081,
            ),
        ] {
            let Redirect::SameHost { url, relative } = base().redirect(location) else {
                panic!("{location} leads elsewhere");
            };
            assert!(!relative, "{location}");
            assert_eq!(url.to_string(), expected);
            assert_eq!(url.port, port);
        }
        for location in [
            "http://10.0.0.2/",
            "//169.254.169.254/latest",
            "http://10.0.0.1@evil/",
            "ftp://10.0.0.1/",
            "file:///etc/passwd",
            "unix:/run/x.sock",
        ] {
            assert_eq!(base().redirect(location), Redirect::OtherHost, "{location}");
        }
        let six = Url::new(Scheme::Http, "fd00::1", 80, "/").unwrap();
        assert!(matches!(
            six.redirect("http://[fd00::1]:8080/"),
            Redirect::SameHost { url, .. } if url.port == 8080
        ));
    }

    #[test]
    fn senseless_locations_are_invalid() {
        for location in [
            "",
            "http:",
            "http://",
            "http:///x",
            "http://10.0.0.1:0/",
            "http://10.0.0.1:99999/",
            "http://10.0.0.1:x/",
            "http://a b/",
        ] {
            assert_eq!(base().redirect(location), Redirect::Invalid, "{location}");
        }
        let long = format!("/{}", "x".repeat(MAX_URL_BYTES));
        assert_eq!(base().redirect(&long), Redirect::Invalid);
    }
}
