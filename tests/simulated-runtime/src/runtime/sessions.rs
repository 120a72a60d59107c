//! Sessions: an address for each that is asked for, at which nobody answers.

use std::time::Duration;

use async_trait::async_trait;
use cri::{RuntimeChanges as _, RuntimeError, RuntimeSessions, v1};

use super::SimulatedRuntime;

#[async_trait]
impl RuntimeSessions for SimulatedRuntime {
    async fn exec(&self, _request: v1::ExecRequest) -> Result<String, RuntimeError> {
        Ok("http://127.0.0.1:10010/exec/token".to_owned())
    }

    async fn attach(&self, _request: v1::AttachRequest) -> Result<String, RuntimeError> {
        Ok("http://127.0.0.1:10010/attach/token".to_owned())
    }

    async fn port_forward(&self, _request: v1::PortForwardRequest) -> Result<String, RuntimeError> {
        Ok("http://127.0.0.1:10010/portforward/token".to_owned())
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
