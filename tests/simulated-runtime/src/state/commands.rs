//! The commands that are run in containers.

use std::collections::BTreeSet;

use super::State;
use crate::history::{Happening, Now};

impl State {
    /// A command is begun in a container; its number, if the container runs.
    pub(crate) fn execute(&mut self, now: Now, id: &str, command: Vec<String>) -> Option<u64> {
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

    /// A command that was begun has ended, unless its container has.
    pub(crate) fn command_ended(&mut self, now: Now, id: &str, number: u64) {
        let runs = self.behaviour_of(id).is_some_and(|(_, running)| running);
        let found = self.containers.get_mut(id);
        if found.is_some_and(|container| container.commands.remove(&number)) && runs {
            let (uid, name) = self.names_of(id);
            self.record(now.steady, id, &name, &uid, Happening::CommandEnded);
        }
    }

    /// The commands that run in a container; `None` of one that does not run.
    pub(crate) fn running_commands(&self, id: &str) -> Option<BTreeSet<String>> {
        let (_, true) = self.behaviour_of(id)? else {
            return None;
        };
        let commands = self.containers.get(id)?.commands.iter();
        Some(commands.map(u64::to_string).collect())
    }

    /// Somebody hears that a command failed in a container.
    pub(crate) fn command_failed(&mut self, now: Now, id: &str) {
        if self.containers.contains_key(id) {
            let (uid, name) = self.names_of(id);
            self.record(now.steady, id, &name, &uid, Happening::CommandFailed);
        }
    }
}
