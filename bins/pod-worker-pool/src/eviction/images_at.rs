//! Where the runtime has its images. Who moves them to another disk restarts the runtime
//! and not us, so it is asked again now and then.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cri::RuntimeReads;
use tokio::time::Instant;

/// How long an answer counts before the runtime is asked again.
const STANDS_FOR: Duration = Duration::from_secs(300);

/// What the runtime said, and when it was asked.
type Said = (PathBuf, Instant);

/// What the runtime said last.
#[derive(Default)]
pub(crate) struct ImagesAt(Mutex<Option<Said>>);

impl ImagesAt {
    /// What the runtime said, or what `ask` answers where that was too long ago. Where
    /// nobody answers, what was said stands for as long again.
    pub(crate) async fn or_ask(
        &self,
        ask: impl Future<Output = Option<PathBuf>>,
    ) -> Option<PathBuf> {
        let said = self.said().clone();
        if let Some((path, asked)) = &said
            && asked.elapsed() < STANDS_FOR
        {
            return Some(path.clone());
        }
        let asked = Instant::now();
        let path = ask.await.or(said.map(|(path, _)| path))?;
        *self.said() = Some((path.clone(), asked));
        Some(path)
    }

    fn said(&self) -> MutexGuard<'_, Option<Said>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Asks the runtime.
pub(crate) async fn ask(runtime: &dyn RuntimeReads, may_take: Duration) -> Option<PathBuf> {
    let asked = tokio::time::timeout(may_take, runtime.image_fs_info());
    let filesystems = asked.await.ok()?.ok()?;
    let mountpoint = filesystems.into_iter().next()?.fs_id?.mountpoint;
    Some(PathBuf::from(mountpoint)).filter(|path| path.is_absolute())
}

#[cfg(test)]
mod tests {
    use std::future::ready;

    use super::*;

    fn path(text: &str) -> Option<PathBuf> {
        Some(PathBuf::from(text))
    }

    #[tokio::test(start_paused = true)]
    async fn images_that_are_moved_to_another_disk_are_found_there() {
        let at = ImagesAt::default();
        assert_eq!(
            at.or_ask(ready(None)).await,
            None,
            "nobody has answered yet"
        );
        assert_eq!(at.or_ask(ready(path("/old"))).await, path("/old"));
        tokio::time::advance(STANDS_FOR / 2).await;
        let not_asked = async { panic!("it was asked just now") };
        assert_eq!(at.or_ask(not_asked).await, path("/old"));
        tokio::time::advance(STANDS_FOR / 2).await;
        assert_eq!(at.or_ask(ready(None)).await, path("/old"), "no answer");
        tokio::time::advance(STANDS_FOR).await;
        assert_eq!(at.or_ask(ready(path("/new"))).await, path("/new"));
    }
}
