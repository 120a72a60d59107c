//! Whole sessions against a server that speaks what is written here.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};

use crate::{Error, Event, Outcome, Size, Streams, command, forward};

/// Reads the request, and answers it. The rest is SPDY.
async fn accept(server: &mut DuplexStream, protocol: &str) -> String {
    let request = read_request(server).await;
    let answer = format!(
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\
         X-Stream-Protocol-Version: {protocol}\r\n\r\n"
    );
    server.write_all(answer.as_bytes()).await.unwrap();
    request
}

async fn read_request(server: &mut DuplexStream) -> String {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        request.push(server.read_u8().await.unwrap());
    }
    String::from_utf8(request).unwrap()
}

/// A frame: what it begins with, and the rest.
async fn frame(server: &mut DuplexStream) -> ([u8; 5], Vec<u8>) {
    let mut head = [0; 8];
    server.read_exact(&mut head).await.unwrap();
    let [a, b, c, d, flags, x, y, z] = head;
    let mut rest = vec![0; u32::from_be_bytes([0, x, y, z]) as usize];
    server.read_exact(&mut rest).await.unwrap();
    ([a, b, c, d, flags], rest)
}

async fn data(server: &mut DuplexStream, stream: u8, bytes: &[u8], is_last: bool) {
    let length = u8::try_from(bytes.len()).unwrap();
    let head = [0, 0, 0, stream, u8::from(is_last), 0, 0, length];
    server.write_all(&head).await.unwrap();
    server.write_all(bytes).await.unwrap();
}

/// What the stream that is opened next is for.
async fn opened(server: &mut DuplexStream) -> String {
    let (head, rest) = frame(server).await;
    assert_eq!(head, [0x80, 3, 0, 1, 0]);
    let headers = rest.strip_suffix(&[0, 0, 0, 0xff, 0xff]).unwrap();
    String::from_utf8_lossy(headers).into_owned()
}

const ALL: Streams = Streams {
    stdin: true,
    stdout: true,
    stderr: true,
    tty: false,
};

#[tokio::test]
async fn a_command_has_input_output_and_an_end() {
    let (client, mut server) = tokio::io::duplex(1 << 16);
    let serve = async {
        let request = accept(&mut server, "v4.channel.k8s.io").await;
        assert!(
            request.starts_with("POST /exec/t HTTP/1.1\r\n"),
            "{request}"
        );
        for kind in ["error", "stdin", "stdout", "stderr"] {
            let opened = opened(&mut server).await;
            assert!(opened.contains(kind), "{opened:?}");
        }
        assert_eq!(frame(&mut server).await, ([0, 0, 0, 3, 0], b"in".to_vec()));
        assert_eq!(frame(&mut server).await, ([0, 0, 0, 3, 1], Vec::new()));
        // A ping is answered.
        let ping = [0x80, 3, 0, 6, 0, 0, 0, 4, 0, 0, 0, 2];
        server.write_all(&ping).await.unwrap();
        assert_eq!(frame(&mut server).await.1, [0, 0, 0, 2]);
        data(&mut server, 5, b"out", false).await;
        data(&mut server, 7, b"err", false).await;
        data(&mut server, 5, b"", true).await;
        data(&mut server, 1, b"{\"status\":\"Success\"}", true).await;
    };
    let ask = async {
        let (input, mut output) = command(client, "/exec/t", ALL).await.unwrap();
        assert!(input.send(b"in").await);
        input.end().await;
        assert_eq!(output.next().await.unwrap(), Event::Stdout(b"out".to_vec()));
        assert_eq!(output.next().await.unwrap(), Event::Stderr(b"err".to_vec()));
        let ended = Event::Ended(Outcome::Exited(0));
        assert_eq!(output.next().await.unwrap(), ended);
    };
    tokio::join!(serve, ask);
}

