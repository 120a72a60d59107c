//! The six handlers of the kubelet's `SyncHandler`, one file each.

mod additions;
mod cleanups;
mod reconcile;
mod removes;
mod syncs;
mod updates;
