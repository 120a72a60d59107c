//! What the program was asked to be, and the loop that is it.

use std::fmt::Display;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::grpc_health;
use crate::http_server;
use crate::journal::Journal;
use crate::options::{OnTerm, Options};

/// The program's whole life; the result is its exit code.
pub(crate) async fn run(options: Options) -> ExitCode {
    match live(&Arc::new(options)).await {
        Ok(code) => ExitCode::from(code),
        Err(error) => fail("testapp", &error),
    }
}

/// Says what went wrong on standard error; the exit code is 70.
#[expect(clippy::print_stderr, reason = "a container's log is its output")]
pub(crate) fn fail(what: &str, error: &dyn Display) -> ExitCode {
    eprintln!("{what}: {error}");
    ExitCode::from(70)
}

#[expect(clippy::print_stdout, reason = "a container's log is its output")]
async fn live(options: &Arc<Options>) -> std::io::Result<u8> {
    let started = Instant::now();
    // Handlers first: as process 1 it would miss a signal that comes earlier.
    let mut term = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let journal = Journal::new(options.journal.clone());
    journal.append(&format!("{} started", options.name))?;
    for line in &options.print {
        println!("{line}");
    }
    for assignment in &options.write {
        let (path, text) = assignment.split_once('=').unwrap_or((assignment, ""));
        std::fs::write(path, text)?;
    }
    let ballast = vec![1_u8; options.allocate_mib.unwrap_or(0) << 20];

    let (exit_sender, mut exit_requests) = mpsc::channel(1);
    let mut servers = JoinSet::new();
    servers.spawn(serve(Arc::clone(options), started, exit_sender));
    let mut number = 0_u64;
    let mut numbered = options
        .print_every_ms
        .map(|every| tokio::time::interval(Duration::from_millis(every.max(1))));
    let end = options
        .exit_after_ms
        .map(|after| started + Duration::from_millis(after));

    let code = loop {
        // Every arm waits on something that keeps its place when dropped.
        tokio::select! {
            _ = term.recv() => {
                journal.append(&format!("{} SIGTERM", options.name))?;
                if options.on_term == OnTerm::Exit {
                    tokio::time::sleep(Duration::from_millis(options.term_delay_ms)).await;
                    break options.term_code;
                }
            }
            _ = interrupt.recv() => break 130,
            () = sleep_until(end) => break options.exit_code,
            Some(code) = exit_requests.recv() => break code,
            Some(ended) = servers.join_next() => match ended {
                Ok(Ok(())) => {}
                Ok(Err(error)) => return Err(error),
                Err(error) => return Err(std::io::Error::other(error)),
            },
            () = tick(numbered.as_mut()) => {
                println!("line {number}");
                number += 1;
            }
        }
    };
    journal.append(&format!("{} exit {code}", options.name))?;
    drop(ballast);
    Ok(code)
}

async fn sleep_until(end: Option<Instant>) {
    match end {
        Some(end) => tokio::time::sleep_until(end).await,
        None => std::future::pending().await,
    }
}

async fn tick(interval: Option<&mut tokio::time::Interval>) {
    match interval {
        Some(interval) => {
            interval.tick().await;
        }
        None => std::future::pending().await,
    }
}

/// Opens the ports that were asked for and serves them for ever.
async fn serve(
    options: Arc<Options>,
    started: Instant,
    exit_requests: mpsc::Sender<u8>,
) -> std::io::Result<()> {
    tokio::time::sleep(Duration::from_millis(options.serve_after_ms)).await;
    let health = Arc::new(http_server::Health::new(&options, started));
    let mut servers = JoinSet::new();
    if let Some(port) = options.http {
        let listener = listen("http", options.listen, port).await?;
        servers.spawn(http_server::serve(
            listener,
            Arc::clone(&health),
            exit_requests,
        ));
    }
    if let Some(port) = options.tcp {
        servers.spawn(serve_tcp(listen("tcp", options.listen, port).await?));
    }
    if let Some(port) = options.grpc {
        let listener = listen("grpc", options.listen, port).await?;
        servers.spawn(grpc_health::serve(listener, health));
    }
    while let Some(ended) = servers.join_next().await {
        ended.map_err(std::io::Error::other)??;
    }
    Ok(())
}

/// The port on the given address; else on all, IPv4 included where the
/// kernel has no IPv6. Port 0 takes a free one; the line printed tells which.
#[expect(clippy::print_stdout, reason = "a container's log is its output")]
async fn listen(
    protocol: &str,
    address: Option<IpAddr>,
    port: u16,
) -> std::io::Result<TcpListener> {
    let listener = match address {
        Some(address) => TcpListener::bind((address, port)).await?,
        None => match TcpListener::bind(SocketAddr::from((Ipv6Addr::UNSPECIFIED, port))).await {
            Ok(listener) => listener,
            Err(_) => TcpListener::bind(("0.0.0.0", port)).await?,
        },
    };
    println!("{protocol} listens on {}", listener.local_addr()?);
    Ok(listener)
}

async fn serve_tcp(listener: TcpListener) -> std::io::Result<()> {
    use tokio::io::AsyncWriteExt as _;
    loop {
        let (mut stream, _) = listener.accept().await?;
        // The caller may be a probe that closes without reading.
        let _ = stream.write_all(b"hello\n").await;
    }
}
