//! The real programs on a test node: started, asked, killed and started again
//! as a user would, with everything that they write below the node's
//! directory.

use std::collections::BTreeMap;
use std::fs;
use std::net::IpAddr;
use std::ops::Deref;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Map, Value, json};
use topology::Process;

use crate::binaries;
use crate::cgroup;
use crate::containerd::{Containerd, last_lines};
use crate::instance_paths::InstancePaths;
use crate::node::TestNode;
use crate::observe::Observer;
use crate::wait::wait_for;

/// All parts start in well under a second on an idle machine.
pub const START_TIMEOUT: Duration = Duration::from_secs(30);

/// An orderly stop leaves the containers alone, so it is quick.
const STOP_TIMEOUT: Duration = Duration::from_secs(30);

/// First of a hundred user ids for each node; no system gives out such ids.
const FIRST_UID: u32 = 600_000;

/// More than an instance has processes; a few instances share a node's hundred.
const UIDS_OF_INSTANCE: u32 = 20;

/// What a test can choose.
#[derive(Debug, Clone, Default)]
pub struct BulkheadOptions {
    /// Fields of the KubeletConfiguration, on top of those that a test node
    /// needs.
    pub kubelet_configuration: Map<String, Value>,
    /// Fields of the BulkheadConfiguration, likewise.
    pub bulkhead_configuration: Map<String, Value>,
    /// More flags for the supervisor.
    pub flags: Vec<String>,
    /// More variables of the supervisor's environment.
    pub environment: BTreeMap<String, PathBuf>,
    /// The node policy, as TOML; else [`InstancePaths::usual_policy`].
    pub policy: Option<String>,
    /// Size of a file system of its own for the state directory.
    pub state_disk_bytes: Option<u64>,
    /// The same for the pods' directories.
    pub root_disk_bytes: Option<u64>,
    /// `--uid-base`; else numbers that no other node on this machine has.
    pub uid_base: Option<u32>,
    /// Which of those on its node, when there are several: the others have
    /// directories, users, a name and a cgroup of their own.
    pub instance: u8,
}

/// How a program of the command line ended.
#[derive(Debug, Clone)]
pub struct CommandOutput {
    /// Its ending.
    pub status: ExitStatus,
    /// Its standard output.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
}

/// Bulkhead on a node; dropping it kills its processes, not the containers.
#[derive(Debug)]
pub struct BulkheadInstance {
    /// Absent while it was stopped or killed.
    supervisor: Option<Child>,
    arguments: Vec<String>,
    environment: BTreeMap<String, PathBuf>,
    paths: InstancePaths,
    observer: Observer,
    node_name: String,
    uid_base: u32,
    node: Arc<TestNode>,
}

/// An instance is asked what its observer can be asked.
impl Deref for BulkheadInstance {
    type Target = Observer;

    fn deref(&self) -> &Observer {
        &self.observer
    }
}

impl BulkheadOptions {
    /// Mounts the disks of its own that the instance is to have.
    fn mount_disks(&self, node: &TestNode, paths: &InstancePaths) -> Result<()> {
        if let Some(bytes) = self.state_disk_bytes {
            node.mount_small_disk(&paths.state, bytes)?;
        }
        if let Some(bytes) = self.root_disk_bytes {
            node.mount_small_disk(&paths.root, bytes)?;
        }
        Ok(())
    }
}

impl BulkheadInstance {
    /// Starts all parts against `containerd` and waits until they are ready.
    ///
    /// # Errors
    /// When the programs cannot be built or do not become ready; the error
    /// then holds the end of their logs.
    pub fn start(containerd: &Containerd, options: &BulkheadOptions) -> Result<Self> {
        let mut instance = Self::prepare(containerd, options)?;
        instance.start_again()?;
        Ok(instance)
    }

