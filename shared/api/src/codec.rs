//! How messages are read: protobuf, with a bound on the parts of a message beside that on its
//! bytes. A part with nothing in it takes two bytes in a message and up to 300 in memory, so
//! bytes alone do not bound what a hostile peer has its reader hold.
//!
//! A part is an element of any list in the message, however deep. They are counted before
//! anything is decoded, by what `build.rs` writes down of each message.

use std::marker::PhantomData;

use prost::bytes::Buf as _;
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};
use prost::{DecodeError, Message};
use tonic::Status;
use tonic::codec::{DecodeBuf, Decoder};
use tonic_prost::ProstEncoder;

/// Most parts of a message: 2,000 pods (`ipc::limits::MAX_PODS`) with two sandboxes and seven
/// containers each. The runtime itself lists no more: its lists have 16 MiB, and a container
/// takes a kilobyte of that.
pub const MAX_PARTS: usize = 20_000;

/// A field of a message that may bring parts.
#[derive(Debug)]
pub struct Field {
    pub(crate) number: u32,
    pub(crate) is_list: bool,
    /// Those of the messages in it; none of a text.
    pub(crate) fields: &'static [Field],
}

/// What is known of a message.
pub trait Parts {
    /// Its fields that may bring parts.
    const FIELDS: &'static [Field];
}

/// Reads and writes the messages of a call.
#[derive(Clone, Copy, Debug)]
pub struct Codec<T, U>(PhantomData<(T, U)>);

impl<T, U> Default for Codec<T, U> {
    fn default() -> Self {
        Codec(PhantomData)
    }
}

impl<T, U> tonic::codec::Codec for Codec<T, U>
where
    T: Message + Send + 'static,
    U: Message + Default + Parts + Send + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = ProstEncoder<T>;
    type Decoder = Reader<U>;

    fn encoder(&mut self) -> ProstEncoder<T> {
        ProstEncoder::default()
    }

    fn decoder(&mut self) -> Reader<U> {
        Reader(PhantomData)
    }
}

/// Reads messages that have no more than [`MAX_PARTS`].
#[derive(Clone, Copy, Debug)]
pub struct Reader<U>(PhantomData<U>);

impl<U: Message + Default + Parts> Decoder for Reader<U> {
    type Item = U;
    type Error = Status;

    fn decode(&mut self, buf: &mut DecodeBuf<'_>) -> Result<Option<U>, Status> {
        // The same memory, not a copy of it.
        let bytes = buf.copy_to_bytes(buf.remaining());
        let unreadable = |error: DecodeError| Status::internal(error.to_string());
        if parts(&bytes, U::FIELDS).map_err(unreadable)? > MAX_PARTS {
            return Err(Status::out_of_range(format!(
                "the message has more than {MAX_PARTS} parts"
            )));
        }
        U::decode(bytes).map(Some).map_err(unreadable)
    }
}

/// How many parts a message has that has these fields.
fn parts(mut bytes: &[u8], fields: &[Field]) -> Result<usize, DecodeError> {
    let mut found = 0;
    while !bytes.is_empty() {
        let (number, wire_type) = decode_key(&mut bytes)?;
        let field = fields.iter().find(|field| field.number == number);
        let Some(field) = field.filter(|_| wire_type == WireType::LengthDelimited) else {
            skip_field(wire_type, number, &mut bytes, DecodeContext::default())?;
            continue;
        };
        let length = usize::try_from(decode_varint(&mut bytes)?).unwrap_or(usize::MAX);
        // Where a message ends too early it is for its decoder to say so.
        let Some((inner, rest)) = bytes.split_at_checked(length) else {
            return Ok(found);
        };
        bytes = rest;
        found += usize::from(field.is_list);
        if !field.fields.is_empty() {
            found += parts(inner, field.fields)?;
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::v1;

    fn parts_of<M: Message + Parts>(message: &M) -> usize {
        parts(&message.encode_to_vec(), M::FIELDS).unwrap()
    }

    #[test]
    fn parts_are_counted_however_deep_they_are() {
        let container = v1::RuntimeContainer {
            id: "id".to_owned(),
            ..Default::default()
        };
        let pod = v1::RuntimePod {
            containers: vec![container; 5],
            sandboxes: vec![v1::RuntimeSandbox::default(); 2],
            ..Default::default()
        };
        let list = v1::ListPodsResponse {
            pods: vec![pod; 3],
            ..Default::default()
        };
        assert_eq!(parts_of(&list), 3 * (1 + 5 + 2));
        let sandbox = v1::SandboxObservation {
            ips: vec![String::new(); 4],
            ..Default::default()
        };
        let observation = v1::PodObservation {
            sandboxes: vec![sandbox],
            ..Default::default()
        };
        let message = v1::watch_observations_response::Message::Observation(observation);
        let message = v1::WatchObservationsResponse {
            message: Some(message),
            ..Default::default()
        };
        assert_eq!(parts_of(&message), 1 + 4);
        let capacity = v1::NodeCapacity {
            huge_pages: [(1, 2), (3, 4)].into(),
            ..Default::default()
        };
        assert_eq!(parts_of(&capacity), 2);
        let health = v1::PlegHealth {
            healthy: true,
            reason: "r".repeat(200),
            pool_boot_id: "b".repeat(16),
        };
        let snapshot = v1::PlegSnapshot {
            health: Some(health),
            pod_uids: vec!["u".repeat(36); 3],
        };
        assert_eq!(parts_of(&snapshot), 3);
        assert_eq!(parts_of(&v1::PodReference::default()), 0);
    }

    /// Field 12 of a [`v1::PodObservation`] was a time there.
    #[test]
    fn whether_a_pod_was_observed_is_understood_by_neighbouring_versions() {
        let nanos = [0x60, 0x80, 0x80, 0x80, 0x80, 0x01];
        let observation = v1::PodObservation::decode(&nanos[..]).unwrap();
        assert!(observation.is_observed, "0 in its lowest 28 bits");
        assert_eq!(observation.encode_to_vec(), [0x60, 1]);
    }

    #[test]
    fn what_is_no_message_is_none_here_either() {
        for bytes in [&[0xff; 9][..], &[0x12], &[0x12, 5, 0], &[0x13, 0x12]] {
            let counted = parts(bytes, v1::ListPodsResponse::FIELDS);
            let decoded = v1::ListPodsResponse::decode(bytes);
            assert!(counted.map_or(true, |count| count == 0) && decoded.is_err());
        }
    }
}
