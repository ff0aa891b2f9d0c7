//! Which devices the job was given, by its environment.

use std::collections::BTreeMap;
use std::path::Path;

use resource_tracker_core::Tick;

/// The variables of a vendor in the environment of the job's root, read once.
#[derive(Debug, Default)]
pub(super) struct Visible {
    of: Option<i32>,
    variables: Vec<(String, String)>,
}

impl Visible {
    /// Adds what the job was given to `detail`, under the names of the variables. Not for the baseline, at which a command may
    /// not have begun yet.
    pub(super) fn add(&mut self, names: &[&str], procfs: &Path, tick: &Tick, detail: &mut BTreeMap<String, String>) {
        let Some(job) = &tick.job else { return };
        if self.of != Some(job.root) {
            let environment = std::fs::read(procfs.join(job.root.to_string()).join("environ"));
            self.variables = variables(&environment.unwrap_or_default(), names);
            self.of = Some(job.root);
        }
        detail.extend(self.variables.iter().cloned());
    }
}

fn variables(environment: &[u8], names: &[&str]) -> Vec<(String, String)> {
    let entries = environment.split(|byte| *byte == 0).map(String::from_utf8_lossy);
    let wanted = |entry: std::borrow::Cow<'_, str>| {
        let (name, value) = entry.split_once('=')?;
        names.contains(&name).then(|| (name.to_owned(), value.to_owned()))
    };
    entries.filter_map(wanted).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_asked_for() {
        let environment =
            b"PATH=/bin\0CUDA_VISIBLE_DEVICES=0,1\0XCUDA_VISIBLE_DEVICES=7\0NVIDIA_VISIBLE_DEVICES=\0\xff";
        let found = variables(environment, &["CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"]);
        let expected = [("CUDA_VISIBLE_DEVICES", "0,1"), ("NVIDIA_VISIBLE_DEVICES", "")];
        assert_eq!(found, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }
}
