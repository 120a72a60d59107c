//! Where one instance has its files, and the node policy that names some of them.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

/// Where one instance has its files; all below the node's directory.
#[derive(Debug, Clone)]
pub struct InstancePaths {
    /// `--run-dir`: the sockets.
    pub run: PathBuf,
    /// `--state-dir`.
    pub state: PathBuf,
    /// `--root-dir`: the pods' directories.
    pub root: PathBuf,
    /// `--log-dir`: the logs of pods and of the processes.
    pub log: PathBuf,
    /// `--bin-dir`.
    pub bin: PathBuf,
    /// `staticPodPath`.
    pub manifests: PathBuf,
    /// `--config`.
    pub config: PathBuf,
    /// The node policy's file, alone in its directory.
    pub policy: PathBuf,
    /// `pullCredentialsPath`: no file unless a test writes one.
    pub pull_credentials: PathBuf,
    /// `localObjectsPath`.
    pub objects: PathBuf,
    /// For hostPath volumes of tests.
    pub shared: PathBuf,
}

impl InstancePaths {
    /// Makes the directories.
    pub(crate) fn below(directory: &Path) -> Result<Self> {
        let make = |name: &str| -> Result<PathBuf> {
            let path = directory.join(name);
            fs::create_dir_all(&path).with_context(|| path.display().to_string())?;
            Ok(path)
        };
        Ok(Self {
            run: make("run")?,
            state: make("state-dir")?,
            root: make("kubelet")?,
            log: make("log")?,
            bin: make("bin")?,
            manifests: make("manifests")?,
            config: directory.join("kubelet.yaml"),
            policy: make("policy")?.join("policy.toml"),
            pull_credentials: directory.join("pull-credentials.json"),
            objects: make("objects")?,
            shared: make("shared")?,
        })
    }

    /// What pods of tests need beyond `baseline`: the directory that they share with
    /// the node, in it a disk and a file that a pod takes for one, the node's namespaces
    /// and ports, and probes of the node. The API server is trusted as a kubelet does.
    #[must_use]
    pub fn usual_policy(&self) -> String {
        format!(
            "[sources]\napi = \"privileged\"\n[[grants]]\npods = [\"*/*\"]\nhostPaths = [{{ prefix = {shared:?} }}]\n\
             devices = [{disk:?}, {file:?}]\nhostNetwork = true\nhostPID = true\nhostIPC = true\n\
             hostPorts = [\"18000-18999\"]\nprobeHosts = [\"127.0.0.1\", \"localhost\"]\n",
            shared = self.shared,
            disk = self.shared.join("block"),
            file = self.shared.join("file"),
        )
    }

    pub(crate) fn as_flags(&self) -> Vec<String> {
        [
            ("run-dir", &self.run),
            ("state-dir", &self.state),
            ("root-dir", &self.root),
            ("log-dir", &self.log),
            ("bin-dir", &self.bin),
            ("config", &self.config),
        ]
        .map(|(flag, path)| format!("--{flag}={}", path.display()))
        .to_vec()
    }
}
