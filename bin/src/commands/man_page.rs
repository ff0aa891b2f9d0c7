//! `man-page`: the manual, a page or all of them.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use anyhow::{Context, anyhow};

use super::standard_output::print;
use crate::manual;

/// Prints the page of a tool, or that of the program.
pub(crate) fn man_page(tool: &[String]) -> anyhow::Result<i32> {
    print(&manual::page_of(tool).map_err(|problem| anyhow!(problem))?)
}

/// Writes all pages into a folder, which is made if need be.
pub(crate) fn man_pages(dir: &Path) -> anyhow::Result<i32> {
    let cannot = |path: &Path| format!("cannot write {}", path.display());
    fs::create_dir_all(dir).with_context(|| cannot(dir))?;
    for (name, page) in manual::pages() {
        let path = dir.join(name);
        replace(&path, &page).with_context(|| cannot(&path))?;
    }
    Ok(0)
}

/// Replaces what is there by a new file: in such a folder, another user may have put a link or a pipe there.
fn replace(path: &Path, text: &[u8]) -> io::Result<()> {
    let new = path.with_extension(format!("new-{}", std::process::id()));
    let mut file = File::options().write(true).create_new(true).open(&new)?;
    let replaced = file.write_all(text).and_then(|()| fs::rename(&new, path));
    if replaced.is_err() {
        let _ = fs::remove_file(&new);
    }
    replaced
}
