//! What keeps a try from its target without being the target's fault.

use super::*;
use crate::spec::Scheme;

#[tokio::test(start_paused = true)]
async fn what_this_node_wants_is_no_failure_of_a_target() {
    let bench = Bench::answering("");
    for probe in [
        r#"{"httpGet":{"port":3}}"#,
        r#"{"tcpSocket":{"port":3}}"#,
        r#"{"grpc":{"port":3}}"#,
    ] {
        let message = error(bench.attempt(probe).await);
        assert!(message.contains("this node cannot connect"), "{message}");
    }
    assert!(bench.connected().iter().all(|to| to.ends_with(":3")));
}

#[tokio::test(start_paused = true)]
async fn a_hook_that_this_node_could_not_connect_for_is_tried_again() {
    let bench = Bench::answering(answer("200 OK"));
    let get = |port| HttpGet {
        scheme: Scheme::Http,
        host: None,
        port,
        path: "/".to_owned(),
        headers: Vec::new(),
    };
    assert_eq!(bench.hook(get(SOON_PORT)).await, Ok(()));
    assert_eq!(bench.connected().len(), 3);
    let began = Instant::now();
    assert!(bench.hook(get(WANTING_PORT)).await.is_err());
    assert_eq!(began.elapsed(), Duration::from_secs(5));
}

#[tokio::test(start_paused = true)]
async fn an_address_that_does_not_answer_leaves_time_to_the_next() {
    let bench = Bench::answering(answer("200 OK"));
    for handler in ["tcpSocket", "httpGet"] {
        let began = Instant::now();
        let probe =
            format!(r#"{{"{handler}":{{"host":"slow.test","port":80}},"timeoutSeconds":2}}"#);
        let outcome = bench.attempt(&probe).await;
        assert!(is_success(&outcome), "{outcome:?}");
        assert_eq!(began.elapsed(), Duration::from_secs(1));
    }
}

#[tokio::test(start_paused = true)]
async fn waiting_for_a_lookup_of_others_is_no_failure() {
    let bench = Bench::answering(answer("200 OK"));
    let of = |host: &str| format!(r#"{{"tcpSocket":{{"host":"{host}","port":80}}}}"#);
    // One pod takes no more places than it may have.
    for _ in 0..2 {
        failure(bench.attempt_of("slow1", &of(HANGING_NAME)).await);
    }
    let message = error(bench.attempt_of("slow1", &of(HANGING_NAME)).await);
    assert!(message.contains("too many names"), "{message}");
    let outcome = bench.attempt_of("other", &of("web.test")).await;
    assert!(is_success(&outcome), "{outcome:?}");
    // Several pods together can take them all; who waits then has not failed.
    for pod in ["slow2", "slow3", "slow4"] {
        for _ in 0..2 {
            failure(bench.attempt_of(pod, &of(HANGING_NAME)).await);
        }
    }
    error(bench.attempt_of("other", &of("web.test")).await);
    let outcome = bench.attempt_of("other", &of("10.0.0.9")).await;
    assert!(is_success(&outcome), "{outcome:?}");
}

/// How much of an answer without an end is read.
async fn bytes_taken(piece: &'static [u8], probe: &str) -> usize {
    let taken = Arc::new(Mutex::new(0));
    let count = Arc::clone(&taken);
    let bench = Bench::new(move |_, mut stream| {
        let count = Arc::clone(&count);
        tokio::spawn(async move {
            request(&mut stream).await;
            // As good as without an end.
            for _ in 0..(8 << 20) / piece.len() {
                if stream.write_all(piece).await.is_err() {
                    break;
                }
                *count.lock().unwrap() += piece.len();
            }
        });
    });
    failure(bench.attempt(probe).await);
    *taken.lock().unwrap()
}

#[tokio::test(start_paused = true)]
async fn heads_without_end_are_not_read_to_their_end() {
    let probe = r#"{"httpGet":{"port":80},"timeoutSeconds":3600}"#;
    let taken = bytes_taken(b"HTTP/1.1 100 Continue\r\n\r\n", probe).await;
    assert!(taken < 1 << 20, "{taken}");
}
