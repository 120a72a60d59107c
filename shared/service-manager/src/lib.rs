//! A client of systemd: has it make, change and stop slices, by the D-Bus interface
//! `org.freedesktop.systemd1.Manager` (org.freedesktop.systemd1(5)).
//!
//! What a slice is called and which properties it has, its caller says.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use tokio::sync::Mutex;
use tokio::time::sleep;
use zbus::message::Body;
use zbus::wire::Variant;
use zbus::{Connection, connection};

/// Where systemd is found on the bus.
const SYSTEMD: &str = "org.freedesktop.systemd1";
const MANAGER_PATH: &str = "/org/freedesktop/systemd1";
const MANAGER: &str = "org.freedesktop.systemd1.Manager";
const UNIT: &str = "org.freedesktop.systemd1.Unit";
const PROPERTIES: &str = "org.freedesktop.DBus.Properties";

/// Errors of systemd that say that there is no such unit (any more), and that there is one.
const NO_SUCH_UNIT: &str = "org.freedesktop.systemd1.NoSuchUnit";
const UNIT_EXISTS: &str = "org.freedesktop.systemd1.UnitExists";

/// A job takes the place of one that contradicts it.
const REPLACE: &str = "replace";

/// Longest time that systemd, or the bus, may take for one answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// Waits between looks whether a slice that was asked for is there: most are at once, and
/// after about 8 s it is an error.
const START_WAITS: [Duration; 12] = {
    let mut waits = [Duration::from_millis(2); 12];
    let mut index = 1;
    while index < waits.len() {
        waits[index] = Duration::from_millis(2 << index);
        index += 1;
    }
    waits
};

/// Why systemd did not do what it was asked to.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The bus or systemd cannot be reached.
    #[error("systemd cannot be reached at {socket}", socket = socket.display())]
    Unreachable {
        /// The socket of the bus.
        socket: PathBuf,
        /// Why not.
        source: zbus::Error,
    },
    /// systemd, or the bus, refused or did not understand.
    #[error("systemd refuses {method} of {unit}")]
    Refused {
        /// What it was asked for.
        method: &'static str,
        /// Of which unit.
        unit: String,
        /// Its words.
        source: zbus::Error,
    },
    /// The unit was asked for and did not come.
    #[error("systemd did not start {unit}: it is {state}")]
    NotStarted {
        /// The unit.
        unit: String,
        /// Its `ActiveState`.
        state: String,
    },
}

/// The value of a unit's property.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value {
    /// A number, [`u64::MAX`] being "infinity".
    Number(u64),
    /// Yes or no.
    Flag(bool),
}

/// A property of a unit, by its name in systemd.resource-control(5) or on the bus.
pub type Property = (&'static str, Value);

/// How far the stop of a unit is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// It is not there, or not active.
    Done,
    /// What belongs to it is still ending: ask again.
    UnderWay,
}

/// The systemd of this machine. A connection is made when first needed, and again when the
/// bus was restarted meanwhile.
#[derive(Debug)]
pub struct ServiceManager {
    socket: PathBuf,
    connection: Mutex<Option<Connection>>,
}

impl ServiceManager {
    /// That behind the bus which listens at this socket.
    #[must_use]
    pub fn at(socket: &Path) -> ServiceManager {
        ServiceManager {
            socket: socket.to_owned(),
            connection: Mutex::default(),
        }
    }

