//! The sandboxes, containers and images of a simulated runtime, and the rules
//! for changing them. No time passes here and nothing is random.

pub(crate) mod commands;
mod images;
pub(crate) mod shown;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use clock::UnixNanos;
use cri::v1::{
    ContainerConfig, ContainerMetadata, ContainerState, LinuxContainerResources, PodSandboxConfig,
    PodSandboxMetadata, PodSandboxState,
};
use cri::{RuntimeError, RuntimeErrorKind};
use tokio::sync::Notify;

use crate::behaviour::Behaviour;
use crate::history::{Entry, Happening, Now};

pub use images::IMAGE_BYTES;

use images::Images;

/// The number of a user that nobody has added.
const DEFAULT_USER: i64 = 1000;

const POD_UID_LABEL: &str = "io.kubernetes.pod.uid";

#[derive(Clone, Debug)]
struct SimulatedSandbox {
    config: Arc<PodSandboxConfig>,
    state: PodSandboxState,
    created_at: UnixNanos,
    ip: String,
    sequence: u64,
}

#[derive(Clone, Debug)]
struct SimulatedContainer {
    sandbox: String,
    config: Arc<ContainerConfig>,
    state: ContainerState,
    created_at: UnixNanos,
    started_at: UnixNanos,
    finished_at: UnixNanos,
    exit_code: i32,
    reason: &'static str,
    message: String,
    /// A StartContainer is under way.
    is_starting: bool,
    /// A task of it is left that nobody knows of.
    has_lost_task: bool,
    /// Its maker lost the sandbox from sight.
    is_half_made: bool,
    /// When lists and statuses begin to show that it exited, by the clock that never jumps.
    shows_from: UnixNanos,
    /// A SIGTERM was sent, or counts as sent.
    is_signalled: bool,
    /// The commands that run in it, by a number of their own.
    commands: BTreeSet<u64>,
    sequence: u64,
}

impl SimulatedContainer {
    /// The UID of its pod, and its name.
    fn names(&self) -> (&str, &str) {
        let uid = self.config.labels.get(POD_UID_LABEL);
        let metadata = self.config.metadata.as_ref();
        (
            uid.map_or("", String::as_str),
            metadata.map_or("", |metadata| &metadata.name),
        )
    }

    /// It has exited, and nothing but an event says so yet.
    fn hides_its_exit(&self, now: UnixNanos) -> bool {
        self.state == ContainerState::ContainerExited && now < self.shows_from
    }

    fn shown_state(&self, now: UnixNanos) -> ContainerState {
        if self.hides_its_exit(now) {
            ContainerState::ContainerRunning
        } else {
            self.state
        }
    }
}

/// All that a simulated runtime holds.
#[derive(Debug, Default)]
pub(crate) struct State {
    sandboxes: BTreeMap<String, SimulatedSandbox>,
    containers: BTreeMap<String, SimulatedContainer>,
    /// Names of what is being made.
    reserved: BTreeSet<String>,
    pub(crate) images: Images,
    next: u64,
    next_command: u64,
    pub(crate) history: Arc<Vec<Entry>>,
    pub(crate) happened: Arc<Notify>,
    pub(crate) violations: Vec<String>,
    pub(crate) needless_pulls: Vec<String>,
}

impl State {
    /// Whether a container has users of its pod's own.
    pub(crate) fn has_own_users(&self, container: &str) -> bool {
        let config = self.containers.get(container).map(|it| &it.config);
        let linux = config
            .and_then(|config| config.linux.clone())
            .unwrap_or_default();
        let security = linux.security_context.unwrap_or_default();
        let options = security.namespace_options.unwrap_or_default();
        let own = options.userns_options;
        own.is_some_and(|own| own.mode() == cri::v1::NamespaceMode::Pod)
    }

