//! What the query of a log asks for (`PodLogOptions`, and its validation in
//! `pkg/apis/core/validation`). Pure.

use bulkhead_api::v1;
use http::StatusCode;
use jiff::Timestamp;

use crate::query::Query;

/// What is asked for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct LogQuery {
    /// Without the names of pod and container.
    pub(crate) request: v1::ReadLogsRequest,
    /// After so many bytes the log ends.
    pub(crate) limit_bytes: Option<u64>,
}

/// Why a query is refused, in the kubelet's words.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadQuery {
    /// A value is none of its kind.
    #[error("{{\"message\": \"Unable to decode query.\"}}")]
    Decode,
    /// Values that cannot be, alone or together.
    #[error("{{\"message\": \"Invalid request.\"}}")]
    Invalid,
    /// One stream alone is asked for.
    #[error(
        "unable to return the given log stream: {0:?}. Please enable PodLogsQuerySplitStreams feature gate in kubelet"
    )]
    Stream(String),
}

impl BadQuery {
    pub(crate) fn status(&self) -> StatusCode {
        match self {
            BadQuery::Decode | BadQuery::Stream(_) => StatusCode::BAD_REQUEST,
            BadQuery::Invalid => StatusCode::UNPROCESSABLE_ENTITY,
        }
    }
}

impl LogQuery {
    /// `now`, in nanoseconds of Unix time, is what seconds count from.
    pub(crate) fn parse(query: &Query, now: i64) -> Result<LogQuery, BadQuery> {
        let tail = match query.first("tail") {
            None | Some("") => number(query, "tailLines")?,
            Some("all") => None,
            Some(lines) => Some(lines.parse().map_err(|_| BadQuery::Decode)?),
        };
        let limit = number(query, "limitBytes")?;
        let since_seconds = number(query, "sinceSeconds")?;
        let since_time = match query.first("sinceTime") {
            None | Some("") => None,
            Some(text) => Some(text.parse::<Timestamp>().map_err(|_| BadQuery::Decode)?),
        };
        let flags = (flag(query, "follow")?, flag(query, "previous")?);
        let timestamps = flag(query, "timestamps")?;
        let is_below = |value: Option<i64>, least| value.is_some_and(|value| value < least);
        if is_below(tail, 0)
            || is_below(limit, 1)
            || is_below(since_seconds, 1)
            || (since_seconds.is_some() && since_time.is_some())
        {
            return Err(BadQuery::Invalid);
        }
        if let Some(stream) = query.first("stream").filter(|it| !["", "All"].contains(it)) {
            return Err(BadQuery::Stream(stream.to_owned()));
        }
        let nanos = |time: Timestamp| i64::try_from(time.as_nanosecond()).unwrap_or(0);
        let since = match (since_seconds, since_time) {
            (Some(seconds), _) => now.saturating_sub(seconds.saturating_mul(1_000_000_000)),
            (None, Some(time)) => nanos(time),
            (None, None) => 0,
        };
        Ok(LogQuery {
            request: v1::ReadLogsRequest {
                follow: flags.0,
                previous: flags.1,
                tail_lines: tail.and_then(|lines| u64::try_from(lines).ok()),
                since_unix_nanos: since.max(0),
                timestamps,
                ..v1::ReadLogsRequest::default()
            },
            limit_bytes: limit.and_then(|bytes| u64::try_from(bytes).ok()),
        })
    }
}

fn number(query: &Query, name: &str) -> Result<Option<i64>, BadQuery> {
    match query.first(name) {
        None | Some("") => Ok(None),
        Some(text) => text.parse().map(Some).map_err(|_| BadQuery::Decode),
    }
}

/// As Go's `strconv.ParseBool` has it, and the API machinery for a name without a value.
fn flag(query: &Query, name: &str) -> Result<bool, BadQuery> {
    match query.first(name) {
        None | Some("0" | "f" | "F" | "false" | "False" | "FALSE") => Ok(false),
        Some("" | "1" | "t" | "T" | "true" | "True" | "TRUE") => Ok(true),
        Some(_) => Err(BadQuery::Decode),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<LogQuery, BadQuery> {
        LogQuery::parse(&Query::parse(Some(text)), 1_000_000_000_000)
    }

    #[test]
    fn parameters_are_a_kubelets() {
        let found = parse("follow=true&tailLines=5&timestamps=1&limitBytes=7&previous=false");
        let found = found.unwrap();
        assert_eq!(found.limit_bytes, Some(7));
        let request = found.request;
        assert!(request.follow && request.timestamps && !request.previous);
        assert_eq!(request.tail_lines, Some(5));
        let tail = |text| parse(text).unwrap().request.tail_lines;
        assert_eq!(
            (tail("tail=3"), tail("tail=all&tailLines=4")),
            (Some(3), None)
        );
        let since = |text| parse(text).unwrap().request.since_unix_nanos;
        assert_eq!(since("sinceSeconds=10"), 990_000_000_000);
        assert_eq!(since("sinceTime=1970-01-01T00:00:05Z"), 5_000_000_000);
        assert_eq!(since(""), 0);
    }

    #[test]
    fn what_cannot_be_asked_for_is_refused() {
        for (text, expected) in [
            ("tailLines=-1", BadQuery::Invalid),
            ("limitBytes=0", BadQuery::Invalid),
            ("sinceSeconds=0", BadQuery::Invalid),
            (
                "sinceSeconds=1&sinceTime=1970-01-01T00:00:05Z",
                BadQuery::Invalid,
            ),
            ("tailLines=many", BadQuery::Decode),
            ("sinceTime=now", BadQuery::Decode),
            ("follow=maybe", BadQuery::Decode),
            ("stream=Stdout", BadQuery::Stream("Stdout".to_owned())),
        ] {
            assert_eq!(parse(text), Err(expected), "{text}");
        }
    }
}
