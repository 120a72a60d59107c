//! What `bulkhead status` shows of the turns at the runtime. Pure.

use std::collections::BTreeMap;

use ::turns::{ByCall, Call, Figures};

/// The limit, how many calls run and wait, and of which kinds.
pub(super) fn of(figures: Figures, by_call: &BTreeMap<Call, ByCall>) -> String {
    let Figures {
        limit,
        running,
        without_turn,
        waiting,
    } = figures;
    let mut text = format!("turns at the runtime: limit {limit}");
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
    fn the_limit_and_the_calls_by_kind_are_told() {
        let figures = |running, without_turn, waiting| Figures {
            limit: 4,
            running,
            without_turn,
            waiting,
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
                "turns at the runtime: limit 4",
            ),
            (
                figures(1, 0, 0),
                by_call(&[(Call::StartContainer, 1, 0)]),
                "turns at the runtime: limit 4, 1 under way (1 StartContainer), 0 waiting",
            ),
            (
                figures(3, 1, 12),
                by_call(&[
                    (Call::RunSandbox, 3, 10),
                    (Call::CreateContainer, 1, 0),
                    (Call::RemoveImage, 0, 2),
                ]),
                "turns at the runtime: limit 4, 3 under way, 1 more that take too long for a turn \
                 (3 RunPodSandbox, 1 CreateContainer), 12 waiting (10 RunPodSandbox, 2 RemoveImage)",
            ),
        ];
        for (figures, by_call, expected) in cases {
            assert_eq!(of(figures, &by_call), expected);
        }
    }
}
