//! Which events of an object that has too many are not reported (`client-go/tools/record`,
//! `EventSourceObjectSpamFilter`). Pure: time is passed in.

use std::collections::HashMap;

use bulkhead_api::v1::Event;

/// Events of one object and type at once, and after that one in so long.
const BURST: i64 = 25;
const REFILL_NANOS: i64 = 300 * 1_000_000_000;

/// Objects that are remembered.
const MAX_OBJECTS: usize = 4096;

/// Of which pod, or of the Node, and of which type.
type Key = (String, i32);

/// For each object and type when it would have room for all of its burst again.
#[derive(Debug, Default)]
pub(crate) struct SpamFilter(HashMap<Key, i64>);

impl SpamFilter {
    /// Whether an event is reported; it counts then.
    pub(crate) fn admits(&mut self, event: &Event, now_nanos: i64) -> bool {
        let uid = event.pod.as_ref().map(|pod| pod.uid.clone());
        let key = (uid.unwrap_or_default(), event.r#type);
        if self.0.len() >= MAX_OBJECTS && !self.0.contains_key(&key) {
            self.0.retain(|_, full_at| *full_at > now_nanos);
        }
        let full_at = self.0.get(&key).copied().unwrap_or(0).max(now_nanos);
        let has_room = full_at + REFILL_NANOS <= now_nanos + BURST * REFILL_NANOS;
        if has_room && (self.0.len() < MAX_OBJECTS || self.0.contains_key(&key)) {
            self.0.insert(key, full_at + REFILL_NANOS);
        }
        has_room
    }
}

#[cfg(test)]
mod tests {
    use bulkhead_api::v1::PodReference;

    use super::*;

    fn event(uid: &str) -> Event {
        Event {
            pod: Some(PodReference {
                uid: uid.to_owned(),
                ..PodReference::default()
            }),
            ..Event::default()
        }
    }

    #[test]
    fn an_object_with_too_many_events_has_one_in_five_minutes() {
        let mut filter = SpamFilter::default();
        let now = 1_000 * REFILL_NANOS;
        let admitted = (0..100).filter(|_| filter.admits(&event("a"), now));
        assert_eq!(admitted.count(), 25);
        assert!(filter.admits(&event("b"), now));
        assert!(!filter.admits(&event("a"), now + REFILL_NANOS - 1));
        assert!(filter.admits(&event("a"), now + REFILL_NANOS));
        assert!(!filter.admits(&event("a"), now + REFILL_NANOS));
    }

    #[test]
    fn it_remembers_a_bounded_number_of_objects() {
        let mut filter = SpamFilter::default();
        for number in 0..2 * MAX_OBJECTS {
            assert!(filter.admits(&event(&number.to_string()), 1));
        }
        assert!(filter.0.len() <= MAX_OBJECTS);
    }
}
