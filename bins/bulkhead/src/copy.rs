//! `cp`: files and directories to and from a container, by the tar that is in it.

pub(crate) mod place;
mod unpack;

use std::io::{self, Write as _};
use std::os::unix::net::UnixStream as Blocking;
use std::path::Path;
use std::process::ExitCode;

use bulkhead_api::v1;
use bulkhead_api::v1::open_session_request::Session;
use remote_command::{Event, Input, Outcome, Output, Streams};
use tar::Builder;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;

use crate::arguments::CopyOptions;
use crate::connection::Connection;
use crate::escape::plain;
use crate::failure::Failure;
use crate::output::note;
use crate::sessions::{Sessions, Target};

use place::{Place, destination, name_of, parent_and_name};
use unpack::unpack;

/// Most of what tar complains of that is told.
const MAX_COMPLAINT_BYTES: usize = 4 << 10;

/// Copies.
pub(crate) async fn copy(
    connection: &Connection,
    options: &CopyOptions,
) -> Result<ExitCode, Failure> {
    match (&options.from, &options.to) {
        (Place::Pod { pod, path }, Place::Here(to)) => {
            let container = Container::find(connection, pod, options).await?;
            container.fetch(path, to).await
        }
        (Place::Here(from), Place::Pod { pod, path }) => {
            let container = Container::find(connection, pod, options).await?;
            container.send(from, path).await
        }
        _ => {
            let message = "one of the two is POD:PATH, and the other a path of this machine";
            Err(Failure::Ambiguous(message.to_owned()))
        }
    }
}

/// The container that is copied from or to.
struct Container {
    sessions: Sessions,
    name: String,
}

impl Container {
    async fn find(
        connection: &Connection,
        pod: &str,
        options: &CopyOptions,
    ) -> Result<Container, Failure> {
        let target = Target::find(connection, pod, options.container.as_deref()).await?;
        Ok(Container {
            sessions: Sessions::new(connection, &target.pod_uid)?,
            name: target.container,
        })
    }

    async fn tar(&self, words: &[&str], stdin: bool) -> Result<(Input, Output), Failure> {
        let words = ["tar"].iter().chain(words);
        let session = Session::Exec(v1::ExecSession {
            container_name: self.name.clone(),
            command: words.map(|&word| word.to_owned()).collect(),
            stdin,
            stdout: true,
            stderr: true,
            tty: false,
        });
        let streams = Streams {
            stdin,
            stdout: true,
            stderr: true,
            tty: false,
        };
        let (stream, path) = self.sessions.open(session).await?;
        let opened = remote_command::command(stream, &path, streams).await;
        opened.map_err(|source| Failure::Session { source })
    }

