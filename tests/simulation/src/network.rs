//! The network of a simulated node as probes see it: every port of a pod
//! answers HTTP 200.

use std::io;
use std::net::{IpAddr, SocketAddr};

use async_trait::async_trait;
use prober::{ByteStream, ProbeNetwork};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// Room for one request and its answer.
const PIPE_BYTES: usize = 4096;

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";

/// Every port answers.
#[derive(Debug)]
pub(crate) struct HealthyNetwork;

#[async_trait]
impl ProbeNetwork for HealthyNetwork {
    async fn resolve(&self, _host: &str) -> io::Result<Vec<IpAddr>> {
        Err(io::Error::other("a simulated node knows no names"))
    }

    async fn connect(&self, _address: SocketAddr) -> io::Result<Box<dyn ByteStream>> {
        let (near, mut far) = tokio::io::duplex(PIPE_BYTES);
        // Ends by itself when the prober closes its end.
        tokio::spawn(async move {
            let mut request = [0; PIPE_BYTES];
            let received = far.read(&mut request).await;
            if received.is_ok_and(|bytes| bytes > 0) {
                drop(far.write_all(ANSWER).await);
                drop(far.shutdown().await);
            }
        });
        Ok(Box::new(near))
    }
}
