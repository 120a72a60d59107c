//! [`Threshold`]: how little of something may be left, as a `KubeletConfiguration` says
//! it.

use std::collections::BTreeMap;
use std::time::Duration;

use node_config::EvictionSettings;
use pod::Quantity;

use crate::signal::Signal;

/// An amount, in the unit of its signal, or a share of what there is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Amount {
    /// So much.
    Absolute(i64),
    /// So many hundredths of the capacity.
    Percent(f32),
}

impl Amount {
    /// How much that is where there is so much in all, rounded down.
    #[must_use]
    pub fn of(self, capacity: i64) -> i64 {
        match self {
            Amount::Absolute(amount) => amount,
            // In the kubelet's precision, so that the figures in messages are the same.
            Amount::Percent(percent) => (capacity as f64 * f64::from(percent / 100.0)) as i64,
        }
    }
}

/// How little of something may be left.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Threshold {
    /// Of what.
    pub signal: Signal,
    /// Less than this is too little.
    pub value: Amount,
    /// For how long that may last before a pod has to go; zero for a hard threshold.
    pub grace: Duration,
    /// What has to be free beyond the value before it counts as enough again.
    pub minimum_reclaim: Option<Amount>,
}

impl Threshold {
    /// Whether a pod has to go at once.
    #[must_use]
    pub fn is_hard(&self) -> bool {
        self.grace.is_zero()
    }

    /// Whether both say the same but for what is to be reclaimed.
    pub(crate) fn is_same(&self, other: &Threshold) -> bool {
        self.signal == other.signal && self.value == other.value && self.grace == other.grace
    }
}

/// What is wrong with the thresholds of a configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct ThresholdError {
    /// The field, and the signal in it: `evictionHard.memory.available`.
    pub field: String,
    /// Why it cannot be.
    pub reason: String,
}

fn refused<T>(field: &str, signal: &str, reason: impl Into<String>) -> Result<T, ThresholdError> {
    Err(ThresholdError {
        field: format!("{field}.{signal}"),
        reason: reason.into(),
    })
}

/// The thresholds of a configuration, hard ones first; those of 0 % and 100 % are left
/// out, as the kubelet leaves them out.
///
/// # Errors
/// For a signal that there is not, an amount that is none, and a soft threshold without a
/// grace period.
pub fn thresholds(settings: &EvictionSettings) -> Result<Vec<Threshold>, ThresholdError> {
    const RECLAIM: &str = "evictionMinimumReclaim";
    let mut reclaims = BTreeMap::new();
    for (name, text) in &settings.minimum_reclaim {
        let signal = signal(RECLAIM, name)?;
        let amount = amount(RECLAIM, name, text)?;
        if matches!(amount, Amount::Percent(percent) if percent <= 0.0) {
            return refused(RECLAIM, name, format!("{text} must be more than nothing"));
        }
        reclaims.insert(signal, amount);
    }
    let mut graces = BTreeMap::new();
    for (name, grace) in &settings.soft_grace {
        graces.insert(signal("evictionSoftGracePeriod", name)?, *grace);
    }
    let mut all = Vec::new();
    for (field, texts) in [
        ("evictionHard", &settings.hard),
        ("evictionSoft", &settings.soft),
    ] {
        for (name, text) in texts {
            let signal = signal(field, name)?;
            let Some(value) = limit(field, name, text)? else {
                continue;
            };
            let grace = match (field, graces.get(&signal)) {
                ("evictionSoft", None) => {
                    let reason = "evictionSoftGracePeriod must say for how long that may last";
                    return refused(field, name, reason);
                }
                ("evictionSoft", Some(grace)) => *grace,
                _ => Duration::ZERO,
            };
            all.push(Threshold {
                signal,
                value,
                grace,
                minimum_reclaim: reclaims.get(&signal).copied(),
            });
        }
    }
    Ok(all)
}

fn signal(field: &str, name: &str) -> Result<Signal, ThresholdError> {
    match Signal::named(name) {
        Some(signal) => Ok(signal),
        None => refused(field, name, format!("unsupported eviction signal {name}")),
    }
}

/// A threshold's amount, unless it is one that says nothing.
fn limit(field: &str, name: &str, text: &str) -> Result<Option<Amount>, ThresholdError> {
    if matches!(text, "0%" | "100%") {
        return Ok(None);
    }
    let amount = amount(field, name, text)?;
    match amount {
        Amount::Absolute(0) => refused(field, name, format!("{text} must be positive")),
        Amount::Percent(percent) if percent > 100.0 => {
            refused(field, name, format!("{text} must be at most 100%"))
        }
        amount => Ok(Some(amount)),
    }
}

