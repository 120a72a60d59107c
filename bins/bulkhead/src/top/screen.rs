//! How usage looks: plain rows, and a screen of them. Pure.

use super::reading::{Reading, Row, SortBy, pods, processes, total};
use crate::escape::plain;
use crate::table::{self, Cell, Tone};

const HEADINGS: [&str; 6] = ["NAME", "CPU", "MEMORY", "DISK", "RECEIVED/s", "SENT/s"];

/// What pods and processes of ours use, as two tables with their sums.
pub(super) fn tables(before: Option<&Reading>, now: &Reading, by: SortBy, colours: bool) -> String {
    let (pods, processes) = (pods(before, now, by), processes(before, now, by));
    let table = |heading: &'static str, rows: &[Row]| {
        let mut headings = HEADINGS;
        headings[0] = heading;
        let mut cells: Vec<Vec<Cell>> = rows.iter().map(cells).collect();
        let sum = Row {
            name: "all".to_owned(),
            ..total(rows)
        };
        cells.push(self::cells(&sum));
        table::render(&headings, &cells, colours)
    };
    let mut text = table("POD", &pods);
    if !processes.is_empty() {
        text.push('\n');
        text += &table("PROCESS", &processes);
    }
    text
}

fn cells(row: &Row) -> Vec<Cell> {
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned()).into();
    vec![
        plain(&row.name).into(),
        or_dash(row.cpu_millis.map(|millis| format!("{millis}m"))),
        or_dash(row.memory_bytes.map(bytes)),
        or_dash(row.disk_bytes.map(bytes)),
        or_dash(row.received.map(bytes)),
        or_dash(row.sent.map(bytes)),
    ]
}

/// A size in the unit that suits it, with one digit.
fn bytes(bytes: u64) -> String {
    let units = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let Some((index, unit)) = units
        .iter()
        .enumerate()
        .rfind(|(index, _)| bytes >= 1 << (10 * (index + 1)))
    else {
        return format!("{bytes} B");
    };
    let tenths = u128::from(bytes) * 10 / (1 << (10 * (index + 1)));
    format!("{}.{} {unit}", tenths / 10, tenths % 10)
}

/// What the screen shows.
#[derive(Debug)]
pub(super) struct Screen {
    pub(super) before: Option<Reading>,
    pub(super) now: Option<Reading>,
    /// Why the last reading failed.
    pub(super) problem: Option<String>,
    pub(super) by: SortBy,
}

/// What a key asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Sort(SortBy),
    Quit,
}

impl Key {
    /// Control-C too, which is a key like others here, and the end of input.
    pub(super) fn of(byte: u8) -> Option<Key> {
        Some(match byte {
            b'c' | b'C' => Key::Sort(SortBy::Cpu),
            b'm' | b'M' => Key::Sort(SortBy::Memory),
            b'd' | b'D' => Key::Sort(SortBy::Disk),
            b'n' | b'N' => Key::Sort(SortBy::Network),
            b'q' | b'Q' | 3 | 4 => Key::Quit,
            _ => return None,
        })
    }
}

impl Screen {
    /// Takes a reading, or why there is none; what was read before stays shown.
    pub(super) fn take(&mut self, reading: Result<Reading, String>) {
        match reading {
            Ok(reading) => {
                self.before = self.now.replace(reading);
                self.problem = None;
            }
            Err(problem) => self.problem = Some(problem),
        }
    }

    /// A frame: lines that fit into so many columns and rows, without line breaks.
    pub(super) fn lines(&self, columns: u16, rows: u16, colours: bool) -> Vec<String> {
        let (columns, rows) = (usize::from(columns), usize::from(rows));
        let by = match self.by {
            SortBy::Cpu => "CPU",
            SortBy::Memory => "memory",
            SortBy::Disk => "disk",
            SortBy::Network => "network",
        };
        let keys = "c CPU  m memory  d disk  n network  q quit";
        let mut lines = vec![cut(&format!("by {by}    {keys}"), columns)];
        if let Some(problem) = &self.problem {
            let line = cut(&plain(problem), columns);
            lines.push(Tone::Bad.paint(&line, colours));
        }
        match &self.now {
            Some(now) => {
                let text = tables(self.before.as_ref(), now, self.by, false);
                lines.extend(text.lines().map(|line| cut(line, columns)));
            }
            None if self.problem.is_none() => lines.push(cut("reading ...", columns)),
            None => {}
        }
        if lines.len() > rows {
            let more = lines.len() - rows + 1;
            lines.truncate(rows.saturating_sub(1));
            lines.push(cut(&format!("... {more} more lines"), columns));
            lines.truncate(rows);
        }
        lines
    }
}

