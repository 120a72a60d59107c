//! containerd for tests: one of our own on a [`TestNode`], with own root, state,
//! socket and pod network and nothing but the test images in it; or a client
//! of one that is not ours.

use std::fs;
use std::future::Future;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use cri::{CriClient, RuntimeChanges as _, RuntimeReads as _};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;

use crate::images;
use crate::node::TestNode;
use crate::wait::wait_for;

/// A start takes a fraction of a second on an idle machine.
const READY_TIMEOUT: Duration = Duration::from_secs(60);

/// A command in a container that takes longer hangs.
const EXEC_TIMEOUT: Duration = Duration::from_secs(20);

/// Where distributions put the network plugins.
const PLUGIN_DIRECTORIES: [&str; 3] = ["/usr/lib/cni", "/opt/cni/bin", "/usr/libexec/cni"];

/// A handler beside the default one, which does the same.
pub const OTHER_HANDLER: &str = "other";

/// What a test can choose.
#[derive(Debug, Clone)]
pub struct ContainerdOptions {
    /// Import the test images at the start.
    pub images: bool,
    /// Log at debug level.
    pub debug_log: bool,
    /// Which of those on its node, when there are several: the others have
    /// directories and pod networks of their own.
    pub instance: u8,
}

impl Default for ContainerdOptions {
    fn default() -> Self {
        Self {
            images: true,
            debug_log: false,
            instance: 0,
        }
    }
}

/// A containerd that answers, ours or not: its socket and a client of it.
#[derive(Debug)]
pub struct Containerd {
    socket: PathBuf,
    client: CriClient,
    runtime: tokio::runtime::Runtime,
    node: Arc<TestNode>,
}

/// A containerd of our own; dropping it ends it, and dropping the last handle
/// of its node ends its containers.
#[derive(Debug)]
pub struct PrivateContainerd {
    /// Absent while it was killed or stopped.
    process: Option<Child>,
    containerd: Containerd,
    directory: PathBuf,
}

