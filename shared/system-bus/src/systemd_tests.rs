//! Against a bus with a systemd that the tests script, over a real socket.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use futures_util::StreamExt as _;
use tokio::net::UnixListener;
use zbus::message::Type;
use zbus::wire::ObjectPath;
use zbus::{Connection, Message, connection};

use super::*;

const SLICE: &str = "kubepods-pod1.slice";

/// What the scripted systemd has, and what it was asked for.
#[derive(Default)]
struct Systemd {
    /// `ActiveState` of each unit.
    units: BTreeMap<String, &'static str>,
    calls: Vec<String>,
    /// Connections that it cuts at their first question.
    cuts: usize,
    /// Whether it answers nothing.
    is_silent: bool,
}

impl Systemd {
    /// The answer to a call: a body, or the name of an error.
    fn answer(&mut self, call: &Message) -> Result<Answer, &'static str> {
        let header = call.header();
        let method = header.member().unwrap().to_string();
        let body = call.body();
        let signature = body.signature().to_string();
        self.calls.push(format!("{method} {signature}"));
        let job = || Answer::Path("/org/freedesktop/systemd1/job/1");
        match method.as_str() {
            "Hello" => {
                self.calls.pop();
                Ok(Answer::Text(":1.1"))
            }
            "StartTransientUnit" if self.units.contains_key(SLICE) => Err(UNIT_EXISTS),
            "StartTransientUnit" | "StartUnit" => {
                self.units.insert(SLICE.to_owned(), "active");
                Ok(job())
            }
            "SetUnitProperties" => Ok(Answer::Nothing),
            "StopUnit" | "GetUnit" if !self.units.contains_key(SLICE) => Err(NO_SUCH_UNIT),
            "StopUnit" => {
                let state = self.units.get_mut(SLICE).unwrap();
                *state = match *state {
                    "active" => "deactivating",
                    _ => "inactive",
                };
                Ok(job())
            }
            "GetUnit" => Ok(Answer::Path("/org/freedesktop/systemd1/unit/a")),
            "Get" => Ok(Answer::State(self.units[SLICE])),
            other => panic!("{other}"),
        }
    }
}

enum Answer {
    Nothing,
    Text(&'static str),
    Path(&'static str),
    State(&'static str),
}

struct Bus {
    directory: tempfile::TempDir,
    systemd: Arc<Mutex<Systemd>>,
}

impl Bus {
    fn with(systemd: Systemd) -> Bus {
        let bus = Bus {
            directory: tempfile::tempdir().unwrap(),
            systemd: Arc::new(Mutex::new(systemd)),
        };
        let listener = UnixListener::bind(bus.socket()).unwrap();
        let systemd = Arc::clone(&bus.systemd);
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(serve(stream, Arc::clone(&systemd)));
            }
        });
        bus
    }

    fn socket(&self) -> PathBuf {
        self.directory.path().join("bus")
    }

    fn manager(&self) -> ServiceManager {
        ServiceManager::at(&self.socket())
    }

    fn calls(&self) -> Vec<String> {
        std::mem::take(&mut self.systemd.lock().unwrap().calls)
    }
}

async fn serve(stream: tokio::net::UnixStream, systemd: Arc<Mutex<Systemd>>) {
    let stream = stream.into_std().unwrap();
    let builder = connection::Builder::unix_stream(stream);
    let builder = builder.server(zbus::Guid::generate()).p2p();
    let mut calls = builder.build_message_stream().await.unwrap();
    let bus = Connection::from(&calls);
    while let Some(Ok(call)) = calls.next().await {
        if call.message_type() != Type::MethodCall {
            continue;
        }
        let header = call.header();
        let is_hello = header.member().is_some_and(|it| it == "Hello");
        let answer = {
            let mut systemd = systemd.lock().unwrap();
            if !is_hello && systemd.cuts > 0 {
                systemd.cuts -= 1;
                None
            } else {
                Some(systemd.answer(&call))
            }
        };
        let Some(answer) = answer else {
            bus.close().await.unwrap();
            return;
        };
        if !is_hello && systemd.lock().unwrap().is_silent {
            continue;
        }
        match answer {
            Ok(Answer::Nothing) => bus.reply(&header, &()).await.unwrap(),
            Ok(Answer::Text(text)) => bus.reply(&header, &text).await.unwrap(),
            Ok(Answer::Path(path)) => {
                let path = ObjectPath::try_from(path).unwrap();
                bus.reply(&header, &path).await.unwrap();
            }
            Ok(Answer::State(state)) => {
                bus.reply(&header, &Variant::from(state)).await.unwrap();
            }
            Err(name) => bus.reply_error(&header, name, &"words").await.unwrap(),
        }
    }
}

