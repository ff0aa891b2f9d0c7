//! A server of one page, for a program that asks for it now and then.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use resource_tracker_telemetry::prometheus::Exposition;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::pipe::{PipeFlags, pipe_with};

/// Who asks has so long for the question, and so long to take the answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// No question of Prometheus is longer.
const LONGEST_QUESTION: usize = 8 << 10;
/// So many are answered at once; others are sent away.
const MOST_AT_ONCE: usize = 16;
const PATH: &str = "/metrics";

type Content = dyn Fn(Exposition) -> String + Send + Sync;

/// A server, until it is dropped.
pub(super) struct Server {
    /// The thread ends when this is closed.
    _open: OwnedFd,
}

/// Whether there can be such an address.
pub(super) fn check(address: &str) -> anyhow::Result<()> {
    let is_one = address.parse::<SocketAddr>().is_ok()
        || address.rsplit_once(':').is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok());
    anyhow::ensure!(is_one, "listen {address:?} is no address with a port, such as 127.0.0.1:9464");
    Ok(())
}

impl Server {
    /// Listens, and answers with `content` from then on.
    pub(super) fn start(
        address: &str,
        content: impl Fn(Exposition) -> String + Send + Sync + 'static,
    ) -> anyhow::Result<Self> {
        let cannot =
            || format!("cannot listen on {address}; set sinks.prometheus.listen to another address or port (0: any)");
        let listener = TcpListener::bind(address).with_context(cannot)?;
        listener.set_nonblocking(true).with_context(cannot)?;
        if is_any_port(address) {
            log::warn!("prometheus: metrics are at http://{}{PATH}", listener.local_addr().with_context(cannot)?);
        }
        let (closed, open) = pipe_with(PipeFlags::CLOEXEC).with_context(cannot)?;
        let content: Arc<Content> = Arc::new(content);
        let work = move || serve(&listener, &closed, &content);
        thread::Builder::new().name("prometheus".into()).spawn(work).context("cannot start a thread")?;
        Ok(Self { _open: open })
    }
}

fn is_any_port(address: &str) -> bool {
    address.to_socket_addrs().is_ok_and(|mut addresses| addresses.all(|address| address.port() == 0))
}

fn serve(listener: &TcpListener, closed: &OwnedFd, content: &Arc<Content>) {
    let busy = Arc::new(AtomicUsize::new(0));
    loop {
        let mut waited = [PollFd::new(listener, PollFlags::IN), PollFd::new(closed, PollFlags::IN)];
        match poll(&mut waited, None) {
            Ok(_) if !waited[1].revents().is_empty() => return,
            Ok(_) | Err(rustix::io::Errno::INTR) => (),
            Err(_) => return,
        }
        match listener.accept() {
            Ok((stream, _)) => begin_answer(stream, &busy, content),
            // Without descriptors, it would be asked again and again.
            Err(error) if error.kind() != ErrorKind::WouldBlock => thread::sleep(Duration::from_millis(100)),
            Err(_) => (),
        }
    }
}

/// Answers on a thread of its own: one that is slow holds nobody up.
fn begin_answer(stream: TcpStream, busy: &Arc<AtomicUsize>, content: &Arc<Content>) {
    if busy.fetch_add(1, Ordering::Relaxed) >= MOST_AT_ONCE {
        busy.fetch_sub(1, Ordering::Relaxed);
        return;
    }
    let work = {
        let (busy, content) = (Arc::clone(busy), Arc::clone(content));
        move || {
            // Whether it came through is the other's concern.
            let _ = answer(stream, &*content);
            busy.fetch_sub(1, Ordering::Relaxed);
        }
    };
    if thread::Builder::new().name("scraped".into()).spawn(work).is_err() {
        busy.fetch_sub(1, Ordering::Relaxed);
    }
}

fn answer(mut stream: TcpStream, content: &Content) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    let question = read_question(&mut stream)?;
    let is_local = stream.local_addr()?.ip().is_loopback();
    let (status, content_type, body) = match Question::parse(&question) {
        // A page of elsewhere can have its own name mean this machine, and would read the answer.
        Some(Question { has_foreign_host: true, .. }) if is_local => {
            ("421 Misdirected Request", "text/plain; charset=utf-8", "ask for localhost\n".to_owned())
        }
        Some(Question { method: "GET" | "HEAD", path: PATH, form, .. }) => {
            ("200 OK", form.content_type(), content(form))
        }
        Some(Question { method: "GET" | "HEAD", .. }) => {
            ("404 Not Found", "text/plain; charset=utf-8", format!("metrics are at {PATH}\n"))
        }
        Some(_) => ("405 Method Not Allowed", "text/plain; charset=utf-8", "only GET and HEAD\n".to_owned()),
        None => ("400 Bad Request", "text/plain; charset=utf-8", "this is no HTTP/1\n".to_owned()),
    };
    let allow = if status.starts_with("405") { "Allow: GET, HEAD\r\n" } else { "" };
    let mut text = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\n{allow}Connection: close\r\n\r\n",
        body.len()
    );
    if !question.starts_with(b"HEAD ") {
        text.push_str(&body);
    }
    write_within(&mut stream, text.as_bytes(), Instant::now() + PATIENCE)
}

