//! `man-page`: the manual, a page or all of them.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::Path;

use anyhow::{Context, anyhow};
use resource_tracker_core::trust::OutputPath;
use rustix::fs::{AtFlags, Mode, OFlags, openat, renameat, unlinkat};

use super::standard_output::print;
use crate::manual;

/// Prints the page of a tool, or that of the program.
pub(crate) fn man_page(tool: &[String]) -> anyhow::Result<i32> {
    print(&manual::page_of(tool).map_err(|problem| anyhow!(problem))?)
}

/// Writes all pages into a folder, which is made if need be.
pub(crate) fn man_pages(dir: &Path) -> anyhow::Result<i32> {
    let cannot = |path: &Path| format!("cannot write {}", path.display());
    let there = dir.ancestors().find(|folder| folder.exists()).unwrap_or(Path::new("."));
    folder_at(there).with_context(|| cannot(dir))?;
    fs::create_dir_all(dir).with_context(|| cannot(dir))?;
    let folder = folder_at(dir).with_context(|| cannot(dir))?;
    for (name, page) in manual::pages() {
        replace(&folder, &name, &page).with_context(|| cannot(&dir.join(&name)))?;
    }
    Ok(0)
}

/// The folder, to which no link of another user may lead.
fn folder_at(path: &Path) -> io::Result<OwnedFd> {
    // Nothing in it has this name.
    let name = format!(".{}-{}", crate::PROGRAM, std::process::id());
    OutputPath::of(&path.join(name)).map(|output| output.folder)
}

/// Replaces what is there by a new file: in such a folder, another user may have put a link or a pipe there, and may
/// put the folder elsewhere meanwhile.
fn replace(folder: &OwnedFd, name: &str, text: &[u8]) -> io::Result<()> {
    let new = format!("{name}.new-{}", std::process::id());
    let how = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let readable = Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::ROTH;
    let mut file = File::from(openat(folder, &new, how, readable)?);
    let replaced = file.write_all(text).and_then(|()| Ok(renameat(folder, &new, folder, name)?));
    if replaced.is_err() {
        let _ = unlinkat(folder, &new, AtFlags::empty());
    }
    replaced
}