    /// Whom a container runs as, found as a runtime finds it when it makes one.
    pub(crate) fn user_of(&self, container: &str) -> Option<i64> {
        let config = &self.containers.get(container)?.config;
        let linux = config.linux.clone().unwrap_or_default();
        let security = linux.security_context.unwrap_or_default();
        if let Some(user) = security.run_as_user {
            return Some(user.value);
        }
        let of_image = config
            .image
            .as_ref()
            .and_then(|spec| self.images.get(&spec.image));
        let of_image = of_image.unwrap_or_default();
        let name = match security.run_as_username.as_str() {
            "" => of_image.username.as_str(),
            name => name,
        };
        Some(match (self.images.number_of_user(name), of_image.uid) {
            (Some(uid), _) => i64::from(uid),
            (None, Some(uid)) => uid.value,
            (None, None) if name.is_empty() => 0,
            (None, None) => DEFAULT_USER,
        })
    }

    /// The groups of its process: its own, and all that it is in.
    pub(crate) fn groups_of(&self, container: &str, uid: i64) -> (i64, Vec<i64>) {
        let config = self.containers.get(container).map(|it| &it.config);
        let linux = config
            .and_then(|config| config.linux.clone())
            .unwrap_or_default();
        let security = linux.security_context.unwrap_or_default();
        let of_image = self.images.groups_of(uid);
        let own = security.run_as_group.map(|group| group.value);
        let own = own.or(of_image.first().copied()).unwrap_or(0);
        let others = [of_image, &security.supplemental_groups].concat();
        (own, others)
    }

    fn next_id(&mut self) -> (String, u64) {
        self.next += 1;
        (format!("{:064x}", self.next), self.next)
    }

    fn record(&mut self, at: UnixNanos, id: &str, container: &str, uid: &str, what: Happening) {
        // No copy is made unless a test still holds the one before.
        Arc::make_mut(&mut self.history).push(Entry {
            at,
            pod_uid: uid.to_owned(),
            container: container.to_owned(),
            id: id.to_owned(),
            happening: what,
        });
        self.happened.notify_waiters();
    }

    /// Nobody else gets the name of a sandbox that is being made.
    pub(crate) fn reserve_sandbox(
        &mut self,
        config: &PodSandboxConfig,
    ) -> Result<(), RuntimeError> {
        let name = sandbox_name(&config.metadata.clone().unwrap_or_default());
        self.reserve("RunPodSandbox", name)
    }

    /// The same of a container.
    pub(crate) fn reserve_container(
        &mut self,
        sandbox: &str,
        config: &ContainerConfig,
    ) -> Result<(), RuntimeError> {
        let name = container_name(&config.metadata.clone().unwrap_or_default());
        self.reserve("CreateContainer", format!("{sandbox}/{name}"))
    }

    fn reserve(&mut self, method: &'static str, name: String) -> Result<(), RuntimeError> {
        if self.reserved.contains(&name) {
            return Err(reserved(method, &name, "one that is being made"));
        }
        self.reserved.insert(name);
        Ok(())
    }

    pub(crate) fn run_sandbox(
        &mut self,
        now: Now,
        config: PodSandboxConfig,
    ) -> Result<String, RuntimeError> {
        let metadata = config.metadata.clone().unwrap_or_default();
        self.reserved.remove(&sandbox_name(&metadata));
        let taken = self
            .sandboxes
            .iter()
            .find(|(_, sandbox)| sandbox.config.metadata.as_ref() == Some(&metadata));
        if let Some((id, _)) = taken {
            return Err(reserved("RunPodSandbox", &sandbox_name(&metadata), id));
        }
        let (id, sequence) = self.next_id();
        let ready_already = self.sandboxes.values().any(|sandbox| {
            sandbox.state == PodSandboxState::SandboxReady
                && sandbox
                    .config
                    .metadata
                    .as_ref()
                    .is_some_and(|other| other.uid == metadata.uid)
        });
        if ready_already {
            self.violations
                .push(format!("a second ready sandbox of pod {}", metadata.uid));
        }
        let ip = format!("10.88.{}.{}", sequence / 250 % 250, sequence % 250 + 2);
        let labels = config.labels.clone();
        let what = Happening::Created {
            attempt: metadata.attempt,
            labels,
        };
        self.record(now.steady, &id, "", &metadata.uid, what);
        let state = PodSandboxState::SandboxReady;
        let sandbox = SimulatedSandbox {
            config: Arc::new(config),
            state,
            created_at: now.wall,
            ip,
            sequence,
        };
        self.sandboxes.insert(id.clone(), sandbox);
        Ok(id)
    }

