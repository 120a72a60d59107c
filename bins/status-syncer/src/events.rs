//! Recent events: a bounded ring in which repeats are counted and floods of
//! similar ones are folded, as the kubelet's event recorder does.

use std::collections::{BTreeMap, VecDeque};

use bulkhead_api::v1::Event;
use clock::UnixNanos;

use ipc::limits::truncate;

/// Different events that are kept: an hour of a busy node, about 1 MiB.
pub(crate) const MAX_EVENTS: usize = 2_000;
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

/// What makes two events the same but for their time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    subject: Subject,
    container: String,
    event_type: i32,
    reason: String,
    reporter: String,
    /// `None` for the event into which similar ones are folded.
    message: Option<String>,
}

/// What an event is about: a pod's UID, or a file or URL.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Subject {
    pod_uid: String,
    name: String,
}

impl Key {
    fn is_similar(&self, other: &Key) -> bool {
        let blank = |key: &Key| Key {
            message: None,
            ..key.clone()
        };
        blank(self) == blank(other)
    }
}

/// The ring.
#[derive(Debug, Default)]
pub(crate) struct EventLog {
    /// By a number that grows with each time an event is seen.
    by_sequence: BTreeMap<u64, (Key, Event)>,
    sequence_of: BTreeMap<Key, u64>,
    next_sequence: u64,
    reporters: VecDeque<Reporter>,
}

/// How far the calls of one life of a reporting process were taken.
#[derive(Debug)]
struct Reporter {
    boot_id: String,
    next_sequence: u64,
}

/// Lives of reporting processes that are remembered: one process reports by
/// calls, and late retries of its previous life may still arrive.
const MAX_REPORTERS: usize = 4;

impl EventLog {
    /// Takes an event; returns it as it is kept now, with its count, or `None`
    /// if it was known already (a stream that begins again repeats itself).
    pub(crate) fn record(&mut self, mut event: Event, now: UnixNanos) -> Option<Event> {
        bound_texts(&mut event);
        if event.unix_nanos <= 0 {
            event.unix_nanos = now.0;
        }
        let told_at = event.unix_nanos;
        // A time to come is none: later ones would count as known.
        event.unix_nanos = told_at.min(now.0);
        event.first_unix_nanos = event.first_unix_nanos.min(now.0);
        let mut key = key_of(&event);
        if !self.sequence_of.contains_key(&key) && self.is_flood(&key, event.unix_nanos) {
            key.message = None;
            event.message = format!("{FOLDED_PREFIX}{}", event.message);
            truncate(&mut event.message, MAX_MESSAGE_BYTES);
        }
        event.count = event.count.max(1);
        if let Some(sequence) = self.sequence_of.get(&key)
            && let Some((_, known)) = self.by_sequence.get(sequence)
        {
            // Before a clock that was set back, nothing was known.
            let was_before = known.unix_nanos <= now.0 && event.unix_nanos <= known.unix_nanos;
            if was_before || told_at == known.unix_nanos {
                return None;
            }
            event.count = event.count.saturating_add(known.count);
            event.first_unix_nanos = known.first_unix_nanos;
        } else if event.first_unix_nanos <= 0 {
            event.first_unix_nanos = event.unix_nanos;
        }
        self.insert(key, event.clone());
        Some(event)
    }

    /// Takes the events of a call that may be a repetition: `first_sequence` is
    /// the running number of the first in the life `boot_id` of the caller.
    /// Returns those that are new, as they are kept now.
    pub(crate) fn record_reported(
        &mut self,
        boot_id: &str,
        first_sequence: u64,
        events: Vec<Event>,
        now: UnixNanos,
    ) -> Vec<Event> {
        let end = first_sequence.saturating_add(events.len() as u64);
        let index = self
            .reporters
            .iter()
            .position(|reporter| reporter.boot_id == boot_id);
        let taken = match index {
            Some(index) => {
                let reporter = &mut self.reporters[index];
                let taken = reporter.next_sequence;
                reporter.next_sequence = taken.max(end);
                taken
            }
            None => {
                let boot_id = boot_id.to_owned();
                self.reporters.push_back(Reporter {
                    boot_id,
                    next_sequence: end,
                });
                if self.reporters.len() > MAX_REPORTERS {
                    self.reporters.pop_front();
                }
                first_sequence
            }
        };
        let known = usize::try_from(taken.saturating_sub(first_sequence)).unwrap_or(usize::MAX);
        events
            .into_iter()
            .skip(known)
            .filter_map(|event| self.record(event, now))
            .collect()
    }

