//! Work that waits for a disk, done away from the one thread of a process: a disk that
//! hangs holds up that work and nothing else.
//!
//! In the simulation such work is a task as any other. With a second thread it would
//! depend on the machine what comes first, and a seed would not give the same history
//! each time.

use std::cell::Cell;

use tokio::task::JoinHandle;

thread_local! {
    static ON_THIS_THREAD: Cell<bool> = const { Cell::new(false) };
}

/// From now on what this thread spawns with [`spawn`] is done by its runtime itself. For
/// simulations with one thread alone.
pub fn stay_on_this_thread() {
    ON_THIS_THREAD.set(true);
}

/// Whether this thread does such work itself: then nothing that the work waits for can
/// happen meanwhile.
pub fn stays_on_this_thread() -> bool {
    ON_THIS_THREAD.get()
}

/// Does work that may block on another thread, as [`tokio::task::spawn_blocking`]. It goes
/// on when nobody waits for it any more.
///
/// # Panics
/// Outside of a tokio runtime.
pub fn spawn<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    match stays_on_this_thread() {
        true => tokio::spawn(async { work() }),
        false => tokio::task::spawn_blocking(work),
    }
}

#[cfg(test)]
mod tests {
    use std::thread::current;

    use super::*;

    #[tokio::test]
    async fn work_is_done_on_another_thread_unless_a_simulation_says_otherwise() {
        let here = current().id();
        assert_ne!(spawn(|| current().id()).await.unwrap(), here);
        stay_on_this_thread();
        assert_eq!(spawn(|| current().id()).await.unwrap(), here);
    }
}
