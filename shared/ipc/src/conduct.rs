//! What a caller sends that is no message of its service: told from how the call ended.

use http::Response;
use tonic::body::Body;
use tonic::{Code, Status};

use crate::refusal::RefusalKind;

/// How tonic and prost begin what they say of a request that they cannot read. Nothing of
/// ours answers `INTERNAL` with such words.
const UNREADABLE: [&str; 5] = [
    "failed to decode Protobuf message",
    "protocol error: received message with",
    "Error decompressing",
    "Unexpected EOF decoding stream",
    "Missing request message",
];

/// What the request was, if it was none that this service may be sent. No handler of ours
/// answers `OUT_OF_RANGE`: only a message beyond the service's limit is.
pub(crate) fn refusal_kind(response: &Response<Body>) -> Option<RefusalKind> {
    let status = response.extensions().get::<Status>()?;
    let is_unreadable = |status: &Status| {
        let mut beginnings = UNREADABLE.iter();
        beginnings.any(|beginning| status.message().starts_with(beginning))
    };
    match status.code() {
        Code::OutOfRange => Some(RefusalKind::OversizedMessage),
        Code::Internal if is_unreadable(status) => Some(RefusalKind::MalformedMessage),
        _ => None,
    }
}
