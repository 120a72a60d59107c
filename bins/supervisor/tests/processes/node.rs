//! A supervisor on directories of its own, with test processes below it.

mod attacker;
pub(crate) mod child;

use std::fs::{self, File, Permissions};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bulkhead_api::v1;
use bulkhead_api::v1::supervisor_client::SupervisorClient;
use ipc::Channel;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;
use tokio_stream::StreamExt;
use topology::Process;

/// First of the numbers that the test's processes run as.
pub(crate) const UID_BASE: u32 = 64_000;

/// A test that waits longer than this has failed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) const KUBELET_HEADER: &str =
    "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";

/// Says past the capture of a test's output what it passes without here.
pub(crate) fn not_tried(what: &str) {
    let mut output = std::io::stdout();
    writeln!(output, "not tried here: {what}").unwrap();
}

/// Directories and processes of a test.
pub(crate) struct Node {
    directory: TempDir,
    runtime: Option<UnixListener>,
    supervisor: Option<Child>,
}

impl Node {
    /// Prepares everything and starts nothing.
    pub(crate) fn prepare() -> Node {
        let _nothing_forks = forks();
        let directory = tempfile::Builder::new()
            .prefix("supervisor-test-")
            .permissions(Permissions::from_mode(0o755))
            .tempdir()
            .unwrap();
        let mut node = Node {
            directory,
            runtime: None,
            supervisor: None,
        };
        fs::create_dir(node.path("bin")).unwrap();
        fs::create_dir(node.path("bin/behaviour")).unwrap();
        fs::set_permissions(node.path("bin"), Permissions::from_mode(0o755)).unwrap();
        let behaviour = node.path("bin/behaviour");
        fs::set_permissions(behaviour, Permissions::from_mode(0o755)).unwrap();
        node.runtime = Some(UnixListener::bind(node.path("runtime.sock")).unwrap());
        let program = node.path("bin/test-program");
        let own = std::env::current_exe().unwrap();
        if fs::hard_link(&own, &program).is_err() {
            fs::copy(&own, &program).unwrap();
        }
        // Most processes see no programs of the node but those in this directory.
        for name in ["sh", "setsid", "sleep"] {
            let directories = ["/bin", "/usr/bin"].map(|it| Path::new(it).join(name));
            let found = directories.into_iter().find(|it| it.exists()).unwrap();
            fs::copy(found, node.path("bin").join(name)).unwrap();
        }
        for process in supervised() {
            node.write_script(process, &program);
        }
        fs::write(node.path("config.yaml"), KUBELET_HEADER).unwrap();
        node
    }

    fn write_script(&self, process: Process, program: &Path) {
        let script = format!(
            "#!{}/sh\nexport PATH={} {}={process} {}={} {}=\"$2\"\nexec {} --exact {} --nocapture --test-threads=1 -q\n",
            self.path("bin").display(),
            self.path("bin").display(),
            child::PROCESS_VARIABLE,
            child::BEHAVIOUR_VARIABLE,
            self.path("bin/behaviour").display(),
            child::CONFIG_VARIABLE,
            program.display(),
            "acts_as_a_supervised_process_when_told_so",
        );
        let path = self.path("bin").join(process.name());
        fs::write(&path, script).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Copies a program, so that another user can reach it.
    pub(crate) fn copy_program(from: &Path, to: &Path) {
        let _nothing_forks = forks();
        fs::copy(from, to).unwrap();
    }

    /// Tells a process how to behave from its next start on.
    pub(crate) fn behave(&self, process: Process, behaviour: &str) {
        let path = self.path("bin/behaviour").join(process.name());
        fs::write(&path, behaviour).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
    }

    /// Leaves a socket file behind that nobody serves.
    pub(crate) fn stop_runtime(&mut self) {
        self.runtime = None;
    }

    /// The command line, to be changed before it is started.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_supervisor"));
        let endpoint = format!("unix://{}", self.path("runtime.sock").display());
        command
            .args(["--container-runtime-endpoint", &endpoint])
            .args(["--hostname-override", "node"])
            .args(["--uid-base", &UID_BASE.to_string()])
            .arg("--config")
            .arg(self.path("config.yaml"))
            .stdin(Stdio::null());
        for (flag, name) in [
            ("--run-dir", "run"),
            ("--state-dir", "state"),
            ("--root-dir", "root"),
            ("--log-dir", "log"),
            ("--bin-dir", "bin"),
        ] {
            command.arg(flag).arg(self.path(name));
        }
        command
    }

