//! What the runtime tells of containers and images, and what of it is kept. What
//! follows from it is in `gate`.

use std::sync::Arc;

use cri::{RuntimeError, RuntimeReads, v1};
use pod::metadata::{CONTAINER_NAME_LABEL, POD_UID_LABEL};

use crate::commands;
use crate::known::{BoundedCache, KnownContainer};
use crate::process_user::ProcessUser;
use crate::request::RunsAs;

/// What the runtime has told of containers; it is asked for the rest.
pub(crate) struct Facts {
    pub(crate) runtime: Arc<dyn RuntimeReads>,
    pub(crate) containers: BoundedCache<KnownContainer>,
    /// Whom the runtime has containers run as, by [`crate::process_user::key`].
    users: BoundedCache<ProcessUser>,
}

impl Facts {
    /// Nothing is known yet.
    pub(crate) fn new(runtime: Arc<dyn RuntimeReads>) -> Facts {
        Facts {
            runtime,
            containers: BoundedCache::default(),
            users: BoundedCache::default(),
        }
    }

    /// Which pod a container is of, and which commands may be run in it.
    pub(crate) async fn container(
        &self,
        container_id: &str,
    ) -> Result<KnownContainer, RuntimeError> {
        if let Some(known) = self.containers.get(container_id) {
            return Ok(known);
        }
        let mut status = self.runtime.container_status(container_id).await?;
        let known = KnownContainer {
            pod_uid: status.labels.remove(POD_UID_LABEL).unwrap_or_default(),
            name: status
                .labels
                .remove(CONTAINER_NAME_LABEL)
                .unwrap_or_default(),
            commands: status
                .annotations
                .get(commands::ANNOTATION)
                .map(|text| commands::noted(text)),
        };
        self.containers.note(container_id, known.clone());
        Ok(known)
    }

    /// Whom the runtime has a container run as, if it tells. For a further container of
    /// the same image and user it is not asked again: its answer is the whole
    /// specification of the container, and costs it more than any list.
    pub(crate) async fn user_of(
        &self,
        container_id: &str,
        key: Option<&str>,
    ) -> Result<Option<ProcessUser>, RuntimeError> {
        if let Some(user) = key.and_then(|key| self.users.get(key)) {
            return Ok(Some(user));
        }
        let info = self.runtime.container_info(container_id).await?;
        let user = ProcessUser::told(&info);
        if let (Some(key), Some(user)) = (key, &user) {
            self.users.note(key, user.clone());
        }
        Ok(user)
    }

    /// The image of a container: its names, and whom it wants to run as.
    pub(crate) async fn image(
        &self,
        spec: &v1::ImageSpec,
    ) -> Result<(Vec<String>, RunsAs), RuntimeError> {
        let found = self.runtime.image_status(spec.clone()).await?;
        let image = found.unwrap_or_default();
        let user = match (&image.uid, image.username.as_str()) {
            (Some(uid), _) => RunsAs::Uid(uid.value),
            (None, "") => RunsAs::Uid(0),
            (None, name) => RunsAs::Name(name.to_owned()),
        };
        let names = [image.repo_tags, image.repo_digests].concat();
        Ok((names, user))
    }
}
