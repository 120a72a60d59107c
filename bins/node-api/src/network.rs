//! The seam to the network: where clients come from, and the way to the runtime's one-time
//! addresses. TLS and HTTP are above it.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use ipc::Stream;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tonic::async_trait;

/// What the server needs of a network.
#[async_trait]
pub trait ServerNetwork: fmt::Debug + Send + Sync {
    /// Listens at an address of the node.
    ///
    /// # Errors
    /// When the address is taken, or is none of the node's.
    fn listen(&self, address: SocketAddr) -> io::Result<Box<dyn Listen>>;

    /// Connects to a port of the runtime, at 127.0.0.1. Dropping the stream closes it.
    ///
    /// # Errors
    /// When nobody accepts.
    async fn connect_to_runtime(&self, port: u16) -> io::Result<Box<dyn Stream>>;
}

/// Connections of clients.
#[async_trait]
pub trait Listen: fmt::Debug + Send + Sync {
    /// The next one. Cancel-safe: it is taken or it is not.
    ///
    /// # Errors
    /// When descriptors have run out, for example.
    async fn accept(&self) -> io::Result<Accepted>;
}

/// A connection that was accepted.
pub struct Accepted {
    /// Its bytes. Dropping it closes the connection.
    pub stream: Box<dyn Stream>,
    /// The client's address.
    pub from: IpAddr,
}

/// Connections that wait until they are accepted: as many as the kernel allows. Where there is
/// no room, a client tries again after a second and longer.
const BACKLOG: u32 = 4096;

/// The node's network.
#[derive(Debug)]
pub(crate) struct Tcp;

#[async_trait]
impl ServerNetwork for Tcp {
    fn listen(&self, address: SocketAddr) -> io::Result<Box<dyn Listen>> {
        let socket = match address {
            SocketAddr::V4(_) => TcpSocket::new_v4()?,
            SocketAddr::V6(_) => TcpSocket::new_v6()?,
        };
        // Connections of the run before may still be about to end.
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        Ok(Box::new(socket.listen(BACKLOG)?))
    }

    async fn connect_to_runtime(&self, port: u16) -> io::Result<Box<dyn Stream>> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
        stream.set_nodelay(true)?;
        Ok(Box::new(stream))
    }
}

#[async_trait]
impl Listen for TcpListener {
    async fn accept(&self) -> io::Result<Accepted> {
        let (stream, from) = TcpListener::accept(self).await?;
        let _ = stream.set_nodelay(true);
        Ok(Accepted {
            stream: Box::new(stream),
            from: from.ip(),
        })
    }
}