    /// Marks a sandbox as stopped, and answers with its containers that run.
    pub(crate) fn stop_sandbox(&mut self, id: &str) -> Vec<String> {
        if let Some(sandbox) = self.sandboxes.get_mut(id) {
            sandbox.state = PodSandboxState::SandboxNotready;
        }
        let of_sandbox = self.containers.iter().filter(|(_, container)| {
            container.sandbox == id && container.state == ContainerState::ContainerRunning
        });
        of_sandbox.map(|(container, _)| container.clone()).collect()
    }

    pub(crate) fn remove_sandbox(&mut self, now: Now, id: &str) -> Result<(), RuntimeError> {
        let Some(sandbox) = self.sandboxes.get(id) else {
            return Ok(());
        };
        if sandbox.state == PodSandboxState::SandboxReady {
            let message = format!("sandbox {id} is not fully stopped");
            return Err(RuntimeError::new(
                "RemovePodSandbox",
                RuntimeErrorKind::Other,
                message,
            ));
        }
        let uid = sandbox.config.metadata.clone().unwrap_or_default().uid;
        let containers: Vec<String> = self
            .containers
            .iter()
            .filter(|(_, container)| container.sandbox == id)
            .map(|(container, _)| container.clone())
            .collect();
        if let Some(why) = containers.iter().find_map(|id| self.why_held(id)) {
            return Err(RuntimeError::refused("RemovePodSandbox", why));
        }
        for container in containers {
            self.remove_container(now, &container);
        }
        self.sandboxes.remove(id);
        self.record(now.steady, id, "", &uid, Happening::Removed);
        Ok(())
    }

    pub(crate) fn create_container(
        &mut self,
        now: Now,
        sandbox: &str,
        config: ContainerConfig,
    ) -> Result<String, RuntimeError> {
        let metadata = config.metadata.clone().unwrap_or_default();
        let name = container_name(&metadata);
        self.reserved.remove(&format!("{sandbox}/{name}"));
        let ready = self
            .sandboxes
            .get(sandbox)
            .is_some_and(|sandbox| sandbox.state == PodSandboxState::SandboxReady);
        if !ready {
            let message = format!("sandbox {sandbox} not found or not running");
            return Err(RuntimeError::new(
                "CreateContainer",
                RuntimeErrorKind::NotFound,
                message,
            ));
        }
        let taken = self.containers.iter().find(|(_, container)| {
            container.sandbox == sandbox && container.config.metadata.as_ref() == Some(&metadata)
        });
        if let Some((id, _)) = taken {
            return Err(reserved("CreateContainer", &name, id));
        }
        let image = config.image.clone().unwrap_or_default().image;
        if self.images.get(&image).is_none() {
            let message = format!("image {image} not found");
            return Err(RuntimeError::new(
                "CreateContainer",
                RuntimeErrorKind::NotFound,
                message,
            ));
        }
        let (id, sequence) = self.next_id();
        let uid = config
            .labels
            .get(POD_UID_LABEL)
            .cloned()
            .unwrap_or_default();
        let labels = config.labels.clone();
        let what = Happening::Created {
            attempt: metadata.attempt,
            labels,
        };
        self.record(now.steady, &id, &metadata.name, &uid, what);
        let container = SimulatedContainer {
            sandbox: sandbox.to_owned(),
            config: Arc::new(config),
            state: ContainerState::ContainerCreated,
            created_at: now.wall,
            started_at: UnixNanos(0),
            finished_at: UnixNanos(0),
            exit_code: 0,
            reason: "",
            message: String::new(),
            is_starting: false,
            has_lost_task: false,
            is_half_made: false,
            shows_from: UnixNanos(0),
            is_signalled: false,
            commands: BTreeSet::new(),
            sequence,
        };
        self.containers.insert(id.clone(), container);
        Ok(id)
    }

