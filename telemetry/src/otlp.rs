//! Points as the OpenTelemetry protocol (OTLP) has them.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use opentelemetry_proto::tonic::collector::metrics::v1::{ExportMetricsServiceRequest, ExportMetricsServiceResponse};
use opentelemetry_proto::tonic::common::v1::{AnyValue, ArrayValue, InstrumentationScope, KeyValue, any_value};
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, DataPointFlags, Gauge, Metric, NumberDataPoint, ResourceMetrics, ScopeMetrics, Sum,
    metric::Data, number_data_point,
};
use opentelemetry_proto::tonic::resource;
use prost::Message;

use crate::names::{Instrument, Names};
use crate::points::Point;
use crate::resource::Resource;
use crate::sums::key;

/// The version of the semantic conventions whose names are used.
pub const SCHEMA_URL: &str = "https://opentelemetry.io/schemas/1.44.0";

/// The attributes of a resource that are no text: a number, and a list.
const PID: &str = "process.pid";
const IP: &str = "host.ip";

/// Over which time a sum that only grows is one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Temporality {
    /// From the start of the run.
    Cumulative,
    /// Since the request before.
    Delta,
}

/// Makes the requests of a run: `ExportMetricsServiceRequest`, in order.
#[derive(Debug)]
pub struct Requests {
    temporality: Temporality,
    /// When the run began, in nanoseconds since 1970, as all times here.
    start: u64,
    /// The time of the request before.
    last: u64,
    series: HashMap<String, Series>,
    /// Sums that ended, because they can come back.
    ended: HashMap<String, Series>,
}

/// What was sent of a series last.
#[derive(Debug)]
struct Series {
    metric: usize,
    attributes: Vec<KeyValue>,
    sum: f64,
    time: u64,
}

impl Requests {
    /// For a run that began at this time since 1970.
    pub fn new(temporality: Temporality, start: Duration) -> Self {
        let start = nanoseconds(start);
        Self { temporality, start, last: start, series: HashMap::new(), ended: HashMap::new() }
    }