impl Containerd {
    /// The containerd behind `socket`, as seen by processes of `node`.
    ///
    /// # Errors
    /// When the path cannot be a socket's.
    pub fn attach(node: &Arc<TestNode>, socket: &Path) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let client = {
            let _inside = runtime.enter();
            CriClient::new(&format!("unix://{}", socket.display()))?
        };
        Ok(Self {
            socket: socket.to_owned(),
            client,
            runtime,
            node: Arc::clone(node),
        })
    }

    /// The node that it runs on.
    #[must_use]
    pub fn node(&self) -> &Arc<TestNode> {
        &self.node
    }

    /// Its socket as `--container-runtime-endpoint` takes it.
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("unix://{}", self.socket.display())
    }

    /// Its socket.
    #[must_use]
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// A client for assertions; use it inside [`Containerd::block_on`].
    #[must_use]
    pub fn client(&self) -> &CriClient {
        &self.client
    }

    /// Runs calls of the client to their end.
    pub fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }

    /// Loads an image archive.
    ///
    /// # Errors
    /// When containerd refuses it.
    pub fn import(&self, archive: &Path) -> Result<()> {
        let archive = archive.to_string_lossy();
        self.ctr(&["images", "import", &archive]).map(drop)
    }

    /// Runs containerd's own client in the namespace of Kubernetes pods.
    ///
    /// # Errors
    /// When it fails.
    pub fn ctr(&self, arguments: &[&str]) -> Result<String> {
        let socket = self.socket.to_string_lossy();
        let mut all = vec!["--address", &*socket, "--namespace", "k8s.io"];
        all.extend(arguments);
        self.node.output("ctr", &all)
    }

    /// Runs a command in a container to its end and returns its standard
    /// output.
    ///
    /// # Errors
    /// When it cannot be run or fails; the error holds what it said.
    pub fn exec(&self, container_id: &str, command: &[&str]) -> Result<String> {
        let words = command.iter().map(|&word| word.to_owned()).collect();
        let call = self.client.exec_sync(container_id, words, EXEC_TIMEOUT);
        let output = self.block_on(call)?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        if output.exit_code != 0 {
            bail!(
                "{} ended with {}: {text}{}",
                command.join(" "),
                output.exit_code,
                String::from_utf8_lossy(&output.stderr)
            );
        }
        Ok(text)
    }

    /// Whether it can run pods: it answers and has its network.
    ///
    /// # Errors
    /// What is missing, for people.
    pub fn check_ready(&self) -> std::result::Result<(), String> {
        let status = self
            .block_on(self.client.status(false))
            .map_err(|error| error.to_string())?;
        let conditions = status
            .status
            .map(|status| status.conditions)
            .unwrap_or_default();
        match conditions.iter().find(|condition| !condition.status) {
            Some(condition) => Err(format!("{}: {}", condition.r#type, condition.message)),
            None if conditions.is_empty() => Err("it reports no conditions".to_owned()),
            None => Ok(()),
        }
    }
}

impl std::ops::Deref for PrivateContainerd {
    type Target = Containerd;

    fn deref(&self) -> &Containerd {
        &self.containerd
    }
}

impl PrivateContainerd {
    /// Makes a node and starts containerd on it; returns once it answers.
    ///
    /// # Errors
    /// When something is missing on this machine or containerd does not come
    /// up; the error then holds the end of its log.
    pub fn start(options: &ContainerdOptions) -> Result<Self> {
        Self::start_on(&Arc::new(TestNode::create()?), options)
    }

    /// Starts it on a node that is there, perhaps beside another; returns once
    /// it answers.
    ///
    /// # Errors
    /// As [`PrivateContainerd::start`].
    pub fn start_on(node: &Arc<TestNode>, options: &ContainerdOptions) -> Result<Self> {
        let directory = node.directory_of(options.instance);
        let config_directory = directory.join("network");
        fs::create_dir_all(&config_directory).context("cannot make the network directory")?;
        fs::write(
            config_directory.join("10-bridge.conflist"),
            network_config(node, options.instance),
        )
        .context("cannot write the network configuration")?;
        fs::write(
            directory.join("containerd.toml"),
            config(&directory, options)?,
        )
        .context("cannot write containerd's configuration")?;
        let containerd = Containerd::attach(node, &socket(&directory))?;
        let mut containerd = Self {
            process: None,
            containerd,
            directory,
        };
        containerd.start_again()?;
        if options.images {
            for archive in images::archives()? {
                containerd.import(&archive)?;
            }
        }
        Ok(containerd)
    }

    /// Its log so far.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read_to_string(log_path(&self.directory)).unwrap_or_default()
    }

    /// Its process id, if it runs.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.process.as_ref().map(Child::id)
    }

    /// Kills containerd alone; its containers go on.
    ///
    /// # Errors
    /// When it does not run.
    pub fn kill(&mut self) -> Result<()> {
        let mut process = self.process.take().context("containerd does not run")?;
        process.kill().context("cannot kill containerd")?;
        process.wait().context("cannot wait for containerd")?;
        Ok(())
    }

    /// Stops containerd alone, orderly; its containers go on.
    ///
    /// # Errors
    /// When it does not run or does not end in time.
    pub fn stop(&mut self) -> Result<()> {
        let mut process = self.process.take().context("containerd does not run")?;
        kill(Pid::from_raw(i32::try_from(process.id())?), Signal::SIGTERM)?;
        wait_for("containerd to stop", READY_TIMEOUT, || {
            match process.try_wait() {
                Ok(Some(_)) => Ok(()),
                Ok(None) => Err("it runs".to_owned()),
                Err(error) => Err(error.to_string()),
            }
        })?;
        Ok(())
    }

    /// Starts it again after [`PrivateContainerd::kill`] or
    /// [`PrivateContainerd::stop`]; returns once it answers.
    ///
    /// # Errors
    /// When it runs already or does not come up.
    pub fn start_again(&mut self) -> Result<()> {
        if self.process.is_some() {
            bail!("containerd runs already");
        }
        let directory = &self.directory;
        let log = fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(log_path(directory))
            .context("cannot open containerd's log")?;
        let mut command = self.node.command("containerd");
        command
            .arg("--config")
            .arg(directory.join("containerd.toml"));
        command.stdout(log.try_clone()?).stderr(log);
        let mut process = self
            .node
            .spawn(command)
            .context("cannot start containerd")?;
        let ready = wait_for("containerd to be ready", READY_TIMEOUT, || {
            if let Ok(Some(status)) = process.try_wait() {
                return Err(format!("it ended: {status} (signal {:?})", status.signal()));
            }
            self.check_ready()
        });
        self.process = Some(process);
        ready.map_err(|timeout| {
            anyhow!(
                "{timeout}\nthe end of its log:\n{}",
                last_lines(&self.log(), 20)
            )
        })
    }
}

