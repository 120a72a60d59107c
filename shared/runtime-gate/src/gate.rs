//! [`Gate`]: the decorator. Which calls are judged, and where the facts for it come
//! from. What is judged is in `request`; everything else goes through untouched.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use cri::{
    EXEC_SYNC, Runtime, RuntimeChanges, RuntimeError, RuntimeErrorKind, RuntimeSessions, v1,
};
use node_policy::{Demand, Permit, Refusal};

use crate::alarm::Alarms;
use crate::commands::{self, CommandDigest};
use crate::denial::Denial;
use crate::facts::Facts;
use crate::held::{HeldPod, HeldPods, Standing};
use crate::known::{BoundedCache, KnownContainer, KnownSandbox};
use crate::places::Places;
use crate::process_user;
use crate::request::{self, Asked, RunsAs};
use crate::user_ids::{self, UserIds};

/// The last gate in front of a container runtime. It judges each request that makes
/// or changes something, or runs a command, by the request alone and by what the
/// policy permits the one pod that it is for. Who made the request, and of what, it
/// does not know.
pub struct Gate {
    inner: Arc<dyn RuntimeChanges>,
    /// See `sessions`.
    pub(crate) inner_sessions: Arc<dyn RuntimeSessions>,
    held: HeldPods,
    places: Places,
    sandboxes: BoundedCache<KnownSandbox>,
    pub(crate) facts: Facts,
    /// Containers whose user was judged.
    judged_users: BoundedCache<()>,
    alarms: Alarms,
}

impl std::fmt::Debug for Gate {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Gate").finish_non_exhaustive()
    }
}

/// How long the look at a container may take before a command in it is sent. Who waits for the
/// command longer than that and its own time knows that it was sent.
pub const LOOK_BEFORE_COMMAND: Duration = Duration::from_secs(10);

fn look_was_too_slow() -> RuntimeError {
    let message = "no answer before the command";
    RuntimeError::new(
        "ContainerStatus",
        RuntimeErrorKind::DeadlineExceeded,
        message,
    )
}

