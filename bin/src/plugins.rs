//! Which plugins are loaded: those that the user named, and none else.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use resource_tracker_core::Settings;
use resource_tracker_core::plugin::Isolation;
use resource_tracker_core::registry::Registry;

use crate::cli::Cli;
use crate::settings::PluginsTable;

/// Loads the plugins of `[plugins]` and of the flags, each once.
///
/// # Errors
/// Names the file and what is wrong with it.
pub(crate) fn load(cli: &Cli, settings: &Settings) -> anyhow::Result<Registry> {
    let table: PluginsTable = settings.extract("plugins")?;
    let isolation = if table.isolate { Isolation::Process } else { Isolation::None };
    let mut files = table.load;
    files.extend(cli.configuration.plugin.iter().cloned());
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

/// The libraries in a folder, by name. What others could have put there or changed is not loaded, nor is the rest then.
fn folder(directory: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let directory = directory.canonicalize().context("cannot be opened")?;
    let own = rustix::process::geteuid().as_raw();
    let judge = |metadata: &Metadata| judge(metadata.uid(), metadata.mode(), own);
    judge(&fs::metadata(&directory)?)?;
    let entries = fs::read_dir(&directory).context("cannot be read")?;
    let mut files: Vec<PathBuf> = entries.map(|entry| Ok(entry?.path())).collect::<std::io::Result<_>>()?;
    files.retain(|file| file.extension().is_some_and(|extension| extension == "so"));
    files.sort_unstable();
    for file in &files {
        let metadata = fs::metadata(file).with_context(|| file.display().to_string())?;
        ensure!(metadata.is_file(), "{} is no file", file.display());
        judge(&metadata).with_context(|| file.display().to_string())?;
        // The link is in the folder, but what it leads to may lie where others can exchange it.
        if let Some(parent) = file.canonicalize()?.parent() {
            judge(&fs::metadata(parent)?).with_context(|| parent.display().to_string())?;
        }
    }
    Ok(files)
}

/// Whether only root and the user can have written it.
fn judge(owner: u32, mode: u32, own: u32) -> anyhow::Result<()> {
    if owner != 0 && owner != own {
        bail!(
            "it belongs to user {owner}, and has to belong to root or to you; chown it, or name files in plugins.load"
        );
    }
    if mode & 0o022 != 0 {
        bail!("others can write to it (mode {:o}); chmod go-w it, or name files in plugins.load", mode & 0o7777);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn who_may_have_written_it() {
        assert!(judge(0, 0o100755, 1000).is_ok() && judge(1000, 0o100700, 1000).is_ok());
        assert!(judge(1001, 0o100755, 1000).is_err());
        assert!(judge(1000, 0o100775, 1000).is_err() && judge(0, 0o40777, 1000).is_err());
    }

    #[test]
    fn a_folder_is_taken_whole_or_not_at_all() -> anyhow::Result<()> {
        let root = tempfile::tempdir()?;
        let mode = |path: &Path, mode: u32| fs::set_permissions(path, fs::Permissions::from_mode(mode));
        let (plugins, elsewhere) = (root.path().join("plugins"), root.path().join("elsewhere"));
        for directory in [&plugins, &elsewhere] {
            fs::create_dir(directory)?;
            mode(directory, 0o755)?;
        }
        for name in ["b.so", "a.so", "README"] {
            fs::write(plugins.join(name), "")?;
            mode(&plugins.join(name), 0o644)?;
        }
        let plugins = plugins.canonicalize()?;
        assert_eq!(folder(&plugins)?, [plugins.join("a.so"), plugins.join("b.so")]);
        mode(&plugins.join("b.so"), 0o666)?;
        let error = format!("{:#}", folder(&plugins).unwrap_err());
        assert!(error.contains("b.so: others can write to it (mode 666)"), "{error}");
        mode(&plugins.join("b.so"), 0o644)?;
        fs::write(elsewhere.join("c.so"), "")?;
        symlink(elsewhere.join("c.so"), plugins.join("c.so"))?;
        assert_eq!(folder(&plugins)?.len(), 3);
        mode(&elsewhere, 0o777)?;
        assert!(folder(&plugins).is_err(), "others can exchange what the link leads to");
        fs::remove_file(plugins.join("c.so"))?;
        mode(&plugins, 0o775)?;
        assert!(folder(&plugins).is_err());
        Ok(())
    }
}