    /// Lays out directories, programs and configuration without starting.
    ///
    /// # Errors
    /// When the programs cannot be built or the files not be written.
    pub fn prepare(containerd: &Containerd, options: &BulkheadOptions) -> Result<Self> {
        let node = Arc::clone(containerd.node());
        let directory = node.directory_of(options.instance);
        let paths = InstancePaths::below(&directory)?;
        options.mount_disks(&node, &paths)?;
        binaries::link(&binaries::built()?, &paths.bin)?;
        let resolv_conf = directory.join("resolv.conf");
        fs::write(&resolv_conf, "nameserver 127.0.0.1\n").context("resolv.conf")?;
        let (node_name, cgroup_root) = match options.instance {
            0 => (node.host_name(), node.cgroup_root()),
            other => (
                format!("{}-{other}", node.host_name()),
                format!("{}/instance-{other}", node.cgroup_root()),
            ),
        };
        let own_base = uid_base(&node) + u32::from(options.instance) * UIDS_OF_INSTANCE;
        let uid_base = options.uid_base.unwrap_or(own_base);
        let mut config = json!({
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "staticPodPath": paths.manifests,
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": cgroup_root,
            "resolvConf": resolv_conf,
            // Whatever this machine's own disk and memory are like.
            "evictionHard": {},
            "imageGCHighThresholdPercent": 100,
        });
        for (field, value) in &options.kubelet_configuration {
            config[field] = value.clone();
        }
        // JSON is YAML too.
        fs::write(&paths.config, config.to_string()).context("the kubelet's configuration")?;
        let bulkhead_config = directory.join("bulkhead.yaml");
        let mut settings = json!({
            "apiVersion": "bulkhead/v1",
            "kind": "BulkheadConfiguration",
            "policyPath": paths.policy,
            "pullCredentialsPath": paths.pull_credentials,
            "localObjectsPath": paths.objects,
        });
        for (field, value) in &options.bulkhead_configuration {
            settings[field] = value.clone();
        }
        fs::write(&bulkhead_config, settings.to_string()).context("Bulkhead's configuration")?;
        let usual = || paths.usual_policy();
        write_policy(&paths.policy, &options.policy.clone().unwrap_or_else(usual))?;
        let mut arguments = paths.as_flags();
        arguments.push(format!("--bulkhead-config={}", bulkhead_config.display()));
        arguments.extend([
            format!("--uid-base={uid_base}"),
            format!("--container-runtime-endpoint={}", containerd.endpoint()),
            format!("--hostname-override={node_name}"),
        ]);
        if let Some(address) = node.own_address() {
            arguments.push(format!("--node-ip={}", IpAddr::from(address)));
        }
        arguments.extend(options.flags.iter().cloned());
        Ok(Self {
            supervisor: None,
            arguments,
            environment: options.environment.clone(),
            observer: Observer::new(paths.run.clone(), node_name.clone()),
            paths,
            node_name,
            uid_base,
            node,
        })
    }

