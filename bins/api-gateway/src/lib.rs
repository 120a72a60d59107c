//! api-gateway: the only process that talks to the API server, and that holds the node's
//! credentials for it.
//!
//! ```text
//!  API server --- watches --> follow --> objects --> server --> config-sourcer, status-syncer
//!             <-- requests -- client <-- reports <-- server <-- status-syncer
//!             <-- requests -- client <-- reviews <------------- node-api
//! ```
//!
//! - `reflector`: when to list and when to watch (pure);
//! - `kind`: which objects, and what of the answers about them is taken (pure);
//! - `follow`: carries that out for one kind of object;
//! - `object`: what is looked at of an object (pure); `objects`: those that are known;
//! - `service`: what is kept of a Service (pure);
//! - `report`: which request a report is, if it is one that this node may make (pure);
//! - `review`: which request a review is, and what its answer says (pure); `reviews`: its
//!   service;
//! - `pace`: how many requests a second are made (pure);
//! - `tls`, `connection` and `client`: the way to the API server;
//! - `health`: how it stands, for people;
//! - `server`: the services.
//!
//! It runs only where a kubeconfig is given. Nothing is written: after a restart all is
//! listed again.

mod client;
mod connection;
mod follow;
mod health;
mod kind;
mod node;
mod object;
mod objects;
mod pace;
mod reflector;
mod report;
mod review;
mod reviews;
mod server;
mod service;
mod shell;
mod tls;

pub use shell::{Error, Opened, open, serve};