    /// Has a slice active with these properties, whether it was or not. The slices above it,
    /// which its name tells, come with it.
    ///
    /// # Errors
    /// When systemd cannot be reached, refuses, or has not started it in about 8 s.
    pub async fn ensure_slice(&self, name: &str, properties: &[Property]) -> Result<(), Error> {
        let asked = variants(properties);
        let mut all = vec![
            ("Description", Variant::from("cgroup of pods")),
            // systemd does not stop it as one of the usual units early in a shutdown.
            ("DefaultDependencies", Variant::from(false)),
        ];
        all.extend(variants(properties));
        let others: Vec<(&str, Vec<(&str, Variant<'_>)>)> = Vec::new();
        let new = (name, REPLACE, all, others);
        match self.manage("StartTransientUnit", name, &new).await {
            Err(error) if error.is(UNIT_EXISTS) => {
                let change = (name, true, asked);
                self.manage("SetUnitProperties", name, &change).await?;
                self.manage("StartUnit", name, &(name, REPLACE)).await?;
            }
            started => {
                started?;
            }
        }
        self.is_started(name).await
    }

    /// Gives a unit other properties, until the next boot.
    ///
    /// # Errors
    /// When systemd cannot be reached or refuses.
    pub async fn change(&self, unit: &str, properties: &[Property]) -> Result<(), Error> {
        let change = (unit, true, variants(properties));
        self.manage("SetUnitProperties", unit, &change).await?;
        Ok(())
    }

    /// Has a unit stopped, and all that belongs to it.
    ///
    /// # Errors
    /// When systemd cannot be reached or refuses.
    pub async fn stop(&self, unit: &str) -> Result<Stop, Error> {
        match self.manage("StopUnit", unit, &(unit, REPLACE)).await {
            Err(error) if error.is(NO_SUCH_UNIT) => return Ok(Stop::Done),
            asked => asked?,
        };
        Ok(match self.active_state(unit).await?.as_deref() {
            None | Some("inactive" | "failed") => Stop::Done,
            Some(_) => Stop::UnderWay,
        })
    }

    async fn is_started(&self, unit: &str) -> Result<(), Error> {
        let mut state = None;
        for wait in START_WAITS {
            state = self.active_state(unit).await?;
            if state.as_deref() == Some("active") {
                return Ok(());
            }
            sleep(wait).await;
        }
        Err(Error::NotStarted {
            unit: unit.to_owned(),
            state: state.unwrap_or("not there".to_owned()),
        })
    }

    /// Its `ActiveState`; none when systemd does not know the unit.
    async fn active_state(&self, unit: &str) -> Result<Option<String>, Error> {
        let method = "GetUnit";
        let body = match self.manage(method, unit, &(unit,)).await {
            Err(error) if error.is(NO_SUCH_UNIT) => return Ok(None),
            answered => answered?,
        };
        let refused = |source| Error::refused(method, unit, source);
        let path: zbus::wire::ObjectPath<'_> = body.deserialize().map_err(refused)?;
        let asked = (UNIT, "ActiveState");
        let body = match self.call((&path, PROPERTIES, "Get"), unit, &asked).await {
            Err(error) if error.is_of_nobody() => return Ok(None),
            answered => answered?,
        };
        let state: Variant<'_> = body.deserialize().map_err(refused)?;
        Ok(Some(String::try_from(state).map_err(refused)?))
    }

    /// Calls a method of systemd's manager about a unit.
    async fn manage<Arguments>(
        &self,
        method: &'static str,
        unit: &str,
        arguments: &Arguments,
    ) -> Result<Body, Error>
    where
        Arguments: Serialize + zbus::DynamicType + Sync,
    {
        let target = (MANAGER_PATH, MANAGER, method);
        self.call(target, unit, arguments).await
    }

    /// Calls a method of an object, once more over a new connection where the old one was cut:
    /// all that is asked for here may be done twice.
    async fn call<Arguments>(
        &self,
        (object, interface, method): (&str, &str, &'static str),
        unit: &str,
        arguments: &Arguments,
    ) -> Result<Body, Error>
    where
        Arguments: Serialize + zbus::DynamicType + Sync,
    {
        let mut is_first = true;
        loop {
            let connection = self.connected().await?;
            let (to, interface) = (Some(SYSTEMD), Some(interface));
            let answer = connection.call_method(to, object, interface, method, arguments);
            match answer.await {
                Ok(answer) => return Ok(answer.body()),
                Err(zbus::Error::InputOutput(_)) if is_first => self.forget().await,
                Err(error) => return Err(Error::refused(method, unit, error)),
            }
            is_first = false;
        }
    }

    async fn connected(&self) -> Result<Connection, Error> {
        let mut connection = self.connection.lock().await;
        if let Some(connection) = connection.as_ref() {
            return Ok(connection.clone());
        }
        let address = format!("unix:path={}", self.socket.display());
        let builder = connection::Builder::address(&*address).method_timeout(ANSWER_WITHIN);
        let connecting = tokio::time::timeout(ANSWER_WITHIN, builder.build());
        let made = connecting.await.unwrap_or_else(|_elapsed| {
            let late = std::io::Error::from(std::io::ErrorKind::TimedOut);
            Err(zbus::Error::InputOutput(Arc::new(late)))
        });
        let made = made.map_err(|source| Error::Unreachable {
            socket: self.socket.clone(),
            source,
        })?;
        Ok(connection.insert(made).clone())
    }

    /// Has the next call make a new connection.
    async fn forget(&self) {
        *self.connection.lock().await = None;
    }
}

fn variants(properties: &[Property]) -> Vec<(&'static str, Variant<'static>)> {
    let variant = |value| match value {
        Value::Number(number) => Variant::from(number),
        Value::Flag(flag) => Variant::from(flag),
    };
    let named = properties
        .iter()
        .map(|(name, value)| (*name, variant(*value)));
    named.collect()
}

impl Error {
    fn refused(method: &'static str, unit: &str, source: zbus::Error) -> Error {
        Error::Refused {
            method,
            unit: unit.to_owned(),
            source,
        }
    }

    /// Whether it is the error of this name on the bus.
    fn is(&self, wanted: &str) -> bool {
        matches!(
            self,
            Error::Refused { source: zbus::Error::MethodError(name, ..), .. } if name.as_str() == wanted
        )
    }

    /// Whether the object is gone that was asked.
    fn is_of_nobody(&self) -> bool {
        let Error::Refused {
            source: zbus::Error::FDO(error),
            ..
        } = self
        else {
            return false;
        };
        matches!(**error, zbus::fdo::Error::UnknownObject(_))
    }
}

#[cfg(test)]
mod tests;
