//! How the processes of a node talk: gRPC over Unix sockets, with the caller's
//! uid checked against the topology, bounds on everything, and retries that
//! make a peer's restart invisible.
//!
//! - [`Network`] reaches a peer, [`Listener`] and [`serve`] are reached;
//! - [`call`] makes one idempotent call that outlives a restart of the peer;
//! - [`subscribe`] keeps a stream open over restarts of the peer;
//! - [`StateHub`] and [`Feed`] are the two ways to publish: latest values by key
//!   (snapshot, then changes) and a bounded ring of events; [`MessageQueue`] keeps
//!   messages in little memory, and [`Collected`] those of an answer, up to a bound.
//!
//! What does not live here: messages (`bulkhead-api`), the table of who may call
//! whom (`topology`), how sockets come to a process (`process`, `supervisor`).

mod authorize;
mod budget;
mod call;
mod channel;
mod collected;
mod feed;
mod http2;
mod hub;
mod listener;
mod message_queue;
mod network;
mod peer;
mod permitted;
mod places;
mod refusals;
mod server;
mod subscription;

/// Bounds that both ends of a call know.
pub mod limits;

pub use call::{CallError, call, is_broken_connection};
pub use channel::Channel;
pub use collected::Collected;
pub use feed::{Feed, FeedItem, FeedWatch};
pub use hub::{StateEvent, StateHub, StateWatch};
pub use listener::{Accept, Listener, ServeCalls, Stream};
pub use message_queue::MessageQueue;
pub use network::{Connect, Network};
pub use peer::Peer;
pub use permitted::{Permitted, PermittedCaller};
pub use prost::Message;
pub use server::{ServeError, serve};
pub use subscription::{Subscription, SubscriptionEvent, subscribe};
