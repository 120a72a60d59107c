//! Attacks one socket, as the user that runs it, with everything that a caller can do to a
//! server of HTTP/2 and gRPC. For tests that let a process be a malicious one. Says `begun`,
//! and at the end `ATTACK CONNECTIONS BYTES met`, or `unmet`, of each.
//!
//! ```text
//! hostile-twin SOCKET ALLOWED FOREIGN SECONDS HOW
//! ```
//!
//! `ALLOWED` is the path of a method that the user may call, `FOREIGN` of one that it may
//! not. Frames are made by hand: no library would send them. How it attacks:
//!
//! - `in-turn`: one attack after the other, each on fewer connections than the user has
//!   places, and until the server has met it, which may take so many seconds. It has when it
//!   has answered, hung up on a connection that had a place, or read more than sockets hold:
//!   the kernel takes what is written, whether anybody reads it or not.
//! - `at-once`: all of them, until its standard input ends, on more connections than the user
//!   has places. It has `begun` when the server has given each attack a place or hung up on it.
//! - `first-processor`: the same, on that processor only, and behind whoever else wants it, so
//!   that what others notice of it is what the server does, and not the want of processors.
#![expect(clippy::print_stdout, reason = "its output is its result")]

use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

/// How many connections try the same at once: with all attacks more than a caller may have.
const CONNECTIONS: usize = 2;

/// How many are left half open.
const HALF_OPEN: usize = 64;

/// Places that a server has for one user at most: those of root.
const MOST_PLACES: usize = 32;

/// How long an attack lasts at least that comes in its turn.
const LEAST: Duration = Duration::from_millis(200);

/// How many times what a socket holds has to be read of one connection.
const SOCKETFULS: u64 = 2;

/// Between two looks at what has come of it.
const REST: Duration = Duration::from_millis(2);

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

/// What came of one kind of attack.
#[derive(Default)]
struct Counts {
    connections: AtomicU64,
    bytes: AtomicU64,
    /// Whether the server has given a connection a place, or hung up on one.
    is_noticed: AtomicBool,
    is_met: AtomicBool,
}

/// Threads that attack in one way.
struct Running {
    name: &'static str,
    counts: Arc<Counts>,
    threads: Vec<thread::JoinHandle<()>>,
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
    let patience = Duration::from_secs_f64(word("within how long?")?.parse()?);
    match word("how?")?.as_str() {
        "in-turn" => in_turn(&paths, patience),
        "at-once" => at_once(&paths, patience),
        "first-processor" => {
            step_back()?;
            at_once(&paths, patience)
        }
        other => bail!("how? not {other:?}"),
    }
}

fn in_turn(paths: &Paths, patience: Duration) -> Result<()> {
    say("begun")?;
    let half_open = half_open(&paths.socket)?;
    let begun = Instant::now();
    // Some keep their places, and for the others there are none.
    let is_met = wait_until(patience, || {
        let open = half_open.iter().filter(|stream| is_open(stream)).count();
        begun.elapsed() >= LEAST && (1..=MOST_PLACES).contains(&open)
    });
    let bytes = half_open.len() * PREFACE.len() / 2;
    report("half-open", half_open.len(), bytes, is_met)?;
    drop(half_open);
    for attack in &ATTACKS {
        let is_over = Arc::default();
        let running = begin(attack, paths, &is_over)?;
        let begun = Instant::now();
        wait_until(patience, || {
            begun.elapsed() >= LEAST && running.counts.is_met.load(Ordering::Relaxed)
        });
        is_over.store(true, Ordering::Relaxed);
        running.end()?;
    }
    Ok(())
}

fn at_once(paths: &Paths, patience: Duration) -> Result<()> {
    let is_over = Arc::default();
    let begin = |attack| begin(attack, paths, &is_over);
    let running = ATTACKS.iter().map(begin).collect::<Result<Vec<_>>>()?;
    let half_open = half_open(&paths.socket)?;
    let begun = wait_until(patience, || {
        let open = half_open.iter().filter(|stream| is_open(stream)).count();
        let mut all = running.iter();
        open <= MOST_PLACES && all.all(|it| it.counts.is_noticed.load(Ordering::Relaxed))
    });
    ensure!(begun, "the server has not noticed all of it");
    say("begun")?;
    std::io::stdin().read_to_end(&mut Vec::new())?;
    is_over.store(true, Ordering::Relaxed);
    running.into_iter().try_for_each(Running::end)
}

fn begin(attack: &'static Attack, paths: &Paths, is_over: &Arc<AtomicBool>) -> Result<Running> {
    let counts = Arc::new(Counts::default());
    let socketful = socketful(attack, paths)?;
    let threads = (0..CONNECTIONS).map(|_| {
        let (paths, counts, is_over) = (paths.clone(), Arc::clone(&counts), Arc::clone(is_over));
        thread::spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                // The server hangs up, which is what it should do.
                drop(connect_and_send(
                    attack, &paths, socketful, &counts, &is_over,
                ));
            }
        })
    });
    let threads = threads.collect();
    let name = attack.name;
    Ok(Running {
        name,
        counts,
        threads,
    })
}

impl Running {
    /// Tells what it was, once it has been told to end.
    fn end(self) -> Result<()> {
        for thread in self.threads {
            // One that has panicked has said so.
            drop(thread.join());
        }
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        report(
            self.name,
            count(&self.counts.connections),
            count(&self.counts.bytes),
            self.counts.is_met.load(Ordering::Relaxed),
        )
    }
}

