//! Events that wait until they are reported: those of one object one after the other, in the
//! order in which they came, those of several objects at once, so that an API server that
//! leaves one unanswered does not hold up the others. Pure.

use std::collections::{BTreeSet, VecDeque};

use bulkhead_api::v1::Event;

/// Objects whose events are reported at once.
const MAX_AT_ONCE: usize = 8;

/// Events that wait here; more wait where they come from, which keeps the newest.
const MAX_WAITING: usize = 256;

/// UID of a pod; empty for the Node.
pub(crate) type ObjectUid = String;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct EventQueue {
    waiting: VecDeque<Event>,
    reported: BTreeSet<ObjectUid>,
}

impl EventQueue {
    /// Whether another event may come.
    pub(crate) fn has_room(&self) -> bool {
        self.waiting.len() < MAX_WAITING
    }

    /// An event comes.
    pub(crate) fn push(&mut self, event: Event) {
        self.waiting.push_back(event);
    }

    /// The next event to report, with its object, of which no other is reported until `end`.
    pub(crate) fn begin(&mut self) -> Option<(ObjectUid, Event)> {
        if self.reported.len() == MAX_AT_ONCE {
            return None;
        }
        let mut waiting = self.waiting.iter();
        let next = waiting.position(|event| !self.reported.contains(uid(event)))?;
        let event = self.waiting.remove(next)?;
        let object = uid(&event).to_owned();
        self.reported.insert(object.clone());
        Some((object, event))
    }

    /// The event of an object is reported, or given up.
    pub(crate) fn end(&mut self, object: &ObjectUid) {
        self.reported.remove(object);
    }
}

fn uid(event: &Event) -> &str {
    event.pod.as_ref().map_or("", |pod| &pod.uid)
}

#[cfg(test)]
mod tests {
    use bulkhead_api::v1::PodReference;

    use super::*;

    fn event(uid: &str, reason: &str) -> Event {
        Event {
            pod: Some(PodReference {
                uid: uid.to_owned(),
                ..PodReference::default()
            }),
            reason: reason.to_owned(),
            ..Event::default()
        }
    }

    #[test]
    fn events_of_one_object_keep_their_order_and_hold_up_no_other() {
        let mut queue = EventQueue::default();
        for (uid, reason) in [("a", "1"), ("a", "2"), ("b", "3"), ("b", "4")] {
            queue.push(event(uid, reason));
        }
        let next = |queue: &mut EventQueue| queue.begin().map(|(_, event)| event.reason);
        assert_eq!(next(&mut queue).as_deref(), Some("1"));
        assert_eq!(next(&mut queue).as_deref(), Some("3"));
        assert_eq!(next(&mut queue), None);
        queue.end(&"b".to_owned());
        assert_eq!(next(&mut queue).as_deref(), Some("4"));
        queue.end(&"a".to_owned());
        assert_eq!(next(&mut queue).as_deref(), Some("2"));
    }

    #[test]
    fn a_bounded_number_is_reported_at_once_and_waits() {
        let mut queue = EventQueue::default();
        for number in 0..MAX_WAITING {
            assert!(queue.has_room());
            queue.push(event(&number.to_string(), "r"));
        }
        assert!(!queue.has_room());
        let begun = std::iter::from_fn(|| queue.begin()).count();
        assert_eq!(begun, MAX_AT_ONCE);
        assert!(queue.has_room());
    }
}
