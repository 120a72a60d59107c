//! Reaching another process.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use tokio::net::UnixStream;
use topology::Process;

use crate::channel::Channel;
use crate::listener::Stream;

/// How a process reaches the others.
pub trait Connect: fmt::Debug + Send + Sync {
    /// A channel to `server`. It connects when first used and again after the server
    /// restarted; while the server is down, calls wait in its socket.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    fn channel(&self, server: Process) -> Channel;
}

/// How this process reaches the others. Cloning is cheap.
#[derive(Clone, Debug)]
pub struct Network(Arc<dyn Connect>);

impl Network {
    /// Sockets in `run_dir`, named by [`Process::socket_file_name`].
    #[must_use]
    pub fn unix(run_dir: impl Into<PathBuf>) -> Network {
        Network::of(Sockets(run_dir.into()))
    }

    /// Another way than by sockets.
    #[must_use]
    pub fn of(connect: impl Connect + 'static) -> Network {
        Network(Arc::new(connect))
    }

    /// See [`Connect::channel`].
    ///
    /// # Panics
    /// Outside a tokio runtime.
    #[must_use]
    pub fn channel(&self, server: Process) -> Channel {
        self.0.channel(server)
    }
}

/// Unix sockets in a directory.
#[derive(Debug)]
struct Sockets(PathBuf);

impl Connect for Sockets {
    fn channel(&self, server: Process) -> Channel {
        let path = self.0.join(server.socket_file_name());
        Channel::over(move || {
            let path = path.clone();
            async move { Ok(Box::new(UnixStream::connect(path).await?) as Box<dyn Stream>) }
        })
    }
}
