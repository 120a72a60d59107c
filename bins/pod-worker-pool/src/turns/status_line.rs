//! What `bulkhead status` shows of the turns at the runtime. Pure.

use std::collections::BTreeMap;

use ::turns::{ByCall, Call, Figures};
use clock::UnixNanos;

/// The limit became what it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct LimitChange {
    pub(super) before: usize,
    pub(super) at: UnixNanos,
}

/// The limit and its last change, how many calls run and wait, and of which kinds.
pub(super) fn of(
    figures: Figures,
    by_call: &BTreeMap<Call, ByCall>,
    changed: Option<LimitChange>,
) -> String {
    let Figures {
        limit,
        running,
        without_turn,
        waiting,
    } = figures;
    let mut text = format!("turns at the runtime: limit {limit}");
    if let Some(LimitChange { before, at }) = changed {
        // To the second: nobody compares it with anything finer.
        let at = jiff::Timestamp::from_second(at.0.div_euclid(1_000_000_000));
        let at = at.map(|at| at.to_string()).unwrap_or_default();
        text += &format!(" (was {before} until {at})");
    }
    if by_call.is_empty() {
        return text;
    }
    text += &format!(", {running} under way");
    if without_turn > 0 {
        text += &format!(", {without_turn} more that take too long for a turn");
    }
    text += &named(by_call, |it| it.running);
    text += &format!(", {waiting} waiting");
    text += &named(by_call, |it| it.waiting);
    text
}

/// The kinds of which there are some, in brackets.
fn named(by_call: &BTreeMap<Call, ByCall>, count: impl Fn(&ByCall) -> usize) -> String {
    let counts = by_call.iter().map(|(call, it)| (call, count(it)));
    let words = counts.filter(|(_, count)| *count > 0);
    let words: Vec<String> = words
        .map(|(call, count)| format!("{count} {}", call.as_str()))
        .collect();
    match words.is_empty() {
        true => String::new(),
        false => format!(" ({})", words.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_its_last_change_and_the_calls_by_kind_are_told() {
        let figures = |running, without_turn, waiting| Figures {
            limit: 4,
            running,
            without_turn,
            waiting,
        };
        let changed = LimitChange {
            before: 5,
            at: UnixNanos(1_600_000_000_987_654_321),
        };
        let by_call = |calls: &[(Call, usize, usize)]| -> BTreeMap<Call, ByCall> {
            let calls = calls
                .iter()
                .map(|&(call, running, waiting)| (call, ByCall { running, waiting }));
            calls.collect()
        };
        let cases = [
            (
                figures(0, 0, 0),
                by_call(&[]),
                None,
                "turns at the runtime: limit 4",
            ),
            (
                figures(0, 0, 0),
                by_call(&[]),
                Some(changed),
                "turns at the runtime: limit 4 (was 5 until 2020-09-13T12:26:40Z)",
            ),
            (
                figures(1, 0, 0),
                by_call(&[(Call::StartContainer, 1, 0)]),
                None,
                "turns at the runtime: limit 4, 1 under way (1 StartContainer), 0 waiting",
            ),
            (
                figures(3, 1, 12),
                by_call(&[
                    (Call::RunSandbox, 3, 10),
                    (Call::CreateContainer, 1, 0),
                    (Call::RemoveImage, 0, 2),
                ]),
                None,
                "turns at the runtime: limit 4, 3 under way, 1 more that take too long for a turn \
                 (3 RunPodSandbox, 1 CreateContainer), 12 waiting (10 RunPodSandbox, 2 RemoveImage)",
            ),
        ];
        for (figures, by_call, changed, expected) in cases {
            assert_eq!(of(figures, &by_call, changed), expected);
        }
    }
}