/// The head of a question.
struct Question<'a> {
    method: &'a str,
    path: &'a str,
    form: Exposition,
    /// Whether it asks a host by a name that is not localhost.
    has_foreign_host: bool,
}

impl<'a> Question<'a> {
    fn parse(bytes: &'a [u8]) -> Option<Self> {
        let mut headers = [httparse::EMPTY_HEADER; 64];
        let mut request = httparse::Request::new(&mut headers);
        request.parse(bytes).ok()?;
        let (method, path) = request.method.zip(request.path)?;
        let path = path.split('?').next().unwrap_or(path);
        let mut accepted = request.headers.iter().filter(|header| header.name.eq_ignore_ascii_case("accept"));
        let is_open = accepted.any(|header| accepts_open_metrics(header.value));
        let form = if is_open { Exposition::OpenMetrics } else { Exposition::Text };
        let mut hosts = request.headers.iter().filter(|header| header.name.eq_ignore_ascii_case("host"));
        let has_foreign_host = hosts.any(|header| !is_own_host(&String::from_utf8_lossy(header.value)));
        Some(Self { method, path, form, has_foreign_host })
    }
}

/// Whether it is an address or localhost, with or without a port.
fn is_own_host(host: &str) -> bool {
    let host = host.trim();
    let name = host.rsplit_once(':').filter(|(_, port)| port.bytes().all(|byte| byte.is_ascii_digit()));
    let name = name.map_or(host, |(name, _)| name);
    let address = name.trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost") || address.parse::<IpAddr>().is_ok() || host.parse::<IpAddr>().is_ok()
}

/// Whether OpenMetrics is taken, and no less gladly than the text form.
fn accepts_open_metrics(accept: &[u8]) -> bool {
    let accept = String::from_utf8_lossy(accept);
    let quality_of = |wanted: &str| {
        let mut types = accept.split(',').map(|one| one.split(';').map(str::trim).collect::<Vec<_>>());
        types.find(|parts| parts[0].eq_ignore_ascii_case(wanted)).map(|parts| {
            let quality = parts[1..].iter().find_map(|part| part.strip_prefix("q="));
            quality.map_or(1.0, |quality| quality.parse::<f64>().unwrap_or(0.0))
        })
    };
    let open = quality_of("application/openmetrics-text").unwrap_or(0.0);
    open > 0.0 && open >= quality_of("text/plain").unwrap_or(0.0)
}

