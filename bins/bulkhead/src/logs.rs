//! `logs`: the log of a container, also while it grows and while processes of
//! the node agent restart.

use std::io::{self, Write as _};
use std::process::ExitCode;
use std::time::Duration;

use bulkhead_api::v1;
use bulkhead_api::v1::container_logs_client::ContainerLogsClient;
use clock::WallClock;
use topology::Process;

use crate::arguments::LogsOptions;
use crate::connection::Connection;
use crate::failure::Failure;
use crate::pods::{ListedPod, find};

/// Pause before a log that is followed is opened again.
const REOPEN: Duration = Duration::from_millis(200);

/// Prints the log of a container.
pub(crate) async fn logs(
    connection: &Connection,
    options: &LogsOptions,
) -> Result<ExitCode, Failure> {
    let listed = find(connection, &options.pod).await?;
    let container_name = container(&listed, options.container.as_deref())?;
    let since_unix_nanos = match options.since {
        Some(since) => {
            let now = WallClock::system().now();
            now.0
                .saturating_sub(i64::try_from(since.as_nanos()).unwrap_or(i64::MAX))
        }
        None => 0,
    };
    let mut request = v1::ReadLogsRequest {
        pod_uid: listed.uid().to_owned(),
        container_name,
        follow: options.follow,
        previous: options.previous,
        tail_lines: options.tail,
        since_unix_nanos,
        timestamps: options.timestamps,
    };
    let client = ContainerLogsClient::new(connection.channel(Process::PodWorkerPool)?);
    loop {
        let mut stream = connection
            .call(Process::PodWorkerPool, || {
                let (mut client, request) = (client.clone(), request.clone());
                async move { client.read_logs(request).await }
            })
            .await?;
        loop {
            match stream.message().await {
                Ok(Some(part)) => {
                    write(&part)?;
                    // A log that is opened again goes on after this line.
                    request.since_unix_nanos = part.unix_nanos.saturating_add(1);
                    request.tail_lines = None;
                }
                Ok(None) => return Ok(ExitCode::SUCCESS),
                Err(status) if ipc::is_broken_connection(&status) => break,
                Err(status) => {
                    let error = ipc::CallError::Refused(Box::new(status));
                    return Err(Failure::of_call(Process::PodWorkerPool, error));
                }
            }
        }
        tokio::time::sleep(REOPEN).await;
    }
}

fn write(part: &v1::ReadLogsResponse) -> Result<(), Failure> {
    let written = if part.stream == "stderr" {
        io::stderr().lock().write_all(&part.content)
    } else {
        let mut out = io::stdout().lock();
        out.write_all(&part.content).and_then(|()| out.flush())
    };
    written.map_err(|source| Failure::Local {
        action: "print",
        source,
    })
}

/// The container that is meant: the only one, or the one that is named.
fn container(listed: &ListedPod, wanted: Option<&str>) -> Result<String, Failure> {
    let spec = listed.pod.spec.as_ref();
    let ordinary = spec
        .map(|spec| spec.containers.as_slice())
        .unwrap_or_default();
    let init = spec
        .and_then(|spec| spec.init_containers.as_deref())
        .unwrap_or_default();
    let names: Vec<&str> = ordinary
        .iter()
        .chain(init)
        .map(|one| one.name.as_str())
        .collect();
    match (wanted, ordinary) {
        (Some(wanted), _) if names.contains(&wanted) => Ok(wanted.to_owned()),
        (None, [only]) => Ok(only.name.clone()),
        (None, _) => Err(Failure::NotFound(format!(
            "choose a container of {} with -c: {}",
            listed.name(),
            names.join(", ")
        ))),
        (Some(wanted), _) => Err(Failure::NotFound(format!(
            "{} has no container {wanted}; it has: {}",
            listed.name(),
            names.join(", ")
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_only_container_needs_no_name() {
        let listed = |containers: serde_json::Value| {
            let json =
                serde_json::json!({"metadata": {"name": "p"}, "spec": {"containers": containers}});
            ListedPod {
                pod: serde_json::from_value(json.clone()).unwrap(),
                json,
            }
        };
        let one = listed(serde_json::json!([{"name": "a"}]));
        let two = listed(serde_json::json!([{"name": "a"}, {"name": "b"}]));
        assert_eq!(container(&one, None).unwrap(), "a");
        assert_eq!(container(&two, Some("b")).unwrap(), "b");
        assert!(container(&two, None).unwrap_err().text().contains("a, b"));
        assert!(container(&two, Some("c")).is_err());
    }
}
