//! cri.
