//! Finding where the last lines of a log begin, from its end backwards: the cost is
//! that of what is shown, not of the log.

use node_host::{LogFile, NodeError};

use super::line::ends_a_line;

/// How much is read at a time.
const BLOCK_BYTES: u64 = 64 << 10;

/// How much of a line of the file is looked at to tell whether it ends one of the
/// container's: time, stream and tags need less.
const HEAD_BYTES: usize = 128;

/// Where the last `lines` lines of the container's begin in its log. The parts of a
/// broken-up line are one line, and so is one that has not ended yet.
pub(super) async fn start_of_last(log: &dyn LogFile, lines: u64) -> Result<u64, NodeError> {
    let size = log.size().await?;
    from_the_end(log, size, lines).await
}

async fn from_the_end(log: &dyn LogFile, size: u64, lines: u64) -> Result<u64, NodeError> {
    let mut search = Search {
        wanted: lines,
        seen: 0,
        later: size,
        line_end: None,
    };
    // What follows the block at hand, for a line that begins at its very end.
    let mut following = Vec::new();
    let mut end = size;
    while end > 0 {
        let start = end.saturating_sub(BLOCK_BYTES);
        let own = usize::try_from(end - start).unwrap_or(usize::MAX);
        let mut block = log.read_at(start, own).await?;
        if block.len() < own {
            // Somebody made it shorter: then what is left is shown whole.
            return Ok(0);
        }
        block.extend_from_slice(&following);
        if let Some(found) = search.block(&block, own, start) {
            return Ok(found);
        }
        block.truncate(HEAD_BYTES);
        following = block;
        end = start;
    }
    Ok(search.line(0, &following).unwrap_or(0))
}

/// Goes over the lines of the file from the last one backwards.
struct Search {
    wanted: u64,
    /// Lines of the container's that were met.
    seen: u64,
    /// Where the line of the file after the one at hand begins.
    later: u64,
    /// Where the line at hand ends; absent before the last line end is met. What comes
    /// after that is still being written.
    line_end: Option<u64>,
}

impl Search {
    /// The line ends among the first `own` bytes of a block that begins at `start`.
    fn block(&mut self, block: &[u8], own: usize, start: u64) -> Option<u64> {
        for index in (0..own).rev() {
            if block[index] != b'\n' {
                continue;
            }
            let position = start + index as u64;
            let found = match self.line_end {
                None => {
                    self.later = position + 1;
                    None
                }
                Some(_) => self.line(position + 1, &block[index + 1..]),
            };
            if found.is_some() {
                return found;
            }
            self.line_end = Some(position);
        }
        None
    }

    /// A line of the file begins at `position` with this text. If it ends one of the
    /// container's beyond those that are wanted, those begin after it.
    fn line(&mut self, position: u64, text: &[u8]) -> Option<u64> {
        self.line_end?;
        let text = &text[..text.len().min(HEAD_BYTES)];
        let text = text.split(|byte| *byte == b'\n').next().unwrap_or_default();
        let is_open = self.seen == 0;
        if ends_a_line(text) || is_open {
            if self.seen == self.wanted {
                return Some(self.later);
            }
            self.seen += 1;
        }
        self.later = position;
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::logs::test_log::MemoryLog;

    async fn tail(text: &str, lines: u64) -> String {
        let log = MemoryLog::new(text.as_bytes());
        let start = start_of_last(&log, lines).await.unwrap();
        text[usize::try_from(start).unwrap()..].to_owned()
    }

    const LOG: &str = "t stdout F one\nt stdout P two-\nt stdout F two\nt stderr F three\n";

    #[tokio::test]
    async fn the_last_lines_are_counted_as_the_container_wrote_them() {
        let two = "t stdout P two-\nt stdout F two\nt stderr F three\n";
        for (lines, expected) in [
            (0, ""),
            (1, "t stderr F three\n"),
            (2, two),
            (3, LOG),
            (4, LOG),
            (u64::MAX, LOG),
        ] {
            assert_eq!(tail(LOG, lines).await, expected, "{lines}");
        }
        assert_eq!(tail("", 3).await, "");
        assert_eq!(tail("\n\n\n", 2).await, "\n\n");
    }

    #[tokio::test]
    async fn a_line_that_has_not_ended_is_one_too() {
        let log = format!("{LOG}t stdout P four-\n");
        assert_eq!(tail(&log, 1).await, "t stdout P four-\n");
        assert_eq!(tail(&log, 2).await, "t stderr F three\nt stdout P four-\n");
        // Half a line of the file is still being written and does not count.
        assert_eq!(
            tail(&format!("{LOG}t stdo"), 1).await,
            "t stderr F three\nt stdo"
        );
        assert_eq!(tail("t stdo", 1).await, "t stdo");
    }

    #[tokio::test]
    async fn lines_across_blocks_are_found_wherever_the_boundary_falls() {
        let block = usize::try_from(BLOCK_BYTES).unwrap();
        for filler in (block - 20)..(block + 40) {
            let last = format!("t stdout F {}\n", "x".repeat(filler));
            let log = format!("t stdout F a\nt stdout P b\nt stdout F c\n{last}");
            assert_eq!(tail(&log, 1).await, last, "{filler}");
            assert_eq!(
                tail(&log, 2).await,
                format!("t stdout P b\nt stdout F c\n{last}")
            );
        }
    }

    #[tokio::test]
    async fn a_log_that_shrinks_meanwhile_is_shown_whole() {
        let log = MemoryLog::new(b"t stdout F x\n");
        let found = from_the_end(&log, 1 << 20, 1).await.unwrap();
        assert_eq!(found, 0);
    }
}
