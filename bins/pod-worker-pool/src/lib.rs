//! pod-worker-pool.
