//! Structured logs of a process: one line an event on standard error, which the
//! supervisor or journald keeps.
//!
//! The level comes from `BULKHEAD_LOG` (`info` when unset), the format from
//! `BULKHEAD_LOG_FORMAT` (`text` or `json`).

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::format::FmtSpan;

/// Environment variable with the filter: `info`, `debug`, `pleg=trace,info` ...
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
    let filter = EnvFilter::try_from_env(LEVEL_VARIABLE).unwrap_or_else(|_| EnvFilter::new("info"));
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(writers)
        .with_ansi(false)
        .with_target(false)
        .with_span_events(FmtSpan::NONE);
    let json = std::env::var(FORMAT_VARIABLE).is_ok_and(|format| format == "json");
    let started = if json {
        builder.json().try_init()
    } else {
        builder.try_init()
    };
    // Already started: by an earlier call, or by a test.
    drop(started);
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
