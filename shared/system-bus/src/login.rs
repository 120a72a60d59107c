//! [`Logind`]: what logind tells of a shutdown, and the lock that has it wait
//! (org.freedesktop.login1(5), "Inhibitor Locks" of systemd); and [`LoginManager`], that
//! of this machine.

use std::fmt::Debug;
use std::num::NonZeroUsize;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use futures_util::{Stream, StreamExt as _};
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

/// What a graceful shutdown of a node needs of logind.
#[async_trait]
pub trait Logind: Debug + Send + Sync {
    /// Takes a lock that delays each shutdown until it is closed, or until
    /// [`Logind::longest_delay`] is over. `who` and `why` are for people
    /// (`systemd-inhibit --list`).
    ///
    /// # Errors
    /// When logind cannot be reached or refuses; it does while a shutdown is under way.
    async fn delay_shutdown(&self, who: &str, why: &str) -> Result<OwnedFd, Error>;

    /// How long logind waits for such locks (`InhibitDelayMaxSec` of logind.conf(5)).
    ///
    /// # Errors
    /// When logind cannot be reached.
    async fn longest_delay(&self) -> Result<Duration, Error>;

    /// Whether a shutdown was asked for, which locks delay now.
    ///
    /// # Errors
    /// When logind cannot be reached.
    async fn is_shutting_down(&self) -> Result<bool, Error>;

    /// What tells when to look again.
    ///
    /// # Errors
    /// When the bus cannot be reached.
    async fn signals(&self) -> Result<ShutdownSignals, Error>;

    /// Has logind read its configuration again.
    ///
    /// # Errors
    /// When systemd cannot be reached or refuses.
    async fn reload(&self) -> Result<(), Error>;
}

/// Tells of each change of [`Logind::is_shutting_down`].
pub struct ShutdownSignals(BoxStream<'static, bool>);

impl ShutdownSignals {
    /// From a stream that has `true` for each change, and `false` or its end where nothing
    /// more will be told.
    pub fn new(changes: impl Stream<Item = bool> + Send + 'static) -> ShutdownSignals {
        ShutdownSignals(changes.boxed())
    }

    /// Waits for the next change. False when the connection is lost, and nothing more will
    /// be told.
    pub async fn next(&mut self) -> bool {
        self.0.next().await == Some(true)
    }
}

/// The logind of this machine.
#[derive(Debug)]
pub struct LoginManager(Bus);

impl LoginManager {
    /// That behind the bus which listens at this socket.
    #[must_use]
    pub fn at(socket: &Path) -> LoginManager {
        LoginManager(Bus::at(socket))
    }
}

#[async_trait]
impl Logind for LoginManager {
    async fn delay_shutdown(&self, who: &str, why: &str) -> Result<OwnedFd, Error> {
        let method = "Inhibit";
        let lock = ("shutdown", who, why, "delay");
        let body = self.0.call(LOGIN, method, LOGIND, &lock).await?;
        let lock: Result<zbus::wire::OwnedFd, _> = body.deserialize();
        let lock = lock.map_err(|source| Error::refused(method, LOGIND, source))?;
        Ok(lock.into())
    }

    async fn longest_delay(&self) -> Result<Duration, Error> {
        let name = "InhibitDelayMaxUSec";
        let delay: u64 = self.0.property(LOGIN, name, LOGIND).await?;
        Ok(Duration::from_micros(delay))
    }

    async fn is_shutting_down(&self) -> Result<bool, Error> {
        self.0.property(LOGIN, "PreparingForShutdown", LOGIND).await
    }

    async fn signals(&self) -> Result<ShutdownSignals, Error> {
        let member = "PrepareForShutdown";
        let rule = MatchRule::builder()
            .msg_type(zbus::message::Type::Signal)
            .sender(LOGIN.service)
            .path(LOGIN.object)
            .interface(LOGIN.interface)
            .member(member);
        let refused = |source| Error::refused(member, LOGIND, source);
        let rule = rule.build().map_err(refused)?;
        // A connection of its own: signals that nobody has read yet hold up no answer, and
        // one that was cut is not used again.
        let connection = Bus::at(self.0.socket()).connected().await?;
        let signals = MessageStream::for_match_rule(rule, &connection, MAX_SIGNALS).await;
        let signals = signals.map_err(refused)?;
        Ok(ShutdownSignals::new(signals.map(|told| told.is_ok())))
    }

    async fn reload(&self) -> Result<(), Error> {
        let signal = (UNIT, "all", HANGUP);
        self.0.call(SYSTEMD, "KillUnit", UNIT, &signal).await?;
        Ok(())
    }
}
