//! The messages and services of `proto/bulkhead/v1`, generated at build time.
//!
//! Comments live in the `.proto` files. By hand is only what keeps Secrets out of logs, and
//! what bounds the parts of a message.
#![expect(missing_docs, reason = "generated code; the comments are in proto/")]
#![expect(clippy::all, clippy::too_many_lines, reason = "generated code")]
#![expect(unused_qualifications, reason = "generated code")]
#![expect(clippy::allow_attributes, reason = "generated code")]
#![expect(clippy::allow_attributes_without_reason, reason = "generated code")]

pub mod codec;
mod secrets;

/// Package `bulkhead.v1`.
pub mod v1 {
    tonic::include_proto!("bulkhead.v1");
}

include!(concat!(env!("OUT_DIR"), "/services.rs"));
include!(concat!(env!("OUT_DIR"), "/parts.rs"));
