//! How a command ended, as the server of its session says. Pure.

use serde::Deserialize;

/// How a command ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It ended with this code.
    Exited(i32),
    /// It was not run, or it is not known how it ended.
    Failed(String),
}

/// A `Status` of the API, as far as it is looked at.
#[derive(Deserialize)]
struct Status {
    #[serde(default)]
    status: String,
    #[serde(default)]
    reason: String,
    #[serde(default)]
    message: String,
    #[serde(default)]
    details: Option<Details>,
}

#[derive(Deserialize)]
struct Details {
    #[serde(default)]
    causes: Vec<Cause>,
}

#[derive(Deserialize)]
struct Cause {
    #[serde(default)]
    reason: String,
    #[serde(default)]
    message: String,
}

impl Outcome {
    /// What the error stream said.
    pub(crate) fn read(bytes: &[u8]) -> Outcome {
        let Ok(status) = serde_json::from_slice::<Status>(bytes) else {
            return Outcome::Failed(String::from_utf8_lossy(bytes).trim().to_owned());
        };
        if status.status == "Success" {
            return Outcome::Exited(0);
        }
        let causes = status.details.map(|it| it.causes).unwrap_or_default();
        let mut codes = causes.iter().filter(|cause| cause.reason == "ExitCode");
        let code = codes.next().and_then(|cause| cause.message.parse().ok());
        match code {
            Some(code) if status.reason == "NonZeroExitCode" => Outcome::Exited(code),
            _ => Outcome::Failed(status.message),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_says_how_a_command_ended() {
        let failed = |text: &str| Outcome::Failed(text.to_owned());
        for (text, expected) in [
            (r#"{"metadata":{},"status":"Success"}"#, Outcome::Exited(0)),
            (
                r#"{"metadata":{},"status":"Failure","message":"command terminated with non-zero exit code: 3",
                "reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"3"}]}}"#,
                Outcome::Exited(3),
            ),
            (
                r#"{"status":"Failure","message":"no such file","reason":"InternalError","code":500}"#,
                failed("no such file"),
            ),
            (
                r#"{"status":"Failure","message":"m","reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"x"}]}}"#,
                failed("m"),
            ),
            ("container not running\n", failed("container not running")),
            ("", failed("")),
        ] {
            assert_eq!(Outcome::read(text.as_bytes()), expected, "{text}");
        }
    }
}
