//! What somebody can do who has taken over a process without privileges, or who writes
//! manifests, and what works while such a process is away.
//!
//! - `messages`: calls as the user of sync-loop or prober, with messages that are valid;
//! - `pods`: pods that would make their owner a part of the agent or the runtime, as
//!   manifests, and as what a taken-over sync-loop asks for;
//! - `state_files`: what a process finds in the place of the file that it wrote before;
//! - `sourcer_away`: config-sourcer, which vouches for pods, is away or hangs.
//!
//! Not here: links that are swapped below a hostPath (`host_paths`), what the node policy
//! says in general (`node_policy`), which user may call what (`places`).

mod intruder;
mod messages;
mod pods;
mod sourcer_away;
mod state_files;
