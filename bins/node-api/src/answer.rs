//! Answers, as a kubelet gives them: errors are plain text.

use std::convert::Infallible;

use http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use http::{Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use ipc::CallError;
use tonic::Code;

/// The body of an answer. One that breaks off says so by its end.
pub(crate) type Body = UnsyncBoxBody<Bytes, Broken>;

/// A body broke off.
#[derive(Debug, thiserror::Error)]
#[error("the answer breaks off: {0}")]
pub(crate) struct Broken(pub(crate) String);

impl From<Infallible> for Broken {
    fn from(never: Infallible) -> Broken {
        match never {}
    }
}

fn whole(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(Broken::from).boxed_unsync()
}

/// A text.
pub(crate) fn text(status: StatusCode, text: impl Into<String>) -> Response<Body> {
    let mut response = Response::new(whole(text.into()));
    *response.status_mut() = status;
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, plain);
    response
}

/// JSON.
pub(crate) fn json(bytes: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(whole(bytes));
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, json);
    response
}

/// What another process answered instead of doing what it was asked for, in the kubelet's
/// codes (`streaming.WriteError`).
pub(crate) fn refusal(error: &CallError) -> Response<Body> {
    let message = match error {
        CallError::Refused(status) => status.message().to_owned(),
        CallError::Deadline { .. } => error.to_string(),
    };
    let status = match error.code() {
        Some(Code::NotFound) => StatusCode::NOT_FOUND,
        Some(Code::InvalidArgument) => StatusCode::BAD_REQUEST,
        Some(Code::PermissionDenied) => StatusCode::FORBIDDEN,
        Some(Code::ResourceExhausted) => StatusCode::TOO_MANY_REQUESTS,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    let mut response = text(status, message);
    if status == StatusCode::TOO_MANY_REQUESTS {
        let second = HeaderValue::from_static("1");
        response.headers_mut().insert(RETRY_AFTER, second);
    }
    response
}
