//! The service at work.

use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use s3s::service::S3Service;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::{self, pki_types::PrivateKeyDer};

use super::known::{BUCKET, Known, TOKEN, Trouble, lock};
use super::{api, store};

/// A service at work, until it is dropped.
pub struct Service {
    pub url: String,
    /// The certificate that it shows, in a file, when it is spoken to over TLS.
    pub certificate: Option<PathBuf>,
    known: Arc<Mutex<Known>>,
    objects: tempfile::TempDir,
    _runtime: tokio::runtime::Runtime,
}

impl Service {
    pub fn start() -> Self {
        Self::begin(false)
    }

    /// As `start`, over TLS, with a certificate that no machine trusts.
    pub fn start_tls() -> Self {
        Self::begin(true)
    }

    fn begin(encrypted: bool) -> Self {
        let objects = tempfile::tempdir().expect("there is room");
        std::fs::create_dir(objects.path().join(BUCKET)).expect("there is room");
        let known = Known { lifetime: Duration::from_secs(3600), tells_region: true, ..Known::default() };
        let known = Arc::new(Mutex::new(known));
        let store = store::service(objects.path(), Arc::clone(&known));
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = runtime.expect("the runtime starts");
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).expect("a port is free");
        let port = listener.local_addr().expect("it has an address").port();
        let (url, tls) = match encrypted {
            true => (format!("https://localhost:{port}"), Some(tls(&objects.path().join("certificate.pem")))),
            false => (format!("http://127.0.0.1:{port}"), None),
        };
        let certificate = encrypted.then(|| objects.path().join("certificate.pem"));
        runtime.spawn(serve(listener, tls, Arc::clone(&known), store));
        Self { url, certificate, known, objects, _runtime: runtime }
    }

    pub fn known(&self) -> MutexGuard<'_, Known> {
        lock(&self.known)
    }

    /// From now on requests that contain the text are treated so.
    pub fn trouble(&self, trouble: &[(&'static str, Trouble)]) {
        self.known().trouble = trouble.to_vec();
    }

    /// The environment of a tracker that streams to this service.
    pub fn environment(&self, state: &Path) -> Vec<(&'static str, String)> {
        vec![
            ("SENTINEL_API_TOKEN", TOKEN.into()),
            ("SENTINEL_API_URL", self.url.clone()),
            ("AWS_ENDPOINT_URL_S3", self.url.clone()),
            ("XDG_STATE_HOME", state.display().to_string()),
            ("TRACKER_SOURCES__CLOUD__ENDPOINT", "http://127.0.0.1:1".into()),
        ]
    }

    /// The file in which the store keeps an object.
    pub fn object(&self, uri: &str) -> PathBuf {
        self.objects.path().join(uri.strip_prefix("s3://").expect("an S3 URI"))
    }

    /// The names of all objects in the bucket, in order.
    pub fn objects(&self) -> Vec<String> {
        let (bucket, mut names) = (self.objects.path().join(BUCKET), Vec::new());
        let mut folders = vec![bucket.clone()];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
                let path = entry.path();
                match path.is_dir() {
                    true => folders.push(path),
                    false => names.push(path.strip_prefix(&bucket).expect("below it").display().to_string()),
                }
            }
        }
        names.sort();
        names
    }

    /// All rows that the service has of a run, and whether they came inline.
    pub fn rows(&self, run_id: &str) -> (Vec<String>, bool) {
        let finish = self.known().runs[run_id].finish.clone().expect("the run is finished");
        let texts: Vec<String> = match finish["data_csv"].as_str() {
            Some(text) => vec![text.to_owned()],
            None => {
                let uris = finish["data_uris"].as_array().expect("URIs").iter();
                uris.map(|uri| gunzip(&std::fs::read(self.object(uri.as_str().expect("a text"))).expect("it is there")))
                    .collect()
            }
        };
        let rows = texts.iter().flat_map(|text| {
            assert!(text.starts_with(&api::header()), "{text:.80}");
            assert!(text.ends_with('\n'));
            text.lines().skip(1).map(str::to_owned)
        });
        (rows.collect(), finish["data_source"] == "inline")
    }
}

/// Waits until a run has begun to spool its rows.
pub fn wait_for_rows(state: &Path) {
    let spool = state.join("resource-tracker/spool");
    let has_rows = |run: std::fs::DirEntry| run.path().join("000000.csv").exists();
    crate::wait_until("a row in the spool", || {
        std::fs::read_dir(&spool).is_ok_and(|runs| runs.flatten().any(has_rows))
    });
}

