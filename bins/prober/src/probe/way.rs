//! The way of a probe to its target: which addresses, and a connection to one.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use node_config::egress;
use tokio_rustls::TlsConnector;

use super::tls;
use crate::network::{ByteStream, ProbeNetwork};

/// How a probe introduces itself. The version is that of the pod API.
pub(super) const USER_AGENT: &str = "kube-probe/1.33";

/// How a lifecycle hook introduces itself.
pub(super) const HOOK_USER_AGENT: &str = "kube-lifecycle/1.33";

/// Addresses of one name that are tried one after the other.
const MAX_ADDRESSES: usize = 8;

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
}

/// Finds and connects to targets.
#[derive(Clone)]
pub(super) struct Way {
    network: Arc<dyn ProbeNetwork>,
    pub(super) tls: TlsConnector,
}

impl Way {
    pub(super) fn new(network: Arc<dyn ProbeNetwork>) -> Result<Way, tokio_rustls::rustls::Error> {
        let tls = tls::connector()?;
        Ok(Way { network, tls })
    }

    /// Where a probe goes: to its own host, or to the pod.
    pub(super) async fn destination(
        &self,
        host: Option<&str>,
        pod_ip: &str,
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
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let mut addresses = match host.parse() {
            Ok(address) => vec![address],
            // The kubelet looks a name up as a part of connecting.
            Err(_) => self.network.resolve(host).await.map_err(|error| Unmade {
                is_failure: true,
                ..Unmade::for_good(format!("cannot look up {host}: {error}"))
            })?,
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

    /// Connects to the first address that accepts.
    pub(super) async fn connect(
        &self,
        addresses: &[IpAddr],
        port: u16,
    ) -> std::io::Result<Box<dyn ByteStream>> {
        let mut last = std::io::Error::from(std::io::ErrorKind::AddrNotAvailable);
        for address in addresses {
            match self.network.connect(SocketAddr::new(*address, port)).await {
                Ok(stream) => return Ok(stream),
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
