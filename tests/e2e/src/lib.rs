//! Tests of the real programs on a real containerd; they are under `tests/`,
//! one file a subject. What several of them need is in `test-support`.
