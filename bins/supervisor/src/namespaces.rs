//! The namespaces of the processes: made once, before the supervisor is sealed, and entered
//! by each run of a process. Those of mounts are made again when the configuration is read
//! again, which may name other files.

use std::collections::BTreeMap;
use std::io;

use confine::OwnNamespace;
use node_config::NodeConfig;
use topology::{Namespace, PROCESSES, Process};

/// The namespaces of each process, as far as this machine gives them.
#[derive(Debug)]
pub(crate) struct Namespaces {
    own: BTreeMap<Process, Vec<OwnNamespace>>,
    /// Who has the mounts of an earlier configuration, and why.
    outdated: BTreeMap<Process, String>,
}

impl Namespaces {
    /// Makes those of the processes that the node runs, and says which it does not get.
    pub(crate) fn open(config: &NodeConfig) -> (Namespaces, Vec<String>) {
        let mut refused = BTreeMap::new();
        let mut own = BTreeMap::new();
        for row in PROCESSES.iter().filter(|row| config.runs(row.process)) {
            let view = process::view(config, row.process);
            let mut made = Vec::new();
            for &kind in row.namespaces {
                match OwnNamespace::make(kind, &view) {
                    Ok(namespace) => made.push(namespace),
                    Err(error) => note(&mut refused, kind, row.process, &error),
                }
            }
            own.insert(row.process, made);
        }
        let degradations = refused.into_iter().map(degradation).collect();
        let namespaces = Namespaces {
            own,
            outdated: BTreeMap::new(),
        };
        (namespaces, degradations)
    }

    /// Makes the mounts of each process anew, for its next run, as far as the machine gives
    /// them: where that fails, the next run has those of before.
    pub(crate) fn renew_mounts(&mut self, config: &NodeConfig) {
        self.renew_mounts_by(|process| {
            OwnNamespace::make(Namespace::Mount, &process::view(config, process))
        });
    }

    fn renew_mounts_by(&mut self, make: impl Fn(Process) -> io::Result<OwnNamespace>) {
        self.outdated.clear();
        for (&process, made) in &mut self.own {
            let mounts = made.iter_mut();
            for old in mounts.filter(|it| it.kind() == Namespace::Mount) {
                match make(process) {
                    Ok(new) => *old = new,
                    Err(error) => {
                        let text = format!(
                            "{process} is not shown the files that the configuration names since it was read again: {error}"
                        );
                        tracing::error!("{text}");
                        self.outdated.insert(process, text);
                    }
                }
            }
        }
    }

    /// Who has the mounts of an earlier configuration, for people.
    pub(crate) fn outdated(&self) -> impl Iterator<Item = &String> {
        self.outdated.values()
    }

    /// Those of a process.
    pub(crate) fn of(&self, process: Process) -> &[OwnNamespace] {
        self.own.get(&process).map_or(&[], Vec::as_slice)
    }
}

/// Who does not get a kind of namespace, and the first error.
type Refused = BTreeMap<Namespace, (Vec<Process>, String)>;

fn note(refused: &mut Refused, kind: Namespace, process: Process, error: &io::Error) {
    let entry = refused.entry(kind);
    let (processes, _error) = entry.or_insert_with(|| (Vec::new(), error.to_string()));
    processes.push(process);
}

fn degradation((kind, (processes, error)): (Namespace, (Vec<Process>, String))) -> String {
    let names: Vec<_> = processes.into_iter().map(Process::name).collect();
    format!(
        "without a {} namespace of their own: {}: {error}",
        kind.name(),
        names.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_earlier_mounts_is_told_of_until_it_has_new_ones() {
        let make = || OwnNamespace::make(Namespace::Mount, &confine::View::default());
        // Others may make none.
        if !nix::unistd::geteuid().is_root() {
            return;
        }
        let first = make().unwrap();
        let mut namespaces = Namespaces {
            own: BTreeMap::from([
                (Process::Pleg, vec![first]),
                (Process::Supervisor, Vec::new()),
            ]),
            outdated: BTreeMap::new(),
        };
        let told = |namespaces: &Namespaces| namespaces.outdated().cloned().collect::<Vec<_>>();
        namespaces.renew_mounts_by(|_| Err(io::Error::from_raw_os_error(28)));
        let [text] = &told(&namespaces)[..] else {
            panic!("{:?}", told(&namespaces));
        };
        assert!(text.starts_with("pleg is not shown"), "{text}");
        assert!(
            text.ends_with("No space left on device (os error 28)"),
            "{text}"
        );
        namespaces.renew_mounts_by(|_| make());
        assert_eq!(told(&namespaces), [""; 0]);
    }

    #[test]
    fn a_namespace_that_is_refused_is_said_once_with_all_who_lack_it() {
        let mut refused = Refused::new();
        for process in [Process::Pleg, Process::SyncLoop] {
            let error = io::Error::from_raw_os_error(1);
            note(&mut refused, Namespace::Network, process, &error);
        }
        let degradations: Vec<_> = refused.into_iter().map(degradation).collect();
        assert_eq!(
            degradations,
            [
                "without a network namespace of their own: pleg, sync-loop: \
                 Operation not permitted (os error 1)"
            ]
        );
    }
}
