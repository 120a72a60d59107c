//! `events`: what happened lately, and what happens now.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Duration;

use bulkhead_api::v1;
use bulkhead_api::v1::list_events_response::Message;
use bulkhead_api::v1::statuses_client::StatusesClient;
use clock::{UnixNanos, WallClock};
use ipc::{Channel, Collected};
use pod::wire::content_hash;
use serde_json::{Value, json};
use topology::Process;

use crate::arguments::{EventsOptions, TableOrJson};
use crate::check;
use crate::connection::{Connection, DEADLINE, Next, REOPEN, next, room_for_a_list};
use crate::escape::plain;
use crate::failure::Failure;
use crate::output::{Output, note};
use crate::pod_list::{self, pick};
use crate::table::{self, Cell, Columns, Tone};
use crate::words::{age, timestamp};

const HEADINGS: [&str; 6] = ["LAST SEEN", "TYPE", "REASON", "OBJECT", "FROM", "MESSAGE"];

/// Prints events.
pub(crate) async fn events(
    connection: &Connection,
    options: &EventsOptions,
    output: Output,
) -> Result<ExitCode, Failure> {
    let mut wanted = Wanted::All;
    if let Some(name) = &options.pod {
        wanted = match pick(&pod_list::all(connection).await?, name) {
            Ok(pod) => Wanted::Uid(pod.identity().uid().to_owned()),
            // It may be gone already; its events are still there.
            Err(Failure::NotFound(_)) => Wanted::Name {
                name: name.clone(),
                node_name: check::node(connection.run_dir()).name,
            },
            Err(failure) => return Err(failure),
        };
    }
    if options.watch {
        return watch(connection, &wanted, options.output, output).await;
    }
    let events: Vec<_> = recent(connection, DEADLINE)
        .await?
        .into_iter()
        .filter(|event| wanted.takes(event))
        .collect();
    if let (Wanted::Name { name, .. }, true) = (&wanted, events.is_empty()) {
        return Err(Failure::NotFound(format!(
            "no pod is called {name}, and no event names it"
        )));
    }
    match options.output {
        TableOrJson::Table if events.is_empty() => note("there are no events"),
        TableOrJson::Table => {
            output.text(&as_table(
                &events,
                WallClock::system().now(),
                output.colours,
            ))?;
        }
        TableOrJson::Json => {
            events
                .iter()
                .try_for_each(|event| output.json_line(&as_json(event)))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// All events that are kept, those seen longest ago first.
pub(crate) async fn recent(
    connection: &Connection,
    deadline: Duration,
) -> Result<Vec<v1::Event>, Failure> {
    let process = Process::StatusSyncer;
    let client = StatusesClient::new(connection.channel(process)?);
    let messages = connection
        .list(process, deadline, || {
            let mut client = client.clone();
            async move { client.list_events(v1::ListEventsRequest::default()).await }
        })
        .await?;
    let event = |response: v1::ListEventsResponse| match response.message? {
        Message::Event(event) => Some(event),
        Message::SnapshotComplete(_) => None,
    };
    Ok(messages.into_iter().filter_map(event).collect())
}

/// Which events are shown.
enum Wanted {
    All,
    Uid(String),
    /// Of a pod that is gone: its name, or that in its manifest, which has no node's name.
    Name {
        name: String,
        node_name: String,
    },
}

impl Wanted {
    fn takes(&self, event: &v1::Event) -> bool {
        let pod = event.pod.clone().unwrap_or_default();
        match self {
            Wanted::All => true,
            Wanted::Uid(uid) => &pod.uid == uid,
            Wanted::Name { name, node_name } => {
                let (namespace, wanted) = match name.split_once('/') {
                    Some((namespace, wanted)) => (Some(namespace), wanted),
                    None => (None, name.as_str()),
                };
                let manifest_name = pod.name.strip_suffix(node_name.as_str());
                let manifest_name = manifest_name.and_then(|name| name.strip_suffix('-'));
                let is_called = pod.name == wanted || manifest_name == Some(wanted);
                let is_in = namespace.is_none_or(|namespace| pod.namespace == namespace);
                (is_called && is_in) || &pod.uid == name
            }
        }
    }
}

/// Prints events as they come, until interrupted.
async fn watch(
    connection: &Connection,
    wanted: &Wanted,
    format: TableOrJson,
    output: Output,
) -> Result<ExitCode, Failure> {
    let process = Process::StatusSyncer;
    let client = StatusesClient::new(connection.channel(process)?);
    let mut columns = None;
    let mut shown = Shown::default();
    loop {
        let mut stream = open(connection, &client).await?;
        // Those of the beginning are shown together, so that columns fit.
        let mut gathered = Some(room_for_a_list());
        while let Next::Message(response) = next(process, &mut stream).await? {
            match response.message {
                Some(Message::Event(event)) if wanted.takes(&event) && shown.is_news(&event) => {
                    match &mut gathered {
                        Some(events) => events
                            .push(event)
                            .map_err(|status| Failure::of_status(process, status))?,
                        None => show(&[event], format, &mut columns, output)?,
                    }
                }
                Some(Message::SnapshotComplete(_)) => {
                    let events = gathered.take().map(Collected::into_messages);
                    show(&events.unwrap_or_default(), format, &mut columns, output)?;
                }
                Some(Message::Event(_)) | None => {}
            }
        }
        tokio::time::sleep(REOPEN).await;
    }
}

/// When each event was shown last: a stream that is opened again, or a process
/// that was restarted, tells of what was shown already. Events are remembered by a
/// hash, since their texts may be long.
#[derive(Default)]
struct Shown(BTreeMap<String, i64>);

/// Events that are remembered as shown: twice what is kept on the node.
const MAX_SHOWN: usize = 4_000;

impl Shown {
    fn is_news(&mut self, event: &v1::Event) -> bool {
        if self.0.len() >= MAX_SHOWN {
            self.0.clear();
        }
        let v1::Event {
            container,
            reason,
            message,
            ..
        } = event.clone();
        let key = json!([object(event), container, reason, message]);
        let key = content_hash(key.to_string().as_bytes());
        let last = self.0.entry(key).or_insert(i64::MIN);
        let news = event.unix_nanos > *last;
        *last = event.unix_nanos.max(*last);
        news
    }
}

/// Adds events to a table that is begun with the first of them.
fn show(
    events: &[v1::Event],
    format: TableOrJson,
    columns: &mut Option<Columns>,
    output: Output,
) -> Result<(), Failure> {
    if format == TableOrJson::Json {
        return events
            .iter()
            .try_for_each(|event| output.json_line(&as_json(event)));
    }
    let now = WallClock::system().now();
    let rows: Vec<Vec<Cell>> = events.iter().map(|event| row(event, now)).collect();
    let mut text = String::new();
    let begins = columns.is_none();
    let columns = columns.get_or_insert_with(|| Columns::new(&HEADINGS));
    columns.fit(&rows);
    if begins {
        text += &columns.headings(&HEADINGS, output.colours);
    }
    text.extend(rows.iter().map(|row| columns.line(row, output.colours)));
    output.text(&text)
}

async fn open(
    connection: &Connection,
    client: &StatusesClient<Channel>,
) -> Result<tonic::Streaming<v1::ListEventsResponse>, Failure> {
    let request = v1::ListEventsRequest {
        watch: true,
        pod_uid: String::new(),
    };
    connection
        .call(Process::StatusSyncer, || {
            let (mut client, request) = (client.clone(), request.clone());
            async move { client.list_events(request).await }
        })
        .await
}

/// The table of one pod's events: what they are about need not be told.
pub(crate) fn as_table_of_pod(events: &[v1::Event], now: UnixNanos, colours: bool) -> String {
    let object = HEADINGS.iter().position(|heading| *heading == "OBJECT");
    let mut headings = HEADINGS.to_vec();
    let mut rows: Vec<Vec<Cell>> = events.iter().map(|event| row(event, now)).collect();
    if let Some(object) = object {
        headings.remove(object);
        rows.iter_mut().for_each(|row| drop(row.remove(object)));
    }
    table::render(&headings, &rows, colours)
}

/// The table of events.
fn as_table(events: &[v1::Event], now: UnixNanos, colours: bool) -> String {
    let rows: Vec<Vec<Cell>> = events.iter().map(|event| row(event, now)).collect();
    table::render(&HEADINGS, &rows, colours)
}

fn row(event: &v1::Event, now: UnixNanos) -> Vec<Cell> {
    let (kind, tone) = match event.r#type() {
        v1::EventType::Warning => ("Warning", Tone::Notable),
        v1::EventType::Normal | v1::EventType::Unspecified => ("Normal", Tone::Plain),
    };
    let mut seen = age(now.since(UnixNanos(event.unix_nanos)));
    if event.count > 1 {
        let span = age(now.since(UnixNanos(event.first_unix_nanos)));
        seen += &format!(" (x{} over {span})", event.count);
    }
    vec![
        seen.into(),
        Cell::toned(kind, tone),
        plain(&event.reason).into(),
        plain(&object(event)).into(),
        plain(&event.reporter).into(),
        plain(&message(event)).into(),
    ]
}

/// What an event says, and of which container: its text names none.
pub(crate) fn message(event: &v1::Event) -> String {
    match event.container.as_str() {
        "" => event.message.clone(),
        container => format!("{container}: {}", event.message),
    }
}

/// What an event is about: a pod, a file or URL, else the node.
fn object(event: &v1::Event) -> String {
    match &event.pod {
        Some(pod) if !pod.uid.is_empty() || !pod.name.is_empty() => {
            format!("{}/{}", pod.namespace, pod.name)
        }
        _ if !event.subject.is_empty() => event.subject.clone(),
        _ => "node".to_owned(),
    }
}

fn as_json(event: &v1::Event) -> Value {
    let pod = event.pod.as_ref().filter(|pod| !pod.uid.is_empty());
    json!({
        "type": event.r#type().as_str_name().trim_start_matches("EVENT_TYPE_").to_lowercase(),
        "reason": event.reason,
        "message": event.message,
        "pod": pod.map(|pod| json!({"namespace": pod.namespace, "name": pod.name, "uid": pod.uid})),
        "container": event.container,
        "subject": event.subject,
        "reporter": event.reporter,
        "count": event.count.max(1),
        "firstSeen": timestamp(UnixNanos(event.first_unix_nanos)),
        "lastSeen": timestamp(UnixNanos(event.unix_nanos)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(name: &str, reason: &str, count: u32) -> v1::Event {
        v1::Event {
            pod: Some(v1::PodReference {
                uid: format!("uid-{name}"),
                namespace: "default".to_owned(),
                name: name.to_owned(),
            }),
            r#type: v1::EventType::Warning.into(),
            reason: reason.to_owned(),
            message: "why\x1b[2J".to_owned(),
            reporter: "pool".to_owned(),
            unix_nanos: 60_000_000_000,
            first_unix_nanos: 10_000_000_000,
            count,
            ..v1::Event::default()
        }
    }

    #[test]
    fn the_table_tells_repeats_and_objects() {
        let about_a_file = v1::Event {
            subject: "/m/a.yaml".to_owned(),
            reason: "BadManifest".to_owned(),
            unix_nanos: 65_000_000_000,
            ..v1::Event::default()
        };
        let of_container = v1::Event {
            container: "c".to_owned(),
            ..event("p", "BackOff", 3)
        };
        let events = [of_container, about_a_file];
        assert_eq!(
            as_table(&events, UnixNanos(70_000_000_000), false),
            "\
LAST SEEN           TYPE      REASON        OBJECT      FROM   MESSAGE
10s (x3 over 60s)   Warning   BackOff       default/p   pool   c: why^[[2J
5s                  Normal    BadManifest   /m/a.yaml
"
        );
    }

    #[test]
    fn events_are_chosen_by_uid_or_name() {
        let event = event("p-node-a", "R", 1);
        let uid = |uid: &str| Wanted::Uid(uid.to_owned());
        let name = |name: &str| Wanted::Name {
            name: name.to_owned(),
            node_name: "node-a".to_owned(),
        };
        for (wanted, taken) in [
            (Wanted::All, true),
            (uid("uid-p-node-a"), true),
            (uid("uid-q"), false),
            (name("p-node-a"), true),
            (name("default/p-node-a"), true),
            (name("other/p-node-a"), false),
            (name("uid-p-node-a"), true),
            // As in its manifest.
            (name("p"), true),
            (name("default/p"), true),
            (name("other/p"), false),
            (name("p-node"), false),
            (name("p-"), false),
            (name(""), false),
        ] {
            assert_eq!(wanted.takes(&event), taken);
        }
    }

    #[test]
    fn what_was_shown_is_not_shown_again() {
        let mut shown = Shown::default();
        let at = |reason: &str, unix_nanos: i64| v1::Event {
            unix_nanos,
            ..event("p", reason, 1)
        };
        assert!(shown.is_news(&at("Started", 5)));
        assert!(
            !shown.is_news(&at("Started", 5)),
            "a stream that was opened again"
        );
        assert!(!shown.is_news(&at("Started", 3)), "an older repetition");
        assert!(
            shown.is_news(&at("Unhealthy", 4)),
            "another event that was reported late"
        );
        assert!(shown.is_news(&at("Started", 6)));
    }

    #[test]
    fn json_has_words_and_times() {
        let json = as_json(&event("p", "R", 0));
        assert_eq!(json["type"], "warning");
        assert_eq!(json["count"], 1);
        assert_eq!(json["lastSeen"], "1970-01-01T00:01:00Z");
        assert_eq!(json["pod"]["name"], "p");
    }
}
