//! `logs`: the logs of containers, also while they grow and while processes of the node
//! agent restart.

mod printer;
pub(crate) mod selector;

use std::process::ExitCode;
use std::time::Duration;

use bulkhead_api::v1;
use bulkhead_api::v1::container_logs_client::ContainerLogsClient;
use clock::WallClock;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt as _};
use ipc::{CallError, Channel};
use pod::{Pod, PodExt as _};
use tokio::time::Instant;
use tonic::Code;
use topology::Process;

use crate::arguments::LogsOptions;
use crate::connection::{Connection, DEADLINE, Next, REOPEN, next};
use crate::container_choice;
use crate::describe;
use crate::escape::plain;
use crate::failure::Failure;
use crate::output::{Output, note};
use crate::pod_list::{self, PodEntry, pick};

use printer::Printer;

/// Logs that are followed at once. The node reads 32, and somebody else may ask too.
const MAX_FOLLOWED: usize = 16;

/// Logs that are read one after the other.
const MAX_LOGS: usize = 4_096;

/// How long a log may be read before there is a line that is wanted.
const SEARCH: Duration = Duration::from_secs(60);

/// The log of one container.
struct Log<'a> {
    pod: &'a PodEntry,
    /// `pod/container`.
    name: String,
    request: v1::ReadLogsRequest,
}

/// Prints logs.
pub(crate) async fn logs(
    connection: &Connection,
    options: &LogsOptions,
    output: Output,
) -> Result<ExitCode, Failure> {
    let mut logs = Vec::new();
    let all_pods = &pod_list::all(connection).await?;
    for entry in pods(all_pods, options)? {
        let pod = entry.read()?.pod;
        for container in containers(&pod, options)? {
            logs.push(Log {
                pod: entry,
                name: plain(&format!("{}/{container}", pod.name())),
                request: request(&pod, container, options),
            });
        }
        if logs.len() > MAX_LOGS {
            return Err(Failure::Ambiguous(format!(
                "these are more than {MAX_LOGS} logs: name fewer"
            )));
        }
    }
    if options.follow && logs.len() > MAX_FOLLOWED {
        return Err(Failure::Ambiguous(format!(
            "these are {} logs, and at most {MAX_FOLLOWED} are followed at once: name fewer",
            logs.len()
        )));
    }
    let channel = connection.channel(Process::PodWorkerPool)?;
    let client = ContainerLogsClient::new(channel);
    let is_named = options.prefix || (logs.len() > 1 && output.terminal);
    let several = logs.len() > 1;
    let printings = logs.into_iter().enumerate().map(|(number, log)| {
        let name = is_named.then_some(log.name.as_str());
        let printer = Printer::new(name, number, output.terminal, output.colours);
        let client = client.clone();
        async move {
            let request = log.request.clone();
            let printed = print(connection, client, request, printer, output).await;
            let printed = explained(connection, all_pods, &log, printed).await;
            (log.name, printed)
        }
    });
    if options.follow {
        let printings: FuturesUnordered<_> = printings.map(FutureExt::boxed_local).collect();
        all(printings, several).await
    } else {
        // One after the other, as they are asked for.
        all(
            futures_util::stream::iter(printings)
                .then(|it| it)
                .boxed_local(),
            several,
        )
        .await
    }
}

/// Waits for all logs. Of several, one that cannot be read keeps no other back, and is told
/// by the exit code too.
async fn all(
    mut printings: impl futures_util::Stream<Item = (String, Result<(), Failure>)> + Unpin,
    several: bool,
) -> Result<ExitCode, Failure> {
    let (mut some_good, mut last_failure) = (false, None);
    while let Some((name, printed)) = printings.next().await {
        match printed {
            Ok(()) => some_good = true,
            Err(Failure::ReaderGone) => return Err(Failure::ReaderGone),
            Err(failure) => {
                if several {
                    note(&format!("{name}: {}", telemetry::chain(&failure)));
                }
                // The next log would wait for the same process.
                let is_of_the_process = matches!(failure, Failure::Unreachable { .. });
                last_failure = Some(failure);
                if is_of_the_process {
                    break;
                }
            }
        }
    }
    match last_failure {
        None => Ok(ExitCode::SUCCESS),
        // Each failure is told already.
        Some(_) if some_good => Ok(ExitCode::FAILURE),
        Some(failure) => Err(failure),
    }
}

