//! The way of a probe to its target: which addresses, and a connection to one.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use nix::errno::Errno;
use node_config::egress;
use tokio::time::{Instant, timeout_at};
use tokio_rustls::TlsConnector;

use super::bounded::Bounded;
use super::tls;
use crate::network::{ByteStream, LookupPlace, Lookups, ProbeNetwork};

/// How a probe introduces itself. The version is that of the pod API.
pub(super) const USER_AGENT: &str = "kube-probe/1.33";

/// How a lifecycle hook introduces itself.
pub(super) const HOOK_USER_AGENT: &str = "kube-lifecycle/1.33";

/// Addresses of one name that are tried one after the other.
const MAX_ADDRESSES: usize = 8;

/// How long a try waits for a place to look up a name; its timeout begins after that.
const LOOKUP_WAIT: Duration = Duration::from_secs(10);

/// Errors of connecting that say something of this node, and nothing of the target: no
/// descriptor, memory or port was left (connect(2), socket(2)).
const LOCAL_SHORTAGES: [Errno; 5] = [
    Errno::ENFILE,
    Errno::EMFILE,
    Errno::ENOMEM,
    Errno::ENOBUFS,
    Errno::EADDRNOTAVAIL,
];

/// Whether a connection was not made because this node is short of something.
pub(super) fn is_local_shortage(error: &io::Error) -> bool {
    let number = error.raw_os_error();
    number.is_some_and(|number| LOCAL_SHORTAGES.contains(&Errno::from_raw(number)))
}

/// Why a try could not be made.
#[derive(Debug)]
pub(super) struct Unmade {
    pub(super) message: String,
    /// Whether trying again at once may help.
    pub(super) again: bool,
    /// Whether it counts as a failure of the target all the same. Else it is thrown away.
    pub(super) is_failure: bool,
}

impl Unmade {
    pub(super) fn for_good(message: impl Into<String>) -> Unmade {
        Unmade {
            message: message.into(),
            again: false,
            is_failure: false,
        }
    }

    /// The connection was not made because this node is short of something.
    pub(super) fn for_local_shortage(error: &io::Error) -> Unmade {
        Unmade::for_good(format!("this node cannot connect now: {error}"))
    }
}

/// Finds and connects to targets.
#[derive(Clone)]
pub(super) struct Way {
    network: Arc<dyn ProbeNetwork>,
    lookups: Arc<Lookups>,
    pub(super) tls: TlsConnector,
}

/// The name in what a probe or hook says of its host.
fn name_of(host: Option<&str>) -> Option<&str> {
    let host = without_brackets(host?);
    host.parse::<IpAddr>().is_err().then_some(host)
}

fn without_brackets(host: &str) -> &str {
    host.trim_start_matches('[').trim_end_matches(']')
}

impl Way {
    pub(super) fn new(network: Arc<dyn ProbeNetwork>) -> Result<Way, tokio_rustls::rustls::Error> {
        let tls = tls::connector()?;
        Ok(Way {
            network,
            lookups: Arc::default(),
            tls,
        })
    }

    /// A place to look up the host, if that is a name and one is free soon enough.
    pub(super) async fn lookup_place(
        &self,
        host: Option<&str>,
        pod_uid: &str,
    ) -> Option<LookupPlace> {
        name_of(host)?;
        let place = self.lookups.place(pod_uid);
        tokio::time::timeout(LOOKUP_WAIT, place).await.ok()
    }

    /// Where a probe goes: to its own host, or to the pod.
    pub(super) async fn destination(
        &self,
        host: Option<&str>,
        pod_ip: &str,
        place: Option<LookupPlace>,
    ) -> Result<Destination, Unmade> {
        let Some(host) = host else {
            let address: IpAddr = pod_ip
                .parse()
                .map_err(|_| Unmade::for_good("the pod has no address yet"))?;
            return Ok(Destination {
                host: address.to_string(),
                addresses: vec![address],
            });
        };
        let host = without_brackets(host);
        let mut addresses = match (host.parse(), place) {
            (Ok(address), _) => vec![address],
            (Err(_), None) => {
                let message = format!("too many names are looked up to look up {host}");
                return Err(Unmade::for_good(message));
            }
            // The kubelet looks a name up as a part of connecting.
            (Err(_), Some(place)) => {
                let resolved = self.network.resolve(host, place).await;
                resolved.map_err(|error| Unmade {
                    is_failure: true,
                    ..Unmade::for_good(format!("cannot look up {host}: {error}"))
                })?
            }
        };
        addresses.truncate(MAX_ADDRESSES);
        // These very addresses are connected to: the name is not looked up again.
        if let Some(refusal) = addresses
            .iter()
            .find_map(|address| egress::refusal(*address))
        {
            return Err(Unmade::for_good(format!("{host}: {refusal}")));
        }
        if addresses.is_empty() {
            return Err(Unmade::for_good(format!("{host} has no address")));
        }
        Ok(Destination {
            host: host.to_owned(),
            addresses,
        })
    }

    /// Connects to the first address that accepts. Each has its share of the time that is
    /// left, so that one that does not answer takes nothing from the others.
    pub(super) async fn connect(
        &self,
        addresses: &[IpAddr],
        port: u16,
        deadline: Instant,
    ) -> io::Result<Box<dyn ByteStream>> {
        let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
        for (address, left) in addresses.iter().zip((1..=addresses.len()).rev()) {
            let now = Instant::now();
            let time = deadline.saturating_duration_since(now);
            let share = time / u32::try_from(left).unwrap_or(u32::MAX);
            let connect = self.network.connect(SocketAddr::new(*address, port));
            let connected = match left {
                // The caller's timeout is about this one too.
                1 => connect.await,
                _ => timeout_at(now + share, connect)
                    .await
                    .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())),
            };
            match connected {
                Ok(stream) => return Ok(Box::new(Bounded::new(stream))),
                Err(error) if is_local_shortage(&error) => return Err(error),
                Err(error) => last = error,
            }
        }
        Err(last)
    }
}

/// Where a probe goes.
#[derive(Debug)]
pub(super) struct Destination {
    /// As the probe names it.
    pub(super) host: String,
    pub(super) addresses: Vec<IpAddr>,
}

impl std::fmt::Display for Destination {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.host.contains(':') {
            true => write!(formatter, "[{}]", self.host),
            false => formatter.write_str(&self.host),
        }
    }
}
