//! The built-in sinks. Linking this crate registers them; one file or folder holds one sink.

mod columns;
mod csv;
mod encode;
mod file;
pub mod http;
mod latest;
mod left_behind;
mod otlp;
mod prometheus;
mod s3;
mod secret;
mod sending;
pub mod sentinel;
mod spool;
mod stdout_json;
mod stream;
mod turns;

pub use columns::Columns;
pub use csv::CsvConfig;
pub use encode::Format;
pub use file::{FileConfig, IfExists, open_part, set_aside_from, set_aside_of};
pub use left_behind::{LeftBehind, Unsent, left_behind};
pub use otlp::{Compression, OtlpConfig, Temporality};
pub use prometheus::{PrometheusConfig, PrometheusMode};
pub use s3::{Encryption, S3Config};
pub use stdout_json::StdoutJsonConfig;
pub use stream::{OpenStream, Stream};
