//! What the sections of resource-tracker are by the conventions, and samples as points.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use resource_tracker_core::registry::Registry;
use serde_json::{Map, Value as Json, json};

use crate::conventions::CONVENTIONS;
use crate::names::{Instrument, Names};
use crate::{Point, Sums};

/// The conventions' own model in version 1.44.0, as far as machines and processes go: metrics, and the values of attributes.
fn official() -> Json {
    serde_json::from_str(include_str!("semconv-1.44.0.json")).unwrap()
}

fn names() -> Names {
    Names::new(&Registry::new())
}

#[test]
fn what_has_a_name_of_the_conventions_is_what_they_say() {
    let (names, official) = (names(), official());
    let mut used = BTreeSet::new();
    for field in names.fields() {
        let metric = &names.metrics()[field.metric];
        if metric.name.starts_with("resource_tracker.") {
            continue;
        }
        used.insert(metric.name.clone());
        let truth = &official["metrics"][&metric.name];
        let instrument = match metric.instrument {
            Instrument::Gauge => "gauge",
            Instrument::UpDownCounter => "updowncounter",
            Instrument::Counter => "counter",
        };
        assert_eq!((&truth["instrument"], &truth["unit"]), (&json!(instrument), &json!(metric.unit)), "{metric:?}");
        for (name, value) in field.attributes {
            assert!(truth["attributes"].as_array().unwrap().contains(&json!(name)), "{metric:?} has no {name}");
            // The kinds of errors are anybody's.
            let values = official["members"][&name].as_array().filter(|_| name != "error.type");
            if let (Some(value), Some(values)) = (value, values) {
                assert!(values.contains(&json!(value)), "{name} is none of {values:?}: {value}");
            }
        }
    }
    let described: BTreeSet<String> = CONVENTIONS.iter().map(|convention| convention.name.to_owned()).collect();
    assert_eq!(used, described, "each is described, and no other");
}

#[test]
fn each_metric_is_one_thing() {
    let names = names();
    let mut series = BTreeMap::new();
    for mut field in names.fields() {
        field.attributes.sort();
        let section = field.path.split(['.', '[']).next().unwrap_or_default().to_owned();
        let metric = &names.metrics()[field.metric].name;
        // Domains of processors and GPUs are told apart by their identifiers.
        let before = series.insert((metric.clone(), field.attributes), section.clone());
        assert!(before.is_none_or(|before| before != section), "two fields of {section} are one {metric}");
    }
    assert!(series.len() > 150, "{}", series.len());
    for metric in names.metrics() {
        let is_good = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "._".contains(c);
        assert!(metric.name.chars().all(is_good) && !metric.unit.is_empty(), "{metric:?}");
        assert!(!metric.description.is_empty() && !metric.description.contains(". "), "{metric:?}");
    }
}

/// `name{attribute=value,…} value` of each point.
fn written(names: &Names, sample: &Json) -> Vec<String> {
    let sample = sample.as_object().unwrap();
    let of = |point: &Point<'_>| {
        let attributes: Vec<String> = point.attributes.iter().map(|(name, value)| format!("{name}={value}")).collect();
        format!("{}{{{}}} {}", names.metric_of(point).name, attributes.join(","), point.value)
    };
    names.points(sample).iter().map(of).collect()
}

#[test]
fn a_sample_is_points() {
    let names = names();
    let sample = json!({
        "timestamp_secs": 1, "elapsed_secs": 0.5,
        "cpu": { "utime_secs": 1.5, "per_core_cpus": "0,2-3", "per_core_pct": [50.0, 0, 100], "cores_used": null,
            "process_rss_mib": 0.105469, "process_accounting": "exact" },
        "disk": [{ "device": "sda", "model": "M", "read_bytes_total": 512, "read_latency_ms": 2.0, "mounts": [
            { "mount_point": "/", "filesystem": "ext4", "used_bytes": 7 }, 3] }, null],
        "gpu": [{ "uuid": "GPU-1", "name": "N", "detail": { "a": "b" }, "vram_used_bytes": 8, "nvlinks": [
            { "link": 3, "tx_bytes_per_sec": 4.0 }] }],
        "host": { "host_name": "h", "host_vcpus": 4 },
        "pressure": { "cpu": { "some": { "avg10_pct": 50.0 } }, "io": 1 },
        "marks": [{ "name": "x", "kind": "next", "at_ms": 5 }],
        "run": { "id": "r", "interval_secs": 1 },
        "unknown": { "x": 1 },
    });
    let expected = [
        "system.cpu.utilization{cpu.logical_number=0} 0.5",
        "system.cpu.utilization{cpu.logical_number=2} 0",
        "system.cpu.utilization{cpu.logical_number=3} 1",
        "process.memory.usage{} 110592",
        "system.cpu.time{cpu.mode=user} 1.5",
        "system.filesystem.usage{system.device=sda,system.filesystem.type=ext4,system.filesystem.mountpoint=/,system.filesystem.state=used} 7",
        "system.disk.io{system.device=sda,disk.io.direction=read} 512",
        "resource_tracker.disk.read_latency{system.device=sda} 0.002",
        "resource_tracker.gpu.nvlinks.tx{hw.name=N,hw.id=GPU-1,resource_tracker.gpu.nvlink=3} 4",
        "hw.gpu.memory.usage{hw.name=N,hw.id=GPU-1} 8",
        "system.cpu.logical.count{} 4",
        "resource_tracker.pressure.cpu.some.avg10_ratio{} 0.5",
    ];
    assert_eq!(written(&names, &sample), expected);
}

