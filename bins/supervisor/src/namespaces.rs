//! The namespaces of the processes: made once, before the supervisor is sealed, and entered
//! by each run of a process. Those of mounts are made again when the configuration is read
//! again, which may name other files, and for each run of who may write in them.

use std::collections::BTreeMap;
use std::io;

use confine::{OwnNamespace, View};
use node_config::NodeConfig;
use topology::{Namespace, PROCESSES, Process, Sight};

/// The namespaces of each process, as far as this machine gives them.
#[derive(Debug)]
pub(crate) struct Namespaces {
    own: BTreeMap<Process, Vec<OwnNamespace>>,
    /// What those see that have mounts of their own.
    views: BTreeMap<Process, View>,
    /// Who has the mounts of an earlier configuration or run, and why.
    outdated: BTreeMap<Process, String>,
}

impl Namespaces {
    /// Makes those of the processes that the node runs, and says which it does not get.
    pub(crate) fn open(config: &NodeConfig) -> (Namespaces, Vec<String>) {
        let mut refused = BTreeMap::new();
        let (mut own, mut views) = (BTreeMap::new(), BTreeMap::new());
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
            views.insert(row.process, view);
        }
        let degradations = refused.into_iter().map(degradation).collect();
        let namespaces = Namespaces {
            own,
            views,
            outdated: BTreeMap::new(),
        };
        (namespaces, degradations)
    }

    /// Makes the mounts of each process anew, for its next run, as far as the machine gives
    /// them: where that fails, the next run has those of before.
    pub(crate) fn renew_mounts(&mut self, config: &NodeConfig) {
        for (process, view) in &mut self.views {
            *view = process::view(config, *process);
        }
        let processes: Vec<Process> = self.own.keys().copied().collect();
        for process in processes {
            self.renew_mounts_of(process, OwnNamespace::make);
        }
    }

    fn renew_mounts_of(
        &mut self,
        process: Process,
        make: impl FnOnce(Namespace, &View) -> io::Result<OwnNamespace>,
    ) {
        self.outdated.remove(&process);
        let mut own = self.own.get_mut(&process).into_iter().flatten();
        let old = own.find(|it| it.kind() == Namespace::Mount);
        let (Some(old), Some(view)) = (old, self.views.get(&process)) else {
            return;
        };
        match make(Namespace::Mount, view) {
            Ok(new) => *old = new,
            Err(error) => {
                let text = format!(
                    "{process} has earlier mounts, which may show other files than the configuration names: {error}"
                );
                tracing::error!("{text}");
                self.outdated.insert(process, text);
            }
        }
    }

    /// Who has earlier mounts, for people.
    pub(crate) fn outdated(&self) -> impl Iterator<Item = &String> {
        self.outdated.values()
    }

    /// Those of the next run of a process, which finds nothing that an earlier one has
    /// written in its mounts.
    pub(crate) fn for_run(&mut self, process: Process) -> &[OwnNamespace] {
        let view = self.views.get(&process);
        if view.is_some_and(|view| view.sight != Sight::Listed) {
            self.renew_mounts_of(process, OwnNamespace::make);
        }
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
        // Others may make none.
        if !nix::unistd::geteuid().is_root() {
            return;
        }
        let of = |process, sight| {
            let view = View {
                sight,
                ..View::default()
            };
            (
                process,
                vec![OwnNamespace::make(Namespace::Mount, &view).unwrap()],
                view,
            )
        };
        let written = topology::row(Process::CredentialProvider).sight;
        let mut namespaces = Namespaces {
            own: BTreeMap::new(),
            views: BTreeMap::new(),
            outdated: BTreeMap::new(),
        };
        for (process, own, view) in [
            of(Process::Pleg, Sight::Listed),
            of(Process::CredentialProvider, written),
        ] {
            namespaces.own.insert(process, own);
            namespaces.views.insert(process, view);
        }
        namespaces.own.insert(Process::Supervisor, Vec::new());
        let told = |namespaces: &Namespaces| namespaces.outdated().cloned().collect::<Vec<_>>();
        let refuse = |_, _: &View| Err(io::Error::from_raw_os_error(28));
        for process in [
            Process::Pleg,
            Process::CredentialProvider,
            Process::Supervisor,
        ] {
            namespaces.renew_mounts_of(process, refuse);
        }
        let [of_pleg, of_programs] = &told(&namespaces)[..] else {
            panic!("{:?}", told(&namespaces));
        };
        assert!(of_pleg.starts_with("pleg has earlier mounts"), "{of_pleg}");
        assert!(
            of_pleg.ends_with("No space left on device (os error 28)"),
            "{of_pleg}"
        );
        assert!(of_programs.starts_with("credential-provider has "));
        // Who may write in its mounts has new ones in each run.
        assert_eq!(namespaces.for_run(Process::Pleg).len(), 1);
        assert_eq!(namespaces.for_run(Process::CredentialProvider).len(), 1);
        assert_eq!(told(&namespaces), std::slice::from_ref(of_pleg));
        namespaces.renew_mounts_of(Process::Pleg, OwnNamespace::make);
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
