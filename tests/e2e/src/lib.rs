//! Tests of the real programs on a real containerd; they are under `tests/`,
//! one file a subject. What several of them need is here, and in `test-support`
//! what benches and the demo need too.

pub mod workload;
