//! What must hold of what node-api is asked for, all along: it answers, and a session goes on
//! until its container or node-api has ended, whoever else dies. Pure, but for the records.

use std::ops::RangeInclusive;
use std::time::Duration;

use clock::UnixNanos;
use http::StatusCode;

/// Within what an ask is answered, or its connection breaks: two calls of 10 s, one after the
/// other, to processes that do not answer.
const ANSWERED_WITHIN: Duration = Duration::from_secs(21);

/// Within what an echo comes back, and a session ends that has to.
const AT_ONCE: Duration = Duration::from_millis(50);

/// What came of something that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Nobody listened.
    Refused,
    /// The connection broke.
    Broken,
    /// There was an answer.
    Answered(StatusCode),
}

/// Something that was asked for.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub(crate) path: String,
    pub(crate) at: UnixNanos,
    /// When that came out.
    pub(crate) outcome: Option<(UnixNanos, Outcome)>,
}

/// How a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// Its client closed it.
    Closed,
    /// It ended on its client.
    Broken,
    /// What came back was not what was sent.
    Garbled,
}

/// A session that was opened.
#[derive(Clone, Debug)]
pub(crate) struct Session {
    /// Id of the container that it is with; unknown until its first bytes come.
    pub(crate) container: Option<String>,
    pub(crate) began: UnixNanos,
    /// Since when its client waits for bytes.
    pub(crate) waits_since: Option<UnixNanos>,
    pub(crate) end: Option<(UnixNanos, End)>,
}

/// What was asked for so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Records {
    pub(crate) asks: Vec<Ask>,
    pub(crate) sessions: Vec<Session>,
}

/// What happened on the node, as far as it matters here.
pub(crate) struct Facts<'a> {
    pub(crate) now: UnixNanos,
    /// Whether node-api ran at a moment, and had before it.
    pub(crate) ran: &'a dyn Fn(UnixNanos) -> bool,
    /// When node-api died.
    pub(crate) deaths: &'a [UnixNanos],
    /// When pod-worker-pool did, from which a log comes.
    pub(crate) pool_deaths: &'a [UnixNanos],
    /// When a container ended.
    pub(crate) ended: &'a dyn Fn(&str) -> Option<UnixNanos>,
}

/// What did not hold.
pub(crate) fn broken(records: &Records, facts: &Facts<'_>) -> Vec<String> {
    let asks = records.asks.iter().filter_map(|ask| {
        let complaint = of_ask(ask, facts)?;
        Some(format!("node-api {complaint}: {ask:?}"))
    });
    let sessions = records.sessions.iter().filter_map(|session| {
        let complaint = of_session(session, facts)?;
        Some(format!("a session {complaint}: {session:?}"))
    });
    asks.chain(sessions).collect()
}

fn of_ask(ask: &Ask, facts: &Facts<'_>) -> Option<&'static str> {
    let (until, outcome) = match ask.outcome {
        Some((at, outcome)) => (at, Some(outcome)),
        None => (facts.now, None),
    };
    if until.since(ask.at) > ANSWERED_WITHIN {
        return Some("left an ask hanging");
    }
    let span = ask.at..=until;
    let is_well = match outcome? {
        Outcome::Answered(_) => true,
        Outcome::Refused => !(facts.ran)(ask.at),
        Outcome::Broken => {
            any_in(facts.deaths, &span)
                || (ask.path.starts_with("/containerLogs") && any_in(facts.pool_deaths, &span))
        }
    };
    (!is_well).then_some("let a connection break, and had not ended")
}

fn any_in(moments: &[UnixNanos], span: &RangeInclusive<UnixNanos>) -> bool {
    moments.iter().any(|at| span.contains(at))
}

fn of_session(session: &Session, facts: &Facts<'_>) -> Option<&'static str> {
    let later = facts.deaths.iter().filter(|at| **at >= session.began);
    let container = session.container.as_deref().and_then(facts.ended);
    let due = later.copied().chain(container).min();
    let due = due.map(|due| due.max(session.began));
    let (until, end) = match session.end {
        Some((at, end)) => (at, Some(end)),
        None => (facts.now, None),
    };
    let waited = session.waits_since.map(|since| until.since(since));
    if end == Some(End::Garbled) {
        return Some("gave back other bytes than it got");
    }
    if end == Some(End::Broken) && due.is_none_or(|due| until < due) {
        return Some("ended, and neither its container nor node-api had");
    }
    if due.is_some_and(|due| until > due.plus(AT_ONCE)) {
        return Some("went on when its container or node-api had ended");
    }
    let is_silent = waited.is_some_and(|waited| waited > AT_ONCE);
    is_silent.then_some("did not give back what it got")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> UnixNanos {
        UnixNanos(seconds * 1_000_000_000)
    }

    fn facts<'a>(
        deaths: &'a [UnixNanos],
        ended: &'a dyn Fn(&str) -> Option<UnixNanos>,
    ) -> Facts<'a> {
        Facts {
            now: at(100),
            ran: &|moment| moment > at(10),
            deaths,
            pool_deaths: &[],
            ended,
        }
    }

    #[test]
    fn an_ask_is_answered_unless_node_api_ends_or_is_away() {
        let answered = Outcome::Answered(StatusCode::NOT_FOUND);
        for (asked, outcome, is_well) in [
            (20, Some((41, answered)), true),
            (20, Some((42, answered)), false),
            (90, None, true),
            (20, None, false),
            (9, Some((9, Outcome::Refused)), true),
            (20, Some((20, Outcome::Refused)), false),
            (29, Some((30, Outcome::Broken)), true),
            (31, Some((32, Outcome::Broken)), false),
        ] {
            let ask = Ask {
                path: "/pods".to_owned(),
                at: at(asked),
                outcome: outcome.map(|(seconds, outcome)| (at(seconds), outcome)),
            };
            let complaint = of_ask(&ask, &facts(&[at(30)], &|_| None));
            assert_eq!(complaint.is_none(), is_well, "{ask:?} {complaint:?}");
        }
    }

    #[test]
    fn a_session_ends_with_its_container_or_node_api_and_not_before() {
        // When it began, ended, and waits for bytes since; node-api dies at 30, the
        // container at 60.
        let broken = End::Broken;
        for (began, end, waits, is_well) in [
            (20, Some((30, broken)), None, true),
            (20, Some((29, broken)), None, false),
            (20, Some((31, broken)), None, false),
            (20, None, None, false),
            (40, Some((60, broken)), None, true),
            (40, Some((59, broken)), None, false),
            (40, Some((61, End::Closed)), None, false),
            (40, Some((50, End::Closed)), None, true),
            (40, Some((50, End::Closed)), Some(49), false),
            (40, Some((50, End::Garbled)), None, false),
            (70, Some((70, broken)), None, true),
            (70, None, None, false),
        ] {
            let session = Session {
                container: Some("1".to_owned()),
                began: at(began),
                waits_since: waits.map(at),
                end: end.map(|(seconds, end)| (at(seconds), end)),
            };
            let complaint = of_session(&session, &facts(&[at(30)], &|_| Some(at(60))));
            assert_eq!(complaint.is_none(), is_well, "{session:?} {complaint:?}");
        }
        let goes_on = Session {
            container: None,
            began: at(40),
            waits_since: Some(at(40)),
            end: None,
        };
        assert!(of_session(&goes_on, &facts(&[], &|_| None)).is_some());
    }
}
