//! Over real connections, with no other process beside.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use clock::WallClock;
use ipc::Network;
use node_config::{Authorization, NodeServer, ServingCertificate};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use serde_json::{Map, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::*;
use crate::network::Tcp;
use crate::tls;

/// A server, and whoever has issued all certificates.
struct World {
    address: SocketAddr,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl World {
    async fn new() -> World {
        let mut parameters = CertificateParams::new(Vec::new()).unwrap();
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let issuer = CertifiedIssuer::self_signed(parameters, key).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let world = World {
            address: listener.local_addr().unwrap(),
            issuer,
        };
        let certificate = world.issue("node");
        let configuration = Map::from_iter([("port".to_owned(), json!(1))]);
        let settings = NodeServer {
            address: world.address,
            health_address: None,
            certificate: None,
            tls13_only: false,
            client_authority: Some(world.issuer.pem()),
            anonymous: false,
            token_review: None,
            authorization: Authorization::AlwaysAllow,
            debugging_handlers: true,
            stream_idle_timeout: Duration::from_secs(3600),
            configuration,
        };
        let clock = WallClock::system();
        let acceptor = tls::acceptor(&settings, &certificate, clock.clone()).unwrap();
        let node = Arc::new(Node::new(&Network::unix("/is/not/there")));
        let (network, name) = (Arc::new(Tcp), "node".to_owned());
        let server = Arc::new(Server::new(node, network, name, settings, clock));
        tokio::spawn(server.serve(Box::new(listener), acceptor));
        world
    }

    fn issue(&self, name: &str) -> ServingCertificate {
        let mut parameters = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        parameters.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let certificate = parameters.signed_by(&key, &self.issuer).unwrap();
        ServingCertificate {
            chain: certificate.pem(),
            key: key.serialize_pem(),
        }
    }

    /// What a client reads of an answer to `GET path`.
    async fn ask(&self, path: &str, certificate: Option<&ServingCertificate>) -> String {
        let mut roots = RootCertStore::empty();
        roots.add(self.issuer.der().clone()).unwrap();
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let config = match certificate {
            None => builder.with_no_client_auth(),
            Some(shown) => {
                let chain = CertificateDer::from_pem_slice(shown.chain.as_bytes()).unwrap();
                let key = PrivateKeyDer::from_pem_slice(shown.key.as_bytes()).unwrap();
                builder.with_client_auth_cert(vec![chain], key).unwrap()
            }
        };
        let stream = TcpStream::connect(self.address).await.unwrap();
        let name = ServerName::from(self.address.ip());
        let connector = TlsConnector::from(Arc::new(config));
        let mut stream = connector.connect(name, stream).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nhost: node\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }
}

fn status(answer: &str) -> &str {
    answer.get("HTTP/1.1 ".len()..).map_or("", |it| &it[..3])
}

#[tokio::test]
async fn only_who_has_shown_who_it_is_gets_an_answer() {
    let world = World::new().await;
    let ann = world.issue("ann");
    assert_eq!(status(&world.ask("/configz", None).await), "401");
    let answer = world.ask("/configz", Some(&ann)).await;
    assert!(
        answer.ends_with("{\"kubeletconfig\":{\"port\":1}}"),
        "{answer}"
    );
    assert_eq!(status(&world.ask("/nothing", Some(&ann)).await), "404");
}

#[tokio::test]
async fn who_shows_nothing_keeps_nobody_out_who_has_credentials() {
    let world = World::new().await;
    let ann = world.issue("ann");
    let mut silent = Vec::new();
    for _ in 0..200 {
        silent.push(TcpStream::connect(world.address).await.unwrap());
    }
    assert_eq!(status(&world.ask("/configz", Some(&ann)).await), "200");
    // The oldest had to go, the newest still are there.
    let mut buffer = [0];
    let ended = silent[0].read(&mut buffer).await;
    assert!(matches!(ended, Ok(0) | Err(_)), "{ended:?}");
    let newest = silent.last().unwrap();
    let left = newest.try_read(&mut buffer).map_err(|error| error.kind());
    assert_eq!(left, Err(std::io::ErrorKind::WouldBlock));
}
