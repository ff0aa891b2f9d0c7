//! A source: how many files the machine has open.

use std::path::PathBuf;

use anyhow::Context;
use resource_tracker_core::export_plugin;
use resource_tracker_core::prelude::*;

// What it writes: `"my_source": {"open_files": 1234}` in every sample. The comments become descriptions.

/// Files of the machine.
#[derive(Debug, Clone, Default, Serialize, JsonSchema)]
pub struct MyMetrics {
    /// Files that are open. `/proc/sys/fs/file-nr`
    #[schemars(transform = Gauge("files"))]
    pub open_files: u64,
}

impl Section for MyMetrics {
    const NAME: &'static str = "my_source";
}

register_section!(MyMetrics);

// How it is configured: the table `[sources.my-source]`. Every key has a default.

/// Files of the machine.
#[derive(Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
pub struct MyConfig {
    /// The file to read, when it is not where the kernel has it.
    pub file: Option<PathBuf>,
}

#[typetag::deserialize(name = "my-source")]
impl SourceConfig for MyConfig {
    fn build(&self, host: &Host) -> anyhow::Result<Option<Box<dyn Source>>> {
        let file = self
            .file
            .clone()
            .unwrap_or_else(|| host.procfs.join("sys/fs/file-nr"));
        // `None` says that there is no such hardware, which is no error.
        Ok(file
            .exists()
            .then(|| Box::new(MySource { file }) as Box<dyn Source>))
    }
}

register_source!(
    SourceEntry::new::<MyConfig>("my-source", "Files that the machine has open").on_by_default()
);
export_plugin!();

// How it is read.

struct MySource {
    file: PathBuf,
}

impl Source for MySource {
    fn collect(&mut self, _: &Tick, out: &mut Sections) -> anyhow::Result<()> {
        let text = std::fs::read_to_string(&self.file)?;
        let open = text
            .split_whitespace()
            .next()
            .and_then(|number| number.parse().ok());
        out.section::<MyMetrics>().open_files =
            open.with_context(|| format!("no number in {}", self.file.display()))?;
        Ok(())
    }
}
