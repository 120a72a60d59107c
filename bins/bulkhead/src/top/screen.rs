//! How usage looks. Pure.

use bulkhead_api::v1::PodUsage;

use super::reading::{Row, SortBy, pods, total};
use crate::escape::plain;
use crate::table::{self, Cell};

const HEADINGS: [&str; 6] = ["POD", "CPU", "MEMORY", "DISK", "RECEIVED/s", "SENT/s"];

/// What pods use, with the sum.
pub(super) fn table(before: &[PodUsage], now: &[PodUsage], by: SortBy, colours: bool) -> String {
    let rows = pods(before, now, by);
    let sum = Row {
        name: "all".to_owned(),
        ..total(&rows)
    };
    let cells: Vec<Vec<Cell>> = rows.iter().chain([&sum]).map(cells).collect();
    table::render(&HEADINGS, &cells, colours)
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

#[cfg(test)]
mod tests {
    use bulkhead_api::v1;

    use super::*;

    fn reading(at: i64, pods: usize) -> Vec<PodUsage> {
        let seconds = u64::try_from(at).unwrap();
        let pod = |number: usize| PodUsage {
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
        (0..pods).map(pod).collect()
    }

    #[test]
    fn rows_of_pods_have_their_sum() {
        assert_eq!(
            table(&reading(10, 2), &reading(11, 2), SortBy::Cpu, false),
            "\
POD              CPU   MEMORY    DISK      RECEIVED/s   SENT/s
default/web0^?   20m   3.0 MiB   4.0 KiB   2.0 KiB      10 B
default/web1^?   20m   3.0 MiB   4.0 KiB   -            -
all              40m   6.0 MiB   8.0 KiB   2.0 KiB      10 B
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
}
