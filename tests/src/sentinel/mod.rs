//! A stand-in for the Sentinel service, strict about the contract, with a real S3 server behind it. It can misbehave.

mod api;
mod known;
mod run;
mod service;
mod store;

pub use api::header;
pub use known::{BUCKET, Known, Run, TOKEN, Trouble};
pub use run::{run, run_until, stamps, streaming, upload, waiting};
pub use service::{Service, gunzip, wait_for_rows};
