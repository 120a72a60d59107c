//! Sessions: an address for each that is asked for. Who serves the port is not here.

use std::time::Duration;

use async_trait::async_trait;
use cri::{RuntimeChanges as _, RuntimeError, RuntimeErrorKind, RuntimeSessions, v1};

use super::{SimulatedRuntime, lock, millis};

/// What the server of sessions has to know of the runtime.
pub trait StreamingServer {
    /// Whether nobody can connect to it.
    fn is_away(&self) -> bool;

    /// Uses an address: the id of the container or sandbox that its session is with. None of
    /// one that was not given, or was used.
    fn use_address(&self, path: &str) -> Option<String>;
}

impl StreamingServer for SimulatedRuntime {
    fn is_away(&self) -> bool {
        lock(&self.0.faults).unavailable
    }

    fn use_address(&self, path: &str) -> Option<String> {
        lock(&self.0.addresses).take(path)
    }
}

async fn address(
    runtime: &SimulatedRuntime,
    method: &'static str,
    kind: &'static str,
    id: String,
) -> Result<String, RuntimeError> {
    let work = move |runtime: SimulatedRuntime| async move {
        if !lock(&runtime.0.state).runs(&id) {
            let message = "it is in another state than running";
            return Err(RuntimeError::new(method, RuntimeErrorKind::Other, message));
        }
        Ok(lock(&runtime.0.addresses).give(kind, id))
    };
    runtime.perform(method, millis(2), work).await
}

#[async_trait]
impl RuntimeSessions for SimulatedRuntime {
    async fn exec(&self, request: v1::ExecRequest) -> Result<String, RuntimeError> {
        address(self, "Exec", "exec", request.container_id).await
    }

    async fn attach(&self, request: v1::AttachRequest) -> Result<String, RuntimeError> {
        address(self, "Attach", "attach", request.container_id).await
    }

    async fn port_forward(&self, request: v1::PortForwardRequest) -> Result<String, RuntimeError> {
        let id = request.pod_sandbox_id;
        address(self, "PortForward", "portforward", id).await
    }

    async fn run_command(
        &self,
        container_id: &str,
        command: Vec<String>,
        timeout: Duration,
    ) -> Result<v1::ExecSyncResponse, RuntimeError> {
        self.exec_sync(container_id, command, timeout).await
    }
}
