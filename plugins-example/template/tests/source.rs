use std::time::{Duration, Instant};

use my_source::{MyConfig, MyMetrics};
use resource_tracker_core::{Host, Sections, SourceConfig, Tick};

#[test]
fn the_machine_has_files_open() {
    let mut source = MyConfig::default()
        .build(&Host::default())
        .unwrap()
        .unwrap();
    let second = Duration::from_secs(1);
    let tick = Tick::new(1, Instant::now(), second, second);
    let mut out = Sections::default();
    source.collect(&tick, &mut out).unwrap();
    assert!(out.get::<MyMetrics>().unwrap().open_files > 0);
}
