//! The least of an HTTP client: one request on one connection, with a
//! deadline. Runs wherever its thread is, so inside a node too.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::node::TestNode;

/// Most that is read of an answer.
const MAX_ANSWER_BYTES: u64 = 1 << 20;

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// Status code.
    pub status: u16,
    /// Body, as text.
    pub body: String,
}

/// Asks a server that is reachable from inside the node.
///
/// # Errors
/// When it cannot be reached in time or answers no HTTP.
pub fn request(node: &TestNode, method: &str, to: SocketAddr, target: &str) -> Result<Answer> {
    node.run(|| request_from_here(method, to, target))?
}

/// Asks a server that is reachable from the calling thread.
///
/// # Errors
/// When it cannot be reached in time or answers no HTTP.
pub fn request_from_here(method: &str, to: SocketAddr, target: &str) -> Result<Answer> {
    let timeout = Duration::from_secs(5);
    let mut stream = TcpStream::connect_timeout(&to, timeout).with_context(|| to.to_string())?;
    stream.set_read_timeout(Some(timeout))?;
    stream.set_write_timeout(Some(timeout))?;
    write!(
        stream,
        "{method} {target} HTTP/1.1\r\nHost: {to}\r\nConnection: close\r\n\r\n"
    )?;
    let mut bytes = Vec::new();
    stream
        .take(MAX_ANSWER_BYTES)
        .read_to_end(&mut bytes)
        .context("no complete answer")?;
    parse(&String::from_utf8_lossy(&bytes))
        .with_context(|| format!("{to} did not answer HTTP to {method} {target}"))
}

fn parse(text: &str) -> Option<Answer> {
    let (head, body) = text.split_once("\r\n\r\n")?;
    let status = head
        .strip_prefix("HTTP/1.")?
        .split(' ')
        .nth(1)?
        .parse()
        .ok()?;
    Some(Answer {
        status,
        body: body.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_status_and_body() {
        let answer = parse("HTTP/1.1 503 No\r\nA: b\r\n\r\nnot now\r\n\r\n").unwrap();
        assert_eq!(
            answer,
            Answer {
                status: 503,
                body: "not now\r\n\r\n".to_owned()
            }
        );
        assert_eq!(parse("SSH-2.0-x\r\n\r\n"), None);
    }
}