#[test]
fn the_sections_of_others_are_points_as_well() {
    let schema = json!({ "properties": {
        "water": { "type": "object", "properties": {
            "level_pct": { "unit": "percent", "kind": "gauge", "description": "How full. `gauge`. More" },
            "drops": { "unit": "drops", "kind": "delta" },
            "name": { "kind": "info" },
            "tanks": { "type": ["array", "null"], "items": { "$ref": "#/$defs/Tank" } },
        } },
        "itself": { "$ref": "#/properties/itself" },
        "figure": { "unit": "seconds", "kind": "gauge" },
        "text": 3,
    }, "$defs": { "Tank": { "anyOf": [{ "type": "null" }, { "properties": {
        "id": { "kind": "info" }, "place": { "kind": "info" }, "litres": { "unit": "litres", "kind": "gauge" },
        "list": { "unit": "litres", "kind": "gauge" },
    } }] } } });
    let names = Names::of_schema(&schema);
    let sample = json!({ "water": { "level_pct": 20, "drops": 3, "name": "n", "tanks": [
        { "id": 1, "place": "cellar", "litres": 0.25, "list": [1, 2] }, { "id": true, "litres": "x" }] } });
    let expected = [
        "resource_tracker.water.drops{} 3",
        "resource_tracker.water.level_ratio{} 0.2",
        "resource_tracker.water.tanks.litres{resource_tracker.water.tanks.id=1,resource_tracker.water.tanks.place=cellar} 0.25",
    ];
    assert_eq!(written(&names, &sample), expected);
    let of = |name: &str| names.metrics().iter().find(|metric| metric.name == name).unwrap();
    let level = of("resource_tracker.water.level_ratio");
    assert_eq!((level.unit.as_str(), level.description.as_str()), ("1", "How full"));
    let drops = of("resource_tracker.water.drops");
    assert_eq!((drops.unit.as_str(), drops.instrument), ("{drop}", Instrument::Counter));
}

#[test]
fn a_schema_of_itself_ends() {
    let within: Map<String, Json> = (0..9).map(|n| (n.to_string(), json!({ "$ref": "#/properties/a" }))).collect();
    let names = Names::of_schema(&json!({ "properties": { "a": { "properties": within } } }));
    assert_eq!(names.metrics(), []);
}

fn sums(names: &Names, samples: &[Json]) -> Vec<Option<f64>> {
    let mut sums = Sums::default();
    let of_sample = |sample: &Json| {
        let sample = sample.as_object().unwrap();
        names.points(sample).iter().map(|point| sums.add(point)).collect::<Vec<_>>()
    };
    samples.iter().flat_map(of_sample).collect()
}

#[test]
fn what_only_grows_is_summed_up_from_the_start() {
    let names = names();
    let time = |secs: f64| json!({ "cpu": { "utime_secs": secs } });
    assert_eq!(sums(&names, &[time(1.0), time(0.0), time(2.5)]), [Some(1.0), Some(1.0), Some(3.5)]);
    let read = |bytes: u64| json!({ "disk": [{ "device": "a", "read_bytes_total": bytes }] });
    // One that is less than before began anew.
    assert_eq!(sums(&names, &[read(100), read(130), read(5)]), [Some(0.0), Some(30.0), Some(35.0)]);
    let used = |mib: u64| json!({ "memory": { "used_mib": mib } });
    assert_eq!(sums(&names, &[used(2), used(1)]), [Some(2.0 * 1_048_576.0), Some(1_048_576.0)]);
    let two = json!({ "energy": [{ "domain": "a", "joules": 1 }, { "domain": "b", "joules": 5 }] });
    assert_eq!(sums(&names, &[two.clone(), two]), [Some(1.0), Some(5.0), Some(2.0), Some(10.0)]);
}

#[test]
fn ever_new_attributes_have_an_end() {
    let names = names();
    let mut sums = Sums::default();
    for device in 0..=crate::MOST_SERIES {
        let sample = json!({ "energy": [{ "domain": device.to_string(), "joules": 1 }] });
        let sample = sample.as_object().unwrap();
        let points = names.points(sample);
        let sum = sums.add(&points[0]);
        assert_eq!((sum, sums.is_full()), if device < crate::MOST_SERIES { (Some(1.0), false) } else { (None, true) });
    }
}

proptest! {
    /// Whatever a plugin says its section is, and whatever it sends.
    #[test]
    fn any_schema_and_any_sample_have_points(schema in json_value(), sample in json_value()) {
        let names = Names::of_schema(&json!({ "properties": { "a": schema, "b": { "properties": { "a": schema } } } }));
        let sample = json!({ "a": sample, "b": { "a": sample } });
        let points = names.points(sample.as_object().unwrap_or(&Map::new())).len();
        prop_assert!(points <= 10_000);
    }
}

/// JSON of the words of a schema, in any order.
fn json_value() -> impl Strategy<Value = Json> {
    let word = prop::sample::select(vec![
        "a",
        "b",
        "kind",
        "unit",
        "gauge",
        "counter",
        "delta",
        "info",
        "otel",
        "name",
        "attribute",
        "attributes",
        "each",
        "names",
        "items",
        "properties",
        "$ref",
        "#/properties/a",
        "anyOf",
        "description",
        "0-3",
        "_pct",
    ]);
    let leaf = prop_oneof![
        Just(Json::Null),
        any::<bool>().prop_map(Json::from),
        any::<f64>().prop_map(Json::from),
        word.clone().prop_map(Json::from)
    ];
    leaf.prop_recursive(5, 40, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Json::from),
            prop::collection::vec((word.clone(), inner), 0..6).prop_map(|members| Json::Object(
                members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
            )),
        ]
    })
}