    /// Starts the supervisor and waits until it answers.
    pub(crate) async fn start(&mut self) {
        self.start_with(|_command| {}).await;
    }

    /// The same with a command line or environment that `change` has changed.
    pub(crate) async fn start_with(&mut self, change: impl FnOnce(&mut Command)) {
        let errors = File::create(self.path("supervisor.err")).unwrap();
        let mut command = self.command();
        change(&mut command);
        let supervisor = spawn(command.stderr(errors));
        self.supervisor = Some(supervisor);
        self.wait_for(|_status| true).await;
    }

    /// A started one whose processes are all ready.
    pub(crate) async fn ready() -> Node {
        let mut node = Node::prepare();
        node.start().await;
        node.wait_for(all_ready).await;
        node
    }

    /// Runs a command to its end and returns its exit code and what it said.
    pub(crate) fn refusal(mut command: Command) -> (i32, String) {
        let child = spawn(command.stdout(Stdio::null()).stderr(Stdio::piped()));
        let output = child.wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code().unwrap_or(-1), text)
    }

    pub(crate) fn client(&self) -> SupervisorClient<Channel> {
        let network = ipc::Network::unix(self.path("run"));
        SupervisorClient::new(network.channel(Process::Supervisor))
    }

    /// Waits until the table of processes is as wished, over restarts of the
    /// supervisor too.
    pub(crate) async fn wait_for(
        &self,
        wished: impl Fn(&v1::SupervisorStatus) -> bool,
    ) -> v1::SupervisorStatus {
        let found = tokio::time::timeout(PATIENCE, async {
            loop {
                let request = v1::GetSupervisorStatusRequest {};
                if let Ok(stream) = self.client().watch_status(request).await {
                    let mut stream = stream.into_inner();
                    while let Some(Ok(status)) = stream.next().await {
                        if wished(&status) {
                            return status;
                        }
                    }
                }
                // The socket does not exist yet.
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        });
        match found.await {
            Ok(status) => status,
            Err(_elapsed) => panic!("it never came to that:\n{}", self.errors()),
        }
    }

    /// Waits until the supervisor has written `text` to its standard error.
    pub(crate) async fn wait_for_log(&self, text: &str) {
        self.until(|| self.errors().contains(text)).await;
    }

    /// Waits until something that cannot be watched is so.
    pub(crate) async fn until(&self, is_so: impl Fn() -> bool) {
        let found = tokio::time::timeout(PATIENCE, async {
            while !is_so() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        });
        if found.await.is_err() {
            panic!("it never became so:\n{}", self.errors());
        }
    }

    /// What the supervisor wrote.
    pub(crate) fn errors(&self) -> String {
        let bytes = fs::read(self.path("supervisor.err")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The number behind `text` in what a process wrote last, once there is one.
    pub(crate) async fn last_number_logged(&self, process: Process, text: &str) -> u32 {
        let own = format!("{process}: ");
        let found = || {
            let log = self.errors();
            let mut lines = log.lines().rev().filter(|line| line.starts_with(&own));
            let line = lines.find_map(|line| line.split(text).nth(1));
            line.and_then(|rest| rest.parse().ok())
        };
        self.until(|| found().is_some()).await;
        found().unwrap()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(self.supervisor_pid(), signal).unwrap();
    }

    pub(crate) fn supervisor_pid(&self) -> Pid {
        let supervisor = self.supervisor.as_ref().expect("it was started");
        Pid::from_raw(i32::try_from(supervisor.id()).unwrap())
    }

    /// Waits for the supervisor's end.
    pub(crate) async fn ended(&mut self) -> ExitStatus {
        let mut supervisor = self.supervisor.take().expect("it was started");
        tokio::task::spawn_blocking(move || supervisor.wait())
            .await
            .unwrap()
            .unwrap()
    }

    pub(crate) async fn crashes(&self, process: Process) -> Vec<v1::Crash> {
        let request = v1::ListCrashesRequest {
            name: process.name().to_owned(),
        };
        let answer = self.client().list_crashes(request).await.unwrap();
        answer.into_inner().crashes
    }
}

/// Held while programs are written and while a child is forked: a child that
/// inherits a descriptor with which a program is written keeps it from running.
fn forks() -> MutexGuard<'static, ()> {
    static FORKS: Mutex<()> = Mutex::new(());
    FORKS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn spawn(command: &mut Command) -> Child {
    let _nothing_is_written = forks();
    command.spawn().unwrap()
}

impl Drop for Node {
    fn drop(&mut self) {
        // Its processes end with it.
        if let Some(mut supervisor) = self.supervisor.take() {
            let cgroups = cgroups_of(supervisor.id());
            drop(supervisor.kill());
            drop(supervisor.wait());
            for cgroup in cgroups {
                remove(cgroup.parent().unwrap());
            }
        }
    }
}

/// The directories of the cgroups of a process that Bulkhead has made.
pub(crate) fn cgroups_of(pid: u32) -> Vec<PathBuf> {
    let memberships = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let mounts = mounts.lines().filter(|line| line.contains(" - cgroup"));
    let mounts: Vec<PathBuf> = mounts
        .map(|line| PathBuf::from(line.split(' ').nth(4).unwrap()))
        .collect();
    let paths = memberships
        .lines()
        .filter_map(|line| line.split(':').nth(2));
    let paths = paths.filter(|path| path.contains("/bulkhead-"));
    paths
        .flat_map(|path| {
            let below = path.trim_start_matches('/').to_owned();
            mounts.iter().map(move |mount| mount.join(&below))
        })
        .filter(|directory| directory.exists())
        .collect()
}

/// Removes the cgroups of a supervisor that was killed, with all that is in them.
fn remove(directory: &Path) {
    for child in fs::read_dir(directory).into_iter().flatten().flatten() {
        if child.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove(&child.path());
        }
    }
    let begun = std::time::Instant::now();
    while directory.exists() && fs::remove_dir(directory).is_err() && begun.elapsed() < PATIENCE {
        let listed = fs::read_to_string(directory.join("cgroup.procs")).unwrap_or_default();
        for pid in listed.lines().filter_map(|line| line.parse().ok()) {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
        std::thread::yield_now();
    }
}

pub(crate) fn supervised() -> impl Iterator<Item = Process> {
    Process::ON_EVERY_NODE
        .into_iter()
        .filter(|process| *process != Process::Supervisor)
}

/// The row of a process.
pub(crate) fn row(status: &v1::SupervisorStatus, process: Process) -> &v1::ProcessStatus {
    let found = status
        .processes
        .iter()
        .find(|row| row.name == process.name());
    found.unwrap_or_else(|| panic!("no row of {process}"))
}

pub(crate) fn all_ready(status: &v1::SupervisorStatus) -> bool {
    supervised().all(|process| row(status, process).state() == v1::ProcessState::Ready)
}

/// Whether it is ready with another pid than before.
pub(crate) fn came_back(status: &v1::SupervisorStatus, process: Process, old_pid: u32) -> bool {
    let row = row(status, process);
    row.state() == v1::ProcessState::Ready && row.pid != old_pid
}

/// Whether a process runs; one that waits to be reaped does not.
pub(crate) fn exists(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status"));
    status.is_ok_and(|status| !status.contains("State:\tZ"))
}
