//! TLS as a client needs it. The provider that comes with rustls also signs, and knows more ciphers: 200 KB more.

use std::sync::Arc;

use rustls::crypto::ring::{cipher_suite, kx_group};
use rustls::crypto::{CryptoProvider, GetRandomFailed, KeyProvider, SecureRandom, WebPkiSupportedAlgorithms};
use rustls::pki_types::PrivateKeyDer;
use rustls::sign::SigningKey;
use rustls::{Error, SignatureScheme};
use ureq::tls::{Certificate, RootCerts, TlsConfig};
use webpki::ring as algorithms;

/// AES-GCM, which every server has, with the certificates of the system.
pub(crate) fn config() -> TlsConfig {
    let roots = rustls_native_certs::load_native_certs();
    let roots: Vec<_> = roots.certs.iter().map(|root| Certificate::from_der(root).to_owned()).collect();
    TlsConfig::builder()
        .unversioned_rustls_crypto_provider(Arc::new(provider()))
        .root_certs(RootCerts::Specific(Arc::new(roots)))
        .build()
}

fn provider() -> CryptoProvider {
    CryptoProvider {
        cipher_suites: vec![
            cipher_suite::TLS13_AES_256_GCM_SHA384,
            cipher_suite::TLS13_AES_128_GCM_SHA256,
            cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
            cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
            cipher_suite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
            cipher_suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
        ],
        kx_groups: vec![kx_group::X25519, kx_group::SECP256R1],
        signature_verification_algorithms: SIGNATURES,
        secure_random: &Kernel,
        key_provider: &NoKeys,
    }
}

/// What certificates of public authorities are signed with.
static SIGNATURES: WebPkiSupportedAlgorithms = WebPkiSupportedAlgorithms {
    all: &[
        algorithms::ECDSA_P256_SHA256,
        algorithms::ECDSA_P256_SHA384,
        algorithms::ECDSA_P384_SHA256,
        algorithms::ECDSA_P384_SHA384,
        algorithms::RSA_PSS_2048_8192_SHA256_LEGACY_KEY,
        algorithms::RSA_PSS_2048_8192_SHA384_LEGACY_KEY,
        algorithms::RSA_PSS_2048_8192_SHA512_LEGACY_KEY,
        algorithms::RSA_PKCS1_2048_8192_SHA256,
        algorithms::RSA_PKCS1_2048_8192_SHA384,
        algorithms::RSA_PKCS1_2048_8192_SHA512,
    ],
    mapping: &[
        (SignatureScheme::ECDSA_NISTP384_SHA384, &[algorithms::ECDSA_P384_SHA384, algorithms::ECDSA_P256_SHA384]),
        (SignatureScheme::ECDSA_NISTP256_SHA256, &[algorithms::ECDSA_P256_SHA256, algorithms::ECDSA_P384_SHA256]),
        (SignatureScheme::RSA_PSS_SHA512, &[algorithms::RSA_PSS_2048_8192_SHA512_LEGACY_KEY]),
        (SignatureScheme::RSA_PSS_SHA384, &[algorithms::RSA_PSS_2048_8192_SHA384_LEGACY_KEY]),
        (SignatureScheme::RSA_PSS_SHA256, &[algorithms::RSA_PSS_2048_8192_SHA256_LEGACY_KEY]),
        (SignatureScheme::RSA_PKCS1_SHA512, &[algorithms::RSA_PKCS1_2048_8192_SHA512]),
        (SignatureScheme::RSA_PKCS1_SHA384, &[algorithms::RSA_PKCS1_2048_8192_SHA384]),
        (SignatureScheme::RSA_PKCS1_SHA256, &[algorithms::RSA_PKCS1_2048_8192_SHA256]),
    ],
};

/// `getrandom`
#[derive(Debug)]
struct Kernel;

impl SecureRandom for Kernel {
    fn fill(&self, mut buffer: &mut [u8]) -> Result<(), GetRandomFailed> {
        while !buffer.is_empty() {
            let filled = rustix::rand::getrandom(&mut *buffer, rustix::rand::GetRandomFlags::empty());
            let filled = filled.map_err(|_| GetRandomFailed)?;
            buffer = &mut buffer[filled..];
        }
        Ok(())
    }
}

/// A client that shows no certificate signs nothing.
#[derive(Debug)]
struct NoKeys;

impl KeyProvider for NoKeys {
    fn load_private_key(&self, _: PrivateKeyDer<'static>) -> Result<Arc<dyn SigningKey>, Error> {
        Err(Error::General("client certificates are not supported".into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_bytes_fill_the_buffer() {
        let mut buffer = [0; 512];
        assert!(Kernel.fill(&mut buffer).is_ok());
        assert!(buffer.iter().filter(|byte| **byte == 0).count() < 50);
    }
}
