//! TLS under an AMQP connection.
//!
//! The client library has TLS too, but with parsers for PKCS#12 key stores: forty crates that Pillarbox never needs. Its
//! certificates are PEM files. So the library gets a stream that is encrypted already.
//!
//! **If we die here** nothing was sent.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_compat::{Compat, CompatExt};
use async_rs::traits::Reactor;
use async_rs::util::RuntimeParts;
use async_rs::{Runtime, Tokio};
use futures_util::Stream;
use futures_util::io::{AsyncRead, AsyncWrite};
use lapin::uri::AMQPUri;
use lapin::{AsyncTcpStream, Connection, ConnectionProperties};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::tls::Loaded;

/// Opens an AMQP connection inside of TLS. Trusts the CAs of the system and those of `tls`.
pub(super) async fn connect(
    uri: AMQPUri,
    properties: ConnectionProperties,
    tls: &Loaded,
) -> lapin::Result<Connection> {
    let reactor = TlsReactor {
        tokio: Tokio::current(),
        tls: TlsConnector::from(Arc::new(client_config(tls)?)),
        host: ServerName::try_from(uri.authority.host.clone()).map_err(invalid)?,
    };
    let runtime = Runtime::new(RuntimeParts::new(Tokio::current(), reactor));
    let connect = async |uri: AMQPUri, runtime: Runtime<_>| {
        let addresses = runtime.to_socket_addrs((uri.authority.host, uri.authority.port));
        Ok(AsyncTcpStream::connect(&runtime, addresses).await?)
    };
    Connection::connector(uri, runtime, connect, properties).await
}

fn client_config(tls: &Loaded) -> io::Result<ClientConfig> {
    let mut roots = RootCertStore::empty();
    let system = rustls_native_certs::load_native_certs();
    for error in &system.errors {
        tracing::warn!(%error, "system certificates cannot be read");
    }
    // Systems keep some certificates that no TLS library can read.
    roots.add_parsable_certificates(system.certs);
    if let Some(ca) = &tls.ca {
        roots.add_parsable_certificates(certificates(ca)?);
    }
    let config = ClientConfig::builder().with_root_certificates(roots);
    match &tls.identity {
        None => Ok(config.with_no_client_auth()),
        Some(identity) => {
            let key = PrivateKeyDer::from_pem_slice(&identity.key).map_err(invalid)?;
            let chain = certificates(&identity.cert)?;
            config.with_client_auth_cert(chain, key).map_err(invalid)
        }
    }
}

fn certificates(pem: &[u8]) -> io::Result<Vec<CertificateDer<'static>>> {
    CertificateDer::pem_slice_iter(pem)
        .collect::<Result<_, _>>()
        .map_err(invalid)
}

fn invalid(error: impl std::error::Error + Send + Sync + 'static) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

/// Opens TCP connections with TLS. Timers are those of tokio.
#[derive(Clone)]
struct TlsReactor {
    tokio: Tokio,
    tls: TlsConnector,
    host: ServerName<'static>,
}

impl fmt::Debug for TlsReactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsReactor")
            .field("host", &self.host)
            .finish_non_exhaustive()
    }
}

impl Reactor for TlsReactor {
    type TcpStream = Compat<TlsStream<TcpStream>>;
    type Sleep = <Tokio as Reactor>::Sleep;

    /// For sockets that are open already. The client library opens its connection with [`Reactor::tcp_connect`].
    fn register<H: Read + Write + Send + 'static>(
        &self,
        _: H,
    ) -> io::Result<impl AsyncRead + AsyncWrite + Send + Unpin + 'static> {
        Err::<Self::TcpStream, _>(io::ErrorKind::Unsupported.into())
    }

    fn sleep(&self, duration: Duration) -> Self::Sleep {
        self.tokio.sleep(duration)
    }

    fn interval(&self, period: Duration) -> impl Stream<Item = Instant> + Send + 'static {
        self.tokio.interval(period)
    }

    fn tcp_connect_addr(
        &self,
        address: SocketAddr,
    ) -> impl Future<Output = io::Result<Self::TcpStream>> + Send + 'static {
        let opening = self.tokio.tcp_connect_addr(address);
        let (tls, host) = (self.tls.clone(), self.host.clone());
        async move {
            let stream = opening.await?.into_inner();
            Ok(tls.connect(host, stream).await?.compat())
        }
    }
}
