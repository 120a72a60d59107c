//! Work that waits for a disk, such as saves of state: in the exhaustive mode each such work
//! of each process is an effect that a mishap may meet.
//!
//! What does not live here: the disk itself and how it refuses (`disk.rs`), and which work
//! meets what (`simulated-runtime`).

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use blocking::{After, Before};
use simulated_runtime::{Met, SimulatedRuntime};
use topology::Process;

use crate::disk::Refusal;

/// How long work that hangs does: beyond what a save may take, and within the time that a
/// process has to start.
const HANG: Duration = Duration::from_secs(7);

tokio::task_local! {
    /// The process whose main future is polled.
    static OF_PROCESS: Process;
}

/// Whom the work that met a mishap is to have killed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Victim(Arc<Mutex<Option<Process>>>);

impl Victim {
    /// The process that is to be killed now, once.
    pub(crate) fn take(&self) -> Option<Process> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn is(&self, process: Process) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(process);
    }
}

/// Runs a process's main future so that its work on the disk is known to be its own.
pub(crate) async fn of_process<T>(process: Process, main: impl Future<Output = T>) -> T {
    OF_PROCESS.scope(process, main).await
}

/// From now on this thread does such work itself, and what it meets is what `runtime` says.
/// The work of a process that is killed before it does not happen. From one that is to fail
/// the disk refuses all that it reads and writes; whose answer is lost ends, once it is done,
/// as where the disk has what was written and then fails to say so.
pub(crate) fn meets_mishaps(runtime: SimulatedRuntime) -> Victim {
    let victim = Victim::default();
    let told = victim.clone();
    blocking::stay_on_this_thread(move || match OF_PROCESS.try_with(|it| *it) {
        Ok(process) => Box::pin(before(process, runtime.clone(), told.clone())) as Before,
        Err(_) => Box::pin(std::future::ready(nothing())),
    });
    victim
}

async fn before(process: Process, runtime: SimulatedRuntime, victim: Victim) -> After {
    let Ok(met) = tokio::time::timeout(HANG, runtime.meet_mishap()).await else {
        return nothing();
    };
    match met {
        Met::Nothing => nothing(),
        Met::Failure => refused(),
        Met::Loss => Box::pin(async {
            std::panic::resume_unwind(Box::new("a simulated loss of the answer"))
        }),
        Met::EarlyDeath => {
            victim.is(process);
            std::future::pending().await
        }
        Met::LateDeath => Box::pin(async move {
            victim.is(process);
            std::future::pending().await
        }),
    }
}

/// The work runs between this and the first poll of what it returns.
fn refused() -> After {
    let refusal = Refusal::begin();
    Box::pin(async move { drop(refusal) })
}

fn nothing() -> After {
    Box::pin(async {})
}
