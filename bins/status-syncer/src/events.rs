//! Recent events: a bounded ring in which repeats are counted and floods of
//! similar ones are folded, as the kubelet's event recorder does.

use std::collections::VecDeque;
use std::hash::{BuildHasher as _, Hash, RandomState};

use bulkhead_api::v1::Event;
use clock::UnixNanos;
use ipc::MessageQueue;
use ipc::limits::truncate;

/// Different events that are kept: the last start and end of 100 pods, about 400 KiB.
pub(crate) const MAX_EVENTS: usize = 1_000;
/// Different events of one pod or subject, so that one cannot displace the rest.
pub(crate) const MAX_EVENTS_PER_SUBJECT: usize = 100;
/// Events that differ in their message only, beyond which they are folded into
/// one; and how long they count. Both are the kubelet's numbers.
const MAX_SIMILAR: usize = 10;
const SIMILAR_WINDOW_NANOS: i64 = 600 * 1_000_000_000;
/// What a folded event's message begins with, as kubectl users know it.
const FOLDED_PREFIX: &str = "(combined from similar events): ";
/// Longest message and subject, in bytes, as the API has it.
const MAX_MESSAGE_BYTES: usize = 1024;
/// Longest of the other texts.
const MAX_WORD_BYTES: usize = 256;

/// What is looked for among all kept events whenever one is recorded, so that no other
/// needs decoding. Hashes under a key that nobody else knows: of two different texts
/// nobody can find a pair that has the same.
#[derive(Clone, Copy, Debug)]
struct Entry {
    /// Of everything but the time; of one into which others are folded, without message.
    same: u64,
    /// Of everything but time and message.
    similar: u64,
    /// Of what the event is about: a pod's UID, or a file or URL.
    subject: u64,
    unix_nanos: i64,
    /// Not after it was seen again, or displaced.
    is_kept: bool,
}

/// The ring.
#[derive(Debug, Default)]
pub(crate) struct EventLog {
    /// Those seen longest ago first, in the order of `events`.
    entries: VecDeque<Entry>,
    events: MessageQueue<Event>,
    /// How many of them are kept.
    kept: usize,
    hasher: RandomState,
}

impl EventLog {
    /// Takes an event; returns it as it is kept now, with its count, or `None`
    /// if it was known already (a stream that begins again repeats itself, and so does a
    /// call that had no answer).
    pub(crate) fn record(&mut self, mut event: Event, now: UnixNanos) -> Option<Event> {
        bound_texts(&mut event);
        if event.unix_nanos <= 0 {
            event.unix_nanos = now.0;
        }
        let told_at = event.unix_nanos;
        // A time to come is none: later ones would count as known.
        event.unix_nanos = told_at.min(now.0);
        event.first_unix_nanos = event.first_unix_nanos.min(now.0);
        let mut entry = self.entry_of(&event);
        let mut known = self.find(entry.same);
        if known.is_none() && self.is_flood(&entry) {
            entry.same = self.folded(entry.similar);
            known = self.find(entry.same);
            event.message = format!("{FOLDED_PREFIX}{}", event.message);
            truncate(&mut event.message, MAX_MESSAGE_BYTES);
        }
        event.count = event.count.max(1);
        let before = known.and_then(|index| self.events.get(index));
        if let Some(before) = before {
            // Before a clock that was set back, nothing was known.
            let was_before = before.unix_nanos <= now.0 && event.unix_nanos <= before.unix_nanos;
            if was_before || told_at == before.unix_nanos {
                return None;
            }
            event.count = event.count.saturating_add(before.count);
            event.first_unix_nanos = before.first_unix_nanos;
        } else if event.first_unix_nanos <= 0 {
            event.first_unix_nanos = event.unix_nanos;
        }
        if let Some(index) = known {
            self.drop_at(index);
        }
        self.insert(entry, &event);
        Some(event)
    }

    /// All events, those seen longest ago first; only of one pod if its UID is given.
    #[must_use]
    pub(crate) fn recent(&self, pod_uid: Option<&str>) -> Vec<Event> {
        let uid_of = |event: &Event| event.pod.as_ref().map(|pod| pod.uid.clone());
        let is_asked_for =
            |event: &Event| pod_uid.is_none_or(|uid| uid_of(event).unwrap_or_default() == uid);
        self.kept_events()
            .map(|(_, event)| event)
            .filter(is_asked_for)
            .collect()
    }

    fn kept_events(&self) -> impl Iterator<Item = (Entry, Event)> {
        let both = self.entries.iter().enumerate();
        both.filter(|(_, entry)| entry.is_kept)
            .filter_map(|(index, entry)| Some((*entry, self.events.get(index)?)))
    }