    /// From the container to this machine.
    async fn fetch(&self, path: &str, to: &Path) -> Result<ExitCode, Failure> {
        let (parent, name) = parent_and_name(path);
        let (target, owned) = (destination(to, name), name.to_owned());
        // So that no name is taken for an option.
        let from = format!("./{name}");
        let (_input, mut output) = self.tar(&["cf", "-", "-C", parent, &from], false).await?;
        let (mut write, read) = pipe()?;
        let unpacking = tokio::task::spawn_blocking(move || unpack(read, &owned, &target));
        let mut complaints = Vec::new();
        let ended = loop {
            match next(&mut output).await? {
                Event::Stderr(bytes) => complain(&mut complaints, &bytes),
                Event::Ended(outcome) => break Some(outcome),
                // It was not unpacked, which says why.
                Event::Stdout(bytes) if write.write_all(&bytes).await.is_err() => break None,
                Event::Stdout(_) => {}
            }
        };
        drop(write);
        let unpacked = unpacking.await;
        if let Some(outcome) = ended {
            check(outcome, &complaints)?;
        }
        let unpacked = unpacked.map_err(io::Error::from);
        let unpacked = unpacked.and_then(|unpacked| unpacked.map_err(io::Error::other));
        let left_out = unpacked.map_err(|source| Failure::Local {
            action: format!("copy {path}"),
            source,
        })?;
        if !left_out.is_empty() {
            note(&format!(
                "{} links and special files are left out, {} first",
                left_out.len(),
                plain(&left_out[0].display().to_string())
            ));
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Whether there is a directory; not where that cannot be found out.
    async fn is_directory(&self, path: &str) -> bool {
        let ran = self.sessions.run(&self.name, &["test", "-d", path]).await;
        ran.is_ok_and(|code| code == 0)
    }

    /// From this machine to the container.
    async fn send(&self, from: &Path, path: &str) -> Result<ExitCode, Failure> {
        let is_directory = self.is_directory(path).await;
        let (parent, name) = match is_directory {
            true => (path, name_of(from).unwrap_or_default()),
            false => {
                let (parent, name) = parent_and_name(path);
                (parent, name.into())
            }
        };
        let packed = Path::new(&name).to_owned();
        let source = from.to_owned();
        let (mut read, write) = pipe()?;
        let packing = tokio::task::spawn_blocking(move || pack(write, &source, &packed));
        let (input, mut output) = self.tar(&["xmf", "-", "-C", parent], true).await?;
        let sending = async {
            let mut buffer = vec![0; 32 << 10];
            loop {
                match read.read(&mut buffer).await {
                    Ok(0) | Err(_) => break,
                    Ok(count) => {
                        if !input.send(&buffer[..count]).await {
                            break;
                        }
                    }
                }
            }
            input.end().await;
            drop(read);
            packing.await.map_err(io::Error::from).flatten()
        };
        let receiving = async {
            let mut complaints = Vec::new();
            loop {
                match next(&mut output).await? {
                    Event::Stderr(bytes) => complain(&mut complaints, &bytes),
                    Event::Stdout(_) => {}
                    Event::Ended(outcome) => return Ok::<_, Failure>((outcome, complaints)),
                }
            }
        };
        // Where tar ends before it has read all, nothing more is sent.
        tokio::pin!(sending, receiving);
        let (sent, ended) = tokio::select! {
            // Not cancelled but with the session.
            ended = &mut receiving => (Ok(()), ended?),
            // The same.
            sent = &mut sending => (sent, receiving.await?),
        };
        sent.map_err(|source| Failure::Local {
            action: format!("read {}", from.display()),
            source,
        })?;
        let (outcome, complaints) = ended;
        check(outcome, &complaints)?;
        Ok(ExitCode::SUCCESS)
    }
}

async fn next(output: &mut Output) -> Result<Event, Failure> {
    let event = output.next().await;
    event.map_err(|source| Failure::Session { source })
}

/// Both ends of what is between a session and tar's own reading and writing.
fn pipe() -> Result<(UnixStream, Blocking), Failure> {
    let made = || {
        let (ours, theirs) = Blocking::pair()?;
        ours.set_nonblocking(true)?;
        Ok((UnixStream::from_std(ours)?, theirs))
    };
    made().map_err(|source| Failure::Local {
        action: "copy".to_owned(),
        source,
    })
}

/// Packs a file or directory under this name. Links stay links.
fn pack(to: Blocking, from: &Path, name: &Path) -> io::Result<()> {
    let mut builder = Builder::new(to);
    builder.follow_symlinks(false);
    // A link that is named itself means where it leads.
    let from = from.canonicalize()?;
    match from.is_dir() {
        true => builder.append_dir_all(name, &from)?,
        false => builder.append_path_with_name(&from, name)?,
    }
    builder.into_inner()?.flush()
}

fn complain(complaints: &mut Vec<u8>, bytes: &[u8]) {
    let room = MAX_COMPLAINT_BYTES.saturating_sub(complaints.len());
    complaints.extend(bytes.iter().take(room));
}

/// Whether tar did it all.
fn check(outcome: Outcome, complaints: &[u8]) -> Result<(), Failure> {
    let complaints = plain(String::from_utf8_lossy(complaints).trim());
    match outcome {
        Outcome::Exited(0) => Ok(()),
        Outcome::Exited(code) => Err(Failure::NotRun(format!(
            "tar in the container ended with code {code}: {complaints}"
        ))),
        Outcome::Failed(message) => Err(Failure::NotRun(format!(
            "cannot run tar in the container: {}",
            plain(&message)
        ))),
    }
}
