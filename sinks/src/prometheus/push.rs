//! Metrics that are pushed once, when the run has ended: to a Pushgateway, where Prometheus finds them.

use std::fmt::Write;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE;
use resource_tracker_core::{Outcome, Run, Sample, Sink};
use resource_tracker_telemetry::prometheus::Exposition;
use url::Url;

use super::exposed::Exposed;
use super::remote_write;
use crate::http::backoff::Backoff;
use crate::http::receiver::{Protocol, Receiver};

/// What is worth another try is the same.
pub(super) const PROTOCOL: Protocol =
    Protocol { headers: &[("content-type", "text/plain; version=0.0.4; charset=utf-8")], ..remote_write::PROTOCOL };

pub(super) struct Push {
    pub(super) exposed: Exposed,
    pub(super) receiver: Receiver,
    pub(super) patience: Duration,
}

impl Sink for Push {
    fn start(&mut self, run: &Run) -> anyhow::Result<()> {
        self.exposed.begin(run);
        Ok(())
    }

    fn write(&mut self, sample: &Sample) -> anyhow::Result<()> {
        self.exposed.take(sample)
    }

    fn delay(&self) -> Duration {
        Duration::from_millis(500)
    }

    fn finish(&mut self, outcome: &Outcome) -> anyhow::Result<()> {
        let mut text = self.exposed.text(Exposition::Text);
        // As a shell has it.
        let exit_code = outcome.exit_code.or(outcome.signal.map(|signal| 128 + signal));
        add_ending(&mut text, exit_code, SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default());
        self.receiver.url = group(&self.receiver.url, &self.exposed.job())?;
        let end = Instant::now() + self.patience;
        let mut backoff = Backoff::new(Duration::from_millis(500));
        loop {
            // A request takes no longer than what is left.
            self.receiver.timeout = end.saturating_duration_since(Instant::now()).max(Duration::from_millis(100));
            let Err(failure) = self.receiver.post(&self.receiver.agent(), text.as_bytes()) else { return Ok(()) };
            let now = Instant::now();
            backoff.failed(&failure, now, u32::MAX);
            let pause = backoff.pause(now).unwrap_or_default();
            anyhow::ensure!(failure.can_pass() && now + pause < end, "{}", failure.problem().to_owned());
            std::thread::sleep(pause);
        }
    }
}

/// The address of the metrics of a job. A name that is empty or has a `/` must be in base64, and so must one that is a path of its own,
/// or has what an address cannot hold.
fn group(url: &Url, job: &str) -> anyhow::Result<Url> {
    let mut group = url.clone();
    let is_no_part = job.is_empty() || job.starts_with('.') || job.contains(|c: char| c == '/' || c.is_control());
    let parts = match is_no_part {
        // The gateway takes `=` for an empty name.
        true if job.is_empty() => ["job@base64".to_owned(), "=".to_owned()],
        true => ["job@base64".to_owned(), URL_SAFE.encode(job)],
        false => ["job".to_owned(), job.to_owned()],
    };
    let mut path = group.path_segments_mut().ok().context("the address of a gateway has a path")?;
    path.pop_if_empty().push("metrics").extend(parts);
    drop(path);
    Ok(group)
}

/// How the run ended, and when: a job that succeeded leaves that time, and a later one that fails leaves it as it is.
fn add_ending(text: &mut String, exit_code: Option<i32>, now: Duration) {
    let mut add = |name: &str, help: &str, value: f64| {
        // Writing to a String does not fail.
        let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} gauge\n{name} {value}\n");
    };
    let now = now.as_millis() as f64 / 1000.0;
    add("resource_tracker_run_last_end_timestamp_seconds", "When a run of the job ended last", now);
    if let Some(code) = exit_code {
        add("resource_tracker_run_exit_code", "How the last run of the job ended", f64::from(code));
    }
    if exit_code == Some(0) {
        add("resource_tracker_run_last_success_timestamp_seconds", "When a run of the job succeeded last", now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_a_part_of_the_address() -> anyhow::Result<()> {
        let group = |url: &str, job: &str| anyhow::Ok(super::group(&Url::parse(url)?, job)?.to_string());
        assert_eq!(group("http://g:9091", "train")?, "http://g:9091/metrics/job/train");
        assert_eq!(group("http://g:9091/base/", "a b?#%")?, "http://g:9091/base/metrics/job/a%20b%3F%23%25");
        assert_eq!(group("http://g:9091", "shop/train")?, "http://g:9091/metrics/job@base64/c2hvcC90cmFpbg==");
        assert_eq!(group("http://g:9091", "..")?, "http://g:9091/metrics/job@base64/Li4=");
        assert_eq!(group("http://g:9091", "\n..")?, "http://g:9091/metrics/job@base64/Ci4u");
        assert_eq!(group("http://g:9091", "a\tb")?, "http://g:9091/metrics/job@base64/YQli");
        assert_eq!(group("http://g:9091", "")?, "http://g:9091/metrics/job@base64/=");
        Ok(())
    }

    #[test]
    fn only_a_success_leaves_its_time() {
        let ending = |code| {
            let mut text = String::new();
            add_ending(&mut text, code, Duration::from_millis(1_700_000_000_250));
            text
        };
        let good = ending(Some(0));
        assert!(good.contains("\nresource_tracker_run_last_success_timestamp_seconds 1700000000.25\n"), "{good}");
        let bad = ending(Some(3));
        assert!(bad.contains("\nresource_tracker_run_exit_code 3\n") && !bad.contains("success"), "{bad}");
        assert!(!ending(None).contains("exit_code"));
    }
}
