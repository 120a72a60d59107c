//! The programs of the images do what tests of Bulkhead rely on.
#![expect(clippy::unwrap_used, reason = "a failing unwrap fails the test")]

use std::io::{BufRead as _, BufReader, Lines, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use test_support::wait_until;

/// A running testapp; killed when dropped.
struct App {
    process: Child,
    output: Lines<BufReader<ChildStdout>>,
}

impl App {
    fn start(arguments: &[&str]) -> App {
        let mut process = Command::new(env!("CARGO_BIN_EXE_testapp"))
            .args(["--listen", "127.0.0.1", "--print", "up"])
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(process.stdout.take().unwrap()).lines();
        assert_eq!(output.next().unwrap().unwrap(), "up");
        App { process, output }
    }

    /// The address in the next `... listens on ADDRESS` line.
    fn address(&mut self) -> SocketAddr {
        let line = self.output.next().unwrap().unwrap();
        line.rsplit(' ').next().unwrap().parse().unwrap()
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.process.id().try_into().unwrap()), signal).unwrap();
    }
}

impl Drop for App {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn http(to: SocketAddr, method: &str, target: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(to).unwrap();
    write!(stream, "{method} {target} HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    (
        head.split(' ').nth(1).unwrap().parse().unwrap(),
        body.to_owned(),
    )
}

#[test]
fn health_follows_orders_before_the_file_before_the_clock() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("health");
    let mut app = App::start(&[
        "--http",
        "0",
        "--healthy-after-ms",
        "3600000",
        "--health-file",
        file.to_str().unwrap(),
    ]);
    let to = app.address();
    assert_eq!(http(to, "GET", "/healthz").0, 503);
    std::fs::write(&file, "204\n").unwrap();
    assert_eq!(http(to, "GET", "/healthz").0, 204);
    http(to, "POST", "/healthz?status=500");
    assert_eq!(http(to, "GET", "/healthz").0, 500);
    http(to, "POST", "/healthz?status=0");
    assert_eq!(http(to, "GET", "/healthz").0, 204);
    assert_eq!(http(to, "GET", "/asked").1, "4\n");
}

#[test]
fn an_exit_on_order_has_the_code_that_was_ordered() {
    let mut app = App::start(&["--http", "0"]);
    let to = app.address();
    http(to, "POST", "/exit?code=7");
    assert_eq!(app.process.wait().unwrap().code(), Some(7));
}

#[test]
fn an_ending_by_itself_is_noted_in_the_journal() {
    let directory = tempfile::tempdir().unwrap();
    let journal = directory.path().join("journal");
    let arguments = [
        "--exit-after-ms",
        "1",
        "--exit-code",
        "3",
        "--name",
        "a",
        "--journal",
    ];
    let mut app = App::start(&[&arguments[..], &[journal.to_str().unwrap()]].concat());
    assert_eq!(app.process.wait().unwrap().code(), Some(3));
    let text = std::fs::read_to_string(journal).unwrap();
    let events: Vec<&str> = text
        .lines()
        .map(|line| line.split_once(' ').unwrap().1)
        .collect();
    assert_eq!(events, ["a started", "a exit 3"]);
}

#[test]
fn sigterm_ends_it_with_the_given_code() {
    let mut app = App::start(&["--term-code", "9"]);
    app.signal(Signal::SIGTERM);
    assert_eq!(app.process.wait().unwrap().code(), Some(9));
}

#[test]
fn sigterm_can_be_ignored() {
    let mut app = App::start(&["--on-term", "ignore", "--http", "0"]);
    let to = app.address();
    app.signal(Signal::SIGTERM);
    assert_eq!(http(to, "GET", "/").0, 200);
    app.signal(Signal::SIGKILL);
    assert_eq!(
        app.process.wait().unwrap().signal(),
        Some(Signal::SIGKILL as i32)
    );
}

#[test]
fn tcp_connections_are_greeted() {
    let mut app = App::start(&["--tcp", "0"]);
    let mut text = String::new();
    TcpStream::connect(app.address())
        .unwrap()
        .read_to_string(&mut text)
        .unwrap();
    assert_eq!(text, "hello\n");
}

#[test]
fn pause_ends_at_once_on_sigterm() {
    // Its signal handlers are in place some time after the start: before, the
    // signal itself would end it.
    let mut pause = Command::new(env!("CARGO_BIN_EXE_pause")).spawn().unwrap();
    let stat = format!("/proc/{}/status", pause.id());
    let catches_term = || {
        let text = std::fs::read_to_string(&stat).unwrap();
        let caught = text
            .lines()
            .find_map(|line| line.strip_prefix("SigCgt:"))
            .unwrap();
        u64::from_str_radix(caught.trim(), 16).unwrap() & (1 << (Signal::SIGTERM as i32 - 1)) != 0
    };
    wait_until(
        "pause to handle SIGTERM",
        Duration::from_secs(30),
        catches_term,
    )
    .unwrap();
    kill(
        Pid::from_raw(pause.id().try_into().unwrap()),
        Signal::SIGTERM,
    )
    .unwrap();
    assert_eq!(pause.wait().unwrap().code(), Some(0));
}

mod grpc {
    //! The health protocol, asked the way a probe asks.

    use tonic::client::Grpc;
    use tonic::codegen::http::uri::PathAndQuery;
    use tonic::{Code, Request};
    use tonic_prost::ProstCodec;

    use super::App;

    #[derive(Clone, PartialEq, prost::Message)]
    struct Question {
        #[prost(string, tag = "1")]
        service: String,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    struct Answer {
        #[prost(int32, tag = "1")]
        status: i32,
    }

    #[test]
    fn health_is_told_by_service() {
        let mut app = App::start(&["--grpc", "0", "--unhealthy-after-ms", "0"]);
        let address = app.address();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let endpoint = tonic::transport::Endpoint::from_shared(format!("http://{address}"));
            let mut grpc = Grpc::new(endpoint.unwrap().connect().await.unwrap());
            for (service, expected) in [
                ("", Ok(2)),
                ("liveness", Ok(2)),
                ("unheard-of", Err(Code::NotFound)),
            ] {
                grpc.ready().await.unwrap();
                let question = Question {
                    service: service.to_owned(),
                };
                let path = PathAndQuery::from_static("/grpc.health.v1.Health/Check");
                let codec: ProstCodec<Question, Answer> = ProstCodec::default();
                let answer = grpc.unary(Request::new(question), path, codec).await;
                let answer = answer.map(|answer| answer.into_inner().status);
                assert_eq!(
                    answer.map_err(|status| status.code()),
                    expected,
                    "{service:?}"
                );
            }
        });
    }
}