fn report(
    name: &str,
    connections: impl std::fmt::Display,
    bytes: impl std::fmt::Display,
    is_met: bool,
) -> Result<()> {
    let what = if is_met { "met" } else { "unmet" };
    say(&format!("{name} {connections} {bytes} {what}"))
}

fn say(line: &str) -> Result<()> {
    println!("{line}");
    Ok(std::io::stdout().flush()?)
}

fn wait_until(patience: Duration, condition: impl Fn() -> bool) -> bool {
    let begun = Instant::now();
    loop {
        if condition() {
            return true;
        }
        if begun.elapsed() > patience {
            return false;
        }
        thread::park_timeout(REST);
    }
}

/// How much of it the kernel takes for a socket that nobody reads.
fn socketful(attack: &Attack, paths: &Paths) -> Result<u64> {
    let (mut near, _far) = UnixStream::pair()?;
    near.set_nonblocking(true)?;
    let mut held = 0;
    for piece in (attack.pieces)(paths) {
        match near.write(&piece) {
            Ok(count) => held += u64::try_from(count)?,
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(held)
}

/// Leaves the other processors to others, and this one too when they want it.
fn step_back() -> Result<()> {
    let mut first = CpuSet::new();
    first.set(0)?;
    sched_setaffinity(Pid::from_raw(0), &first)?;
    rustix::process::nice(19)?;
    Ok(())
}

/// Half of a preface on each, and nothing more.
fn half_open(socket: &Path) -> Result<Vec<UnixStream>> {
    let half_open = (0..HALF_OPEN).map(|_| {
        let mut stream = UnixStream::connect(socket)?;
        // The server has hung up by then where there are too many already.
        drop(stream.write_all(&PREFACE[..PREFACE.len() / 2]));
        stream.set_nonblocking(true)?;
        Ok(stream)
    });
    half_open.collect()
}

/// Whether the server has not hung up.
fn is_open(mut stream: &UnixStream) -> bool {
    loop {
        match stream.read(&mut [0; 256]) {
            Ok(0) => return false,
            // How a server begins.
            Ok(_) => {}
            Err(error) => return error.kind() == ErrorKind::WouldBlock,
        }
    }
}

/// Sends until the server hangs up or it is over.
fn connect_and_send(
    attack: &Attack,
    paths: &Paths,
    socketful: u64,
    counts: &Arc<Counts>,
    is_over: &AtomicBool,
) -> Result<()> {
    let mut stream = UnixStream::connect(&paths.socket)?;
    // A server that stops reading must not keep this thread for ever.
    stream.set_write_timeout(Some(Duration::from_millis(200)))?;
    counts.connections.fetch_add(1, Ordering::Relaxed);
    let has_place = Arc::new(AtomicBool::new(false));
    let listen = {
        let (answers, counts, has_place) = (
            stream.try_clone()?,
            Arc::clone(counts),
            Arc::clone(&has_place),
        );
        move || drop(listen(&answers, &counts, &has_place))
    };
    let hung_up = if attack.reads {
        let listener = thread::spawn(listen);
        let hung_up = send(attack, paths, socketful, counts, is_over, &mut stream);
        // The thread that reads ends then, too.
        stream.shutdown(std::net::Shutdown::Both)?;
        drop(listener.join());
        hung_up
    } else {
        let hung_up = send(attack, paths, socketful, counts, is_over, &mut stream);
        stream.shutdown(std::net::Shutdown::Both)?;
        listen();
        hung_up
    };
    if hung_up? {
        counts.is_noticed.store(true, Ordering::Relaxed);
        // It hangs up on who has no place, whatever that sends.
        let is_met = has_place.load(Ordering::Relaxed);
        counts.is_met.fetch_or(is_met, Ordering::Relaxed);
    }
    Ok(())
}

/// Whether the server hangs up before it is over.
fn send(
    attack: &Attack,
    paths: &Paths,
    socketful: u64,
    counts: &Counts,
    is_over: &AtomicBool,
    stream: &mut UnixStream,
) -> Result<bool> {
    // Streams and their windows as large as can be.
    let settings = [0, 4, 0x7f, 0xff, 0xff, 0xff];
    let first = [PREFACE, &frame(SETTINGS, 0, 0, &settings)].concat();
    let mut sent = 0;
    for piece in std::iter::once(first).chain((attack.pieces)(paths)) {
        if is_over.load(Ordering::Relaxed) {
            break;
        }
        match stream.write_all(&piece) {
            Ok(()) => {}
            // It does not read.
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(_) => return Ok(true),
        }
        let bytes = u64::try_from(piece.len())?;
        counts.bytes.fetch_add(bytes, Ordering::Relaxed);
        sent += bytes;
        if sent > socketful * SOCKETFULS {
            counts.is_met.store(true, Ordering::Relaxed);
        }
    }
    Ok(false)
}

/// Reads what the server sends until it ends: first frames of its own, which who has a place
/// gets, and then answers.
fn listen(mut answers: &UnixStream, counts: &Counts, has_place: &AtomicBool) -> Result<()> {
    loop {
        let mut head = [0; 9];
        answers.read_exact(&mut head)?;
        has_place.store(true, Ordering::Relaxed);
        counts.is_noticed.store(true, Ordering::Relaxed);
        // It is about a call: its answer, or that it has none.
        if head[3] == HEADERS || head[3] == RST_STREAM {
            counts.is_met.store(true, Ordering::Relaxed);
        }
        let length = u64::from(u32::from_be_bytes([0, head[0], head[1], head[2]]));
        std::io::copy(&mut answers.take(length), &mut std::io::sink())?;
    }
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