    /// It can never be started.
    pub(crate) fn make_half(&mut self, id: &str) {
        if let Some(container) = self.containers.get_mut(id) {
            container.is_half_made = true;
        }
    }

    /// Nobody else starts or removes a container that is being started.
    pub(crate) fn begin_start(&mut self, id: &str) -> Result<(), RuntimeError> {
        let Some(container) = self.containers.get_mut(id) else {
            return Err(not_found("StartContainer", id));
        };
        let refused = |why: &str| {
            let message = format!("failed to set starting state for container {id:?}: {why}");
            RuntimeError::refused("StartContainer", message)
        };
        if container.state != ContainerState::ContainerCreated {
            let state = container.state.as_str_name();
            return Err(refused(&format!("container is in {state} state")));
        }
        if std::mem::replace(&mut container.is_starting, true) {
            return Err(refused("container is already in starting state"));
        }
        Ok(())
    }

    /// Why a container cannot be removed, if so.
    pub(crate) fn why_held(&self, id: &str) -> Option<&'static str> {
        let container = self.containers.get(id)?;
        if container.is_starting {
            return Some(
                "failed to set removing state for container: \
                 container is in starting state, can't be removed",
            );
        }
        let is_lost = container.has_lost_task;
        is_lost.then_some("cannot delete running task: failed precondition")
    }

    /// The task of a container that nobody knew of is deleted; whether there was one.
    pub(crate) fn delete_lost_task(&mut self, id: &str) -> bool {
        let found = self.containers.get_mut(id);
        found.is_some_and(|container| std::mem::take(&mut container.has_lost_task))
    }

    /// Ends a start that was begun before there is a process that runs its program.
    pub(crate) fn cut_start_short(&mut self, now: Now, id: &str, loses_task: bool) {
        if let Some(container) = self.containers.get_mut(id) {
            container.has_lost_task = loses_task;
            container.is_starting = false;
            container.state = ContainerState::ContainerExited;
            container.finished_at = now.wall;
            container.exit_code = 128;
            container.reason = "StartError";
            container.message = "failed to create containerd task: context canceled".to_owned();
        }
    }

    /// Ends a start that was begun with a process.
    pub(crate) fn start_container(
        &mut self,
        now: Now,
        id: &str,
    ) -> Result<Behaviour, RuntimeError> {
        let (uid, name) = self.names_of(id);
        let other_runs = self.running_containers_of(&uid, &name) > 0;
        let Some(container) = self.containers.get_mut(id) else {
            return Err(not_found("StartContainer", id));
        };
        container.is_starting = false;
        let sandbox_ready = self
            .sandboxes
            .get(&container.sandbox)
            .is_some_and(|sandbox| sandbox.state == PodSandboxState::SandboxReady);
        let words = command_of(&container.config);
        let behaviour = Behaviour::of_command(&words);
        if !sandbox_ready || !behaviour.starts || container.is_half_made {
            container.state = ContainerState::ContainerExited;
            container.finished_at = now.wall;
            container.exit_code = 128;
            container.reason = "StartError";
            let why = match container.is_half_made {
                true => "namespace path: lstat /proc/0/ns/ipc: no such file or directory".into(),
                false => format!("exec: {words:?}: executable file not found"),
            };
            container.message = format!("failed to create containerd task: {why}");
            let message = container.message.clone();
            return Err(RuntimeError::refused("StartContainer", message));
        }
        container.state = ContainerState::ContainerRunning;
        container.started_at = now.wall;
        if other_runs {
            self.violations
                .push(format!("two running containers {name} of pod {uid}"));
        }
        self.record(now.steady, id, &name, &uid, Happening::Started);
        Ok(behaviour)
    }

    /// Whether a container runs, or a sandbox is ready.
    pub(crate) fn runs(&self, id: &str) -> bool {
        let container = self.containers.get(id).map(|it| it.state);
        let sandbox = self.sandboxes.get(id).map(|it| it.state);
        container == Some(ContainerState::ContainerRunning)
            || sandbox == Some(PodSandboxState::SandboxReady)
    }

    pub(crate) fn behaviour_of(&self, id: &str) -> Option<(Behaviour, bool)> {
        let container = self.containers.get(id)?;
        let running = container.state == ContainerState::ContainerRunning;
        Some((
            Behaviour::of_command(&command_of(&container.config)),
            running,
        ))
    }

    /// Marks a container as one whose SIGTERM was sent; whether it was not before.
    pub(crate) fn mark_signalled(&mut self, id: &str) -> bool {
        let found = self.containers.get_mut(id);
        found.is_some_and(|container| !std::mem::replace(&mut container.is_signalled, true))
    }

    /// A container that has not ended has these from now on.
    pub(crate) fn update_resources(
        &mut self,
        id: &str,
        resources: LinuxContainerResources,
    ) -> Result<(), RuntimeError> {
        const METHOD: &str = "UpdateContainerResources";
        let container = self.containers.get_mut(id);
        let container = container.ok_or_else(|| not_found(METHOD, id))?;
        if container.state == ContainerState::ContainerExited {
            let message = "container is in exited state";
            return Err(RuntimeError::new(METHOD, RuntimeErrorKind::Other, message));
        }
        let config = Arc::make_mut(&mut container.config);
        let linux = config.linux.get_or_insert_default();
        linux.resources = Some(resources);
        Ok(())
    }

    pub(crate) fn terminated(&mut self, now: Now, id: &str) {
        let (uid, name) = self.names_of(id);
        self.record(now.steady, id, &name, &uid, Happening::Terminated);
    }

    /// Lists and statuses will show the exit of a running container only from a
    /// later time on.
    pub(crate) fn hide_exit(&mut self, id: &str, until: UnixNanos) {
        if let Some(container) = self.containers.get_mut(id)
            && container.state == ContainerState::ContainerRunning
        {
            container.shows_from = until;
        }
    }

    /// Ends a running container; whether it ran.
    pub(crate) fn exit(&mut self, now: Now, id: &str, code: i32, killed: bool) -> bool {
        let (uid, name) = self.names_of(id);
        let Some(container) = self.containers.get_mut(id) else {
            return false;
        };
        if container.state != ContainerState::ContainerRunning {
            return false;
        }
        container.state = ContainerState::ContainerExited;
        container.finished_at = now.wall;
        container.exit_code = code;
        container.reason = if code == 0 { "Completed" } else { "Error" };
        self.record(
            now.steady,
            id,
            &name,
            &uid,
            Happening::Exited { code, killed },
        );
        true
    }

    pub(crate) fn remove_container(&mut self, now: Now, id: &str) {
        let (uid, name) = self.names_of(id);
        self.exit(now, id, 137, true);
        if self.containers.remove(id).is_some() {
            self.record(now.steady, id, &name, &uid, Happening::Removed);
        }
    }

    fn names_of(&self, id: &str) -> (String, String) {
        let names = self.containers.get(id).map(SimulatedContainer::names);
        let (uid, name) = names.unwrap_or_default();
        (uid.to_owned(), name.to_owned())
    }

    fn running_containers_of(&self, uid: &str, name: &str) -> usize {
        let containers = self.containers.values();
        let running = containers.filter(|it| it.state == ContainerState::ContainerRunning);
        running.filter(|it| it.names() == (uid, name)).count()
    }
}

fn command_of(config: &ContainerConfig) -> Vec<String> {
    config.command.iter().chain(&config.args).cloned().collect()
}

fn sandbox_name(metadata: &PodSandboxMetadata) -> String {
    format!(
        "{}_{}_{}_{}",
        metadata.name, metadata.namespace, metadata.uid, metadata.attempt
    )
}

fn container_name(metadata: &ContainerMetadata) -> String {
    format!("{}_{}", metadata.name, metadata.attempt)
}

fn reserved(method: &'static str, name: &str, id: &str) -> RuntimeError {
    let message = format!("failed to reserve name {name:?}: name {name:?} is reserved for {id:?}");
    RuntimeError::refused(method, message)
}

pub(crate) fn not_found(method: &'static str, id: &str) -> RuntimeError {
    RuntimeError::new(
        method,
        RuntimeErrorKind::NotFound,
        format!("{id}: not found"),
    )
}