/// Reads until the head is there: what was read is no more than that, or no question.
fn read_question(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let until = Instant::now() + PATIENCE;
    let (mut question, mut part) = (Vec::new(), [0; 1024]);
    loop {
        stream.set_read_timeout(Some(left(until)?))?;
        let count = match stream.read(&mut part) {
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        question.extend_from_slice(&part[..count]);
        if count == 0 || question.windows(4).any(|end| end == b"\r\n\r\n") || question.len() > LONGEST_QUESTION {
            return Ok(question);
        }
    }
}

fn write_within(stream: &mut TcpStream, mut bytes: &[u8], until: Instant) -> io::Result<()> {
    while !bytes.is_empty() {
        stream.set_write_timeout(Some(left(until)?))?;
        match stream.write(bytes) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == ErrorKind::Interrupted => (),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The time that is left; a socket takes none for no limit.
fn left(until: Instant) -> io::Result<Duration> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(left) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_form_is_the_one_that_is_liked_better() {
        for (accept, is_open) in [
            ("", false),
            ("*/*", false),
            ("text/plain", false),
            ("application/openmetrics-text", true),
            (
                "application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2",
                true,
            ),
            ("text/plain, Application/OpenMetrics-Text; q=0.9", false),
            ("application/openmetrics-text; q=0", false),
            ("application/openmetrics-text; q=x", false),
            (";;,,q=", false),
        ] {
            assert_eq!(accepts_open_metrics(accept.as_bytes()), is_open, "{accept}");
        }
    }

    #[test]
    fn a_host_is_this_machine_or_an_address() {
        for own in ["localhost", "LOCALHOST:9464", "127.0.0.1:9464", "[::1]:9464", "[::1]", "::1", "10.0.0.1"] {
            assert!(is_own_host(own), "{own}");
        }
        for foreign in
            ["", "evil.example", "evil.example:9464", "localhost.evil.example", "127.0.0.1.evil.example:80", ":9464"]
        {
            assert!(!is_own_host(foreign), "{foreign}");
        }
        let question = |host: &str| format!("GET /metrics HTTP/1.1\r\n{host}\r\n\r\n");
        let is_foreign = |text: String| Question::parse(text.as_bytes()).map(|question| question.has_foreign_host);
        assert_eq!(is_foreign(question("Host: evil.example")), Some(true));
        assert_eq!((is_foreign(question("Host: localhost")), is_foreign(question("X: y"))), (Some(false), Some(false)));
    }

    #[test]
    fn an_address_has_a_port() {
        for good in ["127.0.0.1:0", "[::1]:9464", "localhost:80"] {
            assert!(check(good).is_ok(), "{good}");
        }
        for bad in ["", "9464", ":9464", "localhost", "h:99999", "[::1]"] {
            assert!(check(bad).is_err(), "{bad}");
        }
    }

    fn asked(server: &Server, port: u16, question: &str) -> String {
        let _ = server;
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.write_all(question.as_bytes()).unwrap();
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        answer
    }

    fn free_port() -> u16 {
        TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
    }

    #[test]
    fn questions_are_answered_and_nothing_else() {
        let port = free_port();
        let server = Server::start(&format!("127.0.0.1:{port}"), |form| format!("{form:?}\n")).unwrap();
        for (question, status, end) in [
            ("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n", "HTTP/1.1 200 OK\r\n", "\r\n\r\nText\n"),
            (
                "GET /metrics?x HTTP/1.1\r\nAccept: application/openmetrics-text\r\n\r\n",
                "HTTP/1.1 200 OK\r\n",
                "\r\n\r\nOpenMetrics\n",
            ),
            ("HEAD /metrics HTTP/1.0\r\n\r\n", "HTTP/1.1 200 OK\r\n", "Content-Length: 5\r\nConnection: close\r\n\r\n"),
            ("GET / HTTP/1.1\r\n\r\n", "HTTP/1.1 404 Not Found\r\n", "/metrics\n"),
            ("POST /metrics HTTP/1.1\r\n\r\n", "HTTP/1.1 405 Method Not Allowed\r\n", "HEAD\n"),
            ("\u{16}\u{3}\r\n\r\n", "HTTP/1.1 400 Bad Request\r\n", "HTTP/1\n"),
        ] {
            let answer = asked(&server, port, question);
            assert!(answer.starts_with(status) && answer.ends_with(end), "{question}: {answer}");
        }
        let error = Server::start(&format!("127.0.0.1:{port}"), |_| String::new()).map(drop).unwrap_err();
        assert!(format!("{error:#}").contains("set sinks.prometheus.listen"), "{error:#}");
        drop(server);
        let gone = (0..100).any(|_| {
            thread::sleep(Duration::from_millis(20));
            TcpStream::connect(("127.0.0.1", port)).is_err()
        });
        assert!(gone, "it ends");
    }

    #[test]
    fn who_is_slow_or_many_holds_nobody_up() {
        let port = free_port();
        let server = Server::start(&format!("127.0.0.1:{port}"), |_| "x".repeat(1 << 20)).unwrap();
        let open = || TcpStream::connect(("127.0.0.1", port)).unwrap();
        // They say nothing, or do not end, or do not take the answer.
        let mut slow: Vec<TcpStream> = (0..MOST_AT_ONCE - 1).map(|_| open()).collect();
        slow[0].write_all(b"GET /metrics HTTP/1.1\r\n").unwrap();
        slow[1].write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
        thread::sleep(Duration::from_millis(200));
        let began = Instant::now();
        let answer = asked(&server, port, "GET /metrics HTTP/1.1\r\n\r\n");
        assert!(answer.ends_with("xxx") && began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
        // Endless questions are cut.
        let mut endless = open();
        let is_taken = |_: &i32| {
            thread::sleep(Duration::from_millis(2));
            endless.write_all(&[b'a'; 1024]).is_ok()
        };
        let sent = (0..1000).take_while(is_taken).count();
        assert!(sent < 1000, "{sent}");
        // After a while all are sent away.
        slow.push(open());
        thread::sleep(PATIENCE + Duration::from_secs(1));
        let answer = asked(&server, port, "GET /metrics HTTP/1.1\r\n\r\n");
        assert!(answer.ends_with("xxx"), "{}", answer.len());
    }
}
