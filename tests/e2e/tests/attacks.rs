//! What somebody can do who has taken over a process without privileges, or who writes
//! manifests, and what works while such a process is away.
//!
//! - `messages`: calls as the user of sync-loop or prober, with messages that are valid;
//! - `operator`: each process that the command line asks, as a server that lies to it;
//! - `pods`: pods that would make their owner a part of the agent or the runtime, as
//!   manifests, and as what a taken-over sync-loop asks for;
//! - `state_files`: what a process finds in the place of the file that it wrote before;
//! - `servers`: each process as a server that lies to its callers, without end;
//! - `sourcer_away`: config-sourcer, which vouches for pods, is away or hangs;
//! - `taken_over`: a process that calls what is for others, under the supervisor;
//! - `twins`: each process as an attacker of those whom it calls, with frames of its own
//!   making.
//!
//! Not here: links that are swapped below a hostPath (`host_paths`), what the node policy
//! says in general (`node_policy`), which user may call what (`places`).

mod intruder;
mod messages;
mod operator;
mod pods;
mod servers;
mod sourcer_away;
mod state_files;
mod taken_over;
mod twins;
