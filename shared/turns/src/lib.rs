//! Who may make the next heavy call to the container runtime.
//!
//! A runtime that is asked for a hundred pods at once makes all of them late: each
//! call gets a hundredth of the machine, and the first pod runs hardly before the
//! last. So heavy calls take turns, and [`Queue`] decides who has the next one.
//!
//! Everything here is a decision over plain values. Time is a `Duration` since any
//! moment that the caller chose, the same for all calls. Who waits, wakes and calls is
//! the caller's business.
//!
//! ```text
//!          ask           admit                    leave
//!   ------------> waits -------> has a turn ------------------> gone
//!                   |                |                           ^
//!                   | withdraw,      | takes too long            | leave
//!                   v leave          v                           |
//!                  gone          goes on without a turn ---------+
//! ```

mod call;
mod queue;

pub use call::{Call, Class, Purpose};
pub use queue::{Ask, ByCall, Figures, Queue, Ticket};
