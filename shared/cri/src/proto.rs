//! The generated messages and clients. The definitions are in `proto/`; nothing here
//! is written by hand.
#![expect(missing_docs, clippy::all, reason = "generated; documented in proto/")]
#![expect(unused_qualifications, reason = "generated")]
#![cfg_attr(
    feature = "server",
    expect(clippy::allow_attributes, clippy::too_many_lines, reason = "generated")
)]
#![expect(clippy::allow_attributes_without_reason, reason = "generated")]

include!(concat!(env!("OUT_DIR"), "/cri.rs"));
