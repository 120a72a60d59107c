//! Lines that outlive the container: tests read them to prove how often a
//! container was started and how it ended.

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

/// Appends `<unix nanoseconds> <event>` lines to a file, if one was named.
#[derive(Debug, Clone)]
pub(crate) struct Journal {
    path: Option<PathBuf>,
}

impl Journal {
    pub(crate) fn new(path: Option<PathBuf>) -> Self {
        Self { path }
    }

    /// Appends one event with a single write, so that lines of several
    /// containers never mix.
    pub(crate) fn append(&self, event: &str) -> io::Result<()> {
        let Some(path) = &self.path else {
            return Ok(());
        };
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent)?;
        }
        let mut file = OpenOptions::new().create(true).append(true).open(path)?;
        file.write_all(format!("{} {event}\n", unix_nanoseconds()).as_bytes())
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "this program is the workload: real time is what the test wants to see"
)]
fn unix_nanoseconds() -> u128 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_nanos())
}
