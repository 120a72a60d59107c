//! Sessions: what people ask for in containers and sandboxes.

use std::time::Duration;

use async_trait::async_trait;

use super::call::{call, whole_seconds};
use super::connection::CriClient;
use super::deadlines::{DEFAULT_DEADLINE, SESSION_DEADLINE};
use crate::proto::runtime::v1;
use crate::runtime::RuntimeSessions;
use crate::{EXEC_SYNC, RuntimeError};

#[async_trait]
impl RuntimeSessions for CriClient {
    async fn exec(&self, request: v1::ExecRequest) -> Result<String, RuntimeError> {
        let mut client = self.runtime.clone();
        call("Exec", SESSION_DEADLINE, request, |request| {
            client.exec(request)
        })
        .await
        .map(|answer| answer.url)
    }

    async fn attach(&self, request: v1::AttachRequest) -> Result<String, RuntimeError> {
        let mut client = self.runtime.clone();
        call("Attach", SESSION_DEADLINE, request, |request| {
            client.attach(request)
        })
        .await
        .map(|answer| answer.url)
    }

    async fn port_forward(&self, request: v1::PortForwardRequest) -> Result<String, RuntimeError> {
        let mut client = self.runtime.clone();
        call("PortForward", SESSION_DEADLINE, request, |request| {
            client.port_forward(request)
        })
        .await
        .map(|answer| answer.url)
    }

    async fn run_command(
        &self,
        container_id: &str,
        command: Vec<String>,
        timeout: Duration,
    ) -> Result<v1::ExecSyncResponse, RuntimeError> {
        let message = v1::ExecSyncRequest {
            container_id: container_id.to_owned(),
            cmd: command,
            timeout: whole_seconds(timeout),
        };
        let mut client = self.runtime.clone();
        let deadline = timeout.saturating_add(DEFAULT_DEADLINE);
        call(EXEC_SYNC, deadline, message, |request| {
            client.exec_sync(request)
        })
        .await
    }
}
