//! The connection to the API server, as api-gateway tells: below the process table of `status`.

use std::time::Duration;

use bulkhead_api::v1;
use bulkhead_api::v1::api_connection_client::ApiConnectionClient;
use clock::UnixNanos;
use serde_json::{Value, json};
use topology::Process;

use crate::connection::{Connection, EXTRA_DEADLINE};
use crate::escape::plain;
use crate::failure::Failure;
use crate::output::note;
use crate::table::Tone;
use crate::text::VALUE_COLUMN;
use crate::words::{age, timestamp, timestamp_of_seconds};

/// What is left of a client certificate when it is told of.
const SOON: Duration = Duration::from_secs(24 * 60 * 60);

/// Asks how the connection stands. Of a node without a kubeconfig nothing is asked, nor of an
/// api-gateway that the table shows as not ready.
pub(crate) async fn ask(
    connection: &Connection,
    status: &v1::SupervisorStatus,
) -> Option<v1::GetApiConnectionResponse> {
    if !is_ready(status) || !connection.runs(Process::ApiGateway) {
        return None;
    }
    let answer = answer(connection).await;
    answer
        .inspect_err(|failure| {
            let why = telemetry::chain(failure);
            note(&format!(
                "the connection to the API server is not shown: {why}"
            ));
        })
        .ok()
}

fn is_ready(status: &v1::SupervisorStatus) -> bool {
    let name = Process::ApiGateway.name();
    let mut processes = status.processes.iter();
    processes.any(|it| it.name == name && it.state() == v1::ProcessState::Ready)
}

async fn answer(connection: &Connection) -> Result<v1::GetApiConnectionResponse, Failure> {
    let client = ApiConnectionClient::new(connection.channel(Process::ApiGateway)?);
    let answered = ipc::call(EXTRA_DEADLINE, || {
        let mut client = client.clone();
        async move {
            let request = v1::GetApiConnectionRequest {};
            client.get_api_connection(request).await
        }
    });
    answered
        .await
        .map_err(|error| Failure::of_call(Process::ApiGateway, error))
}

/// How long a client certificate is still good; its end is in seconds of Unix time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Certificate {
    /// Its end is not known.
    Unknown,
    Valid {
        end: i64,
        left: Duration,
    },
    /// It ends within a day.
    EndsSoon {
        end: i64,
        left: Duration,
    },
    Expired {
        end: i64,
        since: Duration,
    },
}

impl Certificate {
    fn at(end: i64, now: UnixNanos) -> Certificate {
        let now = now.0.div_euclid(1_000_000_000);
        let apart = Duration::from_secs(end.abs_diff(now));
        match end {
            0 => Certificate::Unknown,
            end if end <= now => Certificate::Expired { end, since: apart },
            end if apart <= SOON => Certificate::EndsSoon { end, left: apart },
            end => Certificate::Valid { end, left: apart },
        }
    }

    fn word(self) -> &'static str {
        match self {
            Certificate::Unknown => "unknown",
            Certificate::Valid { .. } => "valid",
            Certificate::EndsSoon { .. } => "ends-soon",
            Certificate::Expired { .. } => "expired",
        }
    }

    fn told(self) -> (String, Tone) {
        let ends = |end, left| format!("ends {} (in {})", timestamp_of_seconds(end), age(left));
        match self {
            Certificate::Unknown => ("its end is not known".to_owned(), Tone::Notable),
            Certificate::Valid { end, left } => (ends(end, left), Tone::Plain),
            Certificate::EndsSoon { end, left } => {
                (ends(end, left) + ", within a day", Tone::Notable)
            }
            Certificate::Expired { end, since } => {
                let text = format!("expired {} ({} ago)", timestamp_of_seconds(end), age(since));
                (text, Tone::Bad)
            }
        }
    }
}