    /// Changes the node policy, as the owner of the node does.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write_policy(&self, text: &str) -> Result<()> {
        write_policy(&self.paths.policy, text)
    }

    /// Where its files are.
    #[must_use]
    pub fn paths(&self) -> &InstancePaths {
        &self.paths
    }

    /// The node's name as pods see it; static pods end in it.
    #[must_use]
    pub fn node_name(&self) -> &str {
        &self.node_name
    }

    /// First user id of its processes, as given to `--uid-base`.
    #[must_use]
    pub fn uid_base(&self) -> u32 {
        self.uid_base
    }

    /// The node that it runs on.
    #[must_use]
    pub fn node(&self) -> &Arc<TestNode> {
        &self.node
    }

    /// Starts the supervisor without waiting for anything.
    ///
    /// # Errors
    /// When it runs already or the program cannot be started.
    pub fn spawn(&mut self) -> Result<()> {
        self.spawn_to(&[])
    }

    /// The same with further arguments, for a task beside supervising.
    ///
    /// # Errors
    /// When it runs already or cannot be started.
    pub fn spawn_to(&mut self, more: &[&str]) -> Result<()> {
        if self.supervisor.is_some() {
            bail!("the supervisor runs already");
        }
        let log = fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.supervisor_log_path())
            .context("cannot open the supervisor's log")?;
        let mut command = self
            .node
            .service(self.paths.bin.join(Process::Supervisor.name()))?;
        command
            .args(&self.arguments)
            .args(more)
            .envs(&self.environment)
            .stdout(log.try_clone()?)
            .stderr(log);
        self.supervisor = Some(
            self.node
                .spawn(command)
                .context("cannot start the supervisor")?,
        );
        Ok(())
    }

    /// Starts it, again if it was stopped or killed before, and waits until
    /// all parts are ready.
    ///
    /// # Errors
    /// When it runs already or a part does not become ready.
    pub fn start_again(&mut self) -> Result<()> {
        self.spawn()?;
        self.wait_until_ready()
    }

    /// Waits until every part says that it is ready.
    ///
    /// # Errors
    /// When one is not in time, or the supervisor ends; with the end of the
    /// logs.
    pub fn wait_until_ready(&mut self) -> Result<()> {
        let ready = wait_for("all parts to be ready", START_TIMEOUT, || {
            if let Some(status) = self.supervisor.as_mut().and_then(|it| it.try_wait().ok()?) {
                return Err(format!("the supervisor ended: {status}"));
            }
            let status = self
                .process_states()
                .map_err(|error| format!("{error:#}"))?;
            let missing: Vec<String> = status
                .iter()
                .filter(|(_, state)| state.as_str() != "ready")
                .map(|(name, state)| format!("{name} is {state}"))
                .collect();
            if missing.is_empty() {
                Ok(())
            } else {
                Err(missing.join(", "))
            }
        });
        ready.map_err(|timeout| anyhow!("{timeout}\nthe ends of the logs:\n{}", self.log_ends()))
    }

    /// Ends it in an orderly way with SIGTERM; the containers go on.
    ///
    /// # Errors
    /// When it does not run or does not end in time.
    pub fn stop(&mut self) -> Result<ExitStatus> {
        let mut supervisor = self
            .supervisor
            .take()
            .context("the supervisor does not run")?;
        send(supervisor.id(), Signal::SIGTERM)?;
        let status = wait_for("the supervisor to stop", STOP_TIMEOUT, || {
            supervisor
                .try_wait()
                .ok()
                .flatten()
                .ok_or_else(|| self.log_ends())
        })?;
        Ok(status)
    }

    /// Waits for a supervisor that ends by itself, e.g. because it refuses its
    /// configuration.
    ///
    /// # Errors
    /// When it goes on or was not started.
    pub fn wait_for_end(&mut self) -> Result<ExitStatus> {
        let mut supervisor = self
            .supervisor
            .take()
            .context("the supervisor does not run")?;
        Ok(wait_for("the supervisor to end", STOP_TIMEOUT, || {
            supervisor.try_wait().ok().flatten().ok_or("it runs")
        })?)
    }

    /// How the supervisor ended, if it did since it was started; then
    /// [`BulkheadInstance::start_again`] starts another.
    pub fn take_end(&mut self) -> Option<ExitStatus> {
        let status = self.supervisor.as_mut()?.try_wait().ok()??;
        self.supervisor = None;
        Some(status)
    }

    /// The process ids of all parts that live, found without their help.
    ///
    /// # Errors
    /// When the machine's tables cannot be read.
    pub fn pids(&self) -> Result<BTreeMap<Process, u32>> {
        let mut found = BTreeMap::new();
        for pid in cgroup::processes(&self.node.name())? {
            // One that ended meanwhile has no program any more.
            let Ok(program) = fs::read_link(format!("/proc/{pid}/exe")) else {
                continue;
            };
            let is_ours = program.parent() == Some(&*self.paths.bin);
            let name = program
                .file_name()
                .and_then(|name| name.to_str())
                .unwrap_or_default();
            let Some(process) = is_ours.then(|| name.parse().ok()).flatten() else {
                continue;
            };
            // A child that it has not turned into a part yet looks like it.
            let own = self.supervisor.as_ref().map(Child::id);
            if process != Process::Supervisor || own.is_none_or(|own| own == pid) {
                found.insert(process, pid);
            }
        }
        Ok(found)
    }

    /// Whether a supervisor was started and not ended since.
    #[must_use]
    pub fn has_supervisor(&self) -> bool {
        self.supervisor.is_some()
    }

    /// Kills one part with SIGKILL and returns the process id that it had.
    ///
    /// # Errors
    /// When the part does not run.
    pub fn kill(&mut self, process: Process) -> Result<u32> {
        let pid = *self
            .pids()?
            .get(&process)
            .with_context(|| format!("{process} does not run"))?;
        send(pid, Signal::SIGKILL)?;
        if process == Process::Supervisor {
            self.forget_supervisor()?;
        }
        Ok(pid)
    }

    /// Waits until the supervisor has ended and all that it started with it; then
    /// [`BulkheadInstance::start_again`] starts another.
    ///
    /// # Errors
    /// When something goes on.
    pub fn wait_until_gone(&mut self) -> Result<()> {
        wait_for("all processes to be gone", STOP_TIMEOUT, || {
            let left = self.pids().map_err(|error| format!("{error:#}"))?;
            left.is_empty().then_some(()).ok_or(format!("{left:?}"))
        })?;
        if let Some(mut supervisor) = self.supervisor.take() {
            // Who traced it has seen its end, and there is nothing left to wait for.
            let _ = supervisor.wait();
        }
        Ok(())
    }

    /// Kills every part with SIGKILL, the supervisor first so that it starts
    /// none again in between, and waits until all are gone.
    ///
    /// # Errors
    /// When one survives.
    pub fn kill_all(&mut self) -> Result<()> {
        // By its number: one that was started just now is not found by its program.
        if let Some(supervisor) = &self.supervisor {
            send(supervisor.id(), Signal::SIGKILL)?;
        }
        for pid in self.pids()?.into_values() {
            // It may be gone with the supervisor already.
            let _ = send(pid, Signal::SIGKILL);
        }
        self.forget_supervisor()?;
        wait_for("all parts to be gone", STOP_TIMEOUT, || {
            let left = self.pids().map_err(|error| format!("{error:#}"))?;
            // A part that was being started is caught now.
            for pid in left.values() {
                let _ = send(*pid, Signal::SIGKILL);
            }
            if left.is_empty() {
                Ok(())
            } else {
                Err(format!("{left:?}"))
            }
        })?;
        Ok(())
    }

    /// Puts a manifest in place at once, as `mv` does.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write_manifest(&self, file_name: &str, content: &str) -> Result<()> {
        let mut file = tempfile::NamedTempFile::new_in(&self.paths.shared)?;
        std::io::Write::write_all(&mut file, content.as_bytes())?;
        let permissions = std::os::unix::fs::PermissionsExt::from_mode(0o644);
        file.as_file().set_permissions(permissions)?;
        file.persist(self.paths.manifests.join(file_name))
            .with_context(|| format!("cannot put {file_name} in place"))?;
        Ok(())
    }

    /// Puts a manifest of a ConfigMap or Secret in place at once.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write_object(&self, file_name: &str, content: &str) -> Result<()> {
        let hidden = self.paths.objects.join(format!(".{file_name}"));
        fs::write(&hidden, content)?;
        let identities = topology::Identities::from_base(self.uid_base)?;
        let group = Some(identities.gid(Process::ConfigSourcer));
        std::os::unix::fs::chown(&hidden, None, group)?;
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o640);
        fs::set_permissions(&hidden, mode)?;
        fs::rename(&hidden, self.paths.objects.join(file_name))
            .with_context(|| format!("cannot put {file_name} in place"))
    }

    /// Removes a manifest.
    ///
    /// # Errors
    /// When there is none.
    pub fn remove_manifest(&self, file_name: &str) -> Result<()> {
        fs::remove_file(self.paths.manifests.join(file_name))
            .with_context(|| format!("cannot remove {file_name}"))
    }

    /// Runs the command line against this instance, inside the node.
    ///
    /// # Errors
    /// When it cannot be started; its own failure is in the output.
    pub fn command_line(&self, arguments: &[&str]) -> Result<CommandOutput> {
        let mut command = self.node.command(self.paths.bin.join("bulkhead"));
        command
            .arg("--run-dir")
            .arg(&self.paths.run)
            .args(arguments);
        let output = self
            .node
            .run(|| command.output())?
            .context("cannot run bulkhead")?;
        Ok(CommandOutput {
            status: output.status,
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        })
    }

    /// [`BulkheadInstance::command_line`] with `-o json`, decoded.
    ///
    /// # Errors
    /// When it fails or prints no JSON.
    pub fn command_line_json(&self, arguments: &[&str]) -> Result<Value> {
        let mut all = arguments.to_vec();
        all.extend(["-o", "json"]);
        let output = self.command_line(&all)?;
        if !output.status.success() {
            bail!(
                "bulkhead {}: {}: {}",
                all.join(" "),
                output.status,
                output.stderr.trim_end()
            );
        }
        serde_json::from_str(&output.stdout)
            .with_context(|| format!("bulkhead {} printed no JSON", all.join(" ")))
    }

    /// The log of one part so far.
    #[must_use]
    pub fn log(&self, process: Process) -> String {
        let path = self.supervisor_log_path();
        let in_node = self.node.run(|| fs::read(path)).and_then(|result| result);
        let all = String::from_utf8_lossy(&in_node.unwrap_or_default()).into_owned();
        if process == Process::Supervisor {
            return all;
        }
        let own = format!("{process}: ");
        let lines = all.lines().filter_map(|line| line.strip_prefix(&own));
        lines.map(|line| format!("{line}\n")).collect()
    }

    /// The last lines of every part's log, for reports.
    #[must_use]
    pub fn log_ends(&self) -> String {
        let parts = Process::ALL.into_iter();
        parts
            .map(|part| format!("[{part}]\n{}\n", last_lines(&self.log(part), 15)))
            .collect()
    }

    fn supervisor_log_path(&self) -> PathBuf {
        self.paths.log.join("supervisor.out")
    }

    fn forget_supervisor(&mut self) -> Result<()> {
        if let Some(mut supervisor) = self.supervisor.take() {
            let status = supervisor
                .wait()
                .context("cannot wait for the supervisor")?;
            if status.signal() != Some(Signal::SIGKILL as i32) {
                bail!("the supervisor ended before it was killed: {status}");
            }
        }
        Ok(())
    }
}

impl Drop for BulkheadInstance {
    fn drop(&mut self) {
        let supervisor = self.supervisor.take();
        if let Some(mut supervisor) = supervisor {
            let _ = supervisor.kill();
            let _ = supervisor.wait();
        }
        for pid in self.pids().unwrap_or_default().into_values() {
            let _ = send(pid, Signal::SIGKILL);
        }
    }
}

/// Puts a policy in place, whole or not at all.
fn write_policy(path: &Path, text: &str) -> Result<()> {
    let new = path.with_extension("new");
    fs::write(&new, text).context("the node policy")?;
    fs::rename(&new, path).context("the node policy")
}

fn uid_base(node: &TestNode) -> u32 {
    FIRST_UID + u32::from(node.index()) * 100
}

fn send(pid: u32, signal: Signal) -> Result<()> {
    match kill(Pid::from_raw(i32::try_from(pid)?), signal) {
        // It ended by itself meanwhile.
        Ok(()) | Err(nix::errno::Errno::ESRCH) => Ok(()),
        Err(error) => Err(error).with_context(|| format!("cannot send {signal} to {pid}")),
    }
}
