//! What a probe or hook asks its server for. A kubelet reads the path of an `httpGet` as a
//! URL and has Go write it again: of a whole URL the path is left, and what Go cannot read is
//! read as a path as it stands. Pure.

/// The path and query that go into the request of a probe or hook with this `path`; `None`
/// where Go finds a URL that asks no host: letters before a colon, and no slash after it
/// (`localhost:8080/healthz`).
pub(super) fn of_get(path: &str) -> Option<String> {
    let target = match parse(path) {
        Parsed::Opaque => return None,
        Parsed::Reference { path, query } => from_parts(path, query),
        Parsed::NoUrl => escape(path.as_bytes()),
    };
    Some(match target.starts_with('/') {
        true => target,
        false => format!("/{target}"),
    })
}

/// Path and query as they may stand in a request. A path that is no valid encoding of itself
/// is encoded anew as a whole, so an encoded slash in it becomes a slash. A query is left as
/// it is, but for bytes that cannot stand in a request: Go sends the space too, and quotes
/// and angle brackets, of which our client says that they are no request.
pub(super) fn from_parts(path: &str, query: Option<&str>) -> String {
    let mut target = match unescape(path) {
        Some(_) if path.bytes().all(stands_in_a_path) => path.to_owned(),
        Some(decoded) => escape(&decoded),
        None => escape(path.as_bytes()),
    };
    if let Some(query) = query {
        target.push('?');
        for character in query.chars() {
            match character.is_ascii_control() || " \"<>#".contains(character) {
                true => push_encoded(&mut target, u32::from(character)),
                false => target.push(character),
            }
        }
    }
    target
}

/// What Go's url.Parse makes of a text.
enum Parsed<'a> {
    /// No URL.
    NoUrl,
    /// A URL with a scheme and, after it, no slash.
    Opaque,
    Reference {
        path: &'a str,
        /// There is one after each `?`, be it empty.
        query: Option<&'a str>,
    },
}

fn parse(text: &str) -> Parsed<'_> {
    let (url, fragment) = text.split_once('#').unwrap_or((text, ""));
    let no_url = url.bytes().any(|byte| byte.is_ascii_control())
        || url.starts_with(':')
        || unescape(fragment).is_none();
    if no_url {
        return Parsed::NoUrl;
    }
    let (has_scheme, rest) = match split_scheme(url) {
        Some((_, rest)) => (true, rest),
        None => (false, url),
    };
    let (mut path, query) = match rest.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (rest, None),
    };
    if !path.starts_with('/') {
        let first = path.split('/').next().unwrap_or_default();
        match has_scheme {
            true if !path.is_empty() => return Parsed::Opaque,
            false if first.contains(':') => return Parsed::NoUrl,
            _ => {}
        }
    }
    if let Some(rest) = path.strip_prefix("//")
        && (has_scheme || !rest.starts_with('/'))
    {
        let (authority, below) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        if !is_authority(authority) {
            return Parsed::NoUrl;
        }
        path = below;
    }
    match unescape(path) {
        Some(_) => Parsed::Reference { path, query },
        None => Parsed::NoUrl,
    }
}

/// The scheme before the first colon, if that is one, and what follows the colon.
pub(super) fn split_scheme(url: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = url.split_once(':')?;
    let mut characters = scheme.chars();
    let valid = characters.next()?.is_ascii_alphabetic()
        && characters.all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'));
    valid.then_some((scheme, rest))
}

/// Whether Go takes it for user, host and port, of which none is used. It does not ask
/// whether there could be such a host.
fn is_authority(authority: &str) -> bool {
    let (user, host) = authority.rsplit_once('@').unwrap_or(("", authority));
    let is_user = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:~!$&'()*+,;=%@".contains(&byte);
    let is_host = |byte: u8| {
        let marks = b"-._~!$&'()*+,;=:[]<>\"%";
        byte.is_ascii_alphanumeric() || marks.contains(&byte) || !byte.is_ascii()
    };
    // The port after the last colon, or after the bracket of an IPv6 address.
    let (name, port) = match host.starts_with('[') {
        true => match host.rfind(']') {
            Some(end) => host.split_at(end + 1),
            None => return false,
        },
        false => host.split_at(host.rfind(':').unwrap_or(host.len())),
    };
    let digits = port.strip_prefix(':').unwrap_or(port);
    let is_port = port.is_empty() || port.starts_with(':');
    // Of a host's characters only those beyond ASCII may be encoded, and the sign that
    // begins a zone.
    let encoded = name.match_indices('%').all(|(at, _)| {
        let byte = name.get(at + 1..at + 3);
        let byte = byte.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        byte.is_some_and(|byte| !byte.is_ascii() || byte == b'%')
    });
    is_port
        && digits.bytes().all(|byte| byte.is_ascii_digit())
        && name.bytes().all(is_host)
        && encoded
        && user.bytes().all(is_user)
        && unescape(user).is_some()
}

/// Bytes that Go leaves in a path that it finds encoded.
fn stands_in_a_path(byte: u8) -> bool {
    is_left_by_escape(byte) || b"!'()*[]%".contains(&byte)
}

/// Bytes that Go does not encode when it encodes a path.
fn is_left_by_escape(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_.~$&+,/:;=@".contains(&byte)
}

fn escape(path: &[u8]) -> String {
    let mut escaped = String::with_capacity(path.len());
    for &byte in path {
        match is_left_by_escape(byte) {
            true => escaped.push(char::from(byte)),
            false => push_encoded(&mut escaped, u32::from(byte)),
        }
    }
    escaped
}

fn push_encoded(text: &mut String, byte: u32) {
    text.push_str(&format!("%{byte:02X}"));
}

/// The bytes that a text encodes; `None` where two digits do not follow each `%`.
fn unescape(text: &str) -> Option<Vec<u8>> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
    while let Some(byte) = bytes.next() {
        decoded.push(match byte {
            b'%' => {
                let (high, low) = (digit(bytes.next())?, digit(bytes.next())?);
                u8::try_from(high * 16 + low).ok()?
            }
            byte => byte,
        });
    }
    Some(decoded)
}

#[cfg(test)]
mod tests;
