//! [`ServiceManager`]: has systemd make, change and stop slices, by the D-Bus interface
//! `org.freedesktop.systemd1.Manager` (org.freedesktop.systemd1(5)).

use std::path::Path;
use std::time::Duration;

use serde::Serialize;
use tokio::time::sleep;
use zbus::message::Body;
use zbus::wire::{ObjectPath, Variant};

use crate::bus::{Bus, Error, Target};

/// Where systemd is found on the bus.
pub(crate) const SYSTEMD: Target<'_> = Target {
    service: "org.freedesktop.systemd1",
    object: "/org/freedesktop/systemd1",
    interface: "org.freedesktop.systemd1.Manager",
};
const UNIT: &str = "org.freedesktop.systemd1.Unit";

/// Errors of systemd that say that there is no such unit (any more), and that there is one.
const NO_SUCH_UNIT: &str = "org.freedesktop.systemd1.NoSuchUnit";
const UNIT_EXISTS: &str = "org.freedesktop.systemd1.UnitExists";

/// A job takes the place of one that contradicts it.
const REPLACE: &str = "replace";

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

/// The systemd of this machine.
#[derive(Debug)]
pub struct ServiceManager(Bus);

impl ServiceManager {
    /// That behind the bus which listens at this socket.
    #[must_use]
    pub fn at(socket: &Path) -> ServiceManager {
        ServiceManager(Bus::at(socket))
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
        let object: ObjectPath<'_> = body.deserialize().map_err(refused)?;
        let target = Target {
            object: &object,
            interface: UNIT,
            ..SYSTEMD
        };
        match self.0.property::<String>(target, "ActiveState", unit).await {
            Err(error) if error.is_of_nobody() => Ok(None),
            state => state.map(Some),
        }
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
        self.0.call(SYSTEMD, method, unit, arguments).await
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

#[cfg(test)]
#[path = "systemd_tests.rs"]
mod tests;
