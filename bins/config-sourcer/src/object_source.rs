//! The objects directory as a source of ConfigMaps and Secrets: looks when something
//! changes there, and every `fileCheckFrequency` anyway. Their content is held in memory
//! and never written anywhere.

use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::object_directory::{MAX_READ_BYTES, Owner, look};
use crate::object_set::{ObjectFiles, ObjectState, Room};
use crate::snapshot::Problem;
use crate::watcher::Watcher;

/// The latest state of the objects. Cloning shares it.
#[derive(Debug, Clone)]
pub(crate) struct ObjectPublication {
    state: watch::Sender<Arc<ObjectState>>,
    problems: watch::Sender<Vec<Problem>>,
}

impl ObjectPublication {
    /// Objects of a directory that is to be read; without one there are none.
    #[must_use]
    pub(crate) fn new(has_directory: bool) -> ObjectPublication {
        let state = ObjectState {
            is_read: !has_directory,
            ..ObjectState::default()
        };
        ObjectPublication {
            state: watch::Sender::new(Arc::new(state)),
            problems: watch::Sender::default(),
        }
    }

    /// The latest state, now and whenever it changes.
    #[must_use]
    pub(crate) fn watch(&self) -> watch::Receiver<Arc<ObjectState>> {
        self.state.subscribe()
    }

    /// What is wrong with objects, now and whenever it changes.
    #[must_use]
    pub(crate) fn problems(&self) -> watch::Receiver<Vec<Problem>> {
        self.problems.subscribe()
    }

    pub(crate) fn set(&self, state: ObjectState) {
        self.state.send_if_modified(|present| {
            let changed = **present != state;
            if changed {
                *present = Arc::new(state);
            }
            changed
        });
    }
}

/// The objects directory.
#[derive(Debug)]
pub(crate) struct ObjectSource {
    path: PathBuf,
    owner: Owner,
    check_frequency: Duration,
    publication: ObjectPublication,
    files: ObjectFiles,
    watch: Watcher,
}

impl ObjectSource {
    /// Nothing is known yet.
    #[must_use]
    pub(crate) fn new(
        path: PathBuf,
        owner: Owner,
        check_frequency: Duration,
        publication: ObjectPublication,
    ) -> ObjectSource {
        ObjectSource {
            path,
            owner,
            check_frequency,
            publication,
            files: ObjectFiles::default(),
            watch: Watcher::new(),
        }
    }

    /// Reads the directory for ever.
    pub(crate) async fn run(mut self) -> Infallible {
        loop {
            self.look().await;
            let deadline = Instant::now() + self.check_frequency;
            self.watch.changed(deadline).await;
        }
    }

    /// One look, on a thread of its own: a disk that hangs holds up nothing but that.
    async fn look(&mut self) {
        let (path, owner, arming) = (self.path.clone(), self.owner, self.watch.arming());
        let known = self.files.known();
        let looked = blocking::spawn(move || {
            // Before the look, so that no change is missed.
            let armed = arming.map(|arming| arming.add(&path));
            (look(&path, owner, &known, MAX_READ_BYTES, Room::ALL), armed)
        });
        let Ok((found, armed)) = looked.await else {
            // It panicked, which is logged; the next look may not.
            return;
        };
        if let Some(armed) = armed {
            self.watch.armed(armed);
        }
        let of_all = |reason: &str| Problem::new(self.path.display().to_string(), reason);
        let (state, problems) = match found {
            Ok(Some(findings)) => self.files.found(findings),
            Ok(None) => {
                let (state, reason) = self.files.absent();
                (state, reason.map(of_all).into_iter().collect())
            }
            Err(reason) => (self.files.failed(), vec![of_all(&reason)]),
        };
        self.tell(problems);
        self.publication.set(state);
    }

    /// Tells the problems, and logs what is new of them, and that there are none any more.
    fn tell(&self, mut problems: Vec<Problem>) {
        // In whatever order they were found.
        problems.sort();
        self.publication.problems.send_if_modified(|known| {
            for Problem {
                subject, reason, ..
            } in problems.iter().filter(|it| !known.contains(it))
            {
                tracing::warn!(subject, reason, "an object cannot be used");
            }
            if problems.is_empty() && !known.is_empty() {
                tracing::info!("all objects can be used again");
            }
            let changed = *known != problems;
            *known = problems;
            changed
        });
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use nix::unistd::geteuid;
    use tokio_util::task::AbortOnDropHandle;

    use super::*;

    #[tokio::test]
    async fn a_changed_file_is_published_at_once() {
        let directory = tempfile::tempdir().unwrap();
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o700)).unwrap();
        let publication = ObjectPublication::new(true);
        let source = ObjectSource::new(
            directory.path().to_owned(),
            Owner(geteuid().as_raw()),
            Duration::from_secs(3600),
            publication.clone(),
        );
        let mut state = publication.watch();
        assert!(!state.borrow().is_read);
        let _running = AbortOnDropHandle::new(tokio::spawn(async {
            source.run().await;
        }));
        state.wait_for(|state| state.is_read).await.unwrap();
        for value in ["one", "two"] {
            let object = format!(
                "apiVersion: v1\nkind: Secret\nmetadata: {{name: s}}\nstringData: {{k: {value}}}"
            );
            let new = directory.path().join(".new");
            fs::write(&new, object).unwrap();
            fs::set_permissions(&new, fs::Permissions::from_mode(0o640)).unwrap();
            fs::rename(&new, directory.path().join("s.yaml")).unwrap();
            let has_value = |state: &Arc<ObjectState>| {
                let mut objects = state.objects.values();
                objects.any(|it| it.data["k"].as_slice() == value.as_bytes())
            };
            state.wait_for(has_value).await.unwrap();
        }
        fs::remove_file(directory.path().join("s.yaml")).unwrap();
        state.wait_for(|it| it.objects.is_empty()).await.unwrap();
    }

    #[tokio::test]
    async fn objects_stay_while_their_directory_is_gone_and_go_with_their_files() {
        let parent = tempfile::tempdir().unwrap();
        let (path, away) = (parent.path().join("objects"), parent.path().join("away"));
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
        let file = path.join("c.yaml");
        fs::write(
            &file,
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}",
        )
        .unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        let publication = ObjectPublication::new(true);
        let mut source = ObjectSource::new(
            path.clone(),
            Owner(geteuid().as_raw()),
            Duration::from_secs(3600),
            publication.clone(),
        );
        let count = || publication.watch().borrow().objects.len();
        source.look().await;
        assert_eq!(count(), 1);
        fs::rename(&path, &away).unwrap();
        source.look().await;
        assert_eq!(count(), 1);
        let problems = publication.problems();
        assert_eq!(problems.borrow()[0].subject, path.display().to_string());
        fs::rename(&away, &path).unwrap();
        fs::remove_file(&file).unwrap();
        source.look().await;
        assert_eq!((count(), problems.borrow().len()), (0, 0));
    }
}
