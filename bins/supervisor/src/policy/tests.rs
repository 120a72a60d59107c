//! Tables and properties of the supervision policy.