/// Some lines below the process table.
pub(crate) fn as_text(
    told: &v1::GetApiConnectionResponse,
    now: UnixNanos,
    colours: bool,
) -> String {
    let moment = |unix_nanos: i64| {
        let at = UnixNanos(unix_nanos);
        format!("{} ({} ago)", timestamp(at), age(now.since(at)))
    };
    let mut lines = Vec::new();
    let mut line = |key: &str, value: String, tone: Tone| {
        let key = format!("{key}:");
        let line = format!("{key:<VALUE_COLUMN$}{}", plain(&value));
        lines.push(tone.paint(&line, colours) + "\n");
    };
    let version = match &*told.version {
        "" => String::new(),
        version => format!(" ({version})"),
    };
    line(
        "API server",
        format!("{}{version}", told.server),
        Tone::Plain,
    );
    match told.connected_since_unix_nanos {
        0 => line("  connected", "no".to_owned(), Tone::Bad),
        since => line(
            "  connected",
            format!("since {}", moment(since)),
            Tone::Good,
        ),
    }
    if !told.last_error.is_empty() {
        let at = moment(told.last_error_unix_nanos);
        let tone = match told.connected_since_unix_nanos {
            0 => Tone::Bad,
            _ => Tone::Plain,
        };
        line("  last error", format!("{at}: {}", told.last_error), tone);
    }
    let certificate = Certificate::at(told.certificate_not_after_unix_seconds, now);
    let (text, tone) = certificate.told();
    line("  certificate", text, tone);
    lines.concat()
}

/// The same for programs.
pub(crate) fn as_json(told: &v1::GetApiConnectionResponse, now: UnixNanos) -> Value {
    let certificate = Certificate::at(told.certificate_not_after_unix_seconds, now);
    json!({
        "server": told.server,
        "version": told.version,
        "connectedSinceUnixNanos": told.connected_since_unix_nanos,
        "lastError": told.last_error,
        "lastErrorUnixNanos": told.last_error_unix_nanos,
        "certificateNotAfterUnixSeconds": told.certificate_not_after_unix_seconds,
        "certificate": certificate.word(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3600;

    fn told() -> v1::GetApiConnectionResponse {
        v1::GetApiConnectionResponse {
            server: "10.0.0.1:6443".to_owned(),
            version: "v1.35.0".to_owned(),
            connected_since_unix_nanos: 60_000_000_000,
            certificate_not_after_unix_seconds: 48 * HOUR,
            ..v1::GetApiConnectionResponse::default()
        }
    }

    #[test]
    fn only_an_api_gateway_that_is_ready_is_asked() {
        for (name, state, expected) in [
            ("api-gateway", v1::ProcessState::Ready, true),
            ("api-gateway", v1::ProcessState::Backoff, false),
            ("pleg", v1::ProcessState::Ready, false),
        ] {
            let process = v1::ProcessStatus {
                name: name.to_owned(),
                state: state.into(),
                ..v1::ProcessStatus::default()
            };
            let status = v1::SupervisorStatus {
                processes: vec![process],
                ..v1::SupervisorStatus::default()
            };
            assert_eq!(is_ready(&status), expected, "{name} {state:?}");
        }
    }

    #[test]
    fn a_connection_is_told_with_its_version_and_the_end_of_the_certificate() {
        let now = UnixNanos(120_000_000_000);
        assert_eq!(
            as_text(&told(), now, false),
            "\
API server:         10.0.0.1:6443 (v1.35.0)
  connected:        since 1970-01-01T00:01:00Z (60s ago)
  certificate:      ends 1970-01-03T00:00:00Z (in 47h)
"
        );
    }

    #[test]
    fn a_server_that_does_not_answer_is_told_with_the_error() {
        let down = v1::GetApiConnectionResponse {
            version: String::new(),
            connected_since_unix_nanos: 0,
            last_error: "cannot connect\x1b[2J".to_owned(),
            last_error_unix_nanos: 110_000_000_000,
            ..told()
        };
        let text = as_text(&down, UnixNanos(120_000_000_000), false);
        for line in [
            "API server:         10.0.0.1:6443\n",
            "  connected:        no\n",
            "  last error:       1970-01-01T00:01:50Z (10s ago): cannot connect^[[2J\n",
        ] {
            assert!(text.contains(line), "{text}");
        }
    }

    #[test]
    fn a_certificate_that_has_ended_or_ends_within_a_day_is_told_as_such() {
        for (end_seconds, word, tone) in [
            (0, "unknown", Tone::Notable),
            (100 * HOUR, "expired", Tone::Bad),
            (99 * HOUR, "expired", Tone::Bad),
            (100 * HOUR + 1, "ends-soon", Tone::Notable),
            (124 * HOUR, "ends-soon", Tone::Notable),
            (124 * HOUR + 1, "valid", Tone::Plain),
        ] {
            let now = UnixNanos(100 * HOUR * 1_000_000_000);
            let certificate = Certificate::at(end_seconds, now);
            let found = (certificate.word(), certificate.told().1);
            assert_eq!(found, (word, tone), "{end_seconds}");
        }
    }
}
