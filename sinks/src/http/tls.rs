//! TLS: rustls with the ring provider that comes with it, and the certificates of the system.

use std::sync::Arc;

use rustls::crypto::ring;
use ureq::tls::{Certificate, RootCerts, TlsConfig};

/// What a client needs; it shows no certificate of its own.
pub(crate) fn config() -> TlsConfig {
    let roots = rustls_native_certs::load_native_certs();
    let roots: Vec<_> = roots.certs.iter().map(|root| Certificate::from_der(root).to_owned()).collect();
    TlsConfig::builder()
        .unversioned_rustls_crypto_provider(Arc::new(ring::default_provider()))
        .root_certs(RootCerts::Specific(Arc::new(roots)))
        .build()
}
