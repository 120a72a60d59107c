//! What a worker does: one step at a time, each of which may be dropped at any
//! await and run again from the beginning.
//!
//! - `wait`: stop what an earlier process has left of a pod that may not run yet;
//! - `sync`: observe, plan, act, until the plan is empty;
//! - `terminate`: stop everything of the pod within its grace, and after that remove
//!   what it had on the node.
//!
//! When and which step runs is decided by the worker's state (`Worker`) and the
//! actor (`pool`).

mod calls;
mod containers;
mod context;
mod created;
mod error;
mod hook_run;
mod hooks;
mod image;
mod job;
mod memory;
mod of_volumes;
mod pod_cgroup;
mod post_start;
mod pre_stop;
mod process_start;
mod pulls;
mod resize;
mod runtime_handler;
mod sandbox;
mod sandbox_config;
mod start;
mod start_error;
mod start_time;
mod stop;
mod stop_turns;
mod sync;
mod target;
mod terminate;
mod user_namespace;
mod volumes;
mod wait;

pub(crate) use context::StepContext;
pub(crate) use error::{Retry, StepError};
pub(crate) use job::{Job, Outcome, SyncInput};
pub(crate) use memory::Memory;
pub(crate) use process_start::ProcessStart;

/// Runs a step.
pub(crate) async fn run(context: &StepContext, job: &Job, memory: &mut Memory) -> Outcome {
    context
        .turns
        .step_begins(job.uid(), job.is_critical(), job.purpose());
    if !matches!(job, Job::Sync(..)) {
        memory.pulls.give_up();
    }
    match job {
        Job::Wait(pod) => wait::wait(context, pod, memory).await,
        Job::Sync(pod, input) => sync::sync(context, pod, input, memory).await,
        Job::Terminate(subject, termination) => {
            terminate::terminate(context, subject, termination, memory).await
        }
        Job::CleanUp(pod, termination) => {
            terminate::clean_up(context, pod, termination, memory).await
        }
    }
}