    /// All events, those seen longest ago first; only of one pod if its UID is given.
    #[must_use]
    pub(crate) fn recent(&self, pod_uid: Option<&str>) -> Vec<Event> {
        let of_pod = |key: &Key| pod_uid.is_none_or(|uid| key.subject.pod_uid == uid);
        let all = self.by_sequence.values().filter(|(key, _)| of_pod(key));
        all.map(|(_, event)| event.clone()).collect()
    }

    /// Whether there are too many events already that differ in the message only.
    fn is_flood(&self, key: &Key, unix_nanos: i64) -> bool {
        let since = unix_nanos.saturating_sub(SIMILAR_WINDOW_NANOS);
        let similar = self
            .by_sequence
            .values()
            .filter(|(other, event)| event.unix_nanos >= since && other.is_similar(key));
        similar.count() >= MAX_SIMILAR
    }

    fn insert(&mut self, key: Key, event: Event) {
        let sequence = self.next_sequence;
        self.next_sequence += 1;
        if let Some(old) = self.sequence_of.insert(key.clone(), sequence) {
            self.by_sequence.remove(&old);
        }
        let same_subject = |(_, (other, _)): &(&u64, &(Key, Event))| other.subject == key.subject;
        let mut of_subject = self.by_sequence.iter().filter(same_subject);
        let oldest = of_subject.next().map(|(sequence, _)| *sequence);
        let full = of_subject.count() + 1 >= MAX_EVENTS_PER_SUBJECT;
        if let Some(oldest) = oldest.filter(|_| full) {
            self.remove(oldest);
        } else if self.by_sequence.len() >= MAX_EVENTS
            && let Some(oldest) = self.by_sequence.keys().next().copied()
        {
            self.remove(oldest);
        }
        self.by_sequence.insert(sequence, (key, event));
    }

    fn remove(&mut self, sequence: u64) {
        if let Some((key, _)) = self.by_sequence.remove(&sequence) {
            self.sequence_of.remove(&key);
        }
    }
}

fn key_of(event: &Event) -> Key {
    let pod_uid = event
        .pod
        .as_ref()
        .map(|pod| pod.uid.clone())
        .unwrap_or_default();
    Key {
        subject: Subject {
            pod_uid,
            name: event.subject.clone(),
        },
        container: event.container.clone(),
        event_type: event.r#type,
        reason: event.reason.clone(),
        reporter: event.reporter.clone(),
        message: Some(event.message.clone()),
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
    fn a_stream_that_begins_again_counts_nothing_twice() {
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
    fn a_repeated_call_counts_nothing_twice() {
        let mut log = EventLog::default();
        let events = |times: &[i64]| -> Vec<Event> {
            times
                .iter()
                .map(|&time| event("u", "Unhealthy", "m", time))
                .collect()
        };
        assert_eq!(
            log.record_reported("boot", 0, events(&[1, 2]), NOW).len(),
            2
        );
        assert_eq!(
            log.record_reported("boot", 0, events(&[1, 2]), NOW).len(),
            0
        );
        assert_eq!(
            log.record_reported("boot", 1, events(&[2, 3]), NOW).len(),
            1
        );
        assert_eq!(
            log.record_reported("other boot", 0, events(&[4]), NOW)
                .len(),
            1
        );
        assert_eq!(log.recent(None)[0].count, 4);
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
        assert_eq!(log.sequence_of.len(), MAX_EVENTS);
        assert!(log.recent(Some("u4999")).len() == 1 && log.recent(Some("u0")).is_empty());
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
