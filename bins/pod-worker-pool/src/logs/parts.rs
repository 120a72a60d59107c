//! The files of a log in the order in which they were written, rotated ones first, and
//! which of them is read next while they are rotated further.
//!
//! A file is known by the rotation that ended it, or for the log itself by the one before
//! it: names outlive compression, and a reader that was held up over several rotations
//! goes on where it was.

use std::sync::Arc;

use node_host::{LogFile, LogTarget, Logs, NodeError};

use super::rotated::{in_use, is_compressed, rotation};
use super::tail::{Found, start_of_last};

/// A file of a log, opened.
pub(super) struct Part {
    pub(super) log: Box<dyn LogFile>,
    /// Up to where it was read.
    pub(super) position: u64,
    place: Place,
}

/// Where among the files of the log it is.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Place {
    /// A file that was rotated then.
    Rotated(String),
    /// It was the log itself when it was opened, and had been since this rotation.
    Current { since: Option<String> },
}

impl Part {
    /// Whether it was the log itself when it was opened.
    pub(super) fn is_current(&self) -> bool {
        matches!(self.place, Place::Current { .. })
    }
}

/// The files of one log.
pub(super) struct Parts {
    host: Arc<dyn Logs>,
    target: LogTarget,
}

impl Parts {
    pub(super) fn new(host: Arc<dyn Logs>, target: LogTarget) -> Parts {
        Parts { host, target }
    }

    pub(super) fn target(&self) -> &LogTarget {
        &self.target
    }

    /// Names of the rotated files, oldest first.
    async fn rotated(&self) -> Result<Vec<String>, NodeError> {
        Ok(in_use(&self.host.rotated_logs(&self.target).await?))
    }

    async fn open_rotated(&self, name: &str) -> Result<Option<Part>, NodeError> {
        let mut found = self.host.open_rotated_log(&self.target, name).await?;
        if found.is_none() && !is_compressed(name) {
            // It may just have been compressed.
            let name = format!("{name}.gz");
            found = self.host.open_rotated_log(&self.target, &name).await?;
        }
        Ok(found.map(|log| Part {
            log,
            position: 0,
            place: Place::Rotated(rotation(name).to_owned()),
        }))
    }

    /// The log itself if its last rotation is still that of `names`; the names that there
    /// are by then if not.
    async fn open_current(
        &self,
        names: &[String],
    ) -> Result<Result<Option<Part>, Vec<String>>, NodeError> {
        let LogTarget {
            pod,
            container,
            attempt,
        } = &self.target;
        let newest = |names: &[String]| names.last().map(|name| rotation(name).to_owned());
        let since = newest(names);
        let log = self.host.open_log(pod, container, *attempt).await?;
        let names = self.rotated().await?;
        if newest(&names) != since {
            return Ok(Err(names));
        }
        Ok(Ok(log.map(|log| Part {
            log,
            position: 0,
            place: Place::Current { since },
        })))
    }

    /// The oldest file whose rotation is one of these, else the log itself.
    async fn first(&self, is_wanted: impl Fn(&str) -> bool) -> Result<Option<Part>, NodeError> {
        let mut names = self.rotated().await?;
        loop {
            for name in names.iter().filter(|name| is_wanted(rotation(name))) {
                // One that is gone was the oldest, and made room.
                if let Some(part) = self.open_rotated(name).await? {
                    return Ok(Some(part));
                }
            }
            match self.open_current(&names).await? {
                Ok(part) => return Ok(part),
                Err(newer) => names = newer,
            }
        }
    }

    /// Where the log begins.
    pub(super) async fn beginning(&self) -> Result<Option<Part>, NodeError> {
        self.first(|_| true).await
    }

    /// Where its last lines begin.
    pub(super) async fn start_of_last(&self, lines: u64) -> Result<Option<Part>, NodeError> {
        let mut names = self.rotated().await?;
        let mut oldest = loop {
            match self.open_current(&names).await? {
                Ok(part) => break part,
                Err(newer) => names = newer,
            }
        };
        let mut wanted = lines;
        if let Some(part) = &mut oldest {
            match start_of_last(&*part.log, true, wanted).await? {
                Found::At(position) => {
                    part.position = position;
                    return Ok(oldest);
                }
                Found::Before { lines } => wanted = wanted.saturating_sub(lines),
            }
        }
        for name in names.iter().rev() {
            let Some(mut part) = self.open_rotated(name).await? else {
                break;
            };
            let is_newest = oldest.is_none();
            match start_of_last(&*part.log, is_newest, wanted).await {
                Ok(Found::At(position)) => {
                    part.position = position;
                    return Ok(Some(part));
                }
                Ok(Found::Before { lines }) => wanted = wanted.saturating_sub(lines),
                // What cannot be read is where the log begins.
                Err(error) if is_compressed(name) => {
                    let error = telemetry::chain(&error);
                    tracing::debug!(name, error, "a rotated log cannot be read");
                    break;
                }
                Err(error) => return Err(error),
            }
            oldest = Some(part);
        }
        Ok(oldest)
    }

    /// The file that was written after this one; `None` while there is none.
    pub(super) async fn after(&self, part: &Part) -> Result<Option<Part>, NodeError> {
        let mut next = match &part.place {
            Place::Rotated(own) => self.first(|rotation| rotation > own.as_str()).await?,
            Place::Current { since } => {
                let is_later = |rotation: &str| since.as_deref().is_none_or(|it| rotation > it);
                let names = self.rotated().await?;
                let mut later = names
                    .iter()
                    .map(|name| rotation(name))
                    .filter(|it| is_later(it));
                // The first rotation since then was that of this file.
                match later.next().map(str::to_owned) {
                    Some(own) => self.first(|rotation| rotation > own.as_str()).await?,
                    None => self.first(is_later).await?,
                }
            }
        };
        // One that was put back is found again: as the log, or as rotated after all.
        while let Some(found) = &next
            && found.log.identity() == part.log.identity()
        {
            let Place::Rotated(own) = found.place.clone() else {
                return Ok(None);
            };
            next = self.first(|rotation| rotation > own.as_str()).await?;
        }
        Ok(next)
    }
}
