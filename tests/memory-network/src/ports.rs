//! Ports: what a process listens at by itself, and strangers connect to. Nobody keeps such a
//! socket when the process ends: whoever connects then is refused.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use topology::Process;

use crate::socket::{MemoryListener, Severable};

/// Who listens at a port, and where connections wait for that.
type Listening = (Option<Process>, MemoryListener<Severable>);

/// The ports of a node at which somebody listens: a process, or a stranger.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ports(Arc<Mutex<BTreeMap<u16, Listening>>>);

impl Ports {
    pub(crate) fn listen(&self, server: Option<Process>, port: u16) -> io::Result<PortListener> {
        let queue = MemoryListener::default();
        let mut open = self.lock();
        if open.contains_key(&port) {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        open.insert(port, (server, queue.clone()));
        Ok(PortListener {
            ports: self.clone(),
            port,
            queue,
        })
    }

    pub(crate) fn at(&self, port: u16) -> io::Result<Listening> {
        let found = self.lock().get(&port).cloned();
        found.ok_or_else(|| io::ErrorKind::ConnectionRefused.into())
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u16, Listening>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The listening end of a port, which is closed when this is dropped.
#[derive(Debug)]
pub struct PortListener {
    ports: Ports,
    port: u16,
    queue: MemoryListener<Severable>,
}

impl PortListener {
    /// The next connection. Cancel-safe: it is taken or it is not.
    pub async fn accept(&self) -> impl ipc::Stream + use<> {
        self.queue.accept().await.0
    }
}

impl Drop for PortListener {
    fn drop(&mut self) {
        self.ports.lock().remove(&self.port);
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;
    use crate::MemoryHub;

    #[tokio::test]
    async fn a_kill_breaks_the_connections_of_a_port_and_nobody_listens_then() {
        let hub = MemoryHub::without_http2();
        let server = Some(Process::NodeApi);
        let listener = hub.listen_at_port(server, 1).unwrap();
        assert!(hub.listen_at_port(None, 1).is_err(), "the port is taken");
        let mut client = hub.connect_to_port(None, 1).unwrap();
        let mut accepted = listener.accept().await;
        client.write_all(b"x").await.unwrap();
        assert_eq!(accepted.read_u8().await.unwrap(), b'x');
        drop(listener);
        hub.kill(Process::NodeApi);
        assert!(client.read_u8().await.is_err());
        assert!(accepted.read_u8().await.is_err());
        assert!(hub.connect_to_port(None, 1).is_err());
    }
}
