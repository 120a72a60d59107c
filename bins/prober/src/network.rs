//! The seam to the network: how probes reach their targets. The simulation
//! answers in its place.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;

use async_trait::async_trait;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

/// Lookups of names at once. Each holds a thread, for as long as the resolver
/// likes; probes by address never wait for them.
const MAX_LOOKUPS: usize = 8;

/// Bytes in both directions.
pub trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for T {}

/// What probes need of a network.
#[async_trait]
pub trait ProbeNetwork: Send + Sync {
    /// The addresses of a host name.
    ///
    /// # Errors
    /// When the name is not known or cannot be looked up.
    async fn resolve(&self, host: &str) -> io::Result<Vec<IpAddr>>;

    /// Opens a TCP connection. Dropping the future gives it up, dropping the
    /// stream closes it.
    ///
    /// # Errors
    /// When nobody accepts.
    async fn connect(&self, address: SocketAddr) -> io::Result<Box<dyn ByteStream>>;
}

/// The network of the node.
#[derive(Debug)]
pub struct NodeNetwork {
    lookups: Arc<Semaphore>,
}

impl Default for NodeNetwork {
    fn default() -> Self {
        NodeNetwork {
            lookups: Arc::new(Semaphore::new(MAX_LOOKUPS)),
        }
    }
}

#[async_trait]
impl ProbeNetwork for NodeNetwork {
    async fn resolve(&self, host: &str) -> io::Result<Vec<IpAddr>> {
        let permit = Arc::clone(&self.lookups)
            .acquire_owned()
            .await
            .map_err(io::Error::other)?;
        let host = host.to_owned();
        let lookup = tokio::task::spawn_blocking(move || {
            // The permit stays with the thread, also when nobody waits any more.
            let _permit = permit;
            let addresses = (host.as_str(), 0).to_socket_addrs()?;
            Ok(addresses.map(|address| address.ip()).collect())
        });
        lookup.await.map_err(io::Error::other)?
    }

    async fn connect(&self, address: SocketAddr) -> io::Result<Box<dyn ByteStream>> {
        let stream = unless_interrupted(|| TcpStream::connect(address)).await?;
        stream.set_nodelay(true)?;
        Ok(Box::new(stream))
    }
}

/// Tries again what a signal has cut short: connect(2) does not connect then (EINTR), and
/// that says nothing of the target. It was seen when this process was stopped and went on.
async fn unless_interrupted<T, F>(attempt: impl Fn() -> F) -> io::Result<T>
where
    F: Future<Output = io::Result<T>>,
{
    loop {
        match attempt().await {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            ended => return ended,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn it_connects_where_somebody_listens_and_nowhere_else() {
        let network = NodeNetwork::default();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (connected, accepted) = tokio::join!(network.connect(address), listener.accept());
        connected.unwrap();
        accepted.unwrap();
        drop(listener);
        assert!(network.connect(address).await.is_err());
    }

    #[tokio::test]
    async fn a_signal_is_no_failure_to_connect() {
        let answers = std::cell::RefCell::new(vec![Ok("connected"), Err(4), Err(4)]);
        let attempt = async || {
            answers
                .borrow_mut()
                .pop()
                .unwrap()
                .map_err(io::Error::from_raw_os_error)
        };
        assert_eq!(unless_interrupted(attempt).await.unwrap(), "connected");
        answers.borrow_mut().extend([Ok("never"), Err(111), Err(4)]);
        let refused = unless_interrupted(attempt).await.unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    }

    #[tokio::test]
    async fn names_are_looked_up() {
        let network = NodeNetwork::default();
        let addresses = network.resolve("localhost").await.unwrap();
        assert!(addresses.iter().all(IpAddr::is_loopback), "{addresses:?}");
        assert!(!addresses.is_empty());
    }
}
