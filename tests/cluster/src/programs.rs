//! etcd, kube-apiserver, kube-controller-manager and kube-scheduler on a node, and kubectl.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;
use test_support::node::TestNode;
use test_support::{Authority, wait_for};

const ETCD: &str = "http://127.0.0.1:2379";

/// How long it may take until the API server answers, on a busy machine.
const START: Duration = Duration::from_secs(90);

/// All of them; dropping it ends them.
pub(crate) struct Programs {
    assets: PathBuf,
    directory: PathBuf,
    node: Arc<TestNode>,
    /// More flags of the API server.
    flags: Vec<String>,
    /// The API server by itself: it is restarted.
    api_server: Option<Child>,
    others: Vec<Child>,
}

impl Programs {
    /// Starts all of it, the API server with these flags too. `directory` has its certificate,
    /// and the kubeconfig `admin.kubeconfig`; what the node `node_name` does is written to an
    /// audit log.
    pub(crate) fn start(
        assets: &Path,
        node: &Arc<TestNode>,
        authority: &Authority,
        node_name: &str,
        flags: &[&str],
    ) -> Result<Programs> {
        let directory = authority.directory().to_owned();
        for (name, user) in [
            ("manager", "system:kube-controller-manager"),
            ("scheduler", "system:kube-scheduler"),
        ] {
            authority.issue(name, user, None, &[])?;
            authority.kubeconfig(name)?;
        }
        let user_of_node = format!("system:node:{node_name}");
        let policy = format!(
            "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\n\
             rules:\n\
             - {{level: RequestResponse, users: ['{user_of_node}']}}\n\
             - {{level: Metadata, verbs: [create], resources: [{{resources: [pods/binding]}}]}}\n\
             - {{level: Metadata, verbs: [delete], resources: [{{resources: [pods]}}]}}\n\
             - {{level: None}}\n"
        );
        fs::write(directory.join("audit.yaml"), policy)?;
        let mut programs = Programs {
            assets: assets.to_owned(),
            directory,
            node: Arc::clone(node),
            flags: flags.iter().map(|&flag| flag.to_owned()).collect(),
            api_server: None,
            others: Vec::new(),
        };
        programs.start_programs()?;
        Ok(programs)
    }

    fn start_programs(&mut self) -> Result<()> {
        let data = self.path("etcd");
        let etcd = self.spawn(
            "etcd",
            &[
                ("--data-dir", &data),
                ("--listen-client-urls", ETCD),
                ("--advertise-client-urls", ETCD),
                ("--listen-peer-urls", "http://127.0.0.1:2380"),
            ],
        )?;
        self.others.push(etcd);
        self.start_api_server()?;
        let (manager, scheduler) = (
            self.path("manager.kubeconfig"),
            self.path("scheduler.kubeconfig"),
        );
        let (key, authority) = (self.path("sa.key"), self.path("ca.crt"));
        let manager = self.spawn(
            "kube-controller-manager",
            &[
                ("--kubeconfig", &manager),
                ("--service-account-private-key-file", &key),
                ("--root-ca-file", &authority),
                ("--use-service-account-credentials", "true"),
                ("--leader-elect", "false"),
            ],
        )?;
        self.others.push(manager);
        let scheduler = self.spawn(
            "kube-scheduler",
            &[("--kubeconfig", &scheduler), ("--leader-elect", "false")],
        )?;
        self.others.push(scheduler);
        // Without it no pod can be created.
        wait_for("the default service account", START, || {
            self.kubectl(&["get", "serviceaccount", "default"])
                .map_err(|error| format!("{error:#}"))
        })?;
        Ok(())
    }

