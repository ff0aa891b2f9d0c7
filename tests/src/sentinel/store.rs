//! The store: a real S3 server, which verifies signatures, with the check of session tokens added.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use s3s::access::{S3Access, S3AccessContext};
use s3s::auth::{S3Auth, SecretKey};
use s3s::service::{S3Service, S3ServiceBuilder};
use s3s::{S3Result, s3_error};

use super::known::{Known, lock};

pub(crate) fn service(directory: &Path, known: Arc<Mutex<Known>>) -> S3Service {
    let files = s3s_fs::FileSystem::new(directory).expect("the directory is there");
    let mut builder = S3ServiceBuilder::new(files);
    builder.set_auth(Guard(Arc::clone(&known)));
    builder.set_access(Guard(known));
    builder.build()
}

struct Guard(Arc<Mutex<Known>>);

#[async_trait::async_trait]
impl S3Auth for Guard {
    async fn get_secret_key(&self, access_key: &str) -> S3Result<SecretKey> {
        let known = lock(&self.0);
        let keys = known.keys.get(access_key).ok_or_else(|| s3_error!(InvalidAccessKeyId))?;
        Ok(keys.secret.clone().into())
    }
}

#[async_trait::async_trait]
impl S3Access for Guard {
    async fn check(&self, context: &mut S3AccessContext<'_>) -> S3Result<()> {
        let credentials = context.credentials().ok_or_else(|| s3_error!(AccessDenied))?;
        let query = context.uri().query().unwrap_or_default().as_bytes();
        let token = url::form_urlencoded::parse(query).find(|(name, _)| name == "X-Amz-Security-Token");
        let known = lock(&self.0);
        let keys = known.keys.get(&credentials.access_key).ok_or_else(|| s3_error!(InvalidAccessKeyId))?;
        match token {
            None if keys.token.is_empty() => Ok(()),
            Some((_, token)) if *token == keys.token && Instant::now() < keys.end => Ok(()),
            Some((_, token)) if *token == keys.token => Err(s3_error!(ExpiredToken)),
            _ => Err(s3_error!(InvalidToken)),
        }
    }
}
