//! Structured logs of a process: one line an event on standard error, which the
//! supervisor or journald keeps.
//!
//! The level comes from `BULKHEAD_LOG` (`info` when unset), the format from
//! `BULKHEAD_LOG_FORMAT` (`text` or `json`).

use std::io;

use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

/// Environment variable with the filter: `info`, `debug`, `pleg=trace,info` ...
/// Levels by process, crate and module are all that is understood: filters by span or
/// field would have every process link a regex engine.
pub const LEVEL_VARIABLE: &str = "BULKHEAD_LOG";

/// Environment variable with the format: `text` or `json`.
pub const FORMAT_VARIABLE: &str = "BULKHEAD_LOG_FORMAT";

/// Starts logging to standard error. A second call in one process changes nothing.
pub fn start() {
    start_on(io::stderr);
}

/// Starts logging to what `writers` makes. A second call in one process changes
/// nothing.
pub fn start_on<W>(writers: W)
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let filter = std::env::var_os(LEVEL_VARIABLE).unwrap_or_default();
    start_with(&filter.to_string_lossy(), writers);
}

fn start_with<W>(filter: &str, writers: W)
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let (levels, problem) = match levels_of(filter) {
        Ok(levels) => (levels, None),
        Err(problem) => (usual_levels(), Some(problem)),
    };
    let registry = tracing_subscriber::registry().with(levels);
    let layer = tracing_subscriber::fmt::layer()
        .with_writer(Plain(writers))
        .with_ansi(false)
        .with_target(false);
    let json = std::env::var(FORMAT_VARIABLE).is_ok_and(|format| format == "json");
    let started = if json {
        registry.with(layer.json()).try_init()
    } else {
        registry.with(layer).try_init()
    };
    // Otherwise already started: by an earlier call, or by a test.
    if started.is_ok()
        && let Some(problem) = problem
    {
        tracing::warn!("{LEVEL_VARIABLE} does not count: {problem}");
    }
}

/// Whether a character may make text look like other text: a terminal acts on it, or it
/// turns the direction of text, breaks lines, or is not seen.
#[must_use]
pub fn misleads(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{61c}' | '\u{200e}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
            // The two joiners are letters' own.
            | '\u{200b}' | '\u{2028}'..='\u{2029}' | '\u{2060}'..='\u{2065}' | '\u{feff}'
        )
}

/// Writes with [`char::REPLACEMENT_CHARACTER`] for what misleads: under systemd nothing else
/// looks at a line before it is in the journal.
struct Plain<W>(W);

impl<'a, W: MakeWriter<'a>> MakeWriter<'a> for Plain<W> {
    type Writer = Plain<W::Writer>;

    fn make_writer(&'a self) -> Self::Writer {
        Plain(self.0.make_writer())
    }
}

