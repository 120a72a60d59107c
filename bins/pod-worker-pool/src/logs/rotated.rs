//! What is rotated of a log, and how it is rotated next: which files are in use, which
//! go, which are compressed, and what the log is called then. Pure, over names.
//!
//! Names are those of a kubelet, without the log's own name and its dot: the time of the
//! rotation, and `.gz` where it is compressed. They are in UTC here, where a kubelet has
//! the node's time zone. By name they are in order of age.

use std::collections::BTreeSet;

use clock::UnixNanos;
use jiff::Timestamp;
use jiff::ToSpan as _;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use node_host::LogChange;

/// What a compressed file's name ends with.
const COMPRESSED: &str = ".gz";

/// What the name of a file ends with while it is compressed.
const TEMPORARY: &str = ".tmp";

/// How the time of a rotation is written.
const TIME: &str = "%Y%m%d-%H%M%S";

/// Whether a file is compressed.
fn is_compressed(name: &str) -> bool {
    name.ends_with(COMPRESSED)
}

/// The name of a file before it was compressed: that of its rotation.
fn rotation(name: &str) -> &str {
    name.strip_suffix(COMPRESSED).unwrap_or(name)
}

/// The files with a part of the log, oldest first. Others are left from a compression
/// that was cut short.
fn in_use(names: &[String]) -> Vec<String> {
    let mut used: Vec<_> = names.iter().filter(|name| is_used(name, names)).collect();
    used.sort();
    used.into_iter().cloned().collect()
}

fn is_used(name: &str, all: &[String]) -> bool {
    if name.ends_with(TEMPORARY) {
        return false;
    }
    is_compressed(name) || !all.contains(&format!("{name}{COMPRESSED}"))
}

/// What is done beside a log when it is rotated. `max_files` counts the log, and the file
/// that it becomes. Of the files `under_way`, which are being compressed, what that needs
/// stays; but one that is too many goes all the same.
pub(crate) fn preparation(
    names: &[String],
    max_files: u32,
    under_way: &BTreeSet<String>,
) -> Vec<LogChange> {
    let is_under_way =
        |name: &str| under_way.contains(name.strip_suffix(TEMPORARY).unwrap_or(name));
    let unused = names.iter().filter(|name| !is_used(name, names));
    let unused = unused.filter(|name| !is_under_way(name));
    let used = in_use(names);
    let kept = usize::try_from(max_files.saturating_sub(2)).unwrap_or(usize::MAX);
    let (excess, kept) = used.split_at(used.len().saturating_sub(kept));
    let removed = unused.chain(excess).cloned().map(LogChange::Remove);
    // The newest was written to until the last rotation, and readers may not have
    // reached its end: so it is compressed now and not then.
    let plain = kept.iter().filter(|name| !is_compressed(name));
    let plain = plain.filter(|name| !is_under_way(name)).cloned();
    removed.chain(plain.map(LogChange::Compress)).collect()
}

/// What a log is called once it is rotated: by the time, and later than all others even
/// if the clock was set back, or two rotations are in one second.
pub(crate) fn next_name(names: &[String], now: UnixNanos) -> String {
    let times = names.iter().filter_map(|name| {
        let name = name.strip_suffix(TEMPORARY).unwrap_or(name);
        DateTime::strptime(TIME, rotation(name)).ok()
    });
    let after_all = times
        .max()
        .and_then(|last| last.checked_add(1.second()).ok());
    let now = Timestamp::from_nanosecond(i128::from(now.0)).unwrap_or_default();
    let now = TimeZone::UTC.to_datetime(now);
    let time = after_all.map_or(now, |after| after.max(now));
    time.strftime(TIME).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    /// The table of the kubelet's `TestGetAllLogs`.
    #[test]
    fn the_files_of_a_log_are_in_use_unless_a_compression_left_them() {
        let all = names(&[
            "11111111-111111.gz",
            "00000000-000000.gz",
            "19900322-000000.gz",
            "19900322-111111.gz",
            "19880620-000000",
            "19880620-000000.gz",
            "19880620-111111.gz",
            "20180101-000000",
            "20180101-000000.tmp",
        ]);
        assert_eq!(
            in_use(&all),
            [
                "00000000-000000.gz",
                "11111111-111111.gz",
                "19880620-000000.gz",
                "19880620-111111.gz",
                "19900322-000000.gz",
                "19900322-111111.gz",
                "20180101-000000",
            ]
        );
    }

    fn shown(changes: &[LogChange]) -> Vec<String> {
        let shown = |change: &LogChange| match change {
            LogChange::Remove(name) => format!("remove {name}"),
            LogChange::Compress(name) => format!("compress {name}"),
            other => format!("{other:?}"),
        };
        changes.iter().map(shown).collect()
    }

    /// With those of the kubelet's `TestRotateLogs`, `TestCleanupUnusedLog` and
    /// `TestRemoveExcessLog`.
    #[test]
    fn before_a_rotation_the_oldest_go_and_the_others_are_compressed() {
        let four = ["3.gz", "1.gz", "2.gz", "4"];
        for (found, max_files, expected) in [
            (&[][..], 5, &[][..]),
            (&["1", "0.gz"], 3, &["remove 0.gz", "compress 1"]),
            (&["1.tmp", "1"], 5, &["remove 1.tmp", "compress 1"]),
            (&["2", "2.gz"], 5, &["remove 2"]),
            (
                &four,
                2,
                &["remove 1.gz", "remove 2.gz", "remove 3.gz", "remove 4"],
            ),
            (
                &four,
                3,
                &["remove 1.gz", "remove 2.gz", "remove 3.gz", "compress 4"],
            ),
            (&four, 6, &["compress 4"]),
            (
                &four,
                0,
                &["remove 1.gz", "remove 2.gz", "remove 3.gz", "remove 4"],
            ),
        ] {
            let changes = preparation(&names(found), max_files, &BTreeSet::new());
            assert_eq!(shown(&changes), expected, "{found:?} {max_files}");
        }
    }

    #[test]
    fn a_compression_under_way_is_left_alone_unless_its_file_is_too_many() {
        let under_way = BTreeSet::from(["2".to_owned()]);
        for (found, max_files, expected) in [
            (&["1.gz", "2", "2.tmp"][..], 5, &[][..]),
            // It has just been put in its place.
            (&["1.gz", "2", "2.gz"], 5, &[]),
            (&["1.tmp", "2", "3"], 5, &["remove 1.tmp", "compress 3"]),
            (&["2", "2.tmp", "3"], 3, &["remove 2", "compress 3"]),
        ] {
            let changes = preparation(&names(found), max_files, &under_way);
            assert_eq!(shown(&changes), expected, "{found:?} {max_files}");
        }
    }

    #[test]
    fn a_rotated_log_is_called_by_the_time_and_later_than_all_others() {
        let now: Timestamp = "2026-11-20T10:01:44.5Z".parse().unwrap();
        let now = UnixNanos(i64::try_from(now.as_nanosecond()).unwrap());
        for (found, expected) in [
            (&[][..], "20261120-100144"),
            (&["20261120-100100.gz"], "20261120-100144"),
            (&["20261120-100144"], "20261120-100145"),
            (&["20261120-100144.tmp"], "20261120-100145"),
            // The clock was set back.
            (
                &["20271231-235959.gz", "20250101-000000"],
                "20280101-000000",
            ),
            (&["somebody's", "99999999-999999"], "20261120-100144"),
        ] {
            assert_eq!(next_name(&names(found), now), expected, "{found:?}");
        }
    }
}
