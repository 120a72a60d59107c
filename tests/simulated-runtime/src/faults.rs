//! What goes wrong with calls, by chance or until told otherwise.

/// What goes wrong. Probabilities are per call, between 0 and 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Faults {
    /// The call fails before it has an effect.
    pub error: f64,
    /// The call has its effect, and the answer is lost.
    pub lost_reply: f64,
    /// The call takes this many times as long as usual at most.
    pub slowness: f64,
    /// No call is answered: the runtime is down.
    pub unavailable: bool,
    /// Events are dropped.
    pub lost_event: f64,
}

impl Faults {
    /// Nothing goes wrong.
    pub const NONE: Faults = Faults {
        error: 0.0,
        lost_reply: 0.0,
        slowness: 1.0,
        unavailable: false,
        lost_event: 0.0,
    };

    /// Things go wrong often enough to be met in a short run.
    pub const SOME: Faults = Faults {
        error: 0.03,
        lost_reply: 0.03,
        slowness: 4.0,
        unavailable: false,
        lost_event: 0.2,
    };
}

impl Default for Faults {
    fn default() -> Faults {
        Faults::NONE
    }
}
