//! A control plane on a node: the real one, or its double.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};
use test_support::node::TestNode;
use test_support::{ApiServer, Authority, wait_for};

use crate::audit::Request;
use crate::condition::condition;
use crate::programs::Programs;

/// Names the directory of the programs.
const ASSETS: &str = "KUBEBUILDER_ASSETS";

/// Where the API server listens.
const HOST: &str = "127.0.0.1";
/// See [`HOST`].
const PORT: u16 = 6443;

/// Time until a Node is ready, and until a drained one has no pods, on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(90);

/// A control plane; dropping it ends its programs.
pub struct ControlPlane {
    directory: PathBuf,
    back_end: BackEnd,
}

enum BackEnd {
    Real(Programs),
    Double(ApiServer),
}

/// How long a pod has for its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grace {
    /// As long as it says itself.
    Own,
    /// So many seconds.
    Seconds(u32),
    /// It is removed at once, as with `--force --grace-period=0`.
    None,
}

impl ControlPlane {
    /// Where the programs of a real one are, if this machine has any.
    #[must_use]
    pub fn assets() -> Option<PathBuf> {
        std::env::var_os(ASSETS).map(PathBuf::from)
    }

    /// Starts it; `node_name` is the name that the node's certificate is for.
    ///
    /// # Errors
    /// When a program cannot be started, or the API server does not answer.
    pub fn start(node: &Arc<TestNode>, node_name: &str) -> Result<ControlPlane> {
        ControlPlane::start_with(node, node_name, &[])
    }

    /// The same; a real API server has these flags too.
    ///
    /// # Errors
    /// When a program cannot be started, or the API server does not answer.
    pub fn start_with(
        node: &Arc<TestNode>,
        node_name: &str,
        flags: &[&str],
    ) -> Result<ControlPlane> {
        let directory = node.directory().join("cluster");
        fs::create_dir(&directory)?;
        let authority = Authority::create(&directory, &format!("{HOST}:{PORT}"))?;
        authority.issue("server", "kube-apiserver", None, &[HOST, "localhost"])?;
        let user_of_node = format!("system:node:{node_name}");
        for (name, user, group) in [
            ("admin", "admin", "system:masters"),
            ("node", &user_of_node, "system:nodes"),
            // As the API server shows itself to nodes.
            ("kubelet-client", "kube-apiserver", "system:masters"),
        ] {
            authority.issue(name, user, Some(group), &[])?;
            authority.kubeconfig(name)?;
        }
        let back_end = match ControlPlane::assets() {
            Some(assets) => BackEnd::Real(Programs::start(
                &assets, node, &authority, node_name, flags,
            )?),
            None => {
                authority.issue_expired("expired", HOST)?;
                BackEnd::Double(ApiServer::start(node, node_name, PORT, &directory)?)
            }
        };
        Ok(ControlPlane {
            directory,
            back_end,
        })
    }

    /// The double, if it is one.
    #[must_use]
    pub fn double(&self) -> Option<&ApiServer> {
        match &self.back_end {
            BackEnd::Real(_) => None,
            BackEnd::Double(double) => Some(double),
        }
    }

    /// See [`ControlPlane::double`].
    pub fn double_mut(&mut self) -> Option<&mut ApiServer> {
        match &mut self.back_end {
            BackEnd::Real(_) => None,
            BackEnd::Double(double) => Some(double),
        }
    }

    /// The kubeconfig of the node.
    #[must_use]
    pub fn node_kubeconfig(&self) -> String {
        self.path("node.kubeconfig").to_string_lossy().into_owned()
    }

    /// Where its certificates are.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Whom the node has to believe who its clients are.
    #[must_use]
    pub fn client_authority(&self) -> PathBuf {
        self.path("ca.crt")
    }

    /// The kubeconfig of an administrator with all that it names in it, of a real one.
    ///
    /// # Errors
    /// When kubectl does not run.
    pub fn admin_kubeconfig(&self) -> Result<String> {
        match &self.back_end {
            BackEnd::Real(programs) => programs.kubectl(&["config", "view", "--raw", "--flatten"]),
            BackEnd::Double(_) => bail!("the double of a control plane has none"),
        }
    }

    /// Starts the API server again.
    ///
    /// # Errors
    /// When it does not come up.
    pub fn start_api_server(&mut self) -> Result<()> {
        match &mut self.back_end {
            BackEnd::Real(programs) => programs.start_api_server(),
            BackEnd::Double(double) => double.start_again(),
        }
    }

    /// Kills the API server.
    ///
    /// # Errors
    /// When it does not run.
    pub fn kill_api_server(&mut self) -> Result<()> {
        match &mut self.back_end {
            BackEnd::Real(programs) => programs.kill_api_server(),
            BackEnd::Double(double) => {
                double.stop();
                Ok(())
            }
        }
    }

    /// Creates or changes an object.
    ///
    /// # Errors
    /// When the API server refuses it.
    pub fn apply(&self, object: &Value) -> Result<()> {
        match &self.back_end {
            BackEnd::Real(programs) => programs.apply(object),
            BackEnd::Double(double) => double.apply(object),
        }
    }

    /// All objects of a kind, of those that have a namespace the ones of `default`.
    ///
    /// # Errors
    /// When the API server does not answer.
    pub fn list(&self, kind: &str) -> Result<Vec<Value>> {
        match &self.back_end {
            BackEnd::Real(programs) => programs.list(kind),
            BackEnd::Double(double) => Ok(double.list(kind)),
        }
    }

