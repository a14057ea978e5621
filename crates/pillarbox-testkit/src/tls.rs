//! TLS servers with certificates that a client must refuse.
//!
//! A server only shakes hands, which is all that the refusal of a certificate takes.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// What is wrong with a server's certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flaw {
    /// Nothing.
    None,
    /// It ended in 2020.
    Expired,
    /// It is for another host.
    WrongName,
    /// The client does not know its authority.
    UnknownAuthority,
}

/// What a certificate must not have.
pub const FLAWS: [Flaw; 3] = [Flaw::Expired, Flaw::WrongName, Flaw::UnknownAuthority];

/// What the protocol says before TLS begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Greeting {
    /// Nothing.
    None,
    /// The server introduces itself.
    Nats,
    /// The client asks for TLS, and the server agrees.
    Postgres,
}

/// A server on localhost. Ends when it is dropped.
#[derive(Debug)]
pub struct TlsServer {
    port: u16,
    files: TempDir,
    accepted: Arc<AtomicUsize>,
    _tasks: JoinSet<()>,
}

impl TlsServer {
    /// Starts a server with such a certificate.
    ///
    /// # Panics
    /// When openssl is missing.
    pub async fn start(flaw: Flaw, greeting: Greeting) -> Self {
        let files = certificates(flaw);
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let acceptor = acceptor(files.path());
        let accepted = Arc::new(AtomicUsize::new(0));
        let count = accepted.clone();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut clients = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, count) = (acceptor.clone(), count.clone());
                clients.spawn(async move { shake_hands(stream, greeting, &acceptor, &count).await });
            }
        });
        Self {
            port,
            files,
            accepted,
            _tasks: tasks,
        }
    }

    /// Its port on localhost.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The file with the authority that the client trusts.
    pub fn ca_file(&self) -> PathBuf {
        self.files.path().join("ca.pem")
    }

    /// How many clients sent something over TLS, so that they accepted the certificate.
    pub fn accepted(&self) -> usize {
        self.accepted.load(Ordering::SeqCst)
    }
}

/// With TLS 1.3 the server is done before the client has seen the certificate. So only a byte of the client counts.
async fn shake_hands(
    mut stream: TcpStream,
    greeting: Greeting,
    acceptor: &TlsAcceptor,
    accepted: &AtomicUsize,
) -> Option<()> {
    match greeting {
        Greeting::None => {}
        Greeting::Nats => {
            let info =
                b"INFO {\"server_id\":\"test\",\"version\":\"2.10.0\",\"proto\":1,\"host\":\"localhost\",\
                \"port\":4222,\"max_payload\":1048576,\"headers\":true,\"tls_required\":true}\r\n";
            stream.write_all(info).await.ok()?;
        }
        Greeting::Postgres => {
            let mut request = [0; 8];
            stream.read_exact(&mut request).await.ok()?;
            stream.write_all(b"S").await.ok()?;
        }
    }
    let mut stream = acceptor.accept(stream).await.ok()?;
    stream.read_u8().await.ok()?;
    accepted.fetch_add(1, Ordering::SeqCst);
    Some(())
}

fn acceptor(files: &Path) -> TlsAcceptor {
    let chain = CertificateDer::pem_file_iter(files.join("server.pem")).expect("a certificate");
    let chain = chain.collect::<Result<_, _>>().expect("a certificate");
    let key = PrivateKeyDer::from_pem_file(files.join("server.key")).expect("a key");
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("TLS 1.2 and 1.3")
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .expect("a key for its certificate");
    TlsAcceptor::from(Arc::new(config))
}

/// `ca.pem`, which the client trusts, and the server's certificate and key.
fn certificates(flaw: Flaw) -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let (name, end) = match flaw {
        Flaw::None => ("DNS:localhost,IP:127.0.0.1", "20900101000000Z"),
        Flaw::Expired => ("DNS:localhost,IP:127.0.0.1", "20200201000000Z"),
        Flaw::WrongName => ("DNS:other.example.com", "20900101000000Z"),
        Flaw::UnknownAuthority => ("DNS:localhost,IP:127.0.0.1", "20900101000000Z"),
    };
    let signer = if flaw == Flaw::UnknownAuthority {
        "unknown"
    } else {
        "ca"
    };
    let config = format!(
        "[ca]\ndefault_ca=d\n[d]\ndatabase=index\nnew_certs_dir=.\nserial=serial\ndefault_md=sha256\npolicy=p\n\
         x509_extensions=e\nprivate_key={signer}.key\ncertificate={signer}.pem\n[p]\ncommonName=supplied\n\
         [e]\nbasicConstraints=critical,CA:FALSE\nextendedKeyUsage=serverAuth\nsubjectAltName={name}\n"
    );
    for (file, text) in [("config", config.as_str()), ("index", ""), ("serial", "01\n")] {
        std::fs::write(folder.path().join(file), text).expect("writes");
    }
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";
    let authority = "-x509 -days 365 -addext keyUsage=critical,keyCertSign,cRLSign";
    for arguments in [
        format!("req {authority} {key} -keyout ca.key -out ca.pem -subj /CN=Known"),
        format!("req {authority} {key} -keyout unknown.key -out unknown.pem -subj /CN=Unknown"),
        format!("req -new {key} -keyout server.key -out server.csr -subj /CN=localhost"),
        format!(
            "ca -batch -notext -config config -in server.csr -out server.pem -startdate 20200101000000Z -enddate {end}"
        ),
    ] {
        let made = Command::new("openssl")
            .args(arguments.split(' '))
            .current_dir(folder.path())
            .output()
            .expect("openssl runs");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    }
    folder
}
