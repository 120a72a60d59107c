//! One try of a probe: the I/O, behind [`ProbeNetwork`] and the pool. What
//! several tries add up to is decided elsewhere (`worker`).

mod bounded;
mod grpc;
mod http_get;
mod request_target;
mod tls;
mod url;
mod way;

use std::sync::Arc;
use std::time::Duration;

use bulkhead_api::v1;
use bulkhead_api::v1::probe_targets_client::ProbeTargetsClient;
use ipc::limits::EXEC_PROBE_MARGIN;
use ipc::{CallError, Channel};
use tokio::time::{Instant, timeout_at};

use crate::Kind;
use crate::network::{LookupPlace, ProbeNetwork};
use crate::spec::{Action, HttpGet, ProbeSpec, TcpSocket};
use crate::text::for_people;
use crate::worker::Outcome;
use way::{Unmade, Way};

/// A try that could not be made is made again so often (the kubelet's
/// `maxProbeRetries`).
const MAX_TRIES: u32 = 3;

/// Wait before a hook is tried again that this node could not connect for.
const HOOK_AGAIN: Duration = Duration::from_secs(1);

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

/// Makes tries.
#[derive(Clone)]
pub(crate) struct Prober {
    way: Way,
    pool: ProbeTargetsClient<Channel>,
}

impl Prober {
    pub(crate) fn new(
        network: Arc<dyn ProbeNetwork>,
        pool: Channel,
    ) -> Result<Prober, tokio_rustls::rustls::Error> {
        Ok(Prober {
            way: Way::new(network)?,
            pool: ProbeTargetsClient::new(pool).max_decoding_message_size(MAX_EXEC_RESPONSE_BYTES),
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
            Ok(Outcome::Failure(reason))
            | Err(Unmade {
                is_failure: true,
                message: reason,
                ..
            }) => Outcome::Failure(for_people(&format!("{name} probe failed: {reason}"))),
            Ok(Outcome::Error(reason))
            | Err(Unmade {
                message: reason, ..
            }) => Outcome::Error(for_people(&format!("{name} probe errored: {reason}"))),
        }
    }

    /// Carries out an HTTP lifecycle hook. Where this node cannot connect, being short of
    /// something, nothing was sent, and it is tried again.
    pub(crate) async fn hook(
        &self,
        get: &HttpGet,
        (pod_uid, pod_ip): (&str, &str),
        timeout: Duration,
    ) -> Result<(), String> {
        let deadline = Instant::now() + timeout;
        let hook = async {
            loop {
                let place = self.way.lookup_place(get.host.as_deref(), pod_uid).await;
                match http_get::hook(&self.way, get, pod_ip, place, deadline).await {
                    Err(Unmade { again: true, .. }) => tokio::time::sleep(HOOK_AGAIN).await,
                    result => return result.map_err(|unmade| unmade.message),
                }
            }
        };
        let result = timeout_at(deadline, hook).await;
        let result = result.unwrap_or_else(|_| Err(format!("no answer within {timeout:?}")));
        result.map_err(|reason| for_people(&reason))
    }

    async fn once(&self, job: &Job) -> Result<Outcome, Unmade> {
        let timeout = job.spec.timing.timeout;
        let host = match &job.spec.action {
            Action::Http(HttpGet { host, .. }) | Action::Tcp(TcpSocket { host, .. }) => host,
            Action::Grpc(_) | Action::Exec | Action::Impossible(_) => &None,
        };
        let place = self.way.lookup_place(host.as_deref(), &job.pod_uid).await;
        let deadline = Instant::now() + timeout;
        let network_probe = async {
            match &job.spec.action {
                Action::Http(get) => {
                    http_get::probe(&self.way, get, &job.pod_ip, place, deadline).await
                }
                Action::Tcp(tcp) => self.tcp(tcp, &job.pod_ip, place, deadline).await,
                Action::Grpc(grpc) => grpc::probe(&self.way, grpc, &job.pod_ip, deadline).await,
                Action::Exec => self.exec(job, timeout).await,
                Action::Impossible(reason) => Err(Unmade::for_good(reason)),
            }
        };
        if job.spec.action == Action::Exec {
            // The runtime measures the command; the call has a deadline of its own.
            return network_probe.await;
        }
        timeout_at(deadline, network_probe)
            .await
            .unwrap_or_else(|_| Ok(Outcome::Failure(format!("no answer within {timeout:?}"))))
    }

    async fn tcp(
        &self,
        tcp: &TcpSocket,
        pod_ip: &str,
        place: Option<LookupPlace>,
        deadline: Instant,
    ) -> Result<Outcome, Unmade> {
        let host = tcp.host.as_deref();
        let to = self.way.destination(host, pod_ip, place).await?;
        match self.way.connect(&to.addresses, tcp.port, deadline).await {
            Ok(_connected) => Ok(Outcome::Success(String::new())),
            Err(error) if way::is_local_shortage(&error) => Err(Unmade::for_local_shortage(&error)),
            Err(error) => Ok(Outcome::Failure(format!("{to}:{}: {error}", tcp.port))),
        }
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
                ..Unmade::for_good(error.to_string())
            }),
        }
    }
}

fn exec_outcome(response: &v1::ExecProbeResponse, timeout: Duration) -> Result<Outcome, Unmade> {
    if !response.error.is_empty() {
        return Err(Unmade {
            again: true,
            ..Unmade::for_good(&response.error)
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

#[cfg(test)]
mod tests;
