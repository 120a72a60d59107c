//! Whoever asks a node for something through the API server: with kubectl, or, where there is
//! only the double of a control plane, as the API server itself asks the node.

use std::net::SocketAddr;

use anyhow::{Context as _, Result, ensure};
use e2e::terminal::Terminal;
use remote_command::{Size, Streams};
use test_support::{http, wait_for};

use crate::kubectl::{self, Ended, Running};
use crate::node::{Cluster, TIMEOUT};
use crate::node_client::NodeClient;

/// The local port that kubectl forwards.
const LOCAL_PORT: u16 = 18080;

/// A person with a cluster.
pub struct Person<'a> {
    cluster: &'a Cluster,
    /// Without kubectl.
    client: Option<NodeClient>,
}

/// A container of a pod of the namespace `default`.
#[derive(Clone, Copy)]
pub struct Container<'a> {
    /// The pod's name.
    pub pod: &'a str,
    /// Its own.
    pub name: &'a str,
}

impl Container<'_> {
    fn path(self, kind: &str) -> String {
        format!("/{kind}/default/{}/{}", self.pod, self.name)
    }
}

impl<'a> Person<'a> {
    /// A person who has this cluster.
    ///
    /// # Errors
    /// When the certificate of the API server cannot be used.
    pub fn new(cluster: &'a Cluster) -> Result<Person<'a>> {
        let has_kubectl = cluster.plane.kubectl_command(&[]).is_some();
        let node = cluster.ground.containerd.node();
        let client = match has_kubectl {
            true => None,
            false => Some(NodeClient::new(node, cluster.plane.directory())?),
        };
        Ok(Person { cluster, client })
    }

    /// Whether there is a kubectl.
    #[must_use]
    pub fn has_kubectl(&self) -> bool {
        self.client.is_none()
    }

    /// What kubectl comes to.
    ///
    /// # Errors
    /// When there is none.
    pub fn kubectl(&self, words: &[&str], input: &str) -> Result<Ended> {
        let command = self.cluster.plane.kubectl_command(words);
        let command = command.context("no kubectl")?;
        let node = self.cluster.ground.containerd.node();
        kubectl::run(node, command, input.as_bytes())
    }

    fn start(&self, words: &[&str]) -> Result<Running> {
        let command = self.cluster.plane.kubectl_command(words);
        Running::start(
            self.cluster.ground.containerd.node(),
            command.context("no kubectl")?,
        )
    }

    /// What reading a log comes to. An option has kubectl's name without dashes, and the
    /// API's name and value.
    ///
    /// # Errors
    /// When nobody answers.
    pub fn logs(&self, container: Container<'_>, options: &[(&str, &str)]) -> Result<Ended> {
        let Some(client) = &self.client else {
            let flags: Vec<String> = options
                .iter()
                .map(|(flag, _)| format!("--{flag}"))
                .collect();
            let flags = flags.iter().map(String::as_str);
            let words = ["logs", container.pod, "-c", container.name];
            return self.kubectl(&words.into_iter().chain(flags).collect::<Vec<_>>(), "");
        };
        let query: Vec<&str> = options.iter().map(|(_, query)| *query).collect();
        let path = format!("{}?{}", container.path("containerLogs"), query.join("&"));
        let (status, text) = client.get(&path)?;
        let is_well = status == 200;
        let (stdout, stderr) = match is_well {
            true => (text, String::new()),
            false => (String::new(), text),
        };
        Ok(Ended {
            code: Some(i32::from(!is_well)),
            stdout,
            stderr,
        })
    }

    /// Follows a log until this text comes, which `act` brings about.
    ///
    /// # Errors
    /// When it ends before.
    pub fn follow(
        &self,
        container: Container<'_>,
        text: &str,
        act: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        match &self.client {
            None => {
                let mut following =
                    self.start(&["logs", "-f", container.pod, "-c", container.name])?;
                act()?;
                following.read_until(text).map(drop)
            }
            Some(client) => {
                act()?;
                let path = format!("{}?follow=true", container.path("containerLogs"));
                client.get_until(&path, text)
            }
        }
    }

    /// How a command ended that had this input, if it has any.
    ///
    /// # Errors
    /// When the session breaks.
    pub fn exec(
        &self,
        container: Container<'_>,
        command: &[&str],
        input: Option<&str>,
    ) -> Result<Ended> {
        let Some(client) = &self.client else {
            let words = ["exec", container.pod, "-c", container.name];
            let with_input: &[&str] = if input.is_some() { &["-i"] } else { &[] };
            let words = [&words[..], with_input, &["--"], command].concat();
            return self.kubectl(&words, input.unwrap_or_default());
        };
        let streams = Streams {
            stdin: input.is_some(),
            stdout: true,
            stderr: true,
            tty: false,
        };
        let words: Vec<String> = command
            .iter()
            .map(|it| format!("&command={}", encoded(it)))
            .collect();
        let stdin = u8::from(streams.stdin);
        let query = format!("output=1&error=1&input={stdin}{}", words.concat());
        let path = format!("{}?{query}", container.path("exec"));
        let opened = client.session(&path, streams, input.unwrap_or_default(), None);
        // kubectl says of a refusal what the node said, and ends with 1.
        Ok(opened.unwrap_or_else(|error| Ended {
            code: Some(1),
            stdout: String::new(),
            stderr: format!("{error:#}"),
        }))
    }

    /// Runs a shell at a terminal of this size and presses keys; the shell's exit code once it
    /// has shown these words.
    ///
    /// # Errors
    /// When they do not come, or the session breaks.
    pub fn shell(
        &self,
        container: Container<'_>,
        size: Size,
        keys: &str,
        words: &str,
    ) -> Result<Option<i32>> {
        let Some(client) = &self.client else {
            let kubectl = ["exec", "-it", container.pod, "-c", container.name];
            let command = self
                .cluster
                .plane
                .kubectl_command(&[&kubectl[..], &["--", "sh"]].concat());
            let node = self.cluster.ground.containerd.node();
            let mut terminal = Terminal::start(node, command.context("no kubectl")?)?;
            wait_for("kubectl to take the keys", TIMEOUT, || {
                let is_raw = terminal.is_raw().map_err(|error| error.to_string())?;
                is_raw.then_some(()).ok_or_else(String::new)
            })?;
            terminal.resize(size.width, size.height)?;
            terminal.press(keys)?;
            terminal.until_shown(words)?;
            return terminal.wait();
        };
        let query = "input=1&output=1&tty=1&command=sh";
        let path = format!("{}?{query}", container.path("exec"));
        let ended = client.shell(&path, size, keys)?;
        ensure!(ended.stdout.contains(words), "{ended:?}");
        Ok(ended.code)
    }

    /// Attaches to a container, sends it this, and reads what it says until this text comes.
    ///
    /// # Errors
    /// When the session breaks.
    pub fn attach(&self, container: Container<'_>, input: &str, until: &str) -> Result<()> {
        match &self.client {
            None => {
                let mut attached =
                    self.start(&["attach", "-i", container.pod, "-c", container.name])?;
                attached.write(input)?;
                attached.read_until(until).map(drop)
            }
            Some(client) => {
                let streams = Streams {
                    stdin: true,
                    stdout: true,
                    stderr: true,
                    tty: false,
                };
                let path = format!("{}?input=1&output=1&error=1", container.path("attach"));
                client.session(&path, streams, input, Some(until)).map(drop)
            }
        }
    }

    /// Whether a port of a pod answers HTTP.
    ///
    /// # Errors
    /// When it does not.
    pub fn ask_port(&self, pod: &str, port: u16) -> Result<()> {
        if let Some(client) = &self.client {
            let answer = client.ask_port(&format!("/portForward/default/{pod}"), port)?;
            ensure!(answer.starts_with("HTTP/1.1 200"), "{answer}");
            return Ok(());
        }
        let (pod, ports) = (format!("pod/{pod}"), format!("{LOCAL_PORT}:{port}"));
        let mut forwarding = self.start(&["port-forward", &pod, &ports])?;
        forwarding.read_until("Forwarding from")?;
        let local = SocketAddr::from(([127, 0, 0, 1], LOCAL_PORT));
        let node = self.cluster.ground.containerd.node();
        let answer = http::request(node, "GET", local, "/")?;
        ensure!(answer.status == 200, "{answer:?}");
        Ok(())
    }

    /// What the node's own server answers at a path.
    ///
    /// # Errors
    /// When it does not answer well.
    pub fn raw(&self, path: &str) -> Result<String> {
        if let Some(client) = &self.client {
            let (status, text) = client.get(&format!("/{path}"))?;
            ensure!(status == 200, "{path}: {status} {text}");
            return Ok(text);
        }
        let path = format!("/api/v1/nodes/{}/proxy/{path}", self.cluster.node_name());
        let ended = self.kubectl(&["get", "--raw", &path], "")?;
        ensure!(ended.code == Some(0), "{path}: {ended:?}");
        Ok(ended.stdout)
    }

    /// What a command writes that is run without a session.
    ///
    /// # Errors
    /// When it fails, or the node does not answer well.
    pub fn run(&self, container: Container<'_>, command: &str) -> Result<String> {
        let path = format!("{}?cmd={}", container.path("run"), encoded(command));
        if let Some(client) = &self.client {
            let (status, text) = client.post(&path)?;
            ensure!(status == 200, "{path}: {status} {text}");
            return Ok(text);
        }
        let path = format!("/api/v1/nodes/{}/proxy{path}", self.cluster.node_name());
        let ended = self.kubectl(&["create", "--raw", &path, "-f", "/dev/null"], "")?;
        ensure!(ended.code == Some(0), "{path}: {ended:?}");
        Ok(ended.stdout)
    }
}

fn encoded(text: &str) -> String {
    let bytes = text.bytes().map(|byte| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => char::from(byte).to_string(),
        other => format!("%{other:02X}"),
    });
    bytes.collect()
}