impl<W: io::Write> io::Write for Plain<W> {
    /// Takes all: the subscriber writes whole events.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(bytes);
        let show = |character| match character {
            '\n' | '\t' => character,
            character if misleads(character) => char::REPLACEMENT_CHARACTER,
            character => character,
        };
        let shown: String = text.chars().map(show).collect();
        self.0.write_all(shown.as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Whether a text is a filter in the form of [`LEVEL_VARIABLE`].
///
/// # Errors
/// With what is wrong with it.
pub fn check_filter(filter: &str) -> Result<(), String> {
    levels_of(filter).map(drop)
}

/// What a filter says; `info` of everything that it does not name. The parser of
/// `Targets` is not asked, since it takes any word for a target: `verbose` would be one,
/// and so would the name of a process, which no crate has where it has a dash.
fn levels_of(filter: &str) -> Result<Targets, String> {
    let mut levels = usual_levels();
    if filter.is_empty() {
        return Ok(levels);
    }
    for part in filter.split(',') {
        let part = part.trim();
        let wrong = || format!("{part:?} is neither {LEVELS}, nor PROCESS=LEVEL with one of them");
        let (target, level) = match part.split_once('=') {
            Some((target, level)) => (Some(target), level),
            None => (None, part),
        };
        // An empty one would be `error`.
        let level = Some(level).filter(|level| !level.is_empty());
        let level: LevelFilter = level.and_then(|it| it.parse().ok()).ok_or_else(wrong)?;
        levels = match target {
            Some(target) if is_target(target) => {
                levels.with_target(target.replace('-', "_"), level)
            }
            Some(_) => return Err(wrong()),
            None => levels.with_default(level),
        };
    }
    Ok(levels)
}

const LEVELS: &str = "one of off, error, warn, info, debug and trace";

fn usual_levels() -> Targets {
    Targets::new().with_default(LevelFilter::INFO)
}

/// Whether a process, a crate or a module can be called so.
fn is_target(name: &str) -> bool {
    let usual = |byte: u8| byte.is_ascii_alphanumeric() || b"_-:".contains(&byte);
    !name.is_empty() && name.bytes().all(usual)
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
    use std::sync::Mutex;

    use tracing::Level;

    use super::*;

    /// What a filter has logged of a target.
    fn level(filter: &Targets, target: &str) -> LevelFilter {
        let most_first = [
            Level::TRACE,
            Level::DEBUG,
            Level::INFO,
            Level::WARN,
            Level::ERROR,
        ];
        let mut enabled = most_first.iter();
        let first = enabled.find(|level| filter.would_enable(target, level));
        first.map_or(LevelFilter::OFF, |level| LevelFilter::from_level(*level))
    }

    #[test]
    fn levels_are_set_for_all_and_for_single_processes() {
        const INFO: LevelFilter = LevelFilter::INFO;
        for (filter, pleg, pool, others) in [
            ("", INFO, INFO, INFO),
            (
                "debug",
                LevelFilter::DEBUG,
                LevelFilter::DEBUG,
                LevelFilter::DEBUG,
            ),
            ("pleg=trace,info", LevelFilter::TRACE, INFO, INFO),
            ("pleg=trace", LevelFilter::TRACE, INFO, INFO),
            (
                "warn, pleg=off",
                LevelFilter::OFF,
                LevelFilter::WARN,
                LevelFilter::WARN,
            ),
            ("pod-worker-pool=debug", INFO, LevelFilter::DEBUG, INFO),
            (
                "pod_worker_pool::steps=debug",
                INFO,
                LevelFilter::DEBUG,
                INFO,
            ),
        ] {
            let levels = levels_of(filter).unwrap();
            assert_eq!(level(&levels, "pleg::shell"), pleg, "{filter:?}");
            let target = "pod_worker_pool::steps::context";
            assert_eq!(level(&levels, target), pool, "{filter:?}");
            assert_eq!(level(&levels, "prober"), others, "{filter:?}");
        }
    }

    #[test]
    fn what_is_no_filter_is_refused_with_the_part_that_is_wrong() {
        for (filter, wrong) in [
            ("verbose", "verbose"),
            ("pleg", "pleg"),
            ("info,pleg=loud", "pleg=loud"),
            ("pleg=", "pleg="),
            ("=debug", "=debug"),
            ("debug,", ""),
            ("6", "6"),
            ("pleg=debug=trace", "pleg=debug=trace"),
            ("pleg[{pod}]=debug", "pleg[{pod}]=debug"),
            ("no such level!", "no such level!"),
        ] {
            let problem = check_filter(filter).unwrap_err();
            let start = format!("{wrong:?} is neither");
            assert!(problem.starts_with(&start), "{filter:?}: {problem}");
        }
    }

    static LOG: Mutex<Vec<u8>> = Mutex::new(Vec::new());

    struct Log;

    impl io::Write for Log {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            LOG.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_variable_that_is_no_filter_is_one_warning_and_what_is_logged_misleads_nobody() {
        start_with("verbose", || Log);
        tracing::info!("shown");
        tracing::debug!("hidden");
        tracing::info!(error = %"a\u{202e}b\u{9b}2Jc\u{2028}d\u{e4}", "turned\u{2066}");
        let log = String::from_utf8(LOG.lock().unwrap().clone()).unwrap();
        let lines: Vec<_> = log.lines().collect();
        let [warning, shown, turned] = lines[..] else {
            panic!("{log}");
        };
        assert!(warning.contains("WARN BULKHEAD_LOG does not count: \"verbose\""));
        assert!(shown.contains("shown"));
        let told = "turned\u{fffd} error=a\u{fffd}b\u{fffd}2Jc\u{fffd}d\u{e4}";
        assert!(turned.contains(told), "{turned:?}");
    }
}