/// The pods that are meant.
fn pods<'a>(all: &'a [PodEntry], options: &LogsOptions) -> Result<Vec<&'a PodEntry>, Failure> {
    let Some(selector) = &options.selector else {
        let picked = options.pods.iter().map(|name| pick(all, name));
        return picked.collect();
    };
    let has_labels = |pod: &&PodEntry| {
        let listed = pod.read();
        listed.is_ok_and(|listed| selector.takes(listed.pod.metadata.labels.as_ref()))
    };
    let pods: Vec<_> = all.iter().filter(has_labels).collect();
    match pods.is_empty() {
        true => Err(Failure::NotFound("no pod has these labels".to_owned())),
        false => Ok(pods),
    }
}

fn request(pod: &Pod, container_name: String, options: &LogsOptions) -> v1::ReadLogsRequest {
    let since = options.since.map(|since| {
        let back = i64::try_from(since.0.as_nanos()).unwrap_or(i64::MAX);
        WallClock::system().now().0.saturating_sub(back).max(0)
    });
    v1::ReadLogsRequest {
        pod_uid: pod.uid().to_owned(),
        follow: options.follow,
        previous: options.previous && !is_between_instances(pod, &container_name),
        container_name,
        tail_lines: options.tail,
        since_unix_nanos: since.unwrap_or(0),
        timestamps: options.timestamps,
        restart_count: None,
    }
}

/// Adds why there is no log, or nothing in it, where that is because of a start that has not
/// come or has failed. `all` are the pods of the node.
async fn explained(
    connection: &Connection,
    all: &[PodEntry],
    log: &Log<'_>,
    printed: Result<bool, Failure>,
) -> Result<(), Failure> {
    let container = &log.request.container_name;
    let is_empty = matches!(printed, Ok(false));
    let may_say_why = match &printed {
        Ok(_) => is_empty && describe::never_ran(&log.pod.read()?.pod, container),
        Err(failure) => !log.request.previous && is_of_an_absent_log(failure),
    };
    if !may_say_why {
        return printed.map(drop);
    }
    let why = describe::why_not_started(connection, (all, log.pod), container).await?;
    let Some(why) = why else {
        return printed.map(drop);
    };
    let pod = log.pod.full_name();
    let what = format!("container {container} of {pod} has no log: {why}");
    if is_empty {
        note(&what);
        return Ok(());
    }
    Err(Failure::NoLog(what))
}

/// Whether the container, or its pod, has not come so far that there is a log.
fn is_of_an_absent_log(failure: &Failure) -> bool {
    match failure {
        Failure::Refused { source, .. } => source.code() == Some(Code::FailedPrecondition),
        Failure::NotFound(_) => true,
        _ => false,
    }
}

/// Prints one log to its end; whether there was anything in it.
async fn print(
    connection: &Connection,
    client: ContainerLogsClient<Channel>,
    mut request: v1::ReadLogsRequest,
    mut printer: Printer,
    output: Output,
) -> Result<bool, Failure> {
    let process = Process::PodWorkerPool;
    let (mut until, mut has_printed) = (None, false);
    loop {
        let mut stream = connection
            .call(process, || {
                let (mut client, request) = (client.clone(), request.clone());
                async move { client.read_logs(request).await }
            })
            .await?;
        until = until.or_else(|| longest_silence(&request));
        loop {
            match within(until, next(process, &mut stream)).await? {
                Next::Message(part) => {
                    output.write(&printer.take(&part.content))?;
                    go_on_after(&mut request, &part);
                    if !part.content.is_empty() {
                        has_printed = true;
                        until = longest_silence(&request);
                    }
                }
                Next::Ended => {
                    output.write(&printer.end())?;
                    return Ok(has_printed);
                }
                Next::Broken => break,
            }
        }
        tokio::time::sleep(REOPEN).await;
    }
}

/// How long nothing may come of a log, and until when: for ever where it is followed.
fn longest_silence(request: &v1::ReadLogsRequest) -> Option<(Duration, Instant)> {
    // What comes before the wanted lines is read silently, and may be gigabytes.
    let is_searched = request.tail_lines.is_some() || request.since_unix_nanos != 0;
    let silence = if is_searched { SEARCH } else { DEADLINE };
    (!request.follow).then(|| (silence, Instant::now() + silence))
}

