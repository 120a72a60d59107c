//! Structured logs of a process: one line an event on standard error, which the
//! supervisor or journald keeps.
//!
//! The level comes from `BULKHEAD_LOG` (`info` when unset), the format from
//! `BULKHEAD_LOG_FORMAT` (`text` or `json`).

use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

/// Environment variable with the filter: `info`, `debug`, `pleg=trace,info` ...
/// Levels by crate and module are all that is understood: filters by span or field
/// would have every process link a regex engine.
pub const LEVEL_VARIABLE: &str = "BULKHEAD_LOG";

/// Environment variable with the format: `text` or `json`.
pub const FORMAT_VARIABLE: &str = "BULKHEAD_LOG_FORMAT";

/// Starts logging to standard error. A second call in one process changes nothing.
pub fn start() {
    start_on(std::io::stderr);
}

/// Starts logging to what `writers` makes. A second call in one process changes
/// nothing.
pub fn start_on<W>(writers: W)
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let filter = std::env::var(LEVEL_VARIABLE).ok();
    let registry = tracing_subscriber::registry().with(filter_of(filter.as_deref()));
    let layer = tracing_subscriber::fmt::layer()
        .with_writer(writers)
        .with_ansi(false)
        .with_target(false);
    let json = std::env::var(FORMAT_VARIABLE).is_ok_and(|format| format == "json");
    let started = if json {
        registry.with(layer.json()).try_init()
    } else {
        registry.with(layer).try_init()
    };
    // Already started: by an earlier call, or by a test.
    drop(started);
}

/// What is logged: as the variable says; `info` of everything that it does not name.
fn filter_of(variable: Option<&str>) -> Targets {
    let named: Targets = variable
        .filter(|filter| !filter.is_empty())
        .and_then(|filter| filter.parse().ok())
        .unwrap_or_default();
    match named.default_level() {
        Some(_) => named,
        None => named.with_default(LevelFilter::INFO),
    }
}

/// An error with all its causes on one line, for logs and for people.
#[must_use]
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.ends_with(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use tracing_subscriber::filter::LevelFilter;

    use super::*;

    #[test]
    fn levels_are_set_for_all_and_for_single_crates() {
        for (variable, pleg, others) in [
            (None, LevelFilter::INFO, LevelFilter::INFO),
            (Some(""), LevelFilter::INFO, LevelFilter::INFO),
            (Some("no such level!"), LevelFilter::INFO, LevelFilter::INFO),
            (Some("debug"), LevelFilter::DEBUG, LevelFilter::DEBUG),
            (
                Some("pleg=trace,info"),
                LevelFilter::TRACE,
                LevelFilter::INFO,
            ),
            (Some("warn,pleg=off"), LevelFilter::OFF, LevelFilter::WARN),
        ] {
            let filter = filter_of(variable);
            let enabled = |target: &str| {
                let levels = [
                    tracing::Level::TRACE,
                    tracing::Level::DEBUG,
                    tracing::Level::INFO,
                    tracing::Level::WARN,
                    tracing::Level::ERROR,
                ];
                let first = levels
                    .iter()
                    .find(|level| filter.would_enable(target, level));
                first.map_or(LevelFilter::OFF, |level| LevelFilter::from_level(*level))
            };
            assert_eq!(enabled("pleg::shell"), pleg, "{variable:?}");
            assert_eq!(enabled("pool"), others, "{variable:?}");
        }
    }
}
