//! A server with given answers.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::thread;

/// Heads and bodies of requests.
type Kept = Arc<Mutex<Vec<(String, Vec<u8>)>>>;

/// A server that answers the first line and the headers of every request with these bytes, and keeps the requests.
pub struct Server {
    pub url: String,
    requests: Kept,
}

impl Server {
    pub fn start(answer: impl Fn(&str) -> Vec<u8> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (requests, answer) = (Kept::default(), Arc::new(answer));
        let kept = Arc::clone(&requests);
        thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let (answer, kept) = (Arc::clone(&answer), Arc::clone(&kept));
                thread::spawn(move || {
                    let mut reader = BufReader::new(stream.try_clone().unwrap());
                    let (mut head, mut length) = (String::new(), 0);
                    while reader.read_line(&mut head).is_ok_and(|count| count > 2) {
                        let line = head.lines().last().unwrap_or_default().to_lowercase();
                        length = line.strip_prefix("content-length: ").map_or(length, |text| text.parse().unwrap());
                    }
                    let mut body = vec![0; length];
                    let _ = reader.read_exact(&mut body);
                    let bytes = answer(&head);
                    kept.lock().unwrap().push((head, body));
                    let _ = stream.write_all(&bytes);
                });
            }
        });
        Self { url, requests }
    }

    /// The first line and the headers of each, in order.
    pub fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().iter().map(|(head, _)| head.clone()).collect()
    }

    /// The bodies of each, in order.
    pub fn bodies(&self) -> Vec<Vec<u8>> {
        self.requests.lock().unwrap().iter().map(|(_, body)| body.clone()).collect()
    }
}

/// An answer with a body.
pub fn http(status: &str, headers: &str, body: &str) -> Vec<u8> {
    format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n{headers}\r\n{body}", body.len()).into()
}
