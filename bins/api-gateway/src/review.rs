//! Reviews: whose a bearer token is, and whether a user may do something with the own Node.
//! Pure. The caller gives values, never a path, a resource or a node.

use bulkhead_api::v1;
use http::Method;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::client::{Answer, ApiRequest};
use crate::object::Refusal;

/// Longest token: those of service accounts have some KiB.
const MAX_TOKEN_BYTES: usize = 32 << 10;

const VERBS: [&str; 5] = ["create", "get", "update", "patch", "delete"];

/// Subresources of a Node (kubelet, `pkg/kubelet/server/auth.go`).
const SUBRESOURCES: [&str; 9] = [
    "proxy",
    "stats",
    "metrics",
    "log",
    "checkpoint",
    "configz",
    "healthz",
    "pods",
    "statusz",
];

/// Why there is no verdict.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(crate) enum ReviewError {
    /// It cannot be asked for.
    #[error("{0}")]
    Question(&'static str),
    /// The API server refused, or its answer is none.
    #[error("the API server gives no verdict: {code} {message}")]
    Answer {
        /// Its HTTP status.
        code: u16,
        /// Its reason.
        message: String,
    },
}

/// The request that asks whose a token is.
pub(crate) fn token_request(token: &str) -> Result<ApiRequest, ReviewError> {
    if token.is_empty() || token.len() > MAX_TOKEN_BYTES {
        return Err(ReviewError::Question("the token is empty or too long"));
    }
    let body = json!({
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenReview",
        "spec": {"token": token},
    });
    Ok(request(
        "/apis/authentication.k8s.io/v1/tokenreviews",
        &body,
    ))
}

/// The request that asks whether a user may do this with the Node `node`.
pub(crate) fn access_request(
    asked: v1::ReviewAccessRequest,
    node: &str,
) -> Result<ApiRequest, ReviewError> {
    let known = |word: &String, words: &[&str]| words.contains(&word.as_str());
    if !known(&asked.verb, &VERBS) || !known(&asked.subresource, &SUBRESOURCES) {
        let reason = "no verb or subresource of a Node";
        return Err(ReviewError::Question(reason));
    }
    let user = asked.user.unwrap_or_default();
    let extra: Map<String, Value> = user
        .extra
        .into_iter()
        .map(|it| (it.key, it.values.into()))
        .collect();
    let body = json!({
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": user.name,
            "uid": user.uid,
            "groups": user.groups,
            "extra": extra,
            "resourceAttributes": {
                "verb": asked.verb,
                "version": "v1",
                "resource": "nodes",
                "subresource": asked.subresource,
                "name": node,
            },
        },
    });
    let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    Ok(request(path, &body))
}

fn request(path: &str, body: &Value) -> ApiRequest {
    ApiRequest {
        method: Method::POST,
        path: path.to_owned(),
        content_type: "application/json",
        body: body.to_string().into_bytes(),
    }
}

#[derive(Deserialize)]
struct Review<Status> {
    status: Status,
}