    /// A request with these points and their values, in which a counter is the sum from the start. A series that was in the
    /// request before and is not in this one ends: it is said to have no value. `time` is that of the sample; where the clock was set
    /// back, the request is of just after the one before.
    pub fn next(&mut self, names: &Names, resource: &Resource, points: &[(Point<'_>, f64)], time: Duration) -> Vec<u8> {
        let time = self.later(time);
        let mut metrics: BTreeMap<usize, Vec<NumberDataPoint>> = BTreeMap::new();
        let mut before = std::mem::take(&mut self.series);
        for (point, value) in points {
            let key = key(point);
            // Two of a series at one time cannot be told apart.
            if self.series.contains_key(&key) {
                continue;
            }
            let last = before.remove(&key).or_else(|| self.ended.remove(&key));
            let instrument = names.metric_of(point).instrument;
            let (start, sent) = match (instrument, &last) {
                // It is of a moment.
                (Instrument::Gauge, _) => (0, *value),
                (Instrument::Counter, Some(last)) if self.temporality == Temporality::Delta => {
                    (last.time, value - last.sum)
                }
                _ => (self.start, *value),
            };
            let attributes = last.map_or_else(|| attributes(point), |last| last.attributes);
            metrics.entry(point.metric).or_default().push(NumberDataPoint {
                attributes: attributes.clone(),
                start_time_unix_nano: start,
                time_unix_nano: time,
                value: Some(number_data_point::Value::AsDouble(sent)),
                ..NumberDataPoint::default()
            });
            self.series.insert(key, Series { metric: point.metric, attributes, sum: *value, time });
        }
        self.end_series(names, before, time, &mut metrics);
        request(names, resource, metrics, self.temporality)
    }

    /// The last request: it says of all series that they have no value any more, so that who reads them does not take the last
    /// ones for those of today.
    pub fn end(&mut self, names: &Names, resource: &Resource, time: Duration) -> Vec<u8> {
        let mut metrics = BTreeMap::new();
        let (time, series) = (self.later(time), std::mem::take(&mut self.series));
        self.end_series(names, series, time, &mut metrics);
        request(names, resource, metrics, self.temporality)
    }

    /// This time, or the one after that of the last request. Many receivers know milliseconds.
    fn later(&mut self, time: Duration) -> u64 {
        self.last = nanoseconds(time).max(self.last.saturating_add(1_000_000));
        self.last
    }

    fn end_series(
        &mut self,
        names: &Names,
        series: HashMap<String, Series>,
        time: u64,
        metrics: &mut BTreeMap<usize, Vec<NumberDataPoint>>,
    ) {
        for (key, mut series) in series {
            let instrument = names.metrics()[series.metric].instrument;
            let start = match instrument {
                Instrument::Gauge => 0,
                Instrument::Counter if self.temporality == Temporality::Delta => series.time,
                Instrument::Counter | Instrument::UpDownCounter => self.start,
            };
            metrics.entry(series.metric).or_default().push(NumberDataPoint {
                attributes: series.attributes.clone(),
                start_time_unix_nano: start,
                time_unix_nano: time,
                flags: DataPointFlags::NoRecordedValueMask as u32,
                ..NumberDataPoint::default()
            });
            if instrument == Instrument::Counter {
                series.time = time;
                self.ended.insert(key, series);
            }
        }
    }
}

/// How many points of a request a receiver has rejected, by its answer (`ExportMetricsServiceResponse`).
pub fn rejected_points(answer: &[u8]) -> i64 {
    let answer = ExportMetricsServiceResponse::decode(answer).ok();
    answer.and_then(|answer| answer.partial_success).map_or(0, |partial| partial.rejected_data_points)
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn attributes(point: &Point<'_>) -> Vec<KeyValue> {
    // A name stands once.
    let attributes: BTreeMap<&str, &str> = point.attributes.iter().map(|(name, value)| (*name, &**value)).collect();
    attributes.into_iter().map(|(name, value)| attribute(name, any_value::Value::StringValue(value.into()))).collect()
}

fn attribute(name: &str, value: any_value::Value) -> KeyValue {
    KeyValue { key: name.to_owned(), value: Some(AnyValue { value: Some(value) }), ..KeyValue::default() }
}

fn request(
    names: &Names,
    resource: &Resource,
    metrics: BTreeMap<usize, Vec<NumberDataPoint>>,
    temporality: Temporality,
) -> Vec<u8> {
    let sum = |data_points, temporality, is_monotonic| {
        let aggregation_temporality = temporality as i32;
        Data::Sum(Sum { data_points, aggregation_temporality, is_monotonic })
    };
    let counters = match temporality {
        Temporality::Cumulative => AggregationTemporality::Cumulative,
        Temporality::Delta => AggregationTemporality::Delta,
    };
    let metrics = metrics.into_iter().map(|(number, data_points)| {
        let metric = &names.metrics()[number];
        let data = match metric.instrument {
            Instrument::Gauge => Data::Gauge(Gauge { data_points }),
            Instrument::UpDownCounter => sum(data_points, AggregationTemporality::Cumulative, false),
            Instrument::Counter => sum(data_points, counters, true),
        };
        Metric {
            name: metric.name.clone(),
            description: metric.description.clone(),
            unit: metric.unit.clone(),
            data: Some(data),
            ..Metric::default()
        }
    });
    let scope = InstrumentationScope {
        name: "resource-tracker".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..InstrumentationScope::default()
    };
    let scope_metrics =
        ScopeMetrics { scope: Some(scope), metrics: metrics.collect(), schema_url: SCHEMA_URL.to_owned() };
    let attributes = resource.attributes().map(|(name, value)| {
        let text = any_value::Value::StringValue(value.to_owned());
        let number = value.parse().ok().filter(|_| name == PID).map(any_value::Value::IntValue);
        let list = || ArrayValue { values: vec![AnyValue { value: Some(text.clone()) }] };
        let list = (name == IP).then(|| any_value::Value::ArrayValue(list()));
        attribute(name, number.or(list).unwrap_or(text))
    });
    let resource = resource::v1::Resource { attributes: attributes.collect(), ..resource::v1::Resource::default() };
    let resource_metrics = ResourceMetrics {
        resource: Some(resource),
        scope_metrics: vec![scope_metrics],
        schema_url: SCHEMA_URL.to_owned(),
    };
    ExportMetricsServiceRequest { resource_metrics: vec![resource_metrics] }.encode_to_vec()
}

#[cfg(test)]
mod tests {
    use resource_tracker_core::registry::Registry;
    use serde_json::json;

    use super::*;
    use crate::Sums;

    fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    /// A run of samples, as requests that a receiver takes apart.
    struct Sent {
        names: Names,
        sums: Sums,
        resource: Resource,
        requests: Requests,
    }

    impl Sent {
        fn new(temporality: Temporality) -> Self {
            let mut resource = Resource::default();
            resource.set("process.pid", "7");
            resource.set("service.name", "train");
            resource.set("service.version", "7");
            let requests = Requests::new(temporality, secs(100));
            Self { names: Names::new(&Registry::new()), sums: Sums::default(), resource, requests }
        }

        fn next(&mut self, sample: &serde_json::Value, time: u64) -> ResourceMetrics {
            let points = self.names.points(sample.as_object().unwrap());
            let points: Vec<_> =
                points.into_iter().filter_map(|point| Some((point.clone(), self.sums.add(&point)?))).collect();
            received(&self.requests.next(&self.names, &self.resource, &points, secs(time)))
        }
    }

    fn received(request: &[u8]) -> ResourceMetrics {
        let request = ExportMetricsServiceRequest::decode(request).unwrap();
        assert_eq!(request.resource_metrics.len(), 1);
        request.resource_metrics.into_iter().next().unwrap()
    }

    fn metric<'a>(of: &'a ResourceMetrics, name: &str) -> &'a Metric {
        of.scope_metrics[0].metrics.iter().find(|metric| metric.name == name).unwrap()
    }

    fn points(of: &Metric) -> &[NumberDataPoint] {
        match of.data.as_ref().unwrap() {
            Data::Gauge(gauge) => &gauge.data_points,
            Data::Sum(sum) => &sum.data_points,
            _ => panic!("another kind"),
        }
    }

    fn value(point: &NumberDataPoint) -> Option<f64> {
        match point.value {
            Some(number_data_point::Value::AsDouble(value)) => Some(value),
            _ => None,
        }
    }

    fn sample(secs: f64, disk: &str) -> serde_json::Value {
        json!({ "cpu": { "utime_secs": secs, "per_core_cpus": "0", "per_core_pct": [50.0] },
            "memory": { "used_mib": 2 },
            "disk": [{ "device": disk, "read_bytes_total": 7 }] })
    }

    #[test]
    fn sums_are_cumulative_from_one_start() {
        let mut sent = Sent::new(Temporality::Cumulative);
        let first = sent.next(&sample(1.0, "sda"), 101);
        assert_eq!((first.schema_url.as_str(), first.scope_metrics[0].schema_url.as_str()), (SCHEMA_URL, SCHEMA_URL));
        let attributes = &first.resource.as_ref().unwrap().attributes;
        let of = |name: &str| attributes.iter().find(|attribute| attribute.key == name)?.value.as_ref()?.value.clone();
        assert_eq!(of("process.pid"), Some(any_value::Value::IntValue(7)));
        assert_eq!(of("service.version"), Some(any_value::Value::StringValue("7".into())));
        let cpu = sent.next(&sample(2.0, "sda"), 102);
        let cpu = metric(&cpu, "system.cpu.time");
        assert_eq!((cpu.unit.as_str(), cpu.description.is_empty()), ("s", false));
        let Some(Data::Sum(sum)) = &cpu.data else { panic!("no sum") };
        assert!(sum.is_monotonic && sum.aggregation_temporality == AggregationTemporality::Cumulative as i32);
        let point = &sum.data_points[0];
        assert_eq!(value(point), Some(3.0));
        assert_eq!((point.start_time_unix_nano, point.time_unix_nano), (100_000_000_000, 102_000_000_000));
        assert_eq!(point.attributes[0].key, "cpu.mode");
        let memory = metric(&first, "system.memory.usage");
        assert!(matches!(&memory.data, Some(Data::Sum(sum)) if !sum.is_monotonic));
        let gauge = metric(&first, "system.cpu.utilization");
        assert!(matches!(&gauge.data, Some(Data::Gauge(gauge)) if gauge.data_points[0].start_time_unix_nano == 0));
    }

    #[test]
    fn deltas_join_one_another() {
        let mut sent = Sent::new(Temporality::Delta);
        let times: Vec<_> = [(1.0, 101), (2.0, 103), (4.0, 104)]
            .into_iter()
            .map(|(secs, time)| {
                let request = sent.next(&sample(secs, "sda"), time);
                let point = points(metric(&request, "system.cpu.time"))[0].clone();
                let memory = metric(&request, "system.memory.usage");
                assert!(
                    matches!(&memory.data, Some(Data::Sum(sum)) if sum.aggregation_temporality == AggregationTemporality::Cumulative as i32)
                );
                (point.start_time_unix_nano / 1_000_000_000, point.time_unix_nano / 1_000_000_000, value(&point))
            })
            .collect();
        assert_eq!(times, [(100, 101, Some(1.0)), (101, 103, Some(2.0)), (103, 104, Some(4.0))]);
    }

    #[test]
    fn a_sum_that_pauses_or_comes_back_is_counted_once() {
        let mut sent = Sent::new(Temporality::Delta);
        let cpu = |secs: Option<f64>| json!({ "cpu": { "utime_secs": secs } });
        let samples = [cpu(None), cpu(Some(5.0)), cpu(None), cpu(Some(1.0)), json!({}), cpu(Some(2.0))];
        let (mut sum, mut end) = (0.0, 0);
        for (number, sample) in samples.iter().enumerate() {
            let request = sent.next(sample, 101 + number as u64);
            let Some(metric) = request.scope_metrics[0].metrics.first() else { continue };
            let [point] = points(metric) else { panic!("{metric:?}") };
            assert!(point.start_time_unix_nano >= end && point.start_time_unix_nano < point.time_unix_nano, "{number}");
            end = point.time_unix_nano;
            assert_eq!(point.value.is_none(), number == 4, "it is paused, and then gone");
            sum += value(point).unwrap_or_default();
        }
        assert_eq!(sum, 8.0);
    }

    #[test]
    fn time_goes_on_when_the_clock_is_set_back() {
        for temporality in [Temporality::Cumulative, Temporality::Delta] {
            let mut sent = Sent::new(temporality);
            let mut before = 0;
            for time in [101, 50, 51, 102] {
                let request = sent.next(&sample(1.0, "sda"), time);
                let point = &points(metric(&request, "system.cpu.time"))[0];
                assert!(point.start_time_unix_nano < point.time_unix_nano && point.time_unix_nano > before, "{time}");
                before = point.time_unix_nano;
            }
        }
    }

    #[test]
    fn what_is_gone_has_no_value() {
        let mut sent = Sent::new(Temporality::Cumulative);
        sent.next(&sample(1.0, "sda"), 101);
        let second = sent.next(&sample(1.0, "sdb"), 102);
        let disk = points(metric(&second, "system.disk.io"));
        let gone: Vec<_> = disk.iter().map(|point| (value(point).is_some(), point.flags)).collect();
        assert_eq!(gone, [(true, 0), (false, 1)]);
        let end = received(&sent.requests.end(&sent.names, &sent.resource, secs(102)));
        let all: Vec<_> = end.scope_metrics[0].metrics.iter().flat_map(points).collect();
        assert!(all.len() > 3 && all.iter().all(|point| point.value.is_none() && point.flags == 1));
        assert!(all.iter().all(|point| point.time_unix_nano > 102_000_000_000), "not that of the last value");
        let nothing = received(&sent.requests.end(&sent.names, &sent.resource, secs(103)));
        assert!(nothing.scope_metrics[0].metrics.is_empty());
    }

    #[test]
    fn an_answer_says_what_was_rejected() {
        let partial = opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsPartialSuccess {
            rejected_data_points: 3,
            ..Default::default()
        };
        let answer = ExportMetricsServiceResponse { partial_success: Some(partial) }.encode_to_vec();
        assert_eq!((rejected_points(&answer), rejected_points(b""), rejected_points(b"<html>")), (3, 0, 0));
    }
}