/// What comes next, if it comes until then.
async fn within<T>(
    until: Option<(Duration, Instant)>,
    next: impl Future<Output = Result<Next<T>, Failure>>,
) -> Result<Next<T>, Failure> {
    let Some((deadline, until)) = until else {
        return next.await;
    };
    // Who breaks each answer off is ready each time.
    let is_late = Instant::now() >= until;
    match tokio::time::timeout_at(until, next).await {
        Ok(next) if !is_late => next,
        _ => {
            let error = CallError::Deadline {
                deadline,
                last_failure: None,
            };
            Err(Failure::of_call(Process::PodWorkerPool, error))
        }
    }
}

/// Whether the newest instance has ended and the next waits: then the newest is
/// what `--previous` means, as for kubectl.
fn is_between_instances(pod: &Pod, container_name: &str) -> bool {
    let status = pod.status.as_ref();
    let init = status.and_then(|status| status.init_container_statuses.as_deref());
    let ordinary = status.and_then(|status| status.container_statuses.as_deref());
    let mut statuses = init.into_iter().chain(ordinary).flatten();
    statuses.any(|status| {
        let waits = status
            .state
            .as_ref()
            .is_some_and(|state| state.waiting.is_some());
        let last = status
            .last_state
            .as_ref()
            .and_then(|last| last.terminated.as_ref());
        let newest = last.is_some_and(|last| last.container_id == status.container_id);
        status.name == container_name && waits && newest
    })
}

/// What to ask for when the stream breaks after `part`: the lines of the same instance
/// after it. Meanwhile the container may have been restarted.
fn go_on_after(request: &mut v1::ReadLogsRequest, part: &v1::ReadLogsResponse) {
    request.restart_count = part.restart_count.or(request.restart_count);
    if part.unix_nanos > 0 {
        request.since_unix_nanos = part.unix_nanos.saturating_add(1);
        request.tail_lines = None;
    }
}

