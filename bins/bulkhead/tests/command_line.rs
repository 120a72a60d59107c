//! The real program against servers on real sockets: what it prints, how it
//! ends, and that a restart of a server in between is not noticed. Runs as root,
//! the only user that the topology lets ask. The servers are in `fakes`.
#![expect(clippy::unwrap_used, reason = "a test: what is missing fails it")]

mod fakes;
mod terminal;

use std::fs::Permissions;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Output;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use bulkhead_api::v1;
use bulkhead_api::v1::api_connection_server::ApiConnectionServer;
use bulkhead_api::v1::container_logs_server::ContainerLogsServer;
use bulkhead_api::v1::statuses_server::StatusesServer;
use bulkhead_api::v1::supervisor_server::SupervisorServer;
use bulkhead_api::v1::sync_loop_server::SyncLoopServer;
use bulkhead_api::v1::usage_server::UsageServer;
use node_config::ApiServer;
use serde_json::{Value, json};
use tokio::process::Command;
use tokio::sync::Notify;
use tonic::service::Routes;
use topology::Process;

use fakes::{
    FakeEcho, FakeGateway, FakeHappenings, FakeHostileLog, FakeLogs, FakeStatuses, FakeSupervisor,
    FakeSyncLoop, FakeUsage, HOSTILE_LINE, LOST, Node, Server, code, manifests, node, stderr,
    stdout,
};
use terminal::Terminal;

#[tokio::test]
async fn exit_codes_tell_what_is_wrong() {
    let nowhere = Node::empty();
    let ready = node(v1::ProcessState::Ready);
    let looping = node(v1::ProcessState::CrashLooping);
    for (node, arguments, expected) in [
        (&ready, &["status"][..], 0),
        (&looping, &["status"], 1),
        (&looping, &["status", "-o", "json"], 1),
        (&ready, &["status", "--nonsense"], 2),
        (&ready, &["nonsense"], 2),
        (&nowhere, &["status"], 3),
        (&nowhere, &["pods"], 3),
        (&ready, &["describe", "web"], 0),
        (&ready, &["describe", "absent"], 5),
        (&ready, &["logs", "web", "-c", "absent"], 5),
        (&nowhere, &["top"], 3),
        (&ready, &["top", "--sort", "beauty"], 2),
        (&ready, &["loop"], 0),
        (&ready, &["loop", "-o", "json"], 0),
        (&nowhere, &["loop"], 3),
        (&ready, &["restart", "pleg"], 0),
        (&ready, &["restart", "absent"], 5),
        (&ready, &["reload"], 0),
        (&ready, &["reload", "pleg"], 2),
        (&looping, &["reload"], 1),
        (&nowhere, &["reload"], 3),
        (&ready, &["events", "absent"], 5),
        (&ready, &["check", "/absent"], 1),
        (&ready, &["logs", "web", "--since", "soon"], 2),
        (&ready, &["completion", "bash"], 0),
        (&ready, &["completion", "no-shell"], 2),
        (&ready, &["--help"], 0),
    ] {
        let output = node.bulkhead(arguments).await;
        assert_eq!(
            code(&output),
            expected,
            "{arguments:?}: {}",
            stderr(&output)
        );
        if expected >= 3 {
            assert!(
                stderr(&output).starts_with("bulkhead: "),
                "{}",
                stderr(&output)
            );
        }
    }
}

#[tokio::test]
async fn only_on_a_node_with_a_kubeconfig_is_the_gateway_asked() {
    let mut node = Node::empty();
    node.configured_for(None);
    let socket = node.socket(Process::ApiGateway);
    socket.set_nonblocking(true).unwrap();
    let output = node.bulkhead(&["node"]).await;
    assert_eq!(code(&output), 5, "{}", stderr(&output));
    assert!(stderr(&output).contains("--kubeconfig"));
    assert!(socket.accept().is_err(), "nobody may have connected");
    drop(socket);
    std::fs::remove_file(node.run_dir().join(Process::ApiGateway.socket_file_name())).unwrap();
    node.configured_for(Some(ApiServer {
        url: "https://10.0.0.1:6443".to_owned(),
        server_name: None,
        authority: String::new(),
        credential: None,
    }));
    let server = ApiConnectionServer::new(FakeGateway);
    node.serve(Process::ApiGateway, Routes::new(server));
    let output = node.bulkhead(&["node", "-o", "json"]).await;
    let json: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(json["metadata"]["name"], "n1");
}