fn amount(field: &str, name: &str, text: &str) -> Result<Amount, ThresholdError> {
    let is_wrong = |reason: String| refused(field, name, reason);
    if let Some(number) = text.strip_suffix('%') {
        return match number.parse::<f32>() {
            Ok(percent) if percent.is_finite() && percent >= 0.0 => Ok(Amount::Percent(percent)),
            _ => is_wrong(format!("{text:?} is not a percentage")),
        };
    }
    match text.parse::<Quantity>() {
        Ok(quantity) if quantity.is_negative() => is_wrong(format!("{text} must be positive")),
        Ok(quantity) => Ok(Amount::Absolute(quantity.value())),
        Err(error) => is_wrong(format!("{text:?} is {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::hard;

    fn texts(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        let owned = |(name, text): &(&str, &str)| ((*name).to_owned(), (*text).to_owned());
        pairs.iter().map(owned).collect()
    }

    fn none() -> EvictionSettings {
        EvictionSettings {
            hard: BTreeMap::new(),
            ..EvictionSettings::default()
        }
    }

    #[test]
    fn the_defaults_are_those_of_a_kubelet_on_linux() {
        let percent = |signal, percent| Threshold {
            value: Amount::Percent(percent),
            ..hard(signal, 0)
        };
        let mut found = thresholds(&EvictionSettings::default()).unwrap();
        found.sort_by_key(|threshold| threshold.signal);
        assert_eq!(
            found,
            [
                hard(Signal::MemoryAvailable, 100 << 20),
                percent(Signal::NodefsAvailable, 10.0),
                percent(Signal::NodefsInodesFree, 5.0),
                percent(Signal::ImagefsAvailable, 15.0),
                percent(Signal::ImagefsInodesFree, 5.0),
            ]
        );
    }

    #[test]
    fn hard_and_soft_thresholds_have_their_grace_and_their_reclaim() {
        let settings = EvictionSettings {
            hard: texts(&[("memory.available", "150Mi"), ("pid.available", "0%")]),
            soft: texts(&[("memory.available", "30%"), ("imagefs.available", "100%")]),
            soft_grace: [("memory.available".to_owned(), Duration::from_secs(30))].into(),
            minimum_reclaim: texts(&[("memory.available", "10%"), ("pid.available", "0")]),
            ..none()
        };
        let memory = |value, grace| Threshold {
            signal: Signal::MemoryAvailable,
            value,
            grace: Duration::from_secs(grace),
            minimum_reclaim: Some(Amount::Percent(10.0)),
        };
        let expected = [
            memory(Amount::Absolute(150 << 20), 0),
            memory(Amount::Percent(30.0), 30),
        ];
        assert_eq!(thresholds(&settings).unwrap(), expected);
        assert!(expected[0].is_hard() && !expected[1].is_hard());
    }

    #[test]
    fn what_cannot_be_is_refused_with_the_field_and_the_signal() {
        let soft = |pairs| EvictionSettings {
            soft: texts(pairs),
            ..none()
        };
        let hard = |pairs| EvictionSettings {
            hard: texts(pairs),
            ..none()
        };
        let reclaim = |pairs| EvictionSettings {
            minimum_reclaim: texts(pairs),
            ..none()
        };
        let memory = "memory.available";
        for (settings, field, words) in [
            (hard(&[("mem.available", "1")]), "evictionHard", "signal"),
            (hard(&[(memory, "-1Mi")]), "evictionHard", "positive"),
            (hard(&[(memory, "0")]), "evictionHard", "positive"),
            (hard(&[(memory, "-5%")]), "evictionHard", "percentage"),
            (hard(&[(memory, "101%")]), "evictionHard", "at most"),
            (hard(&[(memory, "NaN%")]), "evictionHard", "percentage"),
            (hard(&[(memory, "lots")]), "evictionHard", "quantity"),
            (soft(&[(memory, "1Gi")]), "evictionSoft", "for how long"),
            (
                reclaim(&[(memory, "-1")]),
                "evictionMinimumReclaim",
                "positive",
            ),
            (
                reclaim(&[(memory, "0%")]),
                "evictionMinimumReclaim",
                "nothing",
            ),
            (reclaim(&[("x", "1")]), "evictionMinimumReclaim", "signal"),
        ] {
            let error = thresholds(&settings).unwrap_err();
            assert!(error.field.starts_with(field), "{error:?}");
            assert!(error.reason.contains(words), "{error:?}");
        }
    }

    #[test]
    fn a_share_is_rounded_down() {
        assert_eq!(Amount::Percent(10.0).of(1009), 100);
        assert_eq!(Amount::Percent(99.9).of(1 << 40), 1_098_412_130_304);
        assert_eq!(Amount::Absolute(7).of(3), 7);
    }
}
