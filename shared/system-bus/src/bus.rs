//! [`Bus`]: calls over a connection to the system bus, which is made when first needed.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use tokio::sync::Mutex;
use zbus::message::Body;
use zbus::wire::Variant;
use zbus::{Connection, connection};

/// The interface of properties of any object.
const PROPERTIES: &str = "org.freedesktop.DBus.Properties";

/// Longest time that anybody on the bus, or the bus, may take for one answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// Why something on the bus did not do what it was asked to.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The bus cannot be reached.
    #[error("the system bus cannot be reached at {socket}", socket = socket.display())]
    Unreachable {
        /// Its socket.
        socket: PathBuf,
        /// Why not.
        source: zbus::Error,
    },
    /// Somebody on the bus, or the bus, refused or did not understand.
    #[error("{method} of {of} is refused")]
    Refused {
        /// What was asked for.
        method: &'static str,
        /// Of what: a unit of systemd, or logind.
        of: String,
        /// Its words.
        source: zbus::Error,
    },
    /// A unit was asked for and did not come.
    #[error("systemd did not start {unit}: it is {state}")]
    NotStarted {
        /// The unit.
        unit: String,
        /// Its `ActiveState`.
        state: String,
    },
}

impl Error {
    pub(crate) fn refused(method: &'static str, of: &str, source: zbus::Error) -> Error {
        Error::Refused {
            method,
            of: of.to_owned(),
            source,
        }
    }

    /// Whether it is the error of this name on the bus.
    pub(crate) fn is(&self, wanted: &str) -> bool {
        matches!(
            self,
            Error::Refused { source: zbus::Error::MethodError(name, ..), .. }
                if name.as_str() == wanted
        )
    }

    /// Whether the object is gone that was asked.
    pub(crate) fn is_of_nobody(&self) -> bool {
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

/// Whom a call is for: a service on the bus, its object and interface.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Target<'a> {
    pub(crate) service: &'static str,
    pub(crate) object: &'a str,
    pub(crate) interface: &'static str,
}

/// The system bus. A connection is made when first needed, and again when the bus was
/// restarted meanwhile.
#[derive(Debug)]
pub(crate) struct Bus {
    socket: PathBuf,
    connection: Mutex<Option<Connection>>,
}

impl Bus {
    /// The one that listens at this socket.
    pub(crate) fn at(socket: &Path) -> Bus {
        Bus {
            socket: socket.to_owned(),
            connection: Mutex::default(),
        }
    }

    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }

    /// Calls a method about `of`, once more over a new connection where the old one was
    /// cut: all that is asked for here may be done twice. Who has not answered in time is not
    /// asked again: whoever waits here waits [`ANSWER_WITHIN`] for that, and not twice.
    pub(crate) async fn call<Arguments>(
        &self,
        target: Target<'_>,
        method: &'static str,
        of: &str,
        arguments: &Arguments,
    ) -> Result<Body, Error>
    where
        Arguments: Serialize + zbus::DynamicType + Sync,
    {
        let mut is_first = true;
        loop {
            let connection = self.connected().await?;
            let (to, interface) = (Some(target.service), Some(target.interface));
            let answer = connection.call_method(to, target.object, interface, method, arguments);
            match answer.await {
                Ok(answer) => return Ok(answer.body()),
                Err(zbus::Error::InputOutput(error))
                    if is_first && error.kind() != ErrorKind::TimedOut =>
                {
                    self.forget().await;
                }
                Err(error) => return Err(Error::refused(method, of, error)),
            }
            is_first = false;
        }
    }

    /// A property of an object, which is of the type that is wanted.
    pub(crate) async fn property<Value>(
        &self,
        target: Target<'_>,
        name: &'static str,
        of: &str,
    ) -> Result<Value, Error>
    where
        Value: for<'a> TryFrom<Variant<'a>, Error = zbus::Error>,
    {
        let asked = (target.interface, name);
        let target = Target {
            interface: PROPERTIES,
            ..target
        };
        let body = self.call(target, "Get", of, &asked).await?;
        let refused = |source| Error::refused(name, of, source);
        let value: Variant<'_> = body.deserialize().map_err(refused)?;
        Value::try_from(value).map_err(refused)
    }

    pub(crate) async fn connected(&self) -> Result<Connection, Error> {
        let mut connection = self.connection.lock().await;
        if let Some(connection) = connection.as_ref() {
            return Ok(connection.clone());
        }
        let address = format!("unix:path={}", self.socket.display());
        let builder = connection::Builder::address(&*address).method_timeout(ANSWER_WITHIN);
        let connecting = tokio::time::timeout(ANSWER_WITHIN, builder.build());
        let made = connecting.await.unwrap_or_else(|_elapsed| {
            let late = std::io::Error::from(ErrorKind::TimedOut);
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