pub fn gunzip(bytes: &[u8]) -> String {
    let mut text = String::new();
    std::io::Read::read_to_string(&mut flate2::read::GzDecoder::new(bytes), &mut text).expect("it is gzip");
    text
}

type Body = UnsyncBoxBody<Bytes, Box<dyn std::error::Error + Send + Sync>>;

async fn serve(listener: TcpListener, tls: Option<TlsAcceptor>, known: Arc<Mutex<Known>>, store: S3Service) {
    while let Ok((stream, _)) = listener.accept().await {
        let (tls, known, store) = (tls.clone(), Arc::clone(&known), store.clone());
        tokio::spawn(async move {
            let answer = service_fn(|request| answer(request, Arc::clone(&known), store.clone()));
            let http = hyper::server::conn::http1::Builder::new();
            match tls {
                None => drop(http.serve_connection(TokioIo::new(stream), answer).await),
                Some(tls) => {
                    if let Ok(stream) = tls.accept(stream).await {
                        let _ = http.serve_connection(TokioIo::new(stream), answer).await;
                    }
                }
            }
        });
    }
}

/// Makes a certificate for this machine, and writes it to a file.
fn tls(file: &std::path::Path) -> TlsAcceptor {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
    std::fs::write(file, made.cert.pem()).expect("there is room");
    let key = PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.expect("a version").with_no_client_auth().with_single_cert(vec![made.cert.der().clone()], key);
    Arc::new(config.expect("the key fits")).into()
}

async fn answer(
    request: Request<Incoming>,
    known: Arc<Mutex<Known>>,
    store: S3Service,
) -> Result<Response<Body>, std::io::Error> {
    let name = format!("{} {}", request.method(), request.uri().path());
    let trouble = {
        let mut known = lock(&known);
        known.requests.push(name.clone());
        let found = known.trouble.iter().find(|(part, _)| name.contains(part));
        found.map_or(Trouble::None, |(_, trouble)| *trouble)
    };
    match trouble {
        Trouble::Cut => return Err(std::io::ErrorKind::ConnectionReset.into()),
        Trouble::Status(status, retry_after) => {
            let mut answer = Response::new(whole(r#"{"detail":"trouble"}"#));
            *answer.status_mut() = StatusCode::from_u16(status).expect("a status");
            if let Some(secs) = retry_after {
                answer.headers_mut().insert("retry-after", secs.into());
            }
            return Ok(answer);
        }
        Trouble::Delay(time) => tokio::time::sleep(time).await,
        Trouble::None | Trouble::CutHalfway | Trouble::Trickle(_) => (),
    }
    let answer = if request.uri().path().starts_with("/runs") {
        api::answer(request, &known).await.map(whole)
    } else {
        let answer = store
            .call(request.map(s3s::Body::from))
            .await
            .map_err(|error| std::io::Error::other(format!("{error:?}")))?;
        let mut answer = answer
            .map(|body| body.map_err(|error| -> Box<dyn std::error::Error + Send + Sync> { error }).boxed_unsync());
        answer.headers_mut().insert("x-amz-bucket-region", hyper::header::HeaderValue::from_static("eu-north-1"));
        answer
    };
    Ok(match trouble {
        Trouble::CutHalfway => halfway(answer).await,
        Trouble::Trickle(pause) => trickle(answer, pause).await,
        _ => answer,
    })
}

fn whole(text: impl Into<Bytes>) -> Body {
    Full::new(text.into()).map_err(|never: Infallible| match never {}).boxed_unsync()
}

/// The answer up to its middle, and then nothing.
async fn halfway(answer: Response<Body>) -> Response<Body> {
    let (parts, body) = answer.into_parts();
    let bytes = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let half = bytes.slice(..bytes.len() / 2);
    let frames = [Ok(Frame::data(half)), Err(std::io::Error::from(std::io::ErrorKind::ConnectionReset).into())];
    Response::from_parts(parts, StreamBody::new(futures::stream::iter(frames)).boxed_unsync())
}

async fn trickle(answer: Response<Body>, pause: Duration) -> Response<Body> {
    let (parts, body) = answer.into_parts();
    let bytes = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let stream = futures::stream::unfold(bytes, move |mut rest| async move {
        tokio::time::sleep(pause).await;
        (!rest.is_empty()).then(|| (Ok(Frame::data(rest.split_to(1))), rest))
    });
    Response::from_parts(parts, StreamBody::new(stream).boxed_unsync())
}