/// Why a call does not go through: the gate's own word, or the runtime's when it was
/// asked for a fact.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub(crate) enum Stop {
    Denied(#[from] Denial),
    Failed(#[from] RuntimeError),
}

impl Gate {
    /// A gate in front of `runtime` for the pods in `held`.
    #[must_use]
    pub fn new(runtime: Runtime, held: HeldPods, places: Places) -> Gate {
        Gate {
            facts: Facts::new(runtime.reads),
            inner: runtime.changes,
            inner_sessions: runtime.sessions,
            held,
            places,
            sandboxes: BoundedCache::default(),
            judged_users: BoundedCache::default(),
            alarms: Alarms::default(),
        }
    }

    /// The error of a call that does not go through, after the alarm for it.
    fn stopped(&self, method: &'static str, pod_uid: &str, stop: Stop) -> RuntimeError {
        match stop {
            Stop::Failed(error) => error,
            Stop::Denied(denial) => {
                let error = denial.into_error(method);
                self.alarms.refused(method, pod_uid, &error.message);
                error
            }
        }
    }

    /// The pod that a request is for, if new things may be made for it.
    pub(crate) fn held(&self, pod_uid: &str) -> Result<Arc<HeldPod>, Denial> {
        let unknown = || Denial::UnknownPod {
            pod_uid: pod_uid.to_owned(),
        };
        let pod = self.held.get(pod_uid).ok_or_else(unknown)?;
        match &pod.standing {
            Standing::Permitted(_) | Standing::Audited(_) => Ok(pod),
            Standing::Refused(reason) => Err(Denial::PodRefused {
                reason: reason.clone(),
            }),
        }
    }

    /// Checks what a request asks for against the permit of its pod. `images` are the
    /// names of the container's image; a sandbox is made for all containers of its pod,
    /// and may have what one of them may.
    pub(crate) fn check(
        &self,
        pod: &HeldPod,
        asked: &[Asked],
        images: &[String],
    ) -> Result<(), Denial> {
        let (permit, audits) = match &pod.standing {
            Standing::Permitted(permit) => (permit, false),
            Standing::Audited(permit) => (permit, true),
            Standing::Refused(reason) => {
                return Err(Denial::PodRefused {
                    reason: reason.clone(),
                });
            }
        };
        for Asked { field, demand } in asked {
            let Err(refusal) = check_demand(permit, demand, images) else {
                continue;
            };
            let denial = Denial::NotPermitted {
                field: field.clone(),
                refusal: Box::new(refusal),
            };
            if !audits {
                return Err(denial);
            }
            self.alarms.let_through(&pod.identity, &denial.to_string());
        }
        Ok(())
    }

    /// What the runtime says of a sandbox.
    pub(crate) async fn known_sandbox(&self, sandbox_id: &str) -> Result<KnownSandbox, Stop> {
        if let Some(known) = self.sandboxes.get(sandbox_id) {
            return Ok(known);
        }
        let status = self.facts.runtime.pod_sandbox_status(sandbox_id).await?;
        let linux = status.linux.unwrap_or_default();
        let options = linux.namespaces.unwrap_or_default().options;
        let options = options.unwrap_or_default();
        let known = known_sandbox(status.metadata, &options)?;
        self.sandboxes.note(sandbox_id, known.clone());
        Ok(known)
    }

    /// Checks that a sandbox is of a pod, that it has the users that a request says it has,
    /// and that the pod may have the node's namespaces that it has: what is made in it has
    /// these, whatever its own request says. A kubelet may have made it, for a pod of the
    /// same UID that was to see all processes of the node.
    async fn check_sandbox_of(
        &self,
        sandbox_id: &str,
        pod: &HeldPod,
        own_users: Option<UserIds>,
    ) -> Result<(), Stop> {
        let known = self.known_sandbox(sandbox_id).await?;
        let of_pod = (
            pod.identity.uid(),
            pod.identity.namespace(),
            pod.identity.name(),
        );
        if of_pod != (&known.pod.uid, &known.pod.namespace, &known.pod.name) {
            return Err(Denial::not_the_pods("the sandbox", sandbox_id).into());
        }
        if known.own_users != own_users {
            let reason = format!("{sandbox_id}, with other users");
            return Err(Denial::not_the_pods("the sandbox", reason).into());
        }
        Ok(self.check(pod, &known.of_the_node, pod.images())?)
    }

    /// Judges whom the runtime has a container run as that exists and was not started.
    /// `named` is the name of the user, where the number is not known from the request
    /// or the image: then the runtime must tell it. `key` is that of [`process_user::key`].
    async fn check_user(
        &self,
        pod: &HeldPod,
        container_id: &str,
        (named, images, key): (Option<&str>, &[String], Option<&str>),
    ) -> Result<(), Stop> {
        match (self.facts.user_of(container_id, key).await?, named) {
            (Some(user), _) => self.check(pod, &user.asked(), images)?,
            (None, None) => {}
            (None, Some(name)) => {
                let user = name.to_owned();
                return Err(Denial::UserUnknown { user }.into());
            }
        }
        self.judged_users.note(container_id, ());
        Ok(())
    }

    async fn judge_sandbox(
        &self,
        config: &v1::PodSandboxConfig,
        handler: &str,
    ) -> Result<KnownSandbox, Stop> {
        let pod = self.held(request::pod_uid(config)?)?;
        if handler != pod.runtime_handler {
            return Err(Denial::not_the_pods("runtime_handler", handler).into());
        }
        self.check_sandbox(&pod, config)?;
        let options = request::namespace_options(config);
        Ok(known_sandbox(config.metadata.clone(), &options)?)
    }

    /// Checks what a sandbox asks for; the ids of its own users, if it is to have any.
    fn check_sandbox(
        &self,
        pod: &HeldPod,
        config: &v1::PodSandboxConfig,
    ) -> Result<Option<UserIds>, Denial> {
        let (asked, own_users) = request::sandbox(&pod.identity, config, &self.places)?;
        if own_users.is_some() != pod.has_user_namespace {
            return Err(user_ids::not_the_pods(own_users));
        }
        self.check(pod, &asked, pod.images())?;
        Ok(own_users)
    }

    /// Judges the creation of a container, notes the commands on it, and says what is
    /// needed to judge its user and groups later.
    async fn judge_container(
        &self,
        sandbox_id: &str,
        config: &mut v1::ContainerConfig,
        sandbox_config: &v1::PodSandboxConfig,
    ) -> Result<Creation, Stop> {
        let pod = self.held(request::pod_uid(sandbox_config)?)?;
        let identity = &pod.identity;
        let own_users = self.check_sandbox(&pod, sandbox_config)?;
        self.check_sandbox_of(sandbox_id, &pod, own_users).await?;
        if let Some(target) = request::process_namespace_of(config) {
            let known = self.facts.container(target).await?;
            if known.pod_uid != identity.uid() {
                let field = "linux.security_context.namespace_options.target_id";
                return Err(Denial::not_the_pods(field, target).into());
            }
        }
        let about = (&pod.volumes, own_users);
        let (asked, runs_as) = request::container(identity, config, about, &self.places)?;
        let image = config.image.clone().unwrap_or_default();
        // Names of images are grants of the policy's: the runtime tells them, and not
        // the request, which could claim any.
        let (images, of_image) = self.facts.image(&image).await?;
        self.check(&pod, &asked, &images)?;
        let user = match runs_as.unwrap_or(of_image) {
            RunsAs::Name(name) => Some(name),
            RunsAs::Uid(uid) => {
                let asked = request::user("linux.security_context.run_as_user", uid, own_users);
                self.check(&pod, asked.as_slice(), &images)?;
                None
            }
        };
        let name = config.metadata.clone().unwrap_or_default().name;
        let commands = pod.commands.get(&name).cloned().unwrap_or_default();
        let noted = commands::note(&commands);
        config
            .annotations
            .insert(commands::ANNOTATION.to_owned(), noted);
        let known = KnownContainer {
            pod_uid: identity.uid().to_owned(),
            name,
            commands: Some(commands),
        };
        Ok(Creation {
            pod,
            images,
            user,
            user_key: process_user::key(config, own_users.is_some()),
            known,
        })
    }

    async fn judge_start(&self, container_id: &str) -> Result<(), Stop> {
        if self.judged_users.get(container_id).is_some() {
            return Ok(());
        }
        let known = self.facts.container(container_id).await?;
        let pod = self.held(&known.pod_uid)?;
        let status = self.facts.runtime.container_status(container_id).await?;
        let image = v1::ImageSpec {
            image: status.image_ref,
            ..v1::ImageSpec::default()
        };
        let (images, _) = self.facts.image(&image).await?;
        let about = (Some(""), images.as_slice(), None);
        self.check_user(&pod, container_id, about).await
    }

    async fn judge_command(&self, container_id: &str, command: &[String]) -> Result<(), Stop> {
        let looked = tokio::time::timeout(LOOK_BEFORE_COMMAND, self.facts.container(container_id));
        let known = looked.await.unwrap_or_else(|_| Err(look_was_too_slow()))?;
        let digest = CommandDigest::of(command);
        let is_its_own = match (&known.commands, self.held(&known.pod_uid)) {
            // Of a pod that nobody has any more too: what is left of it is stopped with the
            // hooks that it was made with.
            (Some(commands), Ok(_) | Err(Denial::UnknownPod { .. })) => commands.contains(&digest),
            // Created by a kubelet, or by a version that did not note them.
            (None, Ok(pod)) => {
                let of_pod = pod.commands.get(&known.name);
                of_pod.is_some_and(|commands| commands.contains(&digest))
            }
            (_, Err(denial)) => return Err(denial.into()),
        };
        if is_its_own {
            return Ok(());
        }
        let container = known.name;
        Err(Denial::NotItsCommand { container }.into())
    }

    async fn judge_update(
        &self,
        container_id: &str,
        resources: &v1::LinuxContainerResources,
    ) -> Result<(), Stop> {
        let known = self.facts.container(container_id).await?;
        let pod = self.held(&known.pod_uid)?;
        request::resources("linux", resources)?;
        Ok(self.check(&pod, &[], &[])?)
    }

    /// The pod of a container, for alarms; empty when that is not known yet.
    fn pod_of(&self, container_id: &str) -> String {
        let known = self.facts.containers.get(container_id);
        known.map(|known| known.pod_uid).unwrap_or_default()
    }
}

fn known_sandbox(
    pod: Option<v1::PodSandboxMetadata>,
    options: &v1::NamespaceOption,
) -> Result<KnownSandbox, Denial> {
    Ok(KnownSandbox {
        pod: pod.unwrap_or_default(),
        own_users: user_ids::asked(options)?,
        of_the_node: request::namespaces(options)?,
    })
}

/// Whether a permit gives a demand to a container whose image has one of these names.
fn check_demand(permit: &Permit, demand: &Demand, images: &[String]) -> Result<(), Refusal> {
    let of_pod = permit.check(demand, None);
    let is_of_pod_alone = matches!(
        demand,
        Demand::HostNetwork | Demand::HostPid | Demand::HostIpc | Demand::Sysctl(_)
    );
    if of_pod.is_ok() || is_of_pod_alone {
        return of_pod;
    }
    let mut images = images.iter();
    match images.any(|image| permit.check(demand, Some(image)).is_ok()) {
        true => Ok(()),
        false => of_pod,
    }
}

/// A creation that was permitted.
struct Creation {
    pod: Arc<HeldPod>,
    /// Names of the container's image.
    images: Vec<String>,
    /// The name of the user that it is to run as, where it is a name.
    user: Option<String>,
    /// Of [`process_user::key`].
    user_key: Option<String>,
    known: KnownContainer,
}

fn uid_in(config: &v1::PodSandboxConfig) -> &str {
    config.metadata.as_ref().map_or("", |it| it.uid.as_str())
}

#[async_trait]
impl RuntimeChanges for Gate {
    async fn run_pod_sandbox(
        &self,
        config: v1::PodSandboxConfig,
        runtime_handler: &str,
    ) -> Result<String, RuntimeError> {
        let uid = uid_in(&config).to_owned();
        let known = self
            .judge_sandbox(&config, runtime_handler)
            .await
            .map_err(|stop| self.stopped("RunPodSandbox", &uid, stop))?;
        let id = self.inner.run_pod_sandbox(config, runtime_handler).await?;
        self.sandboxes.note(&id, known);
        Ok(id)
    }

    async fn create_container(
        &self,
        sandbox_id: &str,
        mut config: v1::ContainerConfig,
        sandbox_config: v1::PodSandboxConfig,
    ) -> Result<String, RuntimeError> {
        const METHOD: &str = "CreateContainer";
        let uid = uid_in(&sandbox_config).to_owned();
        let creation = self
            .judge_container(sandbox_id, &mut config, &sandbox_config)
            .await
            .map_err(|stop| self.stopped(METHOD, &uid, stop))?;
        let id = self
            .inner
            .create_container(sandbox_id, config, sandbox_config)
            .await?;
        self.facts.containers.note(&id, creation.known);
        let (user, key) = (creation.user.as_deref(), creation.user_key.as_deref());
        let about = (user, creation.images.as_slice(), key);
        if let Err(stop) = self.check_user(&creation.pod, &id, about).await {
            // It never ran. Where it cannot be removed now it is left as one that was
            // never started, and is judged again before it is.
            if let Err(error) = self.inner.remove_container(&id).await {
                tracing::warn!(id, %error, "a container with a refused user stays");
            }
            return Err(self.stopped(METHOD, &uid, stop));
        }
        Ok(id)
    }

    async fn start_container(&self, container_id: &str) -> Result<(), RuntimeError> {
        self.judge_start(container_id)
            .await
            .map_err(|stop| self.stopped("StartContainer", &self.pod_of(container_id), stop))?;
        self.inner.start_container(container_id).await
    }

    async fn update_container_resources(
        &self,
        container_id: &str,
        resources: v1::LinuxContainerResources,
    ) -> Result<(), RuntimeError> {
        const METHOD: &str = "UpdateContainerResources";
        self.judge_update(container_id, &resources)
            .await
            .map_err(|stop| self.stopped(METHOD, &self.pod_of(container_id), stop))?;
        self.inner
            .update_container_resources(container_id, resources)
            .await
    }

    async fn exec_sync(
        &self,
        container_id: &str,
        command: Vec<String>,
        timeout: Duration,
    ) -> Result<v1::ExecSyncResponse, RuntimeError> {
        self.judge_command(container_id, &command)
            .await
            .map_err(|stop| self.stopped(EXEC_SYNC, &self.pod_of(container_id), stop))?;
        self.inner.exec_sync(container_id, command, timeout).await
    }

    // ---- what is not judged: it ends something or takes it away, opens a log anew,
    // fetches an image, or tells the runtime what only the cluster knows

    async fn stop_pod_sandbox(&self, sandbox_id: &str) -> Result<(), RuntimeError> {
        self.inner.stop_pod_sandbox(sandbox_id).await
    }

    async fn remove_pod_sandbox(&self, sandbox_id: &str) -> Result<(), RuntimeError> {
        self.inner.remove_pod_sandbox(sandbox_id).await?;
        self.sandboxes.forget(sandbox_id);
        Ok(())
    }

    async fn stop_container(
        &self,
        container_id: &str,
        grace: Duration,
    ) -> Result<(), RuntimeError> {
        self.inner.stop_container(container_id, grace).await
    }

    async fn remove_container(&self, container_id: &str) -> Result<(), RuntimeError> {
        self.inner.remove_container(container_id).await?;
        self.facts.containers.forget(container_id);
        self.judged_users.forget(container_id);
        Ok(())
    }

    async fn delete_task(&self, container_id: &str) -> Result<bool, RuntimeError> {
        self.inner.delete_task(container_id).await
    }

    async fn reopen_container_log(&self, container_id: &str) -> Result<(), RuntimeError> {
        self.inner.reopen_container_log(container_id).await
    }

    async fn pull_image(
        &self,
        image: v1::ImageSpec,
        auth: Option<v1::AuthConfig>,
        sandbox_config: Option<v1::PodSandboxConfig>,
    ) -> Result<String, RuntimeError> {
        self.inner.pull_image(image, auth, sandbox_config).await
    }

    async fn remove_image(&self, image: v1::ImageSpec) -> Result<(), RuntimeError> {
        self.inner.remove_image(image).await
    }

    async fn update_runtime_config(&self, config: v1::RuntimeConfig) -> Result<(), RuntimeError> {
        self.inner.update_runtime_config(config).await
    }
}

#[cfg(test)]
mod tests;
