//! Durations in a configuration, as Go writes them.

use std::fmt;
use std::time::Duration;

use clock::parse_go_duration;
use serde::de::{self, Deserialize, Deserializer, Visitor};

/// A duration that is not negative, from Go's text form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GoDuration(pub(crate) Duration);

impl<'de> Deserialize<'de> for GoDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl Visitor<'_> for Text {
            type Value = GoDuration;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a duration like \"1m30s\"")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<GoDuration, E> {
                parse_go_duration(text).map(GoDuration).map_err(E::custom)
            }
        }
        deserializer.deserialize_str(Text)
    }
}

/// Zero means the default, as in the kubelet.
pub(super) fn set_duration(target: &mut Duration, given: Option<GoDuration>) {
    if let Some(GoDuration(duration)) = given
        && !duration.is_zero()
    {
        *target = duration;
    }
}
