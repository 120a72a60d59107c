//! Attacks one socket, as the user that runs it, with everything that a caller can do to a
//! server of HTTP/2 and gRPC, until its standard input ends. For tests that let a process
//! be a malicious one. Says `begun` once each attack has sent something, and at the end
//! `ATTACK CONNECTIONS BYTES` of each.
//!
//! ```text
//! hostile-twin SOCKET ALLOWED FOREIGN [first-processor]
//! ```
//!
//! `ALLOWED` is the path of a method that the user may call, `FOREIGN` of one that it may
//! not. Frames are made by hand: no library would send them. With `first-processor` it runs
//! on that one only, behind whoever else wants it, so that what others notice of it is what
//! the server does, and not the want of processors.
#![expect(clippy::print_stdout, reason = "its output is its result")]

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

/// How many connections try the same at once: with all attacks more than a caller may have.
const CONNECTIONS: usize = 2;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Frames of HTTP/2 by their numbers.
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;

const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// Payload of a frame at most, without asking for more.
const FRAME_BYTES: usize = 16 << 10;

/// What is sent on one connection after its preface, piece by piece.
type Pieces = Box<dyn Iterator<Item = Vec<u8>> + Send>;

/// One kind of attack.
struct Attack {
    name: &'static str,
    /// Whether anything is read of what the server sends.
    reads: bool,
    pieces: fn(&Paths) -> Pieces,
}

#[derive(Clone)]
struct Paths {
    socket: PathBuf,
    allowed: String,
    foreign: String,
}

#[derive(Default)]
struct Counts {
    connections: AtomicU64,
    bytes: AtomicU64,
}

const ATTACKS: [Attack; 11] = [
    Attack {
        name: "excessive-calls",
        reads: true,
        pieces: |paths| calls(&paths.allowed, |stream| message(stream, END_STREAM, &[])),
    },
    Attack {
        name: "unread-answers",
        reads: false,
        pieces: |paths| calls(&paths.allowed, |stream| message(stream, END_STREAM, &[])),
    },
    Attack {
        name: "foreign-calls",
        reads: true,
        pieces: |paths| calls(&paths.foreign, |stream| message(stream, END_STREAM, &[])),
    },
    Attack {
        name: "malformed-messages",
        reads: true,
        pieces: |paths| {
            calls(&paths.allowed, |stream| {
                message(stream, END_STREAM, &[0xff; 9])
            })
        },
    },
    Attack {
        name: "rapid-resets",
        reads: true,
        pieces: |paths| {
            calls(&paths.allowed, |stream| {
                frame(RST_STREAM, 0, stream, &[0, 0, 0, 8])
            })
        },
    },
    Attack {
        name: "oversized-messages",
        reads: true,
        pieces: |paths| {
            let head = [
                &headers(1, &paths.allowed)[..],
                &frame(DATA, 0, 1, &[0, 0xff, 0xff, 0xff, 0xff]),
            ]
            .concat();
            let more = std::iter::repeat_with(|| frame(DATA, 0, 1, &[0; FRAME_BYTES]));
            Box::new(std::iter::once(head).chain(more))
        },
    },
    Attack {
        name: "endless-streams",
        reads: true,
        pieces: |paths| {
            let more = std::iter::repeat_with(|| message(1, 0, &[]));
            Box::new(std::iter::once(headers(1, &paths.allowed)).chain(more))
        },
    },
    Attack {
        name: "endless-headers",
        reads: true,
        pieces: |_| {
            let field = [
                &[0, 1, b'x', 127, 0x81, 0x7e][..],
                &[b'y'; 0x7f + 0x3f01][..FRAME_BYTES - 200],
            ]
            .concat();
            let begin = frame(HEADERS, 0, 1, &[0x83]);
            let more = std::iter::repeat_with(move || frame(CONTINUATION, 0, 1, &field));
            Box::new(std::iter::once(begin).chain(more))
        },
    },
    Attack {
        name: "settings-and-pings",
        reads: false,
        pieces: |_| {
            let both = [frame(SETTINGS, 0, 0, &[]), frame(PING, 0, 0, &[7; 8])].concat();
            Box::new(std::iter::repeat(both))
        },
    },
    Attack {
        name: "window-updates",
        reads: true,
        pieces: |_| {
            Box::new(std::iter::repeat(frame(
                WINDOW_UPDATE,
                0,
                0,
                &[0x7f, 0xff, 0xff, 0xff],
            )))
        },
    },
    Attack {
        name: "no-frames",
        reads: true,
        pieces: |_| Box::new(std::iter::repeat(vec![0x5a; FRAME_BYTES])),
    },
];