    fn entry_of(&self, event: &Event) -> Entry {
        let uid = event.pod.as_ref().map(|pod| pod.uid.as_str());
        let subject = self.hash((uid.unwrap_or_default(), &event.subject));
        let similar = self.hash((
            subject,
            &event.container,
            event.r#type,
            &event.reason,
            &event.reporter,
        ));
        Entry {
            same: self.hash((similar, Some(&event.message))),
            similar,
            subject,
            unix_nanos: event.unix_nanos,
            is_kept: true,
        }
    }

    /// What the event has into which similar ones are folded.
    fn folded(&self, similar: u64) -> u64 {
        self.hash((similar, None::<&String>))
    }

    fn hash(&self, what: impl Hash) -> u64 {
        self.hasher.hash_one(what)
    }

    fn find(&self, same: u64) -> Option<usize> {
        let is_same = |entry: &Entry| entry.is_kept && entry.same == same;
        self.entries.iter().rposition(is_same)
    }

    /// Whether there are too many events already that differ in the message only.
    fn is_flood(&self, new: &Entry) -> bool {
        let since = new.unix_nanos.saturating_sub(SIMILAR_WINDOW_NANOS);
        let similar = self.entries.iter().filter(|entry| {
            entry.is_kept && entry.unix_nanos >= since && entry.similar == new.similar
        });
        similar.count() >= MAX_SIMILAR
    }

    fn insert(&mut self, entry: Entry, event: &Event) {
        let mut of_subject = self
            .entries
            .iter()
            .enumerate()
            .filter(|(_, other)| other.is_kept && other.subject == entry.subject);
        let oldest = of_subject.next().map(|(index, _)| index);
        let full = of_subject.count() + 1 >= MAX_EVENTS_PER_SUBJECT;
        if let Some(oldest) = oldest.filter(|_| full) {
            self.drop_at(oldest);
        } else if self.kept >= MAX_EVENTS
            && let Some(oldest) = self.entries.iter().position(|entry| entry.is_kept)
        {
            self.drop_at(oldest);
        }
        self.entries.push_back(entry);
        self.events.push_back(event);
        self.kept += 1;
        self.give_room();
    }

    fn drop_at(&mut self, index: usize) {
        if let Some(entry) = self.entries.get_mut(index)
            && entry.is_kept
        {
            entry.is_kept = false;
            self.kept -= 1;
        }
    }

    /// Lets those go that are not kept any more: the oldest ones at once, others when
    /// they are more than the rest.
    fn give_room(&mut self) {
        while self.entries.front().is_some_and(|entry| !entry.is_kept) {
            self.entries.pop_front();
            self.events.drop_front();
        }
        if self.entries.len() > 2 * self.kept + MAX_EVENTS_PER_SUBJECT {
            let mut events = MessageQueue::default();
            let entries = self.kept_events().map(|(entry, event)| {
                events.push_back(&event);
                entry
            });
            self.entries = entries.collect();
            self.events = events;
        }
    }
}

fn bound_texts(event: &mut Event) {
    truncate(&mut event.message, MAX_MESSAGE_BYTES);
    truncate(&mut event.subject, MAX_MESSAGE_BYTES);
    for word in [&mut event.container, &mut event.reason, &mut event.reporter] {
        truncate(word, MAX_WORD_BYTES);
    }
    if let Some(pod) = &mut event.pod {
        for word in [&mut pod.uid, &mut pod.namespace, &mut pod.name] {
            truncate(word, MAX_WORD_BYTES);
        }
    }
}

#[cfg(test)]
mod tests {
    use bulkhead_api::v1::PodReference;

    use super::*;

    const NOW: UnixNanos = UnixNanos(1_000_000);

    fn event(uid: &str, reason: &str, message: &str, unix_nanos: i64) -> Event {
        Event {
            pod: Some(PodReference {
                uid: uid.to_owned(),
                ..PodReference::default()
            }),
            reason: reason.to_owned(),
            message: message.to_owned(),
            unix_nanos,
            ..Event::default()
        }
    }

    #[test]
    fn repeats_are_counted_with_first_and_last_time() {
        let mut log = EventLog::default();
        log.record(event("u", "BackOff", "again", 5), NOW);
        log.record(event("u", "Started", "once", 6), NOW);
        let kept = log.record(event("u", "BackOff", "again", 9), NOW).unwrap();
        assert_eq!(
            (kept.count, kept.first_unix_nanos, kept.unix_nanos),
            (2, 5, 9)
        );
        let reasons: Vec<_> = log
            .recent(None)
            .into_iter()
            .map(|event| event.reason)
            .collect();
        assert_eq!(
            reasons,
            ["Started", "BackOff"],
            "what was seen last is last"
        );
    }

