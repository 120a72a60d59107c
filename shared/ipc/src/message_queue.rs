//! Messages that are kept for long, encoded one after the other in one block of memory.
//!
//! As values they would be a dozen small pieces each, scattered over the heap among all
//! that comes and goes, and each piece keeps a page of it from being given back.

use std::collections::VecDeque;
use std::marker::PhantomData;

use prost::Message;

/// A queue of messages: encoded when they are put in, decoded whenever they are read.
#[derive(Clone, Debug)]
pub struct MessageQueue<M> {
    bytes: VecDeque<u8>,
    /// Where each message ends, counted from the first byte that ever was in the queue.
    ends: VecDeque<usize>,
    /// Where the oldest message begins, counted likewise.
    begin: usize,
    messages: PhantomData<fn() -> M>,
}

impl<M> Default for MessageQueue<M> {
    fn default() -> Self {
        MessageQueue {
            bytes: VecDeque::new(),
            ends: VecDeque::new(),
            begin: 0,
            messages: PhantomData,
        }
    }
}

impl<M: Message + Default> MessageQueue<M> {
    /// How many messages are in it.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Adds a message as the newest.
    pub fn push_back(&mut self, message: &M) {
        let encoded = message.encode_to_vec();
        let needed = self.bytes.len() + encoded.len();
        if needed > self.bytes.capacity() {
            // Doubled, as it would be by itself, a full queue would keep up to half of its
            // room for nothing, and since it is a ring it uses all of it in turn.
            self.bytes.reserve_exact(encoded.len() + needed / 8);
        }
        self.bytes.extend(encoded);
        self.ends.push_back(self.begin + self.bytes.len());
    }

    /// Drops the oldest message.
    pub fn drop_front(&mut self) {
        if let Some(end) = self.ends.pop_front() {
            self.bytes.drain(..end - self.begin);
            self.begin = end;
        }
    }

    /// The message at this place, counted from the oldest.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<M> {
        let end = *self.ends.get(index)?;
        let begin = match index.checked_sub(1) {
            Some(before) => *self.ends.get(before)?,
            None => self.begin,
        };
        let range = begin - self.begin..end - self.begin;
        let bytes: Vec<u8> = self.bytes.range(range).copied().collect();
        // What was encoded here can be decoded.
        Some(M::decode(bytes.as_slice()).unwrap_or_default())
    }

    /// All messages, the oldest first.
    pub fn iter(&self) -> impl Iterator<Item = M> {
        (0..self.len()).filter_map(|index| self.get(index))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_queue_has_little_more_room_than_it_needs() {
        let mut queue = MessageQueue::default();
        let message = "x".repeat(100);
        for _ in 0..10_000 {
            if queue.len() == 1000 {
                queue.drop_front();
            }
            queue.push_back(&message);
        }
        let (room, used) = (queue.bytes.capacity(), queue.bytes.len());
        assert!(room <= used + used / 7, "{room} for {used}");
    }

    #[test]
    fn messages_come_out_as_they_went_in() {
        let mut queue = MessageQueue::default();
        let mut expected = VecDeque::new();
        for number in 0..500_usize {
            // Of all lengths, the empty one included; some leave, so the block wraps.
            let message = "x".repeat(number % 37);
            queue.push_back(&message);
            expected.push_back(message);
            if number % 3 == 0 {
                queue.drop_front();
                expected.pop_front();
            }
            assert!(queue.iter().eq(expected.iter().cloned()));
        }
        assert_eq!(queue.len(), expected.len());
        assert_eq!(queue.get(queue.len()), None);
    }

    #[test]
    fn what_has_left_takes_no_room() {
        let mut queue = MessageQueue::default();
        for _ in 0..10_000 {
            queue.push_back(&"x".repeat(100));
            if queue.len() > 10 {
                queue.drop_front();
            }
        }
        assert!(
            queue.bytes.capacity() < 10_000,
            "{}",
            queue.bytes.capacity()
        );
        while !queue.is_empty() {
            queue.drop_front();
        }
        queue.drop_front();
        assert_eq!((queue.len(), queue.bytes.len()), (0, 0));
    }
}
