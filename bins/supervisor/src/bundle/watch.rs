//! What watches the processes where systemd supervises them, for as long as they run: what
//! they keep in their state directories, and what they refuse to each other. Who is found
//! out is killed, and systemd starts it again. It also sees what confines them. What is
//! found is told in a file, for `bulkhead status`.
//!
//! It starts nothing and calls nobody. The rules are those of the supervisor's own modules.

use std::io;
use std::path::Path;
use std::time::Duration;

use bulkhead_api::v1;
use clock::WallClock;
use confine::{Calls, Permitted};
use ipc::Refusal;
use node_config::NodeConfig;
use sd_notify::NotifyState;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::task::AbortOnDropHandle;
use topology::{Identities, Need, Process, WATCH_DIRECTORY_NAME, WATCH_FILE_NAME, row};

use super::confined::Looks;
use super::status_file::{self, StatusFile};
use super::{lacks, services};
use crate::command::{Command, MAX_WAITING_COMMANDS};
use crate::failure::Failure;
use crate::misconduct::{Heard, Misconduct, disbelief};
use crate::notify::NotifySockets;
use crate::state_watch::StateWatch;
use crate::{misconduct, settings};

/// How often it says that it is alive, and looks whether what it tells is still so.
const PERIOD: Duration = Duration::from_secs(2);

/// How often it looks at what confines the processes, for which it looks at all of the node.
const LOOK_PERIOD: Duration = Duration::from_secs(10);

/// Watches until it is asked to end.
///
/// # Errors
/// See [`Failure`].
pub(super) fn run(run_dir: &Path) -> Result<(), Failure> {
    let system = |action| move |source| Failure::System { action, source };
    let config = settings::resolved(run_dir)?;
    let identities = settings::identities(&config)?;
    let directory = run_dir.join(WATCH_DIRECTORY_NAME);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(system("start the runtime"))?;
    let notify = {
        let _inside = runtime.enter();
        NotifySockets::open(&directory, &identities)?
    };
    seal().map_err(system("confine itself"))?;
    let machine_lacks = match status_file::read(&run_dir.join(lacks::FILE_NAME)) {
        Ok(lacks) => lacks.degradations,
        Err(error) => vec![format!("what this machine lacks is not known: {error}")],
    };
    let watch = Watch {
        identities,
        machine_lacks,
        looks: Looks::default(),
        lacking: Vec::new(),
        notify,
        misconduct: Misconduct::default(),
        clock: WallClock::system(),
        start: Instant::now(),
        status_file: StatusFile::new(directory.join(WATCH_FILE_NAME)),
    };
    let outcome = runtime.block_on(watch.run(&config));
    // A look at a state directory that hangs must not keep it from ending.
    runtime.shutdown_background();
    outcome.map_err(system("watch the processes"))
}

/// What else it may not call, its unit says.
fn seal() -> io::Result<()> {
    let permitted = Permitted {
        files: None,
        calls: Calls {
            // Not to be held to the list of those who look after nobody: it kills.
            mounts: true,
            ..Calls::default()
        },
    };
    confine::seal(&permitted).map_err(io::Error::other)
}

struct Watch {
    identities: Identities,
    /// What the machine does not give, for people.
    machine_lacks: Vec<String>,
    looks: Looks,
    /// What the running processes lack of their confinement, for people.
    lacking: Vec<String>,
    notify: NotifySockets,
    misconduct: Misconduct,
    clock: WallClock,
    start: Instant,
    status_file: StatusFile,
}

impl Watch {
    async fn run(mut self, config: &NodeConfig) -> io::Result<()> {
        let mut terminate = signal(SignalKind::terminate())?;
        let (sender, mut commands) = mpsc::channel(MAX_WAITING_COMMANDS);
        let (found, mut kept) = watch::channel(Vec::new());
        let looking = StateWatch::new(config, &self.identities).run(found, sender);
        let _looking = AbortOnDropHandle::new(tokio::spawn(looking));
        let mut tick = interval(PERIOD);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut look = interval(LOOK_PERIOD);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        tell_starter(&[NotifyState::Ready]);
        loop {
            let status = self.status(&kept.borrow_and_update());
            self.status_file.tell(&status);
            tokio::select! {
                // Cancel-safe: a signal that is not received stays pending.
                _ = terminate.recv() => return Ok(()),
                // Cancel-safe: it only waits.
                process = self.notify.readable() => self.receive(process),
                // Cancel-safe: a command is taken or it is not.
                Some(command) = commands.recv() => {
                    if let Command::StateTooLarge(process) = command {
                        self.end(process);
                    }
                }
                // Cancel-safe: what has changed is still so.
                Ok(()) = kept.changed() => {}
                // Cancel-safe: a tick that is not taken stays due.
                _ = tick.tick() => tell_starter(&[NotifyState::Watchdog]),
                // Cancel-safe: as before.
                _ = look.tick() => self.lacking = self.looks.look(&self.identities),
            }
        }
    }

    fn receive(&mut self, server: Process) {
        let uid = self.identities.uid(server);
        let is_server = |pid| services::process_of(pid, uid) == Some(server);
        for (message, descriptor) in self.notify.receive(server, uid, is_server) {
            // Nobody has any business to send one.
            self.notify.close(server, descriptor.into_iter().collect());
            if let Some(refusal) = message.refused {
                self.note_refusal(server, refusal);
            }
        }
    }

    fn note_refusal(&mut self, server: Process, refusal: Refusal) {
        let caller = services::process_of(refusal.pid, refusal.uid)
            .filter(|caller| self.identities.uid(*caller) == refusal.uid)
            // The programs that it starts run as it, and may say what they like.
            .filter(|_| !row(server).needs(Need::Programs));
        let heard = Heard {
            wall: self.clock.now(),
            moment: self.start.elapsed(),
        };
        let found = self
            .misconduct
            .hear(server, refusal, caller, &self.identities, heard);
        if let Some(caller) = found {
            self.end(caller);
        }
    }

    fn end(&self, process: Process) {
        if let Err(error) = services::end(process, self.identities.uid(process)) {
            tracing::error!(%process, %error, "cannot end it");
        }
    }

    fn status(&self, kept: &[String]) -> v1::SupervisorStatus {
        let disbelieved = self.misconduct.disbelieved(self.start.elapsed());
        let disbelieved = disbelieved.iter().map(disbelief);
        let confinement = self.machine_lacks.iter().chain(&self.lacking);
        v1::SupervisorStatus {
            degradations: confinement
                .chain(kept)
                .cloned()
                .chain(disbelieved)
                .collect(),
            refused: self
                .misconduct
                .refused()
                .iter()
                .map(misconduct::row)
                .collect(),
            ..v1::SupervisorStatus::default()
        }
    }
}

fn tell_starter(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!(%error, "cannot report to NOTIFY_SOCKET");
    }
}
