//! Points as Prometheus receives them: its remote-write protocol, version 1.0.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use prost::Message;

use crate::points::Point;
use crate::prometheus::{Families, label_map};

/// The value that says that a series has ended: Prometheus' own NaN.
const STALE: f64 = f64::from_bits(0x7ff0_0000_0000_0002);

/// Labels by name. They are sorted, as the protocol wants it.
type Labels = BTreeMap<String, String>;

// The messages of `remote.proto` and `types.proto` that are needed.

#[derive(Clone, PartialEq, Message)]
struct WriteRequest {
    #[prost(message, repeated, tag = "1")]
    timeseries: Vec<TimeSeries>,
}

#[derive(Clone, PartialEq, Message)]
struct TimeSeries {
    #[prost(message, repeated, tag = "1")]
    labels: Vec<Label>,
    #[prost(message, repeated, tag = "2")]
    samples: Vec<Value>,
}

#[derive(Clone, PartialEq, Message)]
struct Label {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    value: String,
}

#[derive(Clone, PartialEq, Message)]
struct Value {
    #[prost(double, tag = "1")]
    value: f64,
    /// In milliseconds since 1970.
    #[prost(int64, tag = "2")]
    timestamp: i64,
}

/// Makes the requests of a run, in order: `WriteRequest`, not compressed yet.
#[derive(Debug, Default)]
pub struct Requests {
    /// Those of the request before.
    series: HashSet<Labels>,
    /// Its time.
    last: i64,
}

impl Requests {
    /// A request with these points and their values, each with the labels `common`, and with `info` as those of `target_info`.
    /// A series that was in the request before and is not in this one is said to have ended. `time` is that of the sample,
    /// since 1970; where the clock was set back, the request is of just after the one before.
    pub fn next(
        &mut self,
        families: &Families,
        points: &[(Point<'_>, f64)],
        common: &[(String, String)],
        info: &[(String, String)],
        time: Duration,
    ) -> Vec<u8> {
        let timestamp = self.later(time);
        let before = std::mem::take(&mut self.series);
        let mut timeseries = Vec::new();
        let mut add = |name: &str, mut labels: Labels, value| {
            let common = common.iter().map(|(name, value)| (name.as_str(), value.as_str()));
            labels.extend(label_map(common));
            labels.retain(|_, value| !value.is_empty());
            labels.insert("__name__".into(), name.into());
            // Two of a series at one time cannot be told apart.
            if !self.series.contains(&labels) {
                timeseries.push(series(&labels, value, timestamp));
                self.series.insert(labels);
            }
        };
        if !info.is_empty() {
            add("target_info", label_map(info.iter().map(|(name, value)| (name.as_str(), value.as_str()))), 1.0);
        }
        for (point, value) in points {
            let Some(name) = families.name(point.metric) else { continue };
            add(&name, label_map(point.attributes.iter().map(|(name, value)| (*name, &**value))), *value);
        }
        timeseries.extend(before.difference(&self.series).map(|labels| series(labels, STALE, timestamp)));
        WriteRequest { timeseries }.encode_to_vec()
    }

    /// The last request: it says of all series that they have ended.
    pub fn end(&mut self) -> Vec<u8> {
        let (time, ended) = (self.later(Duration::ZERO), std::mem::take(&mut self.series));
        let timeseries = ended.iter().map(|labels| series(labels, STALE, time)).collect();
        WriteRequest { timeseries }.encode_to_vec()
    }

    /// This time, or the one after that of the last request.
    fn later(&mut self, time: Duration) -> i64 {
        self.last = milliseconds(time).max(self.last.saturating_add(1));
        self.last
    }
}

fn series(labels: &Labels, value: f64, timestamp: i64) -> TimeSeries {
    let labels = labels.iter().map(|(name, value)| Label { name: name.clone(), value: value.clone() });
    TimeSeries { labels: labels.collect(), samples: vec![Value { value, timestamp }] }
}

fn milliseconds(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use resource_tracker_core::registry::Registry;
    use serde_json::json;

    use super::*;
    use crate::{Names, Sums};

    /// `name{label=value,…} value@time` of each series.
    fn written(request: &[u8]) -> Vec<String> {
        let request = WriteRequest::decode(request).unwrap();
        let each = request.timeseries.iter().map(|series| {
            let names: Vec<_> = series.labels.iter().map(|label| label.name.as_str()).collect();
            assert!(names.is_sorted(), "{names:?}");
            let labels: Vec<_> =
                series.labels[1..].iter().map(|label| format!("{}={}", label.name, label.value)).collect();
            let [Value { value, timestamp }] = series.samples[..] else { panic!("{series:?}") };
            let value = if value.to_bits() == STALE.to_bits() { "stale".into() } else { value.to_string() };
            format!("{}{{{}}} {value}@{timestamp}", series.labels[0].value, labels.join(","))
        });
        let mut written: Vec<_> = each.collect();
        written.sort_unstable();
        written
    }

    #[test]
    fn series_are_sorted_and_end() {
        let names = Names::new(&Registry::new());
        let (families, mut sums, mut requests) = (Families::new(&names), Sums::default(), Requests::default());
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let mut next = |device: &str, time| {
            let sample =
                json!({ "cpu": { "utime_secs": 1.5 }, "disk": [{ "device": device, "read_latency_ms": 2.0 }] });
            let points = names.points(sample.as_object().unwrap());
            let points: Vec<_> = points.into_iter().map(|point| (point.clone(), sums.add(&point).unwrap())).collect();
            let common = [pair("job", "train"), pair("instance", "r-1"), pair("empty", "")];
            written(&requests.next(&families, &points, &common, &[pair("host.name", "h")], Duration::from_millis(time)))
        };
        let first = next("sda", 1000);
        let cpu = "system_cpu_time_seconds_total{cpu_mode=user,instance=r-1,job=train}";
        assert!(first.contains(&format!("{cpu} 1.5@1000")), "{first:#?}");
        assert!(first.contains(&"target_info{host_name=h,instance=r-1,job=train} 1@1000".into()), "{first:#?}");
        let second = next("sdb", 2000);
        assert!(second.contains(&format!("{cpu} 3@2000")), "{second:#?}");
        let ended: Vec<_> = second.iter().filter(|line| line.ends_with(" stale@2000")).collect();
        assert!(ended.len() == 1 && ended[0].contains("system_device=sda"), "{second:#?}");
        let third = next("sdb", 500);
        assert!(third.contains(&format!("{cpu} 4.5@2001")), "the clock was set back: {third:#?}");
        let end = written(&requests.end());
        assert!(end.len() == third.len() && end.iter().all(|line| line.ends_with(" stale@2002")), "{end:#?}");
        assert!(requests.end().is_empty());
    }
}
