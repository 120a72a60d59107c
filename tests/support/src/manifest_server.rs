//! An HTTP server of manifests inside a node, for the HTTP source: what it
//! answers can be changed at any time.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::node::TestNode;

/// A client that says nothing must not hold the server for long.
const READ_TIMEOUT: Duration = Duration::from_secs(2);

#[derive(Debug, Default)]
struct State {
    answer: Mutex<(u16, String)>,
    last_head: Mutex<String>,
    served: AtomicU64,
    ending: AtomicBool,
}

/// Serves until it is dropped.
#[derive(Debug)]
pub struct ManifestServer {
    address: SocketAddr,
    state: Arc<State>,
    node: Arc<TestNode>,
    thread: Option<JoinHandle<()>>,
}

impl ManifestServer {
    /// Starts one on a free port of the node's loopback interface.
    ///
    /// # Errors
    /// When no port can be opened.
    pub fn start(node: &Arc<TestNode>, status: u16, body: &str) -> Result<Self> {
        // The socket stays in the namespace that it was made in.
        let listener = node
            .run(|| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)))
            .and_then(|result| result)
            .context("cannot open a port")?;
        let address = listener.local_addr()?;
        let state = Arc::new(State::default());
        let of_thread = Arc::clone(&state);
        let thread = std::thread::spawn(move || serve(&listener, &of_thread));
        let server = Self {
            address,
            state,
            node: Arc::clone(node),
            thread: Some(thread),
        };
        server.answer(status, body);
        Ok(server)
    }

    /// For `staticPodURL`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}/pods", self.address)
    }

    /// What to answer from now on.
    pub fn answer(&self, status: u16, body: &str) {
        *lock(&self.state.answer) = (status, body.to_owned());
    }

    /// How many requests were answered.
    #[must_use]
    pub fn served(&self) -> u64 {
        self.state.served.load(Ordering::SeqCst)
    }

    /// Request line and headers of the last request.
    #[must_use]
    pub fn last_head(&self) -> String {
        lock(&self.state.last_head).clone()
    }
}

impl Drop for ManifestServer {
    fn drop(&mut self) {
        self.state.ending.store(true, Ordering::SeqCst);
        // Wakes the thread, which then sees that it is over.
        let address = self.address;
        let _ = self.node.run(|| TcpStream::connect(address).map(drop));
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn serve(listener: &TcpListener, state: &State) {
    for stream in listener.incoming() {
        if state.ending.load(Ordering::SeqCst) {
            return;
        }
        // A client that went away concerns nobody.
        if let Ok(stream) = stream {
            let _ = answer(stream, state);
        }
    }
}

fn answer(mut stream: TcpStream, state: &State) -> std::io::Result<()> {
    stream.set_read_timeout(Some(READ_TIMEOUT))?;
    let mut head = String::new();
    let mut reader = BufReader::new(&stream);
    while !head.ends_with("\r\n\r\n") && reader.read_line(&mut head)? > 0 {}
    *lock(&state.last_head) = head;
    let (status, body) = lock(&state.answer).clone();
    write!(
        stream,
        "HTTP/1.1 {status} Status\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )?;
    state.served.fetch_add(1, Ordering::SeqCst);
    Ok(())
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