const LIMITS: [Property; 2] = [
    ("MemoryMax", Value::Number(1 << 20)),
    ("CPUAccounting", Value::Flag(true)),
];

#[tokio::test]
async fn a_slice_is_made_and_one_that_is_there_gets_the_properties() {
    let bus = Bus::with(Systemd::default());
    let manager = bus.manager();
    manager.ensure_slice(SLICE, &LIMITS).await.unwrap();
    let first = [
        "StartTransientUnit (ssa(sv)a(sa(sv)))",
        "GetUnit s",
        "Get (ss)",
    ];
    assert_eq!(bus.calls(), first);
    manager.ensure_slice(SLICE, &LIMITS).await.unwrap();
    let again = [
        first[0],
        "SetUnitProperties (sba(sv))",
        "StartUnit (ss)",
        first[1],
        first[2],
    ];
    assert_eq!(bus.calls(), again);
    manager.change(SLICE, &LIMITS).await.unwrap();
    assert_eq!(bus.calls(), [again[1]]);
}

#[tokio::test]
async fn a_stop_is_over_when_the_slice_is_gone_or_inactive() {
    let units = [(SLICE.to_owned(), "active")].into();
    let bus = Bus::with(Systemd {
        units,
        ..Systemd::default()
    });
    let manager = bus.manager();
    assert_eq!(manager.stop(SLICE).await.unwrap(), Stop::UnderWay);
    assert_eq!(manager.stop(SLICE).await.unwrap(), Stop::Done);
    bus.systemd.lock().unwrap().units.clear();
    assert_eq!(manager.stop(SLICE).await.unwrap(), Stop::Done);
}

#[tokio::test]
async fn a_bus_that_was_restarted_is_connected_to_again() {
    let bus = Bus::with(Systemd {
        cuts: 1,
        ..Systemd::default()
    });
    let manager = bus.manager();
    manager.ensure_slice(SLICE, &LIMITS).await.unwrap();
    bus.systemd.lock().unwrap().cuts = 2;
    let error = manager.stop(SLICE).await.unwrap_err();
    assert!(
        matches!(
            error,
            Error::Refused {
                method: "StopUnit",
                ..
            }
        ),
        "{error:?}"
    );
    manager.stop(SLICE).await.unwrap();
}

#[tokio::test]
async fn who_does_not_answer_in_time_is_not_asked_again() {
    let bus = Bus::with(Systemd::default());
    let manager = bus.manager();
    manager.ensure_slice(SLICE, &LIMITS).await.unwrap();
    bus.calls();
    bus.systemd.lock().unwrap().is_silent = true;
    tokio::time::pause();
    let error = manager.stop(SLICE).await.unwrap_err();
    assert!(matches!(error, Error::Refused { .. }), "{error:?}");
    let calls = bus.calls();
    assert_eq!(calls.len(), 1, "{calls:?}");
}

#[tokio::test]
async fn without_a_bus_the_error_names_its_socket() {
    let directory = tempfile::tempdir().unwrap();
    let manager = ServiceManager::at(&directory.path().join("none"));
    let error = manager.stop(SLICE).await.unwrap_err().to_string();
    assert!(error.contains("none"), "{error}");
}
