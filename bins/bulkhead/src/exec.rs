//! `exec` and `attach`: a command or process in a container, with what goes in and comes out.

use std::io;
use std::process::ExitCode;

use bulkhead_api::v1;
use bulkhead_api::v1::open_session_request::Session;
use remote_command::{Event, Input, Outcome, Output, Streams};
use tokio::io::{AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use crate::arguments::{AttachOptions, ExecOptions};
use crate::connection::Connection;
use crate::escape::plain;
use crate::failure::Failure;
use crate::output::note;
use crate::sessions::{Sessions, Target};
use crate::terminal;

/// Runs a command.
pub(crate) async fn exec(
    connection: &Connection,
    options: &ExecOptions,
) -> Result<ExitCode, Failure> {
    let target = Target::find(connection, &options.pod, options.container.as_deref()).await?;
    let has_terminal = terminal::is_there();
    if options.tty && !has_terminal {
        note("the command gets no terminal: standard input is none");
    }
    let streams = Streams {
        stdin: options.stdin,
        stdout: true,
        stderr: !(options.tty && has_terminal),
        tty: options.tty && has_terminal,
    };
    let session = Session::Exec(v1::ExecSession {
        container_name: target.container,
        command: options.command.clone(),
        stdin: streams.stdin,
        stdout: streams.stdout,
        stderr: streams.stderr,
        tty: streams.tty,
    });
    let sessions = Sessions::new(connection, &target.pod_uid)?;
    run(&sessions, session, streams).await
}

/// Attaches to the process.
pub(crate) async fn attach(
    connection: &Connection,
    options: &AttachOptions,
) -> Result<ExitCode, Failure> {
    let target = Target::find(connection, &options.pod, options.container.as_deref()).await?;
    let streams = Streams {
        stdin: options.stdin,
        stdout: true,
        stderr: !target.tty,
        tty: target.tty,
    };
    let session = Session::Attach(v1::AttachSession {
        container_name: target.container,
        stdin: streams.stdin,
        stdout: streams.stdout,
        stderr: streams.stderr,
    });
    let sessions = Sessions::new(connection, &target.pod_uid)?;
    run(&sessions, session, streams).await
}

/// A session from its beginning to its end; the exit code of its command.
async fn run(sessions: &Sessions, session: Session, streams: Streams) -> Result<ExitCode, Failure> {
    let (stream, path) = sessions.open(session).await?;
    let (input, mut output) = remote_command::command(stream, &path, streams)
        .await
        .map_err(|source| Failure::Session { source })?;
    let _raw = match streams.tty && streams.stdin && terminal::is_there() {
        true => Some(terminal::Raw::enter()?),
        false => None,
    };
    if streams.tty {
        tokio::spawn(terminal::tell_size(input.clone()));
    }
    if streams.stdin {
        tokio::spawn(send_input(input));
    }
    tokio::select! {
        biased;
        // Not cancelled but by the end of this process.
        ended = show(&mut output) => exit_code(ended?),
        // Cancel-safe: it changes nothing.
        code = terminal::asked_to_end() => Ok(ExitCode::from(code)),
    }
}

/// The exit code that stands for how a command ended.
fn exit_code(outcome: Outcome) -> Result<ExitCode, Failure> {
    match outcome {
        Outcome::Exited(code) => Ok(ExitCode::from(u8::try_from(code).unwrap_or(1))),
        Outcome::Failed(message) => Err(Failure::NotRun(plain(&message))),
    }
}

/// Sends standard input, and its end.
async fn send_input(input: Input) {
    let mut stdin = tokio::io::stdin();
    let mut buffer = vec![0; 16 << 10];
    loop {
        match stdin.read(&mut buffer).await {
            Ok(0) | Err(_) => return input.end().await,
            Ok(read) => {
                if !input.send(&buffer[..read]).await {
                    return;
                }
            }
        }
    }
}

/// Prints what comes; how the command ended.
async fn show(output: &mut Output) -> Result<Outcome, Failure> {
    let (mut stdout, mut stderr) = (tokio::io::stdout(), tokio::io::stderr());
    loop {
        let event = output.next().await;
        match event.map_err(|source| Failure::Session { source })? {
            Event::Stdout(bytes) => print(&mut stdout, &bytes).await?,
            Event::Stderr(bytes) => print(&mut stderr, &bytes).await?,
            Event::Ended(outcome) => return Ok(outcome),
        }
    }
}

async fn print(to: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> Result<(), Failure> {
    let printed = async {
        to.write_all(bytes).await?;
        to.flush().await
    };
    printed.await.map_err(|source| match source.kind() {
        io::ErrorKind::BrokenPipe => Failure::ReaderGone,
        _ => Failure::Local {
            action: "print".to_owned(),
            source,
        },
    })
}
