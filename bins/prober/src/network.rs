//! The seam to the network: how probes reach their targets. The simulation
//! answers in its place.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{self, Poll};

use async_trait::async_trait;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Lookups of names at once. Each holds a thread, for as long as the resolver
/// likes; probes by address never wait for them.
const MAX_LOOKUPS: usize = 8;

/// Lookups at once for one pod: names of its own choice may take long.
const MAX_LOOKUPS_PER_POD: usize = 2;

/// A place among the lookups. Whoever looks up keeps it until the lookup has really ended,
/// also when nobody waits for that any more.
#[derive(Debug)]
pub struct LookupPlace {
    _of_pod: Option<OwnedSemaphorePermit>,
    _of_all: Option<OwnedSemaphorePermit>,
}

/// The places of lookups.
#[derive(Debug)]
pub(crate) struct Lookups {
    all: Arc<Semaphore>,
    pods: Mutex<BTreeMap<String, Arc<Semaphore>>>,
}

impl Default for Lookups {
    fn default() -> Self {
        Lookups {
            all: Arc::new(Semaphore::new(MAX_LOOKUPS)),
            pods: Mutex::default(),
        }
    }
}

impl Lookups {
    /// Waits for a place; who came first gets the first.
    pub(crate) async fn place(&self, pod_uid: &str) -> LookupPlace {
        let of_pod = {
            let mut pods = self.pods.lock().unwrap_or_else(PoisonError::into_inner);
            pods.retain(|_, places| Arc::strong_count(places) > 1);
            let places = pods
                .entry(pod_uid.to_owned())
                .or_insert_with(|| Arc::new(Semaphore::new(MAX_LOOKUPS_PER_POD)));
            Arc::clone(places)
        };
        // Neither is ever closed.
        LookupPlace {
            _of_pod: of_pod.acquire_owned().await.ok(),
            _of_all: Arc::clone(&self.all).acquire_owned().await.ok(),
        }
    }
}

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
    async fn resolve(&self, host: &str, place: LookupPlace) -> io::Result<Vec<IpAddr>>;

    /// Opens a TCP connection. Dropping the future gives it up, dropping the
    /// stream closes it.
    ///
    /// # Errors
    /// When nobody accepts.
    async fn connect(&self, address: SocketAddr) -> io::Result<Box<dyn ByteStream>>;
}

/// The network of the node.
#[derive(Debug, Default)]
pub struct NodeNetwork;

#[async_trait]
impl ProbeNetwork for NodeNetwork {
    async fn resolve(&self, host: &str, place: LookupPlace) -> io::Result<Vec<IpAddr>> {
        let host = host.to_owned();
        let lookup = tokio::task::spawn_blocking(move || {
            let _place = place;
            let addresses = (host.as_str(), 0).to_socket_addrs()?;
            Ok(addresses.map(|address| address.ip()).collect())
        });
        lookup.await.map_err(io::Error::other)?
    }

    async fn connect(&self, address: SocketAddr) -> io::Result<Box<dyn ByteStream>> {
        let stream = unless_interrupted(|| TcpStream::connect(address)).await?;
        stream.set_nodelay(true)?;
        Ok(Box::new(Uninterrupted(stream)))
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

/// A connection whose reads and writes are tried again when a signal has cut them short.
struct Uninterrupted<Stream>(Stream);

impl<Stream: Unpin> Uninterrupted<Stream> {
    fn poll<T>(
        mut self: Pin<&mut Self>,
        mut attempt: impl FnMut(Pin<&mut Stream>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        loop {
            match attempt(Pin::new(&mut self.0)) {
                Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                other => return other,
            }
        }
    }
}

impl<Stream: AsyncRead + Unpin> AsyncRead for Uninterrupted<Stream> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut task::Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.poll(|stream| stream.poll_read(context, buffer))
    }
}

impl<Stream: AsyncWrite + Unpin> AsyncWrite for Uninterrupted<Stream> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut task::Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll(|stream| stream.poll_write(context, bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut task::Context<'_>) -> Poll<io::Result<()>> {
        self.poll(|stream| stream.poll_flush(context))
    }

    fn poll_shutdown(
        self: Pin<&mut Self>,
        context: &mut task::Context<'_>,
    ) -> Poll<io::Result<()>> {
        self.poll(|stream| stream.poll_shutdown(context))
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    #[tokio::test]
    async fn it_connects_where_somebody_listens_and_nowhere_else() {
        let network = NodeNetwork;
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

    /// Interrupted at every second read and write.
    struct Signalled {
        stream: tokio::io::DuplexStream,
        is_next: bool,
    }

    impl Signalled {
        fn interruption(&mut self) -> Option<io::Error> {
            self.is_next = !self.is_next;
            let interrupted = io::Error::from(io::ErrorKind::Interrupted);
            self.is_next.then_some(interrupted)
        }
    }

    impl AsyncRead for Signalled {
        fn poll_read(
            mut self: Pin<&mut Self>,
            context: &mut task::Context<'_>,
            buffer: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            match self.interruption() {
                Some(error) => Poll::Ready(Err(error)),
                None => Pin::new(&mut self.stream).poll_read(context, buffer),
            }
        }
    }

    impl AsyncWrite for Signalled {
        fn poll_write(
            mut self: Pin<&mut Self>,
            context: &mut task::Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            match self.interruption() {
                Some(error) => Poll::Ready(Err(error)),
                None => Pin::new(&mut self.stream).poll_write(context, bytes),
            }
        }

        fn poll_flush(
            mut self: Pin<&mut Self>,
            context: &mut task::Context<'_>,
        ) -> Poll<io::Result<()>> {
            Pin::new(&mut self.stream).poll_flush(context)
        }

        fn poll_shutdown(
            mut self: Pin<&mut Self>,
            context: &mut task::Context<'_>,
        ) -> Poll<io::Result<()>> {
            Pin::new(&mut self.stream).poll_shutdown(context)
        }
    }

    #[tokio::test]
    async fn a_signal_ends_no_connection() {
        let (near, mut far) = tokio::io::duplex(64);
        let mut connection = Uninterrupted(Signalled {
            stream: near,
            is_next: false,
        });
        connection.write_all(b"asked").await.unwrap();
        far.write_all(b"answered").await.unwrap();
        drop(connection.flush().await);
        let (mut asked, mut answered) = ([0; 5], [0; 8]);
        far.read_exact(&mut asked).await.unwrap();
        connection.read_exact(&mut answered).await.unwrap();
        assert_eq!((&asked, &answered), (b"asked", b"answered"));
    }

    #[tokio::test]
    async fn names_are_looked_up() {
        let place = Lookups::default().place("u").await;
        let addresses = NodeNetwork.resolve("localhost", place).await.unwrap();
        assert!(addresses.iter().all(IpAddr::is_loopback), "{addresses:?}");
        assert!(!addresses.is_empty());
    }
}
