//! TLS: rustls with the ring provider that comes with it, and the certificates of the system.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use rustls::crypto::ring;
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};

/// What a client needs that trusts these as well; it shows no certificate of its own.
pub(crate) fn config(more: Vec<Certificate<'static>>) -> TlsConfig {
    let roots = rustls_native_certs::load_native_certs();
    let roots = roots.certs.iter().map(|root| Certificate::from_der(root).to_owned());
    let roots: Vec<_> = roots.chain(more).collect();
    TlsConfig::builder()
        .unversioned_rustls_crypto_provider(Arc::new(ring::default_provider()))
        .root_certs(RootCerts::Specific(Arc::new(roots)))
        .build()
}

/// The certificates of a file (PEM).
pub(crate) fn certificates(path: &Path) -> anyhow::Result<Vec<Certificate<'static>>> {
    let text = std::fs::read(path).with_context(|| format!("cannot read the certificates of {}", path.display()))?;
    let items = parse_pem(&text).filter_map(|item| match item {
        Ok(PemItem::Certificate(certificate)) => Some(Ok(certificate)),
        Ok(_) => None,
        Err(error) => Some(Err(error)),
    });
    let certificates: Vec<_> =
        items.collect::<Result<_, _>>().with_context(|| format!("{} is no PEM", path.display()))?;
    anyhow::ensure!(!certificates.is_empty(), "{} has no certificate", path.display());
    Ok(certificates)
}