    #[test]
    fn a_stream_that_begins_again_and_a_repeated_call_count_nothing_twice() {
        let mut log = EventLog::default();
        for time in [5, 7] {
            assert!(log.record(event("u", "Pulled", "m", time), NOW).is_some());
        }
        for time in [5, 7] {
            assert!(log.record(event("u", "Pulled", "m", time), NOW).is_none());
        }
        assert_eq!(log.recent(None)[0].count, 2);
    }

    #[test]
    fn events_are_taken_while_the_clock_is_set_back() {
        let mut log = EventLog::default();
        let mut record = |time, now| {
            let kept = log.record(event("u", "BackOff", "m", time), UnixNanos(now));
            kept.map(|event| (event.count, event.unix_nanos))
        };
        assert_eq!(record(900, 900), Some((1, 900)));
        assert_eq!(record(100, 101), Some((2, 100)));
        assert_eq!(record(100, 102), None, "a stream that begins again");
        assert_eq!(record(200, 201), Some((3, 200)));
    }

    #[test]
    fn a_time_to_come_hides_nothing_that_follows() {
        let mut log = EventLog::default();
        let mut record = |time, now| {
            let kept = log.record(event("u", "BackOff", "m", time), UnixNanos(now));
            kept.map(|event| (event.count, event.unix_nanos))
        };
        assert_eq!(record(i64::MAX, 500), Some((1, 500)));
        assert_eq!(record(600, 601), Some((2, 600)));
    }

    #[test]
    fn a_flood_of_similar_events_is_folded() {
        let mut log = EventLog::default();
        for number in 0..50 {
            log.record(
                event("u", "Failed", &format!("attempt {number}"), 10 + number),
                NOW,
            );
        }
        let kept = log.recent(None);
        assert_eq!(kept.len(), MAX_SIMILAR + 1);
        let folded = kept.last().unwrap();
        assert_eq!(folded.message, "(combined from similar events): attempt 49");
        assert_eq!(folded.count, 40);
    }

    #[test]
    fn similar_events_far_apart_are_not_a_flood() {
        let mut log = EventLog::default();
        for number in 0..20 {
            let time = 1 + number * SIMILAR_WINDOW_NANOS;
            log.record(
                event("u", "Failed", &format!("attempt {number}"), time),
                UnixNanos(time),
            );
        }
        assert_eq!(log.recent(None).len(), 20);
    }

    #[test]
    fn one_pod_cannot_displace_the_events_of_others() {
        let mut log = EventLog::default();
        log.record(event("quiet", "Started", "m", 1), NOW);
        for number in 0..10_000 {
            log.record(event("loud", &format!("R{number}"), "m", 2 + number), NOW);
        }
        assert_eq!(log.recent(Some("quiet")).len(), 1);
        assert_eq!(log.recent(Some("loud")).len(), MAX_EVENTS_PER_SUBJECT);
    }

    #[test]
    fn the_ring_is_bounded() {
        let mut log = EventLog::default();
        for number in 0..5_000 {
            log.record(event(&format!("u{number}"), "R", "m", 1), NOW);
        }
        assert_eq!(log.recent(None).len(), MAX_EVENTS);
        assert_eq!(log.kept, MAX_EVENTS);
        assert!(log.recent(Some("u4999")).len() == 1 && log.recent(Some("u0")).is_empty());
    }

    #[test]
    fn one_that_is_seen_again_and_again_takes_no_more_room() {
        let mut log = EventLog::default();
        log.record(event("quiet", "Started", "m", 1), NOW);
        for time in 2..10_000 {
            log.record(event("u", "BackOff", "again", time), NOW);
        }
        let kept = log.recent(None);
        assert_eq!((kept.len(), kept[1].count), (2, 9_998));
        assert!(log.entries.len() <= 4 + MAX_EVENTS_PER_SUBJECT);
        assert_eq!(log.entries.len(), log.events.len());
    }

    #[test]
    fn texts_are_bounded_and_a_missing_time_is_now() {
        let mut log = EventLog::default();
        let kept = log
            .record(event("u", &"R".repeat(9999), &"ä".repeat(9999), 0), NOW)
            .unwrap();
        assert_eq!(
            (kept.reason.len(), kept.message.len()),
            (MAX_WORD_BYTES, MAX_MESSAGE_BYTES)
        );
        assert_eq!(kept.unix_nanos, NOW.0);
    }
}
