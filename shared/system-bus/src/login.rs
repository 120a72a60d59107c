//! [`LoginManager`]: what logind tells of a shutdown, and the lock that has it wait
//! (org.freedesktop.login1(5), "Inhibitor Locks" of systemd).

use std::num::NonZeroUsize;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use futures_util::StreamExt as _;
use zbus::{MatchRule, MessageStream};

use crate::bus::{Bus, Error, Target};
use crate::systemd::SYSTEMD;

const LOGIN: Target<'_> = Target {
    service: "org.freedesktop.login1",
    object: "/org/freedesktop/login1",
    interface: "org.freedesktop.login1.Manager",
};

/// Named in errors.
const LOGIND: &str = "logind";

/// The unit of logind, and the signal by which it reads its configuration again.
const UNIT: &str = "systemd-logind.service";
const HANGUP: i32 = 1;

/// Signals that are kept until they are looked at; more tell nothing new.
const MAX_SIGNALS: Option<NonZeroUsize> = NonZeroUsize::new(8);

/// The logind of this machine.
#[derive(Debug)]
pub struct LoginManager(Bus);

/// Tells of each change of [`LoginManager::is_shutting_down`].
pub struct ShutdownSignals(MessageStream);

impl LoginManager {
    /// That behind the bus which listens at this socket.
    #[must_use]
    pub fn at(socket: &Path) -> LoginManager {
        LoginManager(Bus::at(socket))
    }

    /// Takes a lock that delays each shutdown until it is closed, or until
    /// [`LoginManager::longest_delay`] is over. `who` and `why` are for people
    /// (`systemd-inhibit --list`).
    ///
    /// # Errors
    /// When logind cannot be reached or refuses; it does while a shutdown is under way.
    pub async fn delay_shutdown(&self, who: &str, why: &str) -> Result<OwnedFd, Error> {
        let method = "Inhibit";
        let lock = ("shutdown", who, why, "delay");
        let body = self.0.call(LOGIN, method, LOGIND, &lock).await?;
        let lock: Result<zbus::wire::OwnedFd, _> = body.deserialize();
        let lock = lock.map_err(|source| Error::refused(method, LOGIND, source))?;
        Ok(lock.into())
    }

    /// How long logind waits for such locks (`InhibitDelayMaxSec` of logind.conf(5)).
    ///
    /// # Errors
    /// When logind cannot be reached.
    pub async fn longest_delay(&self) -> Result<Duration, Error> {
        let name = "InhibitDelayMaxUSec";
        let delay: u64 = self.0.property(LOGIN, name, LOGIND).await?;
        Ok(Duration::from_micros(delay))
    }

    /// Whether a shutdown was asked for, which locks delay now.
    ///
    /// # Errors
    /// When logind cannot be reached.
    pub async fn is_shutting_down(&self) -> Result<bool, Error> {
        self.0.property(LOGIN, "PreparingForShutdown", LOGIND).await
    }

    /// What tells when to look again.
    ///
    /// # Errors
    /// When the bus cannot be reached.
    pub async fn signals(&self) -> Result<ShutdownSignals, Error> {
        let member = "PrepareForShutdown";
        let rule = MatchRule::builder()
            .msg_type(zbus::message::Type::Signal)
            .interface(LOGIN.interface)
            .member(member);
        let connection = self.0.connected().await?;
        let rule = rule
            .build()
            .map_err(|source| Error::refused(member, LOGIND, source))?;
        let signals = MessageStream::for_match_rule(rule, &connection, MAX_SIGNALS).await;
        match signals {
            Ok(signals) => Ok(ShutdownSignals(signals)),
            Err(error) => {
                self.0.forget().await;
                Err(Error::refused(member, LOGIND, error))
            }
        }
    }

    /// Has logind read its configuration again.
    ///
    /// # Errors
    /// When systemd cannot be reached or refuses.
    pub async fn reload(&self) -> Result<(), Error> {
        let signal = (UNIT, "all", HANGUP);
        self.0.call(SYSTEMD, "KillUnit", UNIT, &signal).await?;
        Ok(())
    }
}

impl ShutdownSignals {
    /// Waits for the next change. False when the connection is lost, and nothing more will
    /// be told.
    pub async fn next(&mut self) -> bool {
        matches!(self.0.next().await, Some(Ok(_)))
    }
}
