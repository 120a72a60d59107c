//! Who asks. Pure.

use bulkhead_api::v1;
use http::HeaderMap;
use http::header::{AUTHORIZATION, SEC_WEBSOCKET_PROTOCOL};
use x509_parser::prelude::{FromDer as _, X509Certificate};

/// How a browser sends a token: as a WebSocket protocol.
const BEARER_PROTOCOL: &str = "base64url.bearer.authorization.k8s.io.";

/// Whoever shows nothing.
pub(crate) fn anonymous() -> v1::ApiUser {
    v1::ApiUser {
        name: "system:anonymous".to_owned(),
        groups: vec!["system:unauthenticated".to_owned()],
        ..v1::ApiUser::default()
    }
}

/// The user of a certificate that was checked: its common name, and its organizations as
/// groups. None without a common name.
pub(crate) fn of_certificate(der: &[u8]) -> Option<v1::ApiUser> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    let subject = certificate.subject();
    let text = |attribute: &x509_parser::x509::AttributeTypeAndValue<'_>| {
        attribute.as_str().ok().map(str::to_owned)
    };
    let name = subject.iter_common_name().next().and_then(text)?;
    let organizations = subject.iter_organization().filter_map(text);
    let authenticated = "system:authenticated".to_owned();
    (!name.is_empty()).then(|| v1::ApiUser {
        name,
        groups: organizations.chain([authenticated]).collect(),
        ..v1::ApiUser::default()
    })
}

/// The token that a request shows. One that is sent as a WebSocket protocol, as a browser
/// would, counts for nothing.
pub(crate) fn token(headers: &HeaderMap) -> Option<&str> {
    let authorization = headers.get(AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = authorization.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

/// The WebSocket protocols that a client offers, but for the one with its token.
pub(crate) fn protocols_without_token(headers: &HeaderMap) -> String {
    let offered = protocols(headers).filter(|protocol| !protocol.starts_with(BEARER_PROTOCOL));
    offered.collect::<Vec<_>>().join(", ")
}

fn protocols(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let values = headers.get_all(SEC_WEBSOCKET_PROTOCOL);
    let texts = values.iter().filter_map(|value| value.to_str().ok());
    texts.flat_map(|text| text.split(',').map(str::trim))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_what_follows_bearer() {
        for (value, expected) in [
            ("Bearer abc", Some("abc")),
            ("bearer  abc ", Some("abc")),
            ("Bearer ", None),
            ("Basic abc", None),
            ("abc", None),
        ] {
            let headers = HeaderMap::from_iter([(AUTHORIZATION, value.parse().unwrap())]);
            assert_eq!(token(&headers), expected, "{value}");
        }
        assert_eq!(token(&HeaderMap::new()), None);
    }

    #[test]
    fn a_token_among_the_protocols_goes_no_further() {
        let offered = format!("v4.channel.k8s.io, {BEARER_PROTOCOL}c2VjcmV0,channel.k8s.io");
        let headers = HeaderMap::from_iter([(SEC_WEBSOCKET_PROTOCOL, offered.parse().unwrap())]);
        let expected = "v4.channel.k8s.io, channel.k8s.io";
        assert_eq!(protocols_without_token(&headers), expected);
    }

    #[test]
    fn a_certificate_names_a_user_and_its_groups() {
        let der = |names: &[(rcgen::DnType, &str)]| {
            let mut parameters = rcgen::CertificateParams::default();
            parameters.distinguished_name = rcgen::DistinguishedName::new();
            for (kind, name) in names {
                parameters.distinguished_name.push(kind.clone(), *name);
            }
            let key = rcgen::KeyPair::generate().unwrap();
            parameters.self_signed(&key).unwrap().der().to_vec()
        };
        let name = (rcgen::DnType::CommonName, "ann");
        let group = (rcgen::DnType::OrganizationName, "system:masters");
        let user = of_certificate(&der(&[name, group.clone()])).unwrap();
        assert_eq!(user.name, "ann");
        assert_eq!(user.groups, ["system:masters", "system:authenticated"]);
        assert_eq!(of_certificate(&der(&[group])), None);
        assert_eq!(of_certificate(b"none"), None);
    }
}
