//! Percentiles, ratios and the table.

use std::io::Write as _;
use std::time::Duration;

/// Samples of one quantity.
#[derive(Clone, Debug, Default)]
pub(crate) struct Samples(Vec<Duration>);

impl Samples {
    pub(crate) fn push(&mut self, sample: Duration) {
        self.0.push(sample);
        self.0.sort();
    }

    /// Adds those of another series.
    pub(crate) fn append(&mut self, mut other: Samples) {
        self.0.append(&mut other.0);
        self.0.sort();
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The sample below or at which `percent` of all lie (nearest rank).
    pub(crate) fn percentile(&self, percent: usize) -> Duration {
        let rank = (self.0.len() * percent)
            .div_ceil(100)
            .clamp(1, self.0.len().max(1));
        self.0.get(rank - 1).copied().unwrap_or_default()
    }
}

/// A line of the table.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    what: String,
    measured: String,
    floor: String,
    ratio: String,
    budget: String,
}

fn three(samples: &Samples) -> String {
    let millis = |percent| format!("{:.1}", samples.percentile(percent).as_secs_f64() * 1000.0);
    format!("{} / {} / {} ms", millis(50), millis(90), millis(99))
}

impl Row {
    /// Bulkhead against the floor, each as p50 / p90 / p99; the ratio is that of
    /// the medians.
    pub(crate) fn against(what: &str, bulkhead: &Samples, floor: &Samples, budget: &str) -> Row {
        let ratio = |percent| {
            let floor = floor.percentile(percent).as_secs_f64();
            bulkhead.percentile(percent).as_secs_f64() / floor.max(1e-9)
        };
        Row {
            what: what.to_owned(),
            measured: three(bulkhead),
            floor: three(floor),
            ratio: format!("{:.2} / {:.2} / {:.2}", ratio(50), ratio(90), ratio(99)),
            budget: budget.to_owned(),
        }
    }

    /// A quantity without a floor.
    pub(crate) fn alone(what: &str, samples: &Samples, budget: &str) -> Row {
        Row::text(what, &three(samples), budget)
    }

    /// A figure that is no latency.
    pub(crate) fn text(what: &str, measured: &str, budget: &str) -> Row {
        Row {
            what: what.to_owned(),
            measured: measured.to_owned(),
            floor: "-".to_owned(),
            ratio: "-".to_owned(),
            budget: budget.to_owned(),
        }
    }

    /// A measurement that could not be made.
    pub(crate) fn failed(what: &str, error: &anyhow::Error) -> Row {
        Row::text(what, &format!("failed: {error:#}"), "")
    }
}

/// All rows, aligned, as a Markdown table.
pub(crate) fn table(rows: &[Row]) -> String {
    let headings = [
        "what",
        "Bulkhead p50 / p90 / p99",
        "direct p50 / p90 / p99",
        "ratio",
        "budget",
    ];
    let lines: Vec<[&str; 5]> = std::iter::once(headings)
        .chain(rows.iter().map(|row| {
            [
                &*row.what,
                &*row.measured,
                &*row.floor,
                &*row.ratio,
                &*row.budget,
            ]
        }))
        .collect();
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max();
    let widths: Vec<usize> = (0..5).map(|column| width(column).unwrap_or(0)).collect();
    let mut text = String::new();
    for (index, line) in lines.iter().enumerate() {
        for (cell, width) in line.iter().zip(&widths) {
            text += &format!("| {cell:width$} ");
        }
        text += "|\n";
        if index == 0 {
            let rules: Vec<String> = widths.iter().map(|width| "-".repeat(width + 2)).collect();
            text += &format!("|{}|\n", rules.join("|"));
        }
    }
    text
}

/// Tells something while the measurement goes on.
pub(crate) fn say(text: &str) {
    // A reader that is gone does not stop the measurement.
    drop(writeln!(std::io::stdout(), "{text}"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_samples() {
        let mut samples = Samples::default();
        for millis in 1..=200 {
            samples.push(Duration::from_millis(millis));
        }
        assert_eq!(samples.percentile(50), Duration::from_millis(100));
        assert_eq!(samples.percentile(99), Duration::from_millis(198));
        let mut one = Samples::default();
        one.push(Duration::from_secs(1));
        assert_eq!(one.percentile(1), one.percentile(99));
        assert_eq!(Samples::default().percentile(50), Duration::ZERO);
    }

    #[test]
    fn a_failed_measurement_is_a_row() {
        let text = table(&[Row::failed("Start", &anyhow::anyhow!("no containerd"))]);
        assert!(text.contains("failed: no containerd"));
    }
}
