//! Takes the place of pleg: says that it is ready and alive, and calls what pod-worker-pool
//! has for others, again and again. For a test of what its peers and the supervisor do.
//!
//! ```text
//! pleg --node-config RUN-DIR/node.json
//! ```

use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result};
use bulkhead_api::v1;
use bulkhead_api::v1::pod_workers_client::PodWorkersClient;
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tonic::transport::Endpoint;

/// Between two calls; the supervisor waits longer for a sign of life.
const REST: Duration = Duration::from_millis(200);

fn main() -> Result<()> {
    let config = std::env::args_os().nth(2).map(PathBuf::from);
    let config = config.context("which configuration?")?;
    let run_dir = config.parent().context("which directory?")?;
    let pool = run_dir.join("pod-worker-pool.sock");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    notify("READY=1")?;
    runtime.block_on(async {
        loop {
            notify("WATCHDOG=1")?;
            // Refused, or hung up on.
            drop(call(pool.clone()).await);
            tokio::time::sleep(REST).await;
        }
    })
}

fn notify(text: &str) -> Result<()> {
    let path = std::env::var_os("NOTIFY_SOCKET").context("nobody to notify")?;
    UnixDatagram::unbound()?.send_to(text.as_bytes(), path)?;
    Ok(())
}

/// On a connection of its own.
async fn call(socket: PathBuf) -> Result<()> {
    let connector = tower::service_fn(move |_| {
        let socket = socket.clone();
        async move { UnixStream::connect(socket).await.map(TokioIo::new) }
    });
    let endpoint = Endpoint::from_static("http://socket");
    let channel = endpoint.connect_with_connector(connector).await?;
    let request = v1::UpdatePodRequest::default();
    PodWorkersClient::new(channel).update_pod(request).await?;
    Ok(())
}
