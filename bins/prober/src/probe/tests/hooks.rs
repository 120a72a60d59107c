//! HTTP lifecycle hooks.

use super::*;
use crate::spec::Scheme;

fn get(scheme: Scheme, port: u16) -> HttpGet {
    HttpGet {
        scheme,
        host: None,
        port,
        path: "/drain?now".to_owned(),
        headers: vec![
            ("X-A".to_owned(), "b".to_owned()),
            ("Authorization".to_owned(), "secret".to_owned()),
        ],
    }
}

#[tokio::test(start_paused = true)]
async fn any_answer_to_a_hook_will_do_and_none_is_a_failure() {
    for status in ["200 OK", "404 Not Found", "500 Internal Server Error"] {
        let bench = Bench::answering(answer(status));
        assert_eq!(bench.hook(get(Scheme::Http, 80)).await, Ok(()), "{status}");
        assert_eq!(bench.connected(), ["10.0.0.1:80"]);
    }
    let broken_off = Bench::answering("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n");
    assert_eq!(broken_off.hook(get(Scheme::Http, 80)).await, Ok(()));
    let bench = Bench::answering("");
    assert!(bench.hook(get(Scheme::Http, REFUSING_PORT)).await.is_err());
    assert!(bench.hook(get(Scheme::Http, 80)).await.is_err());
    let began = Instant::now();
    let silent = bench.hook(get(Scheme::Http, SILENT_PORT)).await;
    assert!(silent.unwrap_err().contains("no answer within"));
    assert_eq!(began.elapsed(), Duration::from_secs(5));
}

#[tokio::test(start_paused = true)]
async fn a_hook_asks_as_the_kubelet_does() {
    let (bench, requests) = recording();
    bench.hook(get(Scheme::Http, 80)).await.unwrap();
    let head = requests.lock().unwrap()[0].clone();
    assert!(head.starts_with("GET /drain?now HTTP/1.1\r\n"), "{head}");
    assert!(head.contains("User-Agent: kube-lifecycle/"), "{head}");
    assert!(head.contains("X-A: b\r\n"), "{head}");
    assert!(head.contains("Authorization: secret\r\n"), "{head}");
}

#[tokio::test(start_paused = true)]
async fn a_server_without_tls_is_asked_again_without_it_and_without_credentials() {
    let requests = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&requests);
    let bench = Bench::new(move |_, mut stream| {
        let seen = Arc::clone(&seen);
        tokio::spawn(async move {
            // As Go's server answers who speaks TLS to it.
            let mut first = [0; 1];
            stream.read_exact(&mut first).await.unwrap();
            if first == [0x16] {
                drop(stream.write_all(answer("400 Bad Request").as_bytes()).await);
                let mut rest = Vec::new();
                drop(stream.read_to_end(&mut rest).await);
                return;
            }
            let head = request(&mut stream).await;
            seen.lock().unwrap().push(head);
            drop(stream.write_all(answer("200 OK").as_bytes()).await);
        });
    });
    assert_eq!(bench.hook(get(Scheme::Https, 443)).await, Ok(()));
    assert_eq!(bench.connected().len(), 2);
    let requests = requests.lock().unwrap();
    assert_eq!(requests.len(), 1);
    assert!(requests[0].contains("X-A: b\r\n"), "{requests:?}");
    assert!(!requests[0].contains("Authorization"), "{requests:?}");
}

#[tokio::test(start_paused = true)]
async fn a_hook_reaches_no_address_that_a_probe_may_not_reach() {
    let bench = Bench::answering(answer("200 OK"));
    let hook = HttpGet {
        host: Some("metadata.test".to_owned()),
        ..get(Scheme::Http, 80)
    };
    assert!(bench.hook(hook).await.unwrap_err().contains("link-local"));
    assert!(bench.connected().is_empty());
}
