//! The pod-worker-pool process: see the library.

use std::process::ExitCode;

use topology::Process;

fn main() -> ExitCode {
    process::main(
        Process::PodWorkerPool,
        pod_worker_pool::open,
        pod_worker_pool::serve,
    )
}
