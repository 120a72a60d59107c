//! Frees space for who waits for it, beside the rounds: a runtime that hangs with one
//! container or sandbox must not keep unused images, or other pods would be evicted.

use std::sync::{Arc, Mutex as StdMutex, PoisonError};
use std::time::Duration;

use tokio::sync::{Mutex, Notify, oneshot};
use tokio::task::JoinSet;

use super::collection::Collection;
use super::dead::free_containers;
use super::disk::ImageCollection;

/// How long images wait for the containers that used them.
const CONTAINERS_GO_FIRST: Duration = Duration::from_secs(10);

/// How long containers have after that. Once they are gone images are looked at anew.
const CONTAINERS_MAY_TAKE: Duration = Duration::from_secs(30);

/// Who waits: whether unused images are to go too, and who is told.
type Waiting = (bool, oneshot::Sender<()>);

/// Those who wait for space. Clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct SpaceOrders(Arc<(StdMutex<Vec<Waiting>>, Notify)>);

impl SpaceOrders {
    /// Waits until what can go has gone, or hangs.
    pub(super) async fn free(&self, images: bool) {
        let (done, freed) = oneshot::channel();
        {
            let (waiting, ordered) = &*self.0;
            let mut waiting = waiting.lock().unwrap_or_else(PoisonError::into_inner);
            waiting.push((images, done));
            ordered.notify_one();
        }
        // Without a collector nothing is freed, which who asked will see.
        let _ = freed.await;
    }

    async fn next(&self) -> Vec<Waiting> {
        let (waiting, ordered) = &*self.0;
        ordered.notified().await;
        std::mem::take(&mut *waiting.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Frees space whenever somebody waits for it, for ever.
    pub(super) async fn serve(&self, with: &Arc<Collection>, images: &Mutex<ImageCollection>) {
        // Removals that hang go on while others come; each container is in one of them.
        let mut removals = JoinSet::new();
        loop {
            let waiting = self.next().await;
            while removals.try_join_next().is_some() {}
            let (removing, mut removed) = oneshot::channel::<()>();
            let collection = Arc::clone(with);
            removals.spawn(async move {
                free_containers(&collection).await;
                drop(removing);
            });
            let wants_images = waiting.iter().any(|(images, _)| *images);
            let remove_images = async || {
                if wants_images {
                    images.lock().await.remove_unused(with).await;
                }
            };
            let first = tokio::time::timeout(CONTAINERS_GO_FIRST, &mut removed).await;
            remove_images().await;
            if first.is_err() {
                let then = tokio::time::timeout(CONTAINERS_MAY_TAKE, &mut removed).await;
                if then.is_ok() {
                    remove_images().await;
                }
            }
            for (_, waiting) in waiting {
                let _ = waiting.send(());
            }
        }
    }
}