/// The containers that are meant: the named ones, all, the default, or the first.
fn containers(pod: &Pod, options: &LogsOptions) -> Result<Vec<String>, Failure> {
    let names = container_choice::names(pod);
    if options.all_containers {
        return Ok(names.into_iter().map(str::to_owned).collect());
    }
    if !options.containers.is_empty() {
        let named = options.containers.iter();
        let named = named.map(|wanted| container_choice::named(pod, wanted));
        return named.collect();
    }
    let name = container_choice::usual(pod)?;
    if pod.containers().len() > 1 {
        note(&format!(
            "container {name} is taken out of: {}; --all-containers takes all",
            names.join(", ")
        ));
    }
    Ok(vec![name])
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use serde_json::{Value, json};

    use super::*;
    use crate::arguments::{Arguments, Command};
    use crate::container_choice::DEFAULT_CONTAINER_ANNOTATION;

    fn pod(containers: Value, default: Option<&str>) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": "p", "annotations": {DEFAULT_CONTAINER_ANNOTATION: default.unwrap_or("?")}},
            "spec": {"containers": containers, "initContainers": [{"name": "init"}]},
        }))
        .unwrap()
    }

    fn options(words: &[&str]) -> LogsOptions {
        let words = ["bulkhead", "logs"].iter().chain(words);
        let arguments = Arguments::try_parse_from(words).unwrap();
        match arguments.command {
            Command::Logs(options) => options,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_containers_are_the_named_all_the_default_or_the_first() {
        let one = pod(json!([{"name": "a"}]), None);
        let two = pod(json!([{"name": "a"}, {"name": "b"}]), None);
        let default = pod(json!([{"name": "a"}, {"name": "b"}]), Some("b"));
        for (pod, words, expected) in [
            (&one, &["p"][..], &["a"][..]),
            (&two, &["p"], &["a"]),
            (&default, &["p"], &["b"]),
            (&two, &["p", "-c", "b"], &["b"]),
            (&two, &["p", "-c", "b", "-c", "init"], &["b", "init"]),
            (&two, &["p", "--all-containers"], &["init", "a", "b"]),
        ] {
            assert_eq!(containers(pod, &options(words)).unwrap(), expected);
        }
        let error = containers(&two, &options(&["p", "-c", "c"])).unwrap_err();
        assert!(matches!(error, Failure::NotFound(text) if text.ends_with("init, a, b")));
        assert!(containers(&pod(json!([]), None), &options(&["p"])).is_err());
    }

    #[test]
    fn pods_are_chosen_by_name_or_label() {
        let all = ["a", "b", "c"].map(|name| {
            let labels = json!({"app": if name == "c" { "other" } else { "web" }});
            let metadata = json!({"namespace": "d", "name": name, "uid": name, "labels": labels});
            let pod = json!({"metadata": metadata, "spec": {"containers": []}});
            PodEntry::new(pod.to_string().into_bytes()).unwrap()
        });
        let names = |words: &[&str]| -> Option<String> {
            let pods = pods(&all, &options(words)).ok()?;
            Some(pods.iter().map(|pod| pod.identity().name()).collect())
        };
        assert_eq!(names(&["c", "a"]).as_deref(), Some("ca"));
        assert_eq!(names(&["-l", "app=web"]).as_deref(), Some("ab"));
        assert_eq!(names(&["-l", "app=none"]), None);
        assert_eq!(names(&["d"]), None);
    }

    #[tokio::test]
    async fn a_log_that_cannot_be_read_is_told_by_the_exit_code() {
        let absent = || Err(Failure::NotFound("no log".to_owned()));
        let read = async |printed: Vec<Result<(), Failure>>| {
            let several = printed.len() > 1;
            let printings = printed.into_iter().map(|it| ("p/c".to_owned(), it));
            all(futures_util::stream::iter(printings), several).await
        };
        let is = |outcome: Result<ExitCode, Failure>, code: ExitCode| {
            outcome.is_ok_and(|it| format!("{it:?}") == format!("{code:?}"))
        };
        assert!(is(read(vec![Ok(()), Ok(())]).await, ExitCode::SUCCESS));
        assert!(is(read(vec![Ok(()), absent()]).await, ExitCode::FAILURE));
        assert!(is(read(vec![absent(), Ok(())]).await, ExitCode::FAILURE));
        for none in [vec![absent()], vec![absent(), absent()]] {
            assert!(matches!(read(none).await, Err(Failure::NotFound(_))));
        }
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        for words in [
            &["logs"][..],
            &["logs", "p", "-l", "a=b"],
            &["logs", "-l", "a b"],
            &["logs", "p", "-c", "c", "--all-containers"],
        ] {
            let words = ["bulkhead"].iter().chain(words);
            assert!(Arguments::try_parse_from(words).is_err());
        }
    }

    #[test]
    fn while_the_next_instance_waits_the_newest_is_the_previous_one() {
        let with_state = |state: Value, last_id: &str| -> Pod {
            serde_json::from_value(json!({
                "metadata": {"name": "p"},
                "status": {"containerStatuses": [{
                    "name": "c", "image": "i", "imageID": "", "ready": false, "restartCount": 1,
                    "containerID": "containerd://b", "state": state,
                    "lastState": {"terminated": {"exitCode": 1, "containerID": last_id}},
                }]},
            }))
            .unwrap()
        };
        let waiting = || json!({"waiting": {"reason": "CrashLoopBackOff"}});
        assert!(is_between_instances(
            &with_state(waiting(), "containerd://b"),
            "c"
        ));
        assert!(!is_between_instances(
            &with_state(waiting(), "containerd://b"),
            "d"
        ));
        assert!(!is_between_instances(
            &with_state(waiting(), "containerd://a"),
            "c"
        ));
        let running = with_state(json!({"running": {}}), "containerd://a");
        assert!(!is_between_instances(&running, "c"));
    }

    #[test]
    fn a_log_that_is_opened_again_goes_on_after_the_last_line() {
        let mut request = v1::ReadLogsRequest {
            tail_lines: Some(5),
            ..Default::default()
        };
        go_on_after(&mut request, &v1::ReadLogsResponse::default());
        assert_eq!(request.tail_lines, Some(5), "nothing came yet");
        go_on_after(
            &mut request,
            &v1::ReadLogsResponse {
                unix_nanos: 7,
                restart_count: Some(3),
                ..Default::default()
            },
        );
        assert_eq!((request.tail_lines, request.since_unix_nanos), (None, 8));
        assert_eq!(request.restart_count, Some(3), "not the newest by then");
    }
}