#[tokio::test]
async fn a_reload_tells_its_outcome() {
    let ready = node(v1::ProcessState::Ready);
    let output = ready.bulkhead(&["reload"]).await;
    assert!(stdout(&output).ends_with("restarted: pleg, prober\n"));
    let looping = node(v1::ProcessState::CrashLooping);
    let output = looping.bulkhead(&["reload"]).await;
    assert_eq!(stdout(&output), "");
    for words in ["supervisor refused", "maxPods: -3 is negative"] {
        assert!(stderr(&output).contains(words), "{}", stderr(&output));
    }
}

#[tokio::test]
async fn whoever_is_not_root_is_told_so() {
    let node = node(v1::ProcessState::Ready);
    std::fs::set_permissions(node.run_dir(), Permissions::from_mode(0o755)).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_bulkhead"))
        .args([
            "--run-dir".as_ref(),
            node.run_dir().as_os_str(),
            "status".as_ref(),
        ])
        .uid(700_099)
        .output()
        .await;
    // Where the build directory itself is closed to others, nobody can ask.
    let Ok(output) = output else { return };
    assert_eq!(code(&output), 4, "{}", stderr(&output));
    assert!(
        stderr(&output).contains("run it as root"),
        "{}",
        stderr(&output)
    );
}

#[tokio::test]
async fn pods_are_listed_in_every_format() {
    let node = node(v1::ProcessState::Ready);
    let json: Value =
        serde_json::from_str(&stdout(&node.bulkhead(&["pods", "-o", "json"]).await)).unwrap();
    let names: Vec<_> = json["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|pod| pod["metadata"]["name"].as_str().unwrap())
        .collect();
    assert_eq!(
        names,
        ["new", "web"],
        "one that is only desired is listed too"
    );
    let yaml: Value =
        serde_saphyr::from_str(&stdout(&node.bulkhead(&["pods", "-o", "yaml"]).await)).unwrap();
    assert_eq!(yaml, json);
    let names = stdout(&node.bulkhead(&["pods", "-o", "name"]).await);
    assert_eq!(names, "default/new\ndefault/web\n");
    let table = stdout(&node.bulkhead(&["pods", "web"]).await);
    assert!(
        table
            .lines()
            .nth(1)
            .unwrap()
            .starts_with("default     web    0/1     Running")
    );
    assert!(
        !table.contains('\x1b'),
        "no colours where there is no terminal"
    );
}

#[tokio::test]
async fn a_described_pod_tells_its_decision_and_events() {
    let node = node(v1::ProcessState::Ready);
    let text = stdout(&node.bulkhead(&["describe", "web"]).await);
    for expected in [
        "CREATE because ADD",
        "nothing to do",
        "c: Container started",
    ] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
}

#[tokio::test]
async fn a_list_outlives_a_restart_of_its_server() {
    let mut node = Node::empty();
    let process = Process::StatusSyncer;
    let socket = node.socket(process);
    let cut = Arc::new(Notify::new());
    let first = FakeStatuses {
        lists: AtomicUsize::new(0),
        cut: Arc::clone(&cut),
    };
    let second = FakeStatuses {
        lists: AtomicUsize::new(1),
        ..FakeStatuses::default()
    };
    node.serve(
        Process::SyncLoop,
        Routes::new(SyncLoopServer::new(FakeSyncLoop)),
    );
    let life = Server::start(process, &socket, Routes::new(StatusesServer::new(first)));
    let restart = async {
        cut.notified().await;
        drop(life);
        Server::start(process, &socket, Routes::new(StatusesServer::new(second)))
    };
    let (output, _life) = tokio::join!(node.bulkhead(&["pods", "-o", "name"]), restart);
    assert_eq!(
        stdout(&output),
        "default/new\ndefault/web\n",
        "{}",
        stderr(&output)
    );
}

#[tokio::test]
async fn a_log_goes_on_after_restarts_without_a_line_lost_or_twice() {
    let node = node(v1::ProcessState::Ready);
    let process = Process::PodWorkerPool;
    let socket = node.socket(process);
    let broken = Arc::new(Notify::new());
    let lives = async {
        loop {
            let logs = ContainerLogsServer::new(FakeLogs(Arc::clone(&broken)));
            let life = Server::start(process, &socket, Routes::new(logs));
            broken.notified().await;
            drop(life);
        }
    };
    let output = tokio::select! {
        output = node.bulkhead(&["logs", "-f", "web"]) => output,
        () = lives => unreachable!("it goes on for ever"),
    };
    let expected: String = (1..=5).map(|number| format!("line {number}\n")).collect();
    assert_eq!(stdout(&output), expected, "{}", stderr(&output));
    assert_eq!(code(&output), 0);
}

#[tokio::test]
async fn watched_events_are_shown_once_each_over_a_restart_of_the_server() {
    let node = Node::empty();
    let process = Process::StatusSyncer;
    let socket = node.socket(process);
    let life = |before, now| {
        let server = StatusesServer::new(FakeHappenings { before, now });
        Server::start(process, &socket, Routes::new(server))
    };
    let first = life(&[("web", "Pulled", 1)], &[("web", "Started", 2)]);
    let mut watch = node.watch(&["events", "--watch"]);
    assert!(watch.line().await.starts_with("LAST SEEN"));
    assert!(watch.line().await.contains("Pulled"));
    assert!(watch.line().await.contains("Started"));
    drop(first);
    let _second = life(
        &[
            ("web", "Pulled", 1),
            ("web", "Started", 2),
            ("web", "Killing", 3),
        ],
        &[("web", "Started", 4)],
    );
    let line = watch.line().await;
    assert!(line.contains("Killing"), "shown before: {line}");
    let line = watch.line().await;
    assert!(line.contains("Started"), "it has happened again: {line}");
    assert!(watch.runs());
}

#[tokio::test]
async fn watched_events_go_on_when_their_reader_was_too_slow() {
    let node = Node::empty();
    let process = Process::StatusSyncer;
    let socket = node.socket(process);
    let life = |before, now| {
        let server = StatusesServer::new(FakeHappenings { before, now });
        Server::start(process, &socket, Routes::new(server))
    };
    let first = life(&[("web", "Pulled", 1)], &[("", LOST, 0)]);
    let mut watch = node.watch(&["events", "--watch"]);
    assert!(watch.line().await.starts_with("LAST SEEN"));
    assert!(watch.line().await.contains("Pulled"));
    drop(first);
    let _second = life(&[("web", "Pulled", 1), ("web", "Started", 2)], &[]);
    let line = watch.line().await;
    assert!(line.contains("Started"), "what it had not read: {line}");
    assert!(watch.runs());
}

#[tokio::test]
async fn watched_events_of_one_pod_are_only_those() {
    let mut node = Node::empty();
    let server = StatusesServer::new(FakeHappenings {
        before: &[("new", "Pulled", 1)],
        now: &[("web", "Started", 2), ("new", "Started", 3)],
    });
    node.serve(Process::StatusSyncer, Routes::new(server));
    node.serve(
        Process::SyncLoop,
        Routes::new(SyncLoopServer::new(FakeSyncLoop)),
    );
    let mut watch = node.watch(&["events", "new", "--watch", "-o", "json"]);
    for reason in ["Pulled", "Started"] {
        let event: Value = serde_json::from_str(&watch.line().await).unwrap();
        assert_eq!(event["reason"], reason);
        assert_eq!(event["pod"]["name"], "new");
    }
    assert!(watch.runs());
}

#[tokio::test]
async fn a_watched_status_is_shown_at_each_change_and_after_a_restart_of_the_server() {
    let node = Node::empty();
    let process = Process::Supervisor;
    let socket = node.socket(process);
    let life = |states: &[v1::ProcessState]| {
        let server = SupervisorServer::new(FakeSupervisor(states.to_vec()));
        Server::start(process, &socket, Routes::new(server))
    };
    let first = life(&[v1::ProcessState::Starting, v1::ProcessState::Ready]);
    let mut watch = node.watch(&["status", "--watch"]);
    let mut shown = Vec::new();
    for _ in 0..2 {
        assert!(watch.line().await.starts_with("PROCESS"));
        shown.push(watch.line().await);
    }
    drop(first);
    let _second = life(&[v1::ProcessState::CrashLooping]);
    assert!(watch.line().await.starts_with("PROCESS"));
    shown.push(watch.line().await);
    let states: Vec<_> = shown
        .iter()
        .map(|line| line.split_whitespace().nth(1).unwrap())
        .collect();
    assert_eq!(states, ["starting", "ready", "crash-looping"]);
    assert!(watch.runs(), "a process that is not well does not end it");
}

#[tokio::test]
async fn the_options_of_logs_are_what_the_server_is_asked_for() {
    let mut node = node(v1::ProcessState::Ready);
    let server = ContainerLogsServer::new(FakeEcho);
    node.serve(Process::PodWorkerPool, Routes::new(server));
    let now = || clock::WallClock::system().now().0;
    let ask = async |arguments: &[&str]| -> Value {
        let output = node.bulkhead(&[&["logs", "web"], arguments].concat()).await;
        serde_json::from_str(&stdout(&output)).unwrap_or_else(|_| panic!("{}", stderr(&output)))
    };
    assert_eq!(
        ask(&[]).await,
        json!({"since": 0, "tail": null, "follow": false, "previous": false, "timestamps": false})
    );
    assert_eq!(
        ask(&["-f", "--tail", "7", "--previous", "--timestamps"]).await,
        json!({"since": 0, "tail": 7, "follow": true, "previous": true, "timestamps": true})
    );
    for (since, seconds) in [("15m", 900), ("1h30m", 5400)] {
        let span = seconds * 1_000_000_000;
        let earliest = now() - span;
        let asked = ask(&["--since", since]).await["since"].as_i64().unwrap();
        let latest = now() - span;
        assert!((earliest..=latest).contains(&asked), "{since}: {asked}");
    }
}

#[tokio::test]
async fn a_log_is_shown_harmless_on_a_terminal_and_is_as_it_is_elsewhere() {
    let mut node = node(v1::ProcessState::Ready);
    let logs = ContainerLogsServer::new(FakeHostileLog);
    node.serve(Process::PodWorkerPool, Routes::new(logs));
    let output = node.bulkhead(&["logs", "web"]).await;
    assert_eq!(stdout(&output), HOSTILE_LINE, "{}", stderr(&output));

    let mut terminal = Terminal::start(&node, &["logs", "web"]);
    terminal.until_shown("<U+202E>");
    let shown = "\x1b[32mgreen ^[]52;c;cm0=^G^[[2J^[[6n<U+009B>31m<U+202E>";
    assert!(terminal.text.contains(shown), "{:?}", terminal.text);
}

#[tokio::test]
async fn every_shell_gets_a_completion_script_with_every_command() {
    let nowhere = Node::empty();
    for (shell, mark) in [
        ("bash", "complete -F _bulkhead"),
        ("zsh", "#compdef bulkhead"),
        ("fish", "complete -c bulkhead"),
    ] {
        let output = nowhere.bulkhead(&["completion", shell]).await;
        assert_eq!(code(&output), 0, "{shell}: {}", stderr(&output));
        let script = stdout(&output);
        assert!(script.contains(mark), "{shell}");
        for word in [
            "status", "node", "pods", "describe", "logs", "events", "restart", "reload", "crashes",
            "check", "since", "watch",
        ] {
            assert!(script.contains(word), "{shell}: {word}");
        }
    }
}

#[tokio::test]
async fn usage_is_printed_as_rows() {
    let mut node = node(v1::ProcessState::Ready);
    let server = UsageServer::new(FakeUsage::default());
    node.serve(Process::PodWorkerPool, Routes::new(server));
    let output = node.bulkhead(&["top"]).await;
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let text = stdout(&output);
    let web = text.lines().find(|line| line.starts_with("default/web"));
    let cells: Vec<_> = web.unwrap().split_whitespace().collect();
    // A processor and a half, by the times that the pool tells, however long it took.
    assert_eq!(cells[1..4], ["1500m", "3.0", "MiB"], "{text}");
    assert!(!text.contains('\x1b'), "{text}");
}

#[tokio::test]
async fn before_an_agent_has_run_the_manifests_are_protected_and_what_is_not_known_is_told() {
    let nowhere = Node::empty();
    let directory = manifests();
    let pods = directory.path().join("pods");
    let pods = pods.to_str().unwrap();
    let policy = directory.path().join("policy.toml");
    let policy = policy.to_str().unwrap();
    let words = ["policy", "--policy", policy, "grant", pods];
    let granted = nowhere.bulkhead(&words).await;
    assert_eq!(code(&granted), 0, "{}", stderr(&granted));
    let text = stdout(&granted);
    assert!(text.contains("includesProtected = true"), "{text}");
    for words in [
        &words[..],
        &["check", pods],
        &["check", "--policy", policy, pods],
    ] {
        let told = stderr(&nowhere.bulkhead(words).await);
        assert!(told.contains("no node agent has run"), "{words:?}: {told}");
    }
    let configured = Node::empty();
    std::fs::write(configured.run_dir().join("node.json"), "{").unwrap();
    let told = stderr(&configured.bulkhead(&words).await);
    assert!(told.contains("by the defaults of a node"), "{told}");
}

#[tokio::test]
async fn a_policy_that_cannot_be_used_keeps_no_manifest_from_being_checked() {
    let directory = manifests();
    let (node, pods) = (Node::empty(), directory.path().join("pods"));
    let policy = directory.path().join("policy.toml");
    node.configured_with(&policy);
    for path in [node.run_dir(), directory.path()] {
        std::fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
    }
    let (pods, policy) = (pods.to_str().unwrap(), policy.to_str().unwrap());
    // By the policy that is in force without a file, the pod is refused.
    let output = node.bulkhead(&["check", pods]).await;
    assert_eq!(code(&output), 1, "{}", stderr(&output));

    std::fs::write(policy, "no policy").unwrap();
    let output = node.bulkhead(&["check", pods]).await;
    judged_without(&output, policy);
    let (own, given) = (["check", pods], ["check", "--policy", policy, pods]);
    assert_eq!(code(&node.bulkhead(&given).await), 1);

    std::fs::set_permissions(policy, Permissions::from_mode(0o000)).unwrap();
    let nobody = |words: &[&str]| node.command(words).uid(700_099).output();
    // Where the build directory itself is closed to others, nobody can ask.
    let Ok(output) = nobody(&own).await else {
        let told = "not tried here: checks by nobody: the build directory is closed to them";
        let mut output = std::io::stdout();
        writeln!(output, "{told}").unwrap();
        return;
    };
    judged_without(&output, policy);
    assert!(stderr(&output).contains("Permission denied"));
    let output = nobody(&given).await.unwrap();
    assert_eq!(code(&output), 4, "{}", stderr(&output));
}

/// A manifest was accepted, and that the policy was not looked at was told.
fn judged_without(output: &Output, policy: &str) {
    let told = stderr(output);
    assert_eq!(code(output), 0, "{told}");
    assert!(stdout(output).contains("accepted: default/web-n1"));
    for words in [policy, "it is not looked at"] {
        assert!(told.contains(words), "{told}");
    }
}

#[tokio::test]
async fn a_verdict_is_told_also_where_nobody_reads_what_is_said() {
    let looping = node(v1::ProcessState::CrashLooping);
    let directory = manifests();
    let pods = directory.path().join("pods");
    for name in ["a.yaml", "b.yaml"] {
        std::fs::write(pods.join(name), "kind: Pod\n").unwrap();
    }
    let pods = pods.to_str().unwrap();
    let policy = directory.path().join("policy.toml");
    let policy = policy.to_str().unwrap();
    for (words, expected) in [
        (&["check", pods][..], 1),
        (&["policy", "--policy", policy, "check", pods], 1),
        (&["policy", "--policy", policy, "grant", pods], 1),
        (&["status"], 1),
        (&["status", "-o", "json"], 1),
        (&["pods"], 0),
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let ended = looping.command(words).stdout(writer).status().await;
        assert_eq!(ended.unwrap().code(), Some(expected), "{words:?}");
    }
}
