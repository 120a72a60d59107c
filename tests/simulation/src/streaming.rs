//! What the runtime serves at the addresses of sessions: an upgrade, then the id of the
//! container that the session is with, and then an echo, until that container or one of the
//! two sides has ended.

use std::convert::Infallible;

use http::header::{CONNECTION, UPGRADE};
use http::{Request, Response, StatusCode};
use http_body_util::Empty;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use memory_network::PortListener;
use simulated_runtime::{SimulatedRuntime, StreamingServer as _};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// The port of the addresses that the runtime gives.
pub(crate) const PORT: u16 = 10010;

/// Most bytes that are echoed at once.
const ECHO_BYTES: usize = 256;

/// Serves sessions for ever.
pub(crate) async fn serve(runtime: SimulatedRuntime, listener: PortListener) {
    loop {
        let stream = listener.accept().await;
        let runtime = runtime.clone();
        let service = service_fn(move |request| {
            let answer = answer(&runtime, request);
            async { Ok::<_, Infallible>(answer) }
        });
        let served = http1::Builder::new()
            .serve_connection(TokioIo::new(stream), service)
            .with_upgrades();
        // It ends when one of its sides has.
        tokio::spawn(async move { drop(served.await) });
    }
}

fn answer(runtime: &SimulatedRuntime, mut request: Request<Incoming>) -> Response<Empty<Bytes>> {
    let mut response = Response::new(Empty::new());
    let Some(id) = runtime.use_address(request.uri().path()) else {
        *response.status_mut() = StatusCode::NOT_FOUND;
        return response;
    };
    let Some(protocol) = request.headers().get(UPGRADE).cloned() else {
        *response.status_mut() = StatusCode::BAD_REQUEST;
        return response;
    };
    let upgrade = hyper::upgrade::on(&mut request);
    tokio::spawn(echo(runtime.clone(), id, upgrade));
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(CONNECTION, http::HeaderValue::from_static("Upgrade"));
    headers.insert(UPGRADE, protocol);
    response
}

/// A session from its beginning to its end.
async fn echo(runtime: SimulatedRuntime, id: String, upgrade: OnUpgrade) {
    let Ok(upgraded) = upgrade.await else { return };
    let mut stream = TokioIo::new(upgraded);
    let echoing = async {
        stream.write_all(id.as_bytes()).await?;
        let mut buffer = [0; ECHO_BYTES];
        loop {
            match stream.read(&mut buffer).await? {
                0 => return std::io::Result::Ok(()),
                read => stream.write_all(&buffer[..read]).await?,
            }
        }
    };
    tokio::select! {
        biased;
        // The other side sees its end, or had one.
        _ = echoing => {}
        () = runtime.until_ended(&id) => {}
    }
}
