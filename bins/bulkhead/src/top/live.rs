//! The screen that goes on: readings, keys, and a terminal that is as before in the end.

use std::convert::Infallible;
use std::io::Read as _;
use std::pin::pin;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;

use super::reading::{Reading, SortBy};
use super::screen::{Key, Screen};
use crate::failure::Failure;
use crate::output::Output;
use crate::terminal::{self, FullScreen};

/// Between two readings.
const PERIOD: Duration = Duration::from_secs(2);

/// Between the first two: until then nothing is known of what needs two.
const FIRST_PERIOD: Duration = Duration::from_secs(1);

/// Shows readings until a key or a signal ends it.
pub(super) async fn run(
    read: impl AsyncFn() -> Result<Reading, Failure>,
    by: SortBy,
    output: Output,
) -> Result<(), Failure> {
    let (readings, mut read_ones) = mpsc::channel(1);
    let reading = async || -> Infallible {
        let mut period = FIRST_PERIOD;
        loop {
            let reading = read().await.map_err(|failure| telemetry::chain(&failure));
            // The receiver lives as long as this does.
            let _ = readings.send(reading).await;
            tokio::time::sleep(period).await;
            period = PERIOD;
        }
    };
    let mut reading = pin!(reading());
    let mut signals = Signals::new().map_err(local)?;
    let terminal = FullScreen::enter().map_err(local)?;
    let mut keys = keys();
    let mut screen = Screen {
        before: None,
        now: None,
        problem: None,
        by,
    };
    loop {
        let (columns, rows) = terminal::size().unwrap_or((80, 24));
        let lines = screen.lines(columns, rows, output.colours);
        output.write(FullScreen::frame(&lines).as_bytes())?;
        tokio::select! {
            never = &mut reading => match never {},
            Some(reading) = read_ones.recv() => screen.take(reading),
            key = keys.recv() => match key {
                Some(Some(Key::Sort(by))) => screen.by = by,
                Some(None) => {}
                // The end of the keys is the end of the terminal.
                Some(Some(Key::Quit)) | None => break,
            },
            _ = signals.interrupt.recv() => break,
            _ = signals.terminate.recv() => break,
            _ = signals.hangup.recv() => break,
            _ = signals.resized.recv() => {}
        }
    }
    drop(terminal);
    Ok(())
}

fn local(source: std::io::Error) -> Failure {
    Failure::Local {
        action: "use the terminal".to_owned(),
        source,
    }
}

struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
    resized: Signal,
}

impl Signals {
    fn new() -> std::io::Result<Signals> {
        Ok(Signals {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
            resized: signal(SignalKind::window_change())?,
        })
    }
}

/// What keys ask for. A thread of its own waits for them: nothing else can wait for a
/// terminal. It ends with the program.
fn keys() -> mpsc::Receiver<Option<Key>> {
    let (sender, receiver) = mpsc::channel(16);
    std::thread::spawn(move || {
        let bytes = std::io::stdin().lock().bytes();
        for byte in bytes {
            let Ok(byte) = byte else { break };
            if sender.blocking_send(Key::of(byte)).is_err() {
                break;
            }
        }
    });
    receiver
}
