//! confine.
