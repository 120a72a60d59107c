//! Takes the place of any process: says that it is ready and alive, and answers whoever
//! calls it as the file beside it says (`NAME.orders`), which it reads again and again. Its
//! status is `MANNER CALLS MESSAGES METHODS`: how often it was called in this manner, what it
//! has sent, of those streams that it was asked for the one that has sent least, and how many
//! methods were called. For tests of what its callers and the supervisor do.
//!
//! ```text
//! NAME --node-config RUN-DIR/node.json
//! ```

use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result};
use e2e::hostile_answers::Orders;
use e2e::hostile_service::{Duty, attend};
use tokio::net::UnixListener;
use tokio::sync::watch;

/// Between two signs of life; the supervisor waits longer for one.
const REST: Duration = Duration::from_millis(50);

fn main() -> Result<()> {
    let path = std::env::current_exe()?.with_extension("orders");
    let (sender, duty) = watch::channel(read(&path)?);
    notify("READY=1")?;
    thread::spawn(move || {
        while report_and_read(&sender, &path).is_ok() {
            thread::park_timeout(REST);
        }
    });
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let socket = listenfd::ListenFd::from_env().take_unix_listener(0)?;
        let socket = socket.context("no socket")?;
        socket.set_nonblocking(true)?;
        let socket = UnixListener::from_std(socket)?;
        loop {
            let (stream, _) = socket.accept().await?;
            let mut duty = duty.clone();
            let now = duty.borrow_and_update().clone();
            tokio::spawn(async move {
                tokio::select! {
                    // In another manner with a connection of its own.
                    _ = duty.changed() => {}
                    () = attend(stream, now) => {}
                }
            });
        }
    })
}

fn read(path: &Path) -> Result<Duty> {
    Ok(Duty::new(Orders::of_text(&fs::read_to_string(path)?)?))
}

fn report_and_read(duty: &watch::Sender<Duty>, path: &Path) -> Result<()> {
    let now = duty.borrow().clone();
    let calls = now.counts.calls();
    let (messages, methods) = (now.counts.least(), now.counts.methods());
    let manner = now.orders.manner.name();
    notify(&format!(
        "WATCHDOG=1\nSTATUS={manner} {calls} {messages} {methods}"
    ))?;
    let read = read(path)?;
    if read.orders.manner != now.orders.manner {
        duty.send_replace(read);
    }
    Ok(())
}

fn notify(text: &str) -> Result<()> {
    let path = std::env::var_os("NOTIFY_SOCKET").context("nobody to notify")?;
    UnixDatagram::unbound()?.send_to(text.as_bytes(), path)?;
    Ok(())
}