    /// The object of a name.
    ///
    /// # Errors
    /// When there is none.
    pub fn get(&self, kind: &str, name: &str) -> Result<Value> {
        let mut objects = self.list(kind)?.into_iter();
        let found = objects.find(|object| object["metadata"]["name"] == name);
        found.with_context(|| format!("there is no {kind} {name}"))
    }

    /// The pods with a label `app`.
    ///
    /// # Errors
    /// When the API server does not answer.
    pub fn pods(&self, app: &str) -> Result<Vec<Value>> {
        let pods = self.list("pod")?.into_iter();
        let own = pods.filter(|pod| pod["metadata"]["labels"]["app"] == app);
        Ok(own.collect())
    }

    /// The events about an object of this name.
    ///
    /// # Errors
    /// When the API server does not answer.
    pub fn events_of(&self, name: &str) -> Result<Vec<Value>> {
        let events = self.list("event")?.into_iter();
        let own = events.filter(|event| event["involvedObject"]["name"] == name);
        Ok(own.collect())
    }

    /// Deletes an object, if it is there, and waits for nothing.
    ///
    /// # Errors
    /// When the API server refuses it.
    pub fn delete(&self, kind: &str, name: &str, grace: Grace) -> Result<()> {
        match &self.back_end {
            BackEnd::Real(programs) => {
                let of_grace = match grace {
                    Grace::Own => Vec::new(),
                    Grace::Seconds(seconds) => vec![format!("--grace-period={seconds}")],
                    Grace::None => vec!["--grace-period=0".to_owned(), "--force".to_owned()],
                };
                let words = ["delete", kind, name, "--ignore-not-found", "--wait=false"];
                let words = words.into_iter().chain(of_grace.iter().map(String::as_str));
                programs.kubectl(&words.collect::<Vec<_>>()).map(drop)
            }
            BackEnd::Double(double) => {
                let seconds = match grace {
                    Grace::Own => None,
                    Grace::Seconds(seconds) => Some(seconds),
                    Grace::None => Some(0),
                };
                match self.get(kind, name) {
                    Ok(_) => double.delete(kind, name, seconds),
                    Err(_) => Ok(()),
                }
            }
        }
    }

    /// What kubectl prints; of a real one.
    ///
    /// # Errors
    /// When it fails, with what it said.
    pub fn kubectl(&self, arguments: &[&str]) -> Result<String> {
        match &self.back_end {
            BackEnd::Real(programs) => programs.kubectl(arguments),
            BackEnd::Double(_) => bail!("the double of a control plane has no kubectl"),
        }
    }

    /// kubectl on the node, to be started there; of a real one.
    #[must_use]
    pub fn kubectl_command(&self, arguments: &[&str]) -> Option<Command> {
        match &self.back_end {
            BackEnd::Real(programs) => Some(programs.kubectl_command(arguments)),
            BackEnd::Double(_) => None,
        }
    }

    /// Merges this into the status of a pod, as a controller may.
    ///
    /// # Errors
    /// When the API server refuses it.
    pub fn patch_status(&self, pod: &str, status: &Value) -> Result<()> {
        let patch = json!({"status": status});
        match &self.back_end {
            BackEnd::Real(programs) => {
                let patch = patch.to_string();
                let words = ["patch", "pod", pod, "--subresource=status", "-p", &patch];
                programs.kubectl(&words).map(drop)
            }
            BackEnd::Double(double) => double.patch("pod", pod, "status", &patch),
        }
    }

    /// Merges this into a Node, as an administrator may.
    ///
    /// # Errors
    /// When the API server refuses it.
    pub fn patch_node(&self, node: &str, patch: &Value) -> Result<()> {
        match &self.back_end {
            BackEnd::Real(programs) => {
                let patch = patch.to_string();
                programs
                    .kubectl(&["patch", "node", node, "-p", &patch])
                    .map(drop)
            }
            BackEnd::Double(double) => double.patch("node", node, "", patch),
        }
    }

    /// Keeps new pods away from a Node, and has those that it has evicted.
    ///
    /// # Errors
    /// When the API server refuses it.
    pub fn drain(&self, node: &str) -> Result<()> {
        match &self.back_end {
            BackEnd::Real(programs) => {
                let timeout = format!("--timeout={}s", TIMEOUT.as_secs());
                programs.kubectl(&["drain", node, &timeout]).map(drop)
            }
            BackEnd::Double(double) => double.drain(node),
        }
    }

    /// Waits until a Node is ready.
    ///
    /// # Errors
    /// When it is not in time.
    pub fn until_node_ready(&self, name: &str) -> Result<()> {
        wait_for("the Node to be ready", TIMEOUT, || {
            let node = self.get("node", name);
            let node = node.map_err(|error| format!("{error:#}"))?;
            match condition(&node, "Ready") {
                "True" => Ok(()),
                _ => Err(node["status"]["conditions"].to_string()),
            }
        })?;
        Ok(())
    }

    /// The requests of the node, and those that bind and delete pods; of a real one.
    ///
    /// # Errors
    /// When the audit log cannot be read.
    pub fn audit_log(&self) -> Result<Vec<Request>> {
        if self.double().is_some() {
            bail!("the double of a control plane keeps no audit log");
        }
        let text = fs::read_to_string(self.path("audit.log"))?;
        // The last line may be half written.
        let lines = text.lines().map(serde_json::from_str);
        Ok(lines.map_while(Result::ok).map(Request).collect())
    }

    fn path(&self, name: &str) -> PathBuf {
        Path::new(&self.directory).join(name)
    }
}