#[derive(Deserialize)]
struct TokenStatus {
    #[serde(default)]
    authenticated: bool,
    #[serde(default)]
    user: User,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct User {
    username: String,
    uid: String,
    groups: Vec<String>,
    extra: std::collections::BTreeMap<String, Vec<String>>,
}

#[derive(Deserialize)]
#[serde(default)]
#[derive(Default)]
struct AccessStatus {
    allowed: bool,
    denied: bool,
    reason: String,
}

/// Whose the token is, as the API server says.
pub(crate) fn token_verdict(answer: &Answer) -> Result<v1::ReviewTokenResponse, ReviewError> {
    let status: TokenStatus = status(answer)?;
    let user = status.user;
    let is_known = status.authenticated && !user.username.is_empty();
    Ok(v1::ReviewTokenResponse {
        user: is_known.then(|| v1::ApiUser {
            name: user.username,
            uid: user.uid,
            groups: user.groups,
            extra: user
                .extra
                .into_iter()
                .map(|(key, values)| v1::ApiUserExtra { key, values })
                .collect(),
        }),
    })
}

/// Whether the user may, as the API server says.
pub(crate) fn access_verdict(answer: &Answer) -> Result<v1::ReviewAccessResponse, ReviewError> {
    let status: AccessStatus = status(answer)?;
    Ok(v1::ReviewAccessResponse {
        allowed: status.allowed && !status.denied,
        reason: status.reason,
    })
}

fn status<T: for<'a> Deserialize<'a>>(answer: &Answer) -> Result<T, ReviewError> {
    let code = answer.status.as_u16();
    if !answer.status.is_success() {
        let message = Refusal::of(code, &answer.body).message;
        return Err(ReviewError::Answer { code, message });
    }
    let review: Result<Review<T>, _> = serde_json::from_slice(&answer.body);
    let review = review.map_err(|error| ReviewError::Answer {
        code,
        message: error.to_string(),
    })?;
    Ok(review.status)
}

#[cfg(test)]
mod tests {
    use http::StatusCode;

    use super::*;

    fn answer(code: u16, body: &Value) -> Answer {
        Answer {
            status: StatusCode::from_u16(code).unwrap(),
            body: body.to_string().into(),
        }
    }

    #[test]
    fn access_is_asked_for_to_the_own_node_alone() {
        let asked = |verb: &str, subresource: &str| {
            let user = v1::ApiUser {
                name: "ann".to_owned(),
                groups: vec!["admins".to_owned()],
                extra: vec![v1::ApiUserExtra {
                    key: "scopes".to_owned(),
                    values: vec!["all".to_owned()],
                }],
                ..v1::ApiUser::default()
            };
            let asked = v1::ReviewAccessRequest {
                user: Some(user),
                verb: verb.to_owned(),
                subresource: subresource.to_owned(),
            };
            access_request(asked, "n")
        };
        let request = asked("get", "proxy").unwrap();
        let body: Value = serde_json::from_slice(&request.body).unwrap();
        let expected = json!({"user": "ann", "uid": "", "groups": ["admins"],
            "extra": {"scopes": ["all"]},
            "resourceAttributes": {"verb": "get", "version": "v1", "resource": "nodes",
                "subresource": "proxy", "name": "n"}});
        assert_eq!(body["spec"], expected);
        for (verb, subresource) in [("list", "proxy"), ("get", "status"), ("", "")] {
            assert!(asked(verb, subresource).is_err(), "{verb} {subresource}");
        }
    }

    #[test]
    fn a_token_is_somebodys_only_if_the_api_server_says_so() {
        let user = json!({"username": "ann", "uid": "7", "groups": ["g"], "extra": {"k": ["v"]}});
        for (status, expected) in [
            (json!({"authenticated": true, "user": user}), Some("ann")),
            (json!({"authenticated": false, "user": user}), None),
            (json!({"user": user}), None),
            (json!({"authenticated": true}), None),
        ] {
            let verdict = token_verdict(&answer(201, &json!({"status": status}))).unwrap();
            let name = verdict.user.map(|user| user.name);
            assert_eq!(name.as_deref(), expected, "{status}");
        }
        for (code, body) in [(403, json!({"message": "no"})), (201, json!({}))] {
            assert!(token_verdict(&answer(code, &body)).is_err(), "{body}");
        }
        assert!(token_request("").is_err());
        assert!(token_request(&"a".repeat(MAX_TOKEN_BYTES + 1)).is_err());
    }

    #[test]
    fn a_denial_goes_before_an_approval() {
        for (status, expected) in [
            (json!({"allowed": true}), true),
            (json!({"allowed": true, "denied": true}), false),
            (json!({}), false),
        ] {
            let verdict = access_verdict(&answer(201, &json!({"status": status}))).unwrap();
            assert_eq!(verdict.allowed, expected, "{status}");
        }
    }
}
