//! Which plugins are loaded: those that the user named, and no others.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use resource_tracker_core::plugin::Isolation;
use resource_tracker_core::registry::Registry;
use resource_tracker_core::{Settings, trust};

use crate::cli::Cli;
use crate::tables::PluginsTable;
use crate::variables;

/// Loads the plugins of `[plugins]`, of the variable and of the flags, each once.
///
/// # Errors
/// Names the file and what is wrong with it.
pub(crate) fn load(cli: &Cli, settings: &Settings) -> anyhow::Result<Registry> {
    let table: PluginsTable = settings.extract("plugins")?;
    let isolation = if table.isolate { Isolation::Process } else { Isolation::None };
    let mut files = table.load;
    files.extend(variables::plugins().into_iter().map(PathBuf::from));
    files.extend(cli.lists.plugin.iter().cloned());
    if let Some(directory) = &table.dir {
        files.extend(folder(directory).with_context(|| format!("plugins.dir = {}", directory.display()))?);
    }
    let (mut registry, mut loaded) = (Registry::new(), Vec::new());
    for file in files {
        let real = file.canonicalize().unwrap_or_else(|_| file.clone());
        if !loaded.contains(&real) {
            registry.load(&file, isolation)?;
            loaded.push(real);
        }
    }
    Ok(registry)
}

/// The libraries in a folder, by name. Each one is checked when it is loaded, and ends the run if it is not trusted.
/// The folder itself is checked here, because a user who controls it can also remove libraries.
fn folder(directory: &Path) -> anyhow::Result<Vec<PathBuf>> {
    trust::check_folder(directory)?;
    let entries = fs::read_dir(directory).context("cannot be read")?;
    let mut files: Vec<PathBuf> = entries.map(|entry| Ok(entry?.path())).collect::<std::io::Result<_>>()?;
    files.retain(|file| file.extension().is_some_and(|extension| extension == "so"));
    files.sort_unstable();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn the_libraries_of_a_folder_in_order() -> anyhow::Result<()> {
        let root = tempfile::tempdir()?;
        for name in ["b.so", "a.so", "README"] {
            fs::write(root.path().join(name), "")?;
        }
        assert_eq!(folder(root.path())?, [root.path().join("a.so"), root.path().join("b.so")]);
        fs::set_permissions(root.path(), fs::Permissions::from_mode(0o777))?;
        let error = format!("{:#}", folder(root.path()).unwrap_err());
        assert!(error.contains("others can write to it (mode 777)"), "{error}");
        assert!(folder(&root.path().join("missing")).is_err());
        Ok(())
    }
}
