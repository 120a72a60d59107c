//! What the supervisor decides: plain values in, plain values out. No clock, no
//! I/O, no processes; carrying the decisions out is the shell's part.

mod fleet;
mod heartbeat;
mod machine;

pub use backoff::pace::{
    CRASH_LOOP_RESTARTS, CRASH_LOOP_WINDOW, JITTER, Moment, Pace, READY_FOR_HALF, SOON,
    STEADY_AFTER,
};

pub use fleet::{Fleet, FleetEvent, STOP_ORDER};
pub use heartbeat::Heartbeat;
pub use machine::{
    Action, AfterStop, Alert, BAD_CONFIGURATION, Ending, Event, Intent, KILL_AFTER_ABORT,
    LEFTOVER_PATIENCE, LOOK_AGAIN, Machine, Phase, ProcessId, START_TIMEOUT, STOP_GRACE, Signal,
    State, WATCHDOG_SILENCE,
};

#[cfg(test)]
mod random_kills;
#[cfg(test)]
mod tests;
