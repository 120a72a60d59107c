//! The commands that are run in containers.

use std::collections::BTreeSet;

use super::State;
use crate::history::{Happening, Now};

/// What happens to commands.
pub(crate) trait Commands {
    /// A command is begun in a container; its number, if the container runs.
    fn execute(&mut self, now: Now, id: &str, command: Vec<String>) -> Option<u64>;

    /// A command that was begun has ended, unless its container has.
    fn command_ended(&mut self, now: Now, id: &str, number: u64);

    /// The commands that run in a container; `None` of one that does not run.
    fn running_commands(&self, id: &str) -> Option<BTreeSet<String>>;

    /// Somebody hears that a command failed in a container.
    fn command_failed(&mut self, now: Now, id: &str);
}

impl Commands for State {
    fn execute(&mut self, now: Now, id: &str, command: Vec<String>) -> Option<u64> {
        let (uid, name) = self.names_of(id);
        let (_, true) = self.behaviour_of(id)? else {
            return None;
        };
        self.next_command += 1;
        let number = self.next_command;
        self.containers.get_mut(id)?.commands.insert(number);
        self.record(now.steady, id, &name, &uid, Happening::Executed { command });
        Some(number)
    }

    fn command_ended(&mut self, now: Now, id: &str, number: u64) {
        let runs = self.behaviour_of(id).is_some_and(|(_, running)| running);
        let found = self.containers.get_mut(id);
        if found.is_some_and(|container| container.commands.remove(&number)) && runs {
            let (uid, name) = self.names_of(id);
            self.record(now.steady, id, &name, &uid, Happening::CommandEnded);
        }
    }

    fn running_commands(&self, id: &str) -> Option<BTreeSet<String>> {
        let (_, true) = self.behaviour_of(id)? else {
            return None;
        };
        let commands = self.containers.get(id)?.commands.iter();
        Some(commands.map(u64::to_string).collect())
    }

    fn command_failed(&mut self, now: Now, id: &str) {
        if self.containers.contains_key(id) {
            let (uid, name) = self.names_of(id);
            self.record(now.steady, id, &name, &uid, Happening::CommandFailed);
        }
    }
}
