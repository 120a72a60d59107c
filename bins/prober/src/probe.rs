//! One try of a probe: the I/O, behind [`ProbeNetwork`] and the pool. What
//! several tries add up to is decided elsewhere (`worker`).

mod grpc;
mod http_get;
mod tls;
mod url;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bulkhead_api::v1;
use bulkhead_api::v1::probe_targets_client::ProbeTargetsClient;
use ipc::CallError;
use ipc::limits::EXEC_PROBE_MARGIN;
use tokio_rustls::TlsConnector;
use tonic::transport::Channel;

use crate::network::{ByteStream, ProbeNetwork};
use crate::spec::{Action, ProbeSpec};
use crate::text::for_people;
use crate::worker::Outcome;
use crate::{Kind, egress};

/// How a probe introduces itself. The version is that of the pod API.
pub(crate) const USER_AGENT: &str = "kube-probe/1.33";

/// A try that could not be made is made again so often (the kubelet's
/// `maxProbeRetries`).
const MAX_TRIES: u32 = 3;

/// Addresses of one name that are tried one after the other.
const MAX_ADDRESSES: usize = 8;

/// Answer of the pool to an exec probe: its output is 10 KiB at most.
const MAX_EXEC_RESPONSE_BYTES: usize = 16 << 10;

/// What one try is about.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(crate) kind: Kind,
    pub(crate) pod_uid: String,
    pub(crate) container_name: String,
    pub(crate) container_id: String,
    /// The pod's address, as the pool says.
    pub(crate) pod_ip: String,
    pub(crate) spec: Arc<ProbeSpec>,
}

/// Why a try could not be made: no fault of the target.
#[derive(Debug)]
struct Unmade {
    message: String,
    /// Whether trying again at once may help.
    again: bool,
}

impl Unmade {
    fn for_good(message: impl Into<String>) -> Unmade {
        Unmade {
            message: message.into(),
            again: false,
        }
    }
}

/// Makes tries.
#[derive(Clone)]
pub(crate) struct Prober {
    network: Arc<dyn ProbeNetwork>,
    pool: ProbeTargetsClient<Channel>,
    tls: TlsConnector,
}

impl Prober {
    pub(crate) fn new(
        network: Arc<dyn ProbeNetwork>,
        pool: Channel,
    ) -> Result<Prober, tokio_rustls::rustls::Error> {
        Ok(Prober {
            network,
            pool: ProbeTargetsClient::new(pool).max_decoding_message_size(MAX_EXEC_RESPONSE_BYTES),
            tls: tls::connector()?,
        })
    }

    /// Makes one try. Its timeout counts from here on, waiting in our own queues
    /// not included.
    pub(crate) async fn attempt(&self, job: &Job) -> Outcome {
        let mut tries = 1;
        let result = loop {
            match self.once(job).await {
                Err(Unmade { again: true, .. }) if tries < MAX_TRIES => tries += 1,
                result => break result,
            }
        };
        let name = match job.kind {
            Kind::Liveness => "Liveness",
            Kind::Readiness => "Readiness",
            Kind::Startup => "Startup",
        };
        match result {
            Ok(Outcome::Success(warning)) if warning.is_empty() => Outcome::Success(warning),
            Ok(Outcome::Success(warning)) => {
                Outcome::Success(for_people(&format!("{name} probe warning: {warning}")))
            }
            Ok(Outcome::Failure(reason)) => {
                Outcome::Failure(for_people(&format!("{name} probe failed: {reason}")))
            }
            Ok(Outcome::Error(reason))
            | Err(Unmade {
                message: reason, ..
            }) => Outcome::Error(for_people(&format!("{name} probe errored: {reason}"))),
        }
    }

    async fn once(&self, job: &Job) -> Result<Outcome, Unmade> {
        let timeout = job.spec.timing.timeout;
        let network_probe = async {
            match &job.spec.action {
                Action::Http(get) => http_get::probe(self, get, &job.pod_ip).await,
                Action::Tcp(tcp) => {
                    let to = self.destination(tcp.host.as_deref(), &job.pod_ip).await?;
                    Ok(match self.connect(&to.addresses, tcp.port).await {
                        Ok(_connected) => Outcome::Success(String::new()),
                        Err(error) => Outcome::Failure(format!("{to}:{}: {error}", tcp.port)),
                    })
                }
                Action::Grpc(grpc) => grpc::probe(self, grpc, &job.pod_ip).await,
                Action::Exec => self.exec(job, timeout).await,
                Action::Impossible(reason) => Err(Unmade::for_good(reason)),
            }
        };
        if job.spec.action == Action::Exec {
            // The runtime measures the command; the call has a deadline of its own.
            return network_probe.await;
        }
        tokio::time::timeout(timeout, network_probe)
            .await
            .unwrap_or_else(|_| Ok(Outcome::Failure(format!("no answer within {timeout:?}"))))
    }

    /// Where a probe goes: to its own host, or to the pod.
    async fn destination(&self, host: Option<&str>, pod_ip: &str) -> Result<Destination, Unmade> {
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
            Err(_) => self.network.resolve(host).await.map_err(|error| Unmade {
                message: format!("cannot look up {host}: {error}"),
                again: true,
            })?,
        };
        addresses.truncate(MAX_ADDRESSES);
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
    async fn connect(
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

    /// Has the pool run the command that it knows.
    async fn exec(&self, job: &Job, timeout: Duration) -> Result<Outcome, Unmade> {
        let request = v1::ExecProbeRequest {
            pod_uid: job.pod_uid.clone(),
            container_name: job.container_name.clone(),
            container_id: job.container_id.clone(),
            kind: crate::wire::kind_to_wire(job.kind).into(),
        };
        let response = ipc::call(timeout + EXEC_PROBE_MARGIN, || {
            let mut pool = self.pool.clone();
            let request = request.clone();
            async move { pool.exec_probe(request).await }
        })
        .await;
        match response {
            Ok(response) => exec_outcome(&response, timeout),
            Err(error) => Err(Unmade {
                again: matches!(error, CallError::Refused(_)),
                message: error.to_string(),
            }),
        }
    }
}

fn exec_outcome(response: &v1::ExecProbeResponse, timeout: Duration) -> Result<Outcome, Unmade> {
    if !response.error.is_empty() {
        return Err(Unmade {
            message: response.error.clone(),
            again: true,
        });
    }
    if response.timed_out {
        let message = format!("the command did not end within {timeout:?}");
        return Ok(Outcome::Failure(message));
    }
    if response.exit_code == 0 {
        return Ok(Outcome::Success(String::new()));
    }
    let output = String::from_utf8_lossy(&response.output);
    Ok(Outcome::Failure(match output.trim() {
        "" => format!("the command ended with code {}", response.exit_code),
        output => output.to_owned(),
    }))
}

/// Where a probe goes.
#[derive(Debug)]
struct Destination {
    /// As the probe names it.
    host: String,
    addresses: Vec<IpAddr>,
}

impl std::fmt::Display for Destination {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.host.contains(':') {
            true => write!(formatter, "[{}]", self.host),
            false => formatter.write_str(&self.host),
        }
    }
}

#[cfg(test)]
mod tests;