#[tokio::test]
async fn a_terminal_has_a_size_and_no_errors_of_its_own() {
    let (client, mut server) = tokio::io::duplex(1 << 16);
    let serve = async {
        accept(&mut server, "v4.channel.k8s.io").await;
        for kind in ["error", "stdin", "stdout", "resize"] {
            let opened = opened(&mut server).await;
            assert!(opened.contains(kind), "{opened:?}");
        }
        let size = b"{\"Width\":80,\"Height\":24}".to_vec();
        assert_eq!(frame(&mut server).await, ([0, 0, 0, 7, 0], size));
        // It ends without a word.
        drop(server);
    };
    let ask = async {
        let streams = Streams { tty: true, ..ALL };
        let (input, mut output) = command(client, "/exec/t", streams).await.unwrap();
        let size = Size {
            width: 80,
            height: 24,
        };
        assert!(input.resize(size).await);
        assert!(matches!(output.next().await, Err(Error::Ended)));
    };
    tokio::join!(serve, ask);
}

#[tokio::test]
async fn a_refusal_is_told_in_the_servers_words() {
    let (client, mut server) = tokio::io::duplex(1 << 16);
    let serve = async {
        read_request(&mut server).await;
        let answer = b"HTTP/1.1 404 Not Found\r\nContent-Length: 5\r\n\r\ngone\n";
        server.write_all(answer).await.unwrap();
    };
    let (refused, ()) = tokio::join!(command(client, "/exec/t", ALL), serve);
    match refused {
        Err(Error::Refused { status, message }) => {
            assert_eq!((status, message.as_str()), (404, "gone"));
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_frame_that_is_too_large_ends_the_session() {
    let (client, mut server) = tokio::io::duplex(1 << 16);
    let serve = async {
        accept(&mut server, "v4.channel.k8s.io").await;
        let head = [0, 0, 0, 5, 0, 0xff, 0xff, 0xff];
        server.write_all(&head).await.unwrap();
    };
    let ask = async {
        let (_input, mut output) = command(client, "/exec/t", ALL).await.unwrap();
        assert!(matches!(output.next().await, Err(Error::Protocol(_))));
    };
    tokio::join!(serve, ask);
}

#[tokio::test]
async fn a_port_is_a_connection_with_two_ends() {
    let (client, mut server) = tokio::io::duplex(1 << 16);
    let (local, mut peer) = tokio::io::duplex(1 << 16);
    let serve = async {
        accept(&mut server, "portforward.k8s.io").await;
        for kind in ["error", "data"] {
            let opened = opened(&mut server).await;
            assert!(
                opened.contains(kind) && opened.contains("8080"),
                "{opened:?}"
            );
        }
        assert_eq!(frame(&mut server).await, ([0, 0, 0, 1, 1], Vec::new()));
        assert_eq!(frame(&mut server).await, ([0, 0, 0, 3, 0], b"ask".to_vec()));
        assert_eq!(frame(&mut server).await, ([0, 0, 0, 3, 1], Vec::new()));
        data(&mut server, 3, b"answer", false).await;
        data(&mut server, 1, b"", true).await;
        data(&mut server, 3, b"", true).await;
    };
    let use_it = async {
        peer.write_all(b"ask").await.unwrap();
        peer.shutdown().await.unwrap();
        let mut answer = String::new();
        peer.read_to_string(&mut answer).await.unwrap();
        assert_eq!(answer, "answer");
    };
    let (forwarded, (), ()) = tokio::join!(
        forward(client, "/portforward/t", 8080, local),
        serve,
        use_it
    );
    forwarded.unwrap();
}

#[tokio::test]
async fn a_port_that_cannot_be_reached_says_why() {
    let reset = |stream| [0x80, 3, 0, 3, 0, 0, 0, 8, 0, 0, 0, stream, 0, 0, 0, 5];
    for data_ends_first in [true, false] {
        let (client, mut server) = tokio::io::duplex(1 << 16);
        let (local, _peer) = tokio::io::duplex(1 << 16);
        let serve = async {
            accept(&mut server, "portforward.k8s.io").await;
            if data_ends_first {
                data(&mut server, 3, b"", true).await;
            }
            data(&mut server, 1, b"connection refused", false).await;
            for stream in [3, 1] {
                server.write_all(&reset(stream)).await.unwrap();
            }
            server
        };
        let forwarding = forward(client, "/portforward/t", 8080, local);
        let (forwarded, _server) = tokio::join!(forwarding, serve);
        let error = forwarded.unwrap_err();
        assert_eq!(error.to_string(), "connection refused");
    }
}
