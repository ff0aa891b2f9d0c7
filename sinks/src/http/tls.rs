//! TLS: rustls with the ring provider that comes with it, and the certificates of the system.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use rustix::fs::OFlags;
use rustls::crypto::ring;
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};

const LARGEST_FILE: u64 = 4 << 20;

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

/// What a file holds that is a regular one and not larger than any of certificates: another one may never end.
pub(crate) fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    // To open a FIFO does not wait for a writer then.
    let file = File::options().read(true).custom_flags(OFlags::NONBLOCK.bits() as i32).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    let mut bytes = Vec::new();
    file.take(LARGEST_FILE).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The certificates of a file (PEM).
pub(crate) fn certificates(path: &Path) -> anyhow::Result<Vec<Certificate<'static>>> {
    let text = read_file(path).with_context(|| format!("cannot read the certificates of {}", path.display()))?;
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
