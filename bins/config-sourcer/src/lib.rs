//! config-sourcer: the pods that should run on this node, from the API server, its manifest
//! path and a URL, merged into one stream.
//!
//! Three loops in one task deliver into one publication; consumers watch it:
//!
//! ```text
//!  manifest path --watcher--> file_source --\                    /--> WatchPods (server)
//!                 reader      (files)        >-- publication ---<
//!  URL ---http_client-------> http_source --|    (latest state)  \--> GetPod (pods)
//!  the API server ----------> api_source ---/
//! ```
//!
//! ConfigMaps and Secrets come from a directory of their own: `object_directory` reads it,
//! `object_set` decides, `object_source` publishes, and `objects` serves them. They are in
//! memory only.
//!
//! Services of the cluster are passed on by `services`, what pod-worker-pool needs of the Node
//! by `node`.
//!
//! - `files` and `snapshot` decide, and are pure;
//! - `reader`, on a thread of its own, with `manifest-files` and `watcher` is the
//!   disk, `http_client` and `tls` the network.
//!
//! Nothing is written: what is known is known from this run. As long as a file is bad of which
//! this run knows no good version, the source has not delivered, so none of its pods is taken
//! for removed but those whose manifest this run has seen go.
//!
//! How files are read is in `manifest-files`, what a manifest means in
//! `pod-validation`; `bulkhead check` shares both.

mod api_source;
mod file_source;
mod files;
mod http_client;
mod http_source;
mod node;
mod object_directory;
mod object_set;
mod object_source;
mod objects;
mod pods;
mod publication;
mod reader;
mod server;
mod services;
mod shell;
mod snapshot;
mod tls;
mod watcher;

pub use shell::{Error, serve};