impl Drop for PrivateContainerd {
    #[expect(
        clippy::print_stderr,
        reason = "a test that fails for it has no other way to say so"
    )]
    fn drop(&mut self) {
        if let Some(Ok(Some(status))) = self.process.as_mut().map(Child::try_wait) {
            eprintln!(
                "containerd ended by itself ({status}); of its log:\n{}",
                why_it_ended(&self.log())
            );
        }
        // Whatever else runs is the node's to end.
        if self.process.is_some() {
            let _ = self.kill();
        }
    }
}

fn socket(directory: &Path) -> PathBuf {
    directory.join("containerd.sock")
}

fn log_path(directory: &Path) -> PathBuf {
    directory.join("containerd.log")
}

fn config(directory: &Path, options: &ContainerdOptions) -> Result<String> {
    let plugins = PLUGIN_DIRECTORIES
        .into_iter()
        .find(|path| Path::new(path).join("bridge").exists())
        .context("the network plugins are not installed (package containernetworking-plugins)")?;
    let quote = |path: &Path| serde_json::Value::from(path.to_string_lossy()).to_string();
    Ok(format!(
        r#"version = 2
root = {root}
state = {state}
[grpc]
  address = {socket}
[debug]
  level = "{level}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause}"
  # Lowering oom_score_adj needs CAP_SYS_RESOURCE, which virtual machines and
  # containers often lack even for root; every sandbox would fail.
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{plugins}"
    conf_dir = {network}
  [plugins."io.containerd.grpc.v1.cri".containerd]
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.{OTHER_HANDLER}]
      runtime_type = "io.containerd.runc.v2"
"#,
        root = quote(&directory.join("root")),
        state = quote(&directory.join("state")),
        socket = quote(&socket(directory)),
        network = quote(&directory.join("network")),
        level = if options.debug_log { "debug" } else { "info" },
        pause = images::PAUSE,
    ))
}

/// A bridge as nodes have it: addresses by host-local, host ports by portmap.
/// Interfaces and address records live in the node's namespaces.
fn network_config(node: &TestNode, instance: u8) -> String {
    let bridge = match instance {
        0 => format!("pods{}", node.index()),
        _ => format!("pods{}-{instance}", node.index()),
    };
    json!({
        "cniVersion": "0.4.0",
        "name": format!("bulkhead-{bridge}"),
        "plugins": [
            {
                "type": "bridge",
                "bridge": bridge,
                "isGateway": true,
                "ipMasq": true,
                "hairpinMode": true,
                "ipam": {
                    "type": "host-local",
                    "ranges": [[{ "subnet": node.pod_network_of(instance) }]],
                    "routes": [{ "dst": "0.0.0.0/0" }],
                    "dataDir": node.directory_of(instance).join("addresses"),
                },
            },
            { "type": "portmap", "capabilities": { "portMappings": true }, "snat": true },
        ],
    })
    .to_string()
}

/// What a program in Go prints first when it ends by a fault of its own, or else the
/// last lines.
fn why_it_ended(log: &str) -> String {
    let is_fault = |line: &str| line.starts_with("panic:") || line.starts_with("fatal error:");
    let from = log.lines().position(is_fault);
    match from {
        Some(from) => log
            .lines()
            .skip(from)
            .take(40)
            .collect::<Vec<_>>()
            .join("\n"),
        None => last_lines(log, 20),
    }
}

pub(crate) fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}
