//! Durations, sizes and times as people read them.

use std::time::Duration;

/// Two units at most, as kubectl shows an age: 45s, 3m20s, 5h, 12d.
pub(crate) fn age(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match seconds {
        0..120 => format!("{seconds}s"),
        120..600 if !seconds.is_multiple_of(60) => format!("{minutes}m{}s", seconds % 60),
        120..7200 => format!("{minutes}m"),
        7200..28_800 if !minutes.is_multiple_of(60) => format!("{hours}h{}m", minutes % 60),
        7200..172_800 => format!("{hours}h"),
        172_800..691_200 if !hours.is_multiple_of(24) => format!("{days}d{}h", hours % 24),
        _ => format!("{days}d"),
    }
}

/// MiB with one digit.
pub(crate) fn mebibytes(bytes: u64) -> String {
    let tenths = bytes * 10 / (1 << 20);
    format!("{}.{} MiB", tenths / 10, tenths % 10)
}

/// Text from elsewhere without what would steer a terminal.
pub(crate) fn plain(text: &str) -> String {
    text.chars()
        .map(|character| {
            if character.is_control() {
                ' '
            } else {
                character
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_has_at_most_two_units() {
        for (seconds, shown) in [
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (200, "3m20s"),
            (601, "10m"),
            (7_260, "2h1m"),
            (30_000, "8h"),
            (180_000, "2d2h"),
            (864_000, "10d"),
        ] {
            assert_eq!(age(Duration::from_secs(seconds)), shown, "{seconds}");
        }
    }

    #[test]
    fn text_cannot_steer_the_terminal() {
        assert_eq!(plain("a\x1b[2Jb\nc"), "a [2Jb c");
    }
}
