//! A configuration file.
#![no_main]

use std::io::Write;

use resource_tracker_core::Settings;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let mut file = tempfile::NamedTempFile::new().expect("there is room");
    file.write_all(bytes).expect("there is room");
    let settings = Settings::new().file(file.path());
    settings.check();
    let _ = (settings.sources(), settings.sinks(), settings.tree());
});