    /// Starts the API server, and waits until it is ready.
    pub(crate) fn start_api_server(&mut self) -> Result<()> {
        let path = |name: &str| self.path(name);
        let files = [
            ("--tls-cert-file", path("server.crt")),
            ("--tls-private-key-file", path("server.key")),
            ("--client-ca-file", path("ca.crt")),
            ("--kubelet-client-certificate", path("kubelet-client.crt")),
            ("--kubelet-client-key", path("kubelet-client.key")),
            ("--service-account-key-file", path("sa.pub")),
            ("--service-account-signing-key-file", path("sa.key")),
            ("--audit-policy-file", path("audit.yaml")),
            ("--audit-log-path", path("audit.log")),
        ];
        let mut flags = vec![
            ("--etcd-servers", ETCD),
            ("--bind-address", "127.0.0.1"),
            ("--secure-port", "6443"),
            ("--service-account-issuer", "https://kubernetes.default.svc"),
            ("--authorization-mode", "Node,RBAC"),
            ("--enable-admission-plugins", "NodeRestriction"),
            ("--service-cluster-ip-range", "10.0.0.0/24"),
            ("--allow-privileged", "true"),
            ("--kubelet-preferred-address-types", "InternalIP"),
        ];
        flags.extend(files.iter().map(|(flag, path)| (*flag, path.as_str())));
        flags.extend(self.flags.iter().filter_map(|flag| flag.split_once('=')));
        self.api_server = Some(self.spawn("kube-apiserver", &flags)?);
        wait_for("the API server", START, || {
            self.kubectl(&["get", "--raw", "/readyz"])
                .map_err(|error| format!("{error:#}"))
        })?;
        Ok(())
    }

    /// Kills the API server.
    pub(crate) fn kill_api_server(&mut self) -> Result<()> {
        let mut child = self.api_server.take().context("no API server runs")?;
        child.kill()?;
        child.wait()?;
        Ok(())
    }

    /// What kubectl prints; if it fails, the error holds what it said.
    pub(crate) fn kubectl(&self, arguments: &[&str]) -> Result<String> {
        let kubeconfig = self.path("admin.kubeconfig");
        let mut all = vec!["--kubeconfig", &kubeconfig];
        all.extend(arguments);
        let program = self.program("kubectl");
        self.node.output(&program, &all)
    }

    /// kubectl on the node, to be started there.
    pub(crate) fn kubectl_command(&self, arguments: &[&str]) -> Command {
        let mut command = self.node.command(self.program("kubectl"));
        let kubeconfig = self.path("admin.kubeconfig");
        command.args(["--kubeconfig", &kubeconfig]).args(arguments);
        command
    }

    /// All objects of a kind.
    pub(crate) fn list(&self, kind: &str) -> Result<Vec<Value>> {
        let mut list: Value = serde_json::from_str(&self.kubectl(&["get", kind, "-o", "json"])?)?;
        match list["items"].take() {
            Value::Array(items) => Ok(items),
            other => bail!("no list of {kind}: {other}"),
        }
    }

    /// Creates or changes an object.
    pub(crate) fn apply(&self, object: &Value) -> Result<()> {
        let path = self.path("applied.json");
        fs::write(&path, object.to_string())?;
        self.kubectl(&["apply", "-f", &path]).map(drop)
    }

    fn path(&self, name: &str) -> String {
        self.directory.join(name).to_string_lossy().into_owned()
    }

    /// A program of the assets, or of the path.
    fn program(&self, name: &str) -> String {
        let own = self.assets.join(name);
        match own.exists() {
            true => own.to_string_lossy().into_owned(),
            false => name.to_owned(),
        }
    }

    fn spawn(&self, name: &str, flags: &[(&str, &str)]) -> Result<Child> {
        let mut command = self.node.command(self.program(name));
        command.args(flags.iter().map(|(flag, value)| format!("{flag}={value}")));
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.path(&format!("{name}.log")))?;
        command.stdout(log.try_clone()?).stderr(log);
        command.current_dir(&self.directory);
        let spawned = self.node.spawn(command);
        let mut child = spawned.with_context(|| format!("cannot start {name}"))?;
        if let Some(status) = child.try_wait()? {
            bail!("{name} ended at once: {status}");
        }
        Ok(child)
    }
}

impl Drop for Programs {
    fn drop(&mut self) {
        for child in self.api_server.iter_mut().chain(&mut self.others) {
            drop(child.kill());
            drop(child.wait());
        }
    }
}
