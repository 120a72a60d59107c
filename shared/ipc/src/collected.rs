//! Messages of a stream that are kept until its end, bounded in bytes and in number.

use prost::Message;
use tonic::Status;

/// Messages of a peer, in the order in which they came.
#[derive(Debug)]
pub struct Collected<T> {
    messages: Vec<T>,
    bytes: usize,
    max_bytes: usize,
    max_messages: usize,
}

impl<T: Message> Collected<T> {
    /// Nothing yet, and at most so many bytes in so many messages. A message counts as much
    /// as it needs on the wire, and its place in memory.
    #[must_use]
    pub fn new(max_bytes: usize, max_messages: usize) -> Collected<T> {
        Collected {
            messages: Vec::new(),
            bytes: 0,
            max_bytes,
            max_messages,
        }
    }

    /// Adds a message.
    ///
    /// # Errors
    /// When there would be too many of either.
    pub fn push(&mut self, message: T) -> Result<(), Status> {
        self.bytes = self
            .bytes
            .saturating_add(message.encoded_len())
            .saturating_add(size_of::<T>());
        if self.bytes > self.max_bytes {
            let text = format!("the answer has more than {} bytes", self.max_bytes);
            return Err(Status::resource_exhausted(text));
        }
        if self.messages.len() >= self.max_messages {
            let text = format!("the answer has more than {} parts", self.max_messages);
            return Err(Status::resource_exhausted(text));
        }
        self.messages.push(message);
        Ok(())
    }

    /// The messages.
    #[must_use]
    pub fn into_messages(self) -> Vec<T> {
        self.messages
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_kept_up_to_the_bound_and_empty_ones_count_too() {
        for (text, most) in [("", 4), ("x".repeat(100).as_str(), 4)] {
            let one = text.to_owned();
            let each = one.encoded_len() + size_of::<String>();
            let mut collected = Collected::new(each * most, most + 1);
            for _ in 0..most {
                collected.push(one.clone()).unwrap();
            }
            let refused = collected.push(one).unwrap_err();
            assert_eq!(refused.code(), tonic::Code::ResourceExhausted);
            assert_eq!(collected.into_messages().len(), most);
        }
    }

    #[test]
    fn so_many_messages_are_kept_however_small_they_are() {
        let mut collected = Collected::new(1 << 20, 2);
        for _ in 0..2 {
            collected.push(String::new()).unwrap();
        }
        let refused = collected.push(String::new()).unwrap_err();
        assert_eq!(refused.code(), tonic::Code::ResourceExhausted);
        assert_eq!(collected.into_messages().len(), 2);
    }
}