fn cut(line: &str, columns: usize) -> String {
    line.chars().take(columns).collect()
}

#[cfg(test)]
mod tests {
    use bulkhead_api::v1;

    use super::super::reading::ProcessReading;
    use super::*;

    fn reading(at: i64, pods: usize) -> Reading {
        let seconds = u64::try_from(at).unwrap();
        let pod = |number: usize| v1::PodUsage {
            pod: Some(v1::PodReference {
                uid: format!("u{number}"),
                namespace: "default".to_owned(),
                name: format!("web{number}\u{7f}"),
            }),
            containers: vec![v1::ContainerUsage {
                id: format!("c{number}"),
                name: "c".to_owned(),
                cpu_nanos: Some(seconds * 20_000_000),
                cpu_at_unix_nanos: at * 1_000_000_000,
                memory_bytes: Some(3 << 20),
                layer_bytes: Some(4096),
            }],
            network: (number == 0).then_some(v1::NetworkUsage {
                received_bytes: seconds * 2048,
                sent_bytes: seconds * 10,
                at_unix_nanos: at * 1_000_000_000,
            }),
        };
        Reading {
            pods: (0..pods).map(pod).collect(),
            processes: vec![ProcessReading {
                name: "pleg".to_owned(),
                pid: 7,
                began: 1,
                cpu_nanos: seconds * 1_500_000,
                at_unix_nanos: at * 1_000_000_000,
                memory_bytes: 5 << 20,
            }],
        }
    }

    #[test]
    fn rows_of_pods_and_processes_have_their_sums() {
        assert_eq!(
            tables(Some(&reading(10, 2)), &reading(11, 2), SortBy::Cpu, false),
            "\
POD              CPU   MEMORY    DISK      RECEIVED/s   SENT/s
default/web0^?   20m   3.0 MiB   4.0 KiB   2.0 KiB      10 B
default/web1^?   20m   3.0 MiB   4.0 KiB   -            -
all              40m   6.0 MiB   8.0 KiB   2.0 KiB      10 B

PROCESS   CPU   MEMORY    DISK   RECEIVED/s   SENT/s
pleg      2m    5.0 MiB   -      -            -
all       2m    5.0 MiB   -      -            -
"
        );
    }

    #[test]
    fn sizes_have_the_unit_that_suits_them() {
        for (size, told) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1536 << 10, "1.5 MiB"),
            ((1 << 30) - 1, "1023.9 MiB"),
            (u64::MAX, "15.9 EiB"),
        ] {
            assert_eq!(bytes(size), told);
        }
    }

    fn screen(now: Option<Reading>) -> Screen {
        Screen {
            before: None,
            now,
            problem: None,
            by: SortBy::Memory,
        }
    }

    #[test]
    fn a_frame_fits_the_terminal_however_small_it_is() {
        let mut screen = screen(Some(reading(10, 50)));
        screen.problem = Some("the runtime\x1b[2J does not answer ".repeat(20));
        for (columns, rows) in [(80, 24), (20, 5), (1, 1), (400, 200)] {
            let lines = screen.lines(columns, rows, false);
            assert!(lines.len() <= usize::from(rows), "{columns} {rows}");
            for line in &lines {
                assert!(line.chars().count() <= usize::from(columns), "{line}");
                assert!(!line.contains(char::is_control), "{line:?}");
            }
        }
        let lines = screen.lines(80, 24, false);
        assert_eq!(lines[23], "... 35 more lines");
    }

    #[test]
    fn a_failed_reading_is_told_beside_what_was_read_before() {
        let mut screen = screen(None);
        assert!(screen.lines(80, 24, false)[1].contains("reading"));
        screen.take(Ok(reading(10, 1)));
        screen.take(Err("no answer".to_owned()));
        let lines = screen.lines(80, 24, false);
        assert_eq!(lines[1], "no answer");
        assert!(lines[3].starts_with("default/web0"), "{lines:?}");
        screen.take(Ok(reading(11, 1)));
        let lines = screen.lines(80, 24, false);
        assert!(lines[2].contains("20m"), "{lines:?}");
    }

    #[test]
    fn keys_sort_or_quit() {
        for (byte, key) in [
            (b'c', Some(Key::Sort(SortBy::Cpu))),
            (b'm', Some(Key::Sort(SortBy::Memory))),
            (b'd', Some(Key::Sort(SortBy::Disk))),
            (b'N', Some(Key::Sort(SortBy::Network))),
            (b'q', Some(Key::Quit)),
            (3, Some(Key::Quit)),
            (b'x', None),
            (0x1b, None),
        ] {
            assert_eq!(Key::of(byte), key, "{byte}");
        }
    }
}
