//! One try of a probe: the I/O, behind [`ProbeNetwork`] and the pool. What
//! several tries add up to is decided elsewhere (`worker`).

mod grpc;
mod http_get;
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
use crate::network::ProbeNetwork;
use crate::spec::{Action, HttpGet, ProbeSpec};
use crate::text::for_people;
use crate::worker::Outcome;
use way::{Unmade, Way};

/// A try that could not be made is made again so often (the kubelet's
/// `maxProbeRetries`).
const MAX_TRIES: u32 = 3;

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

    /// Carries out an HTTP lifecycle hook.
    pub(crate) async fn hook(
        &self,
        get: &HttpGet,
        pod_ip: &str,
        timeout: Duration,
    ) -> Result<(), String> {
        let deadline = Instant::now() + timeout;
        let hook = http_get::hook(&self.way, get, pod_ip, deadline);
        let result = timeout_at(deadline, hook).await;
        let result = result.unwrap_or_else(|_| Err(format!("no answer within {timeout:?}")));
        result.map_err(|reason| for_people(&reason))
    }

    async fn once(&self, job: &Job) -> Result<Outcome, Unmade> {
        let timeout = job.spec.timing.timeout;
        let deadline = Instant::now() + timeout;
        let network_probe = async {
            match &job.spec.action {
                Action::Http(get) => http_get::probe(&self.way, get, &job.pod_ip, deadline).await,
                Action::Tcp(tcp) => {
                    let to = self
                        .way
                        .destination(tcp.host.as_deref(), &job.pod_ip)
                        .await?;
                    Ok(match self.way.connect(&to.addresses, tcp.port).await {
                        Ok(_connected) => Outcome::Success(String::new()),
                        Err(error) => Outcome::Failure(format!("{to}:{}: {error}", tcp.port)),
                    })
                }
                Action::Grpc(grpc) => grpc::probe(&self.way, grpc, &job.pod_ip).await,
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
