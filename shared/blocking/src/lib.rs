//! Work that waits for a disk, done away from the one thread of a process: a disk that
//! hangs holds up that work and nothing else.
//!
//! In the simulation such work is a task as any other. With a second thread it would
//! depend on the machine what comes first, and a seed would not give the same history
//! each time.

use std::cell::RefCell;
use std::pin::Pin;
use std::rc::Rc;

use tokio::task::JoinHandle;

/// What a simulation waits for before such work begins; what comes of that is what it waits
/// for once the work is done.
pub type Before = Pin<Box<dyn Future<Output = After> + Send>>;

/// What a simulation waits for between such work and its answer.
pub type After = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Called where such work is spawned.
type Around = Rc<dyn Fn() -> Before>;

thread_local! {
    static ON_THIS_THREAD: RefCell<Option<Around>> = const { RefCell::new(None) };
}

/// From now on what this thread spawns with [`spawn`] is done by its runtime itself, and
/// `around` says when. For simulations with one thread alone.
pub fn stay_on_this_thread(around: impl Fn() -> Before + 'static) {
    ON_THIS_THREAD.set(Some(Rc::new(around)));
}

/// Does work that may block on another thread, as [`tokio::task::spawn_blocking`]. It goes
/// on when nobody waits for it any more.
///
/// # Panics
/// Outside of a tokio runtime.
pub fn spawn<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    let Some(around) = ON_THIS_THREAD.with_borrow(Clone::clone) else {
        return tokio::task::spawn_blocking(work);
    };
    let before = around();
    tokio::spawn(async move {
        let after = before.await;
        let done = work();
        after.await;
        done
    })
}

#[cfg(test)]
mod tests {
    use std::thread::current;

    use super::*;

    #[tokio::test]
    async fn work_is_done_on_another_thread_unless_a_simulation_says_otherwise() {
        let here = current().id();
        assert_ne!(spawn(|| current().id()).await.unwrap(), here);
        stay_on_this_thread(|| Box::pin(std::future::ready(Box::pin(async {}) as After)));
        assert_eq!(spawn(|| current().id()).await.unwrap(), here);
    }
}
