//! Who may call whom, tried out on the real sockets: every user, every socket,
//! every method. What comes through must be the topology exactly.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use anyhow::Result;
use e2e::edge_matrix::{self, STRANGER};
use e2e::ground::every_process;
use test_support::{BulkheadInstance, ContainerdOptions, PrivateContainerd};
use topology::{Identities, Process};

#[test]
fn only_the_edges_of_the_topology_can_be_called() -> Result<()> {
    let containerd = PrivateContainerd::start(&ContainerdOptions::default())?;
    let directory = containerd.node().directory_of(0);
    let options = every_process(&directory)?;
    let instance = BulkheadInstance::start(&containerd, &options)?;
    let identities = Identities::from_base(instance.uid_base())?;
    let callers = edge_matrix::callers(&identities);
    let pids = instance.pids()?;
    let program = Path::new(env!("CARGO_BIN_EXE_call-every-method"));
    let matrix = edge_matrix::call_everything(&instance, program, &identities, &Process::ALL)?;
    assert!(matrix.wrong.is_empty(), "{:#?}", matrix.wrong);
    let (allowed, denied) = (matrix.allowed, matrix.denied);
    let methods: usize = bulkhead_api::SERVICES
        .iter()
        .map(|(_, methods)| methods.len())
        .sum();
    assert_eq!(
        allowed + denied,
        methods * callers.len() * Process::ALL.len()
    );
    assert!(
        allowed >= methods,
        "each method has a caller, {allowed} calls came through"
    );
    let connected = of_refused_users(&instance, &identities)?;
    assert!(connected.is_empty(), "let through: {connected:?}");
    // However often it is called, a server tells of a user once a minute. The log of the
    // supervisor has the lines of all.
    let log = instance.log(Process::Supervisor);
    let lines = log.lines().filter(|line| line.contains("refused")).count();
    let callers = |server| identities.callers(server).len();
    let most: usize = Process::ALL
        .map(|server| 2 * callers(server) + 2)
        .iter()
        .sum();
    assert!(denied > 10 * most, "{denied} calls were refused");
    assert!(lines <= most, "{lines} lines:\n{log}");
    // Nobody was harmed by them: a server that ends breaks the connection, too, and is there
    // again soon.
    assert_eq!(instance.pids()?, pids, "all live on");
    Ok(())
}

/// Who is let through to a socket and may call nothing there.
fn of_refused_users(instance: &BulkheadInstance, identities: &Identities) -> Result<Vec<String>> {
    let mut connected = Vec::new();
    for server in Process::ALL {
        let path = instance.paths().run.join(server.socket_file_name());
        let mode = instance.node().run(|| std::fs::metadata(&path))??.mode();
        assert_eq!(mode & 0o007, 0, "{server}: {mode:o}");
        let callers = identities.callers(server);
        let users = Process::ALL.map(|process| identities.uid(process));
        for uid in users.into_iter().chain([STRANGER]) {
            if uid == 0 || callers.contains(&uid) {
                continue;
            }
            let (uid, path) = (uid.to_string(), path.to_string_lossy().into_owned());
            // To connect to a socket is to write to it.
            let writes = format!("test -w {path} && echo yes || echo no");
            let arguments = ["--reuid", &uid, "--regid", &uid, "--clear-groups"];
            let arguments = [&arguments[..], &["sh", "-c", &writes]].concat();
            if instance.node().output("setpriv", &arguments)?.trim() != "no" {
                connected.push(format!("uid {uid} to {server}"));
            }
        }
    }
    Ok(connected)
}
