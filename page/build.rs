//! Packs the styles and scripts of the page: as they are, they would be a hundredth of the program.

use std::error::Error;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;

/// In the order in which the page has them; those of one line are one text.
const TEXTS: [&[&str]; 4] = [
    &["vendor/uplot-1.6.32/uPlot.min.css"],
    &["assets/page.css"],
    &["vendor/uplot-1.6.32/uPlot.iife.min.js"],
    &[
        "assets/format.js",
        "assets/elements.js",
        "assets/charts.js",
        "assets/run.js",
        "assets/runs.js",
        "assets/page.js",
    ],
];

fn main() -> Result<(), Box<dyn Error>> {
    let path = Path::new(&std::env::var("OUT_DIR")?).join("texts.gz");
    let mut packed = GzEncoder::new(File::create(path)?, Compression::best());
    for (number, files) in TEXTS.iter().enumerate() {
        if number > 0 {
            packed.write_all(b"\0")?;
        }
        let is_own_script = files.len() > 1;
        packed.write_all(if is_own_script { b"(() => {\n\"use strict\";\n" } else { b"" })?;
        for file in *files {
            println!("cargo::rerun-if-changed={file}");
            packed.write_all(&fs::read(file)?)?;
        }
        packed.write_all(if is_own_script { b"})();\n" } else { b"" })?;
    }
    packed.finish()?;
    Ok(())
}
