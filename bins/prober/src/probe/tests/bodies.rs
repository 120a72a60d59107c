//! Bodies of answers to HTTP probes.

use super::*;

#[tokio::test(start_paused = true)]
async fn an_endless_body_is_not_read_to_its_end() {
    let bench = Bench::new(|_, mut stream| {
        tokio::spawn(async move {
            request(&mut stream).await;
            let head = b"HTTP/1.1 200 OK\r\n\r\n";
            let mut alive = stream.write_all(head).await;
            let mut written = 0;
            while alive.is_ok() {
                alive = stream.write_all(&[b'x'; 1024]).await;
                written += 1;
                assert!(written < 1000, "somebody reads all of it");
            }
        });
    });
    let began = Instant::now();
    assert!(is_success(&bench.attempt(GET).await));
    assert_eq!(began.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_body_that_breaks_off_is_thrown_away_as_by_the_kubelet() {
    for bytes in [
        "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort",
        "HTTP/1.1 500 Oops\r\nContent-Length: 100\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        "HTTP/1.1 302 F\r\nLocation: http://a.test/\r\nContent-Length: 9\r\n\r\n",
    ] {
        let bench = Bench::answering(bytes);
        let message = error(bench.attempt(GET).await);
        assert!(message.contains("body"), "{bytes}: {message}");
        assert_eq!(bench.connected().len(), 3, "{bytes}");
    }
    // One that stays away counts in each of the three tries.
    let silent = Bench::new(|_, mut stream| {
        tokio::spawn(async move {
            request(&mut stream).await;
            let head = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n";
            stream.write_all(head).await.unwrap();
            std::future::pending::<()>().await;
        });
    });
    let began = Instant::now();
    error(silent.attempt(GET).await);
    assert_eq!(began.elapsed(), Duration::from_secs(3));
    // That of a redirect which is followed does not matter.
    let bench = Bench::new(|_, mut stream| {
        tokio::spawn(async move {
            let reply = match request(&mut stream).await.contains("/final") {
                true => answer("200 OK"),
                false => "HTTP/1.1 302 F\r\nLocation: /final\r\nContent-Length: 9\r\n\r\n".into(),
            };
            drop(stream.write_all(reply.as_bytes()).await);
        });
    });
    assert!(is_success(&bench.attempt(GET).await));
}