fn main() -> Result<()> {
    let mut words = std::env::args().skip(1);
    let mut word = |what| words.next().context(what);
    let paths = Paths {
        socket: word("which socket?")?.into(),
        allowed: word("which method?")?,
        foreign: word("which method of another?")?,
    };
    match words.next().as_deref() {
        None => {}
        Some("first-processor") => step_back()?,
        Some(other) => bail!("where is it to run? not {other:?}"),
    }
    let is_over = Arc::new(AtomicBool::new(false));
    let counts: Vec<Arc<Counts>> = ATTACKS.iter().map(|_| Arc::default()).collect();
    let mut threads = Vec::new();
    for (attack, counts) in ATTACKS.iter().zip(&counts) {
        for _ in 0..CONNECTIONS {
            let (paths, counts, is_over) =
                (paths.clone(), Arc::clone(counts), Arc::clone(&is_over));
            threads.push(thread::spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    // The server hangs up, which is what it should do.
                    drop(connect_and_send(attack, &paths, &counts, &is_over));
                }
            }));
        }
    }
    // Half of a preface each, and nothing more.
    let _half_open: Vec<UnixStream> = (0..64)
        .filter_map(|_| half_open(&paths.socket).ok())
        .collect();
    while counts
        .iter()
        .any(|counts| counts.bytes.load(Ordering::Relaxed) == 0)
    {
        thread::yield_now();
    }
    println!("begun");
    std::io::stdout().flush()?;
    std::io::stdin().read_to_end(&mut Vec::new())?;
    is_over.store(true, Ordering::Relaxed);
    for thread in threads {
        // One that has panicked has said so.
        drop(thread.join());
    }
    for (attack, counts) in ATTACKS.iter().zip(&counts) {
        let connections = counts.connections.load(Ordering::Relaxed);
        println!(
            "{} {connections} {}",
            attack.name,
            counts.bytes.load(Ordering::Relaxed)
        );
    }
    Ok(())
}

/// Leaves the other processors to others, and this one too when they want it.
fn step_back() -> Result<()> {
    let mut first = CpuSet::new();
    first.set(0)?;
    sched_setaffinity(Pid::from_raw(0), &first)?;
    rustix::process::nice(19)?;
    Ok(())
}

fn half_open(socket: &Path) -> Result<UnixStream> {
    let mut stream = UnixStream::connect(socket)?;
    stream.write_all(&PREFACE[..PREFACE.len() / 2])?;
    Ok(stream)
}

/// Sends until the server hangs up or it is over.
fn connect_and_send(
    attack: &Attack,
    paths: &Paths,
    counts: &Counts,
    is_over: &AtomicBool,
) -> Result<()> {
    let mut stream = UnixStream::connect(&paths.socket)?;
    // A server that stops reading must not keep this thread for ever.
    stream.set_write_timeout(Some(Duration::from_millis(200)))?;
    counts.connections.fetch_add(1, Ordering::Relaxed);
    // Streams and their windows as large as can be.
    let settings = [0, 4, 0x7f, 0xff, 0xff, 0xff];
    stream.write_all(&[PREFACE, &frame(SETTINGS, 0, 0, &settings)].concat())?;
    if attack.reads {
        let mut answers = stream.try_clone()?;
        thread::spawn(move || {
            let mut buffer = [0; FRAME_BYTES];
            while answers.read(&mut buffer).is_ok_and(|count| count > 0) {}
        });
    }
    let mut sent = Ok(());
    for piece in (attack.pieces)(paths) {
        if is_over.load(Ordering::Relaxed) {
            break;
        }
        sent = stream.write_all(&piece);
        if sent.is_err() {
            break;
        }
        counts
            .bytes
            .fetch_add(u64::try_from(piece.len())?, Ordering::Relaxed);
    }
    // Also the thread that reads ends then.
    stream.shutdown(std::net::Shutdown::Both)?;
    Ok(sent?)
}

/// A call after the other, each followed by what `after` makes.
fn calls(path: &str, after: fn(u32) -> Vec<u8>) -> Pieces {
    let path = path.to_owned();
    let streams = (1..u32::MAX >> 1).step_by(2);
    Box::new(streams.map(move |stream| [headers(stream, &path), after(stream)].concat()))
}

/// The head of a call.
fn headers(stream: u32, path: &str) -> Vec<u8> {
    // By their numbers in the table of HPACK: POST, http; the path; the content type, and
    // "te", which has no number.
    let length = |text: &str| u8::try_from(text.len()).unwrap_or(u8::MAX).min(126);
    let mut block = vec![0x83, 0x86, 0x04, length(path)];
    block.extend(path.as_bytes());
    for (name, value) in [("content-type", "application/grpc"), ("te", "trailers")] {
        block.extend([0, length(name)]);
        block.extend(name.as_bytes());
        block.push(length(value));
        block.extend(value.as_bytes());
    }
    frame(HEADERS, END_HEADERS, stream, &block)
}

/// A message of gRPC.
fn message(stream: u32, flags: u8, bytes: &[u8]) -> Vec<u8> {
    let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_be_bytes();
    frame(DATA, flags, stream, &[&[0], &length[..], bytes].concat())
}

fn frame(of_type: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len())
        .unwrap_or(u32::MAX)
        .to_be_bytes();
    let head = [&length[1..], &[of_type, flags], &stream.to_be_bytes()].concat();
    [&head, payload].concat()
}
