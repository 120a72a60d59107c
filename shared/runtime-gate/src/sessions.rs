//! The gate in front of sessions: commands and connections that people ask for. A pod within
//! `baseline` lets everybody have them who may ask; one beyond it has what its sessions would
//! have too, so the policy must give them as well.

use std::time::Duration;

use async_trait::async_trait;
use cri::{EXEC_SYNC, RuntimeError, RuntimeSessions, v1};
use node_policy::Demand;

use crate::gate::{Gate, Stop};
use crate::request::Asked;

/// Judges a session with a container.
async fn judge_session(gate: &Gate, container_id: &str) -> Result<(), Stop> {
    let known = gate.facts.container(container_id).await?;
    let pod = gate.held(&known.pod_uid)?;
    if !pod.is_beyond_baseline {
        return Ok(());
    }
    let status = gate.facts.runtime.container_status(container_id).await?;
    let image = v1::ImageSpec {
        image: status.image_ref,
        ..v1::ImageSpec::default()
    };
    let (images, _) = gate.facts.image(&image).await?;
    Ok(gate.check(&pod, &[asked()], &images)?)
}

/// Judges connections to ports of a sandbox: in a network of its own they reach the pod alone.
async fn judge_ports(gate: &Gate, sandbox_id: &str) -> Result<(), Stop> {
    let known = gate.known_sandbox(sandbox_id).await?;
    let pod = gate.held(&known.pod.uid)?;
    let mut of_the_node = known.of_the_node.iter();
    if of_the_node.any(|asked| asked.demand == Demand::HostNetwork) {
        gate.check(&pod, &[asked()], pod.images())?;
    }
    Ok(())
}

fn asked() -> Asked {
    Asked::new("exec", Demand::Exec)
}

/// A refusal is no alarm here: people ask for what they may not have.
fn stopped(method: &'static str, stop: Stop) -> RuntimeError {
    match stop {
        Stop::Failed(error) => error,
        Stop::Denied(denial) => denial.into_error(method),
    }
}

#[async_trait]
impl RuntimeSessions for Gate {
    async fn exec(&self, request: v1::ExecRequest) -> Result<String, RuntimeError> {
        let judged = judge_session(self, &request.container_id).await;
        judged.map_err(|stop| stopped("Exec", stop))?;
        self.inner_sessions.exec(request).await
    }

    async fn attach(&self, request: v1::AttachRequest) -> Result<String, RuntimeError> {
        let judged = judge_session(self, &request.container_id).await;
        judged.map_err(|stop| stopped("Attach", stop))?;
        self.inner_sessions.attach(request).await
    }

    async fn port_forward(&self, request: v1::PortForwardRequest) -> Result<String, RuntimeError> {
        let judged = judge_ports(self, &request.pod_sandbox_id).await;
        judged.map_err(|stop| stopped("PortForward", stop))?;
        self.inner_sessions.port_forward(request).await
    }

    async fn run_command(
        &self,
        container_id: &str,
        command: Vec<String>,
        timeout: Duration,
    ) -> Result<v1::ExecSyncResponse, RuntimeError> {
        let judged = judge_session(self, container_id).await;
        judged.map_err(|stop| stopped(EXEC_SYNC, stop))?;
        let sessions = &self.inner_sessions;
        sessions.run_command(container_id, command, timeout).await
    }
}

#[cfg(test)]
mod tests;
