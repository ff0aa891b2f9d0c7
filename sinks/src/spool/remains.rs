//! Folders without a `run.json`: there is no run in them, only what a killed tracker left.

use std::os::fd::OwnedFd;
use std::time::SystemTime;

use anyhow::bail;
use rustix::fs::{AtFlags, flock, fstat, unlinkat};

use super::run_files::{Access, BEGUN, FILE, LOCK, batch, names, or_missing};

/// A folder without a run that has not changed for so many seconds is not about to get one.
const OLD: u64 = 3600;

/// Removes the folder of a tracker that was killed before it saved anything: an old one with nothing but a free lock in
/// it. A tracker that loses its new folder this way takes another name.
///
/// # Errors
/// When there are rows in it, and no tracker works on it. Nothing can send these rows; they stay.
pub(super) fn clear(root: &OwnedFd, name: &str, directory: &OwnedFd, access: Access) -> anyhow::Result<()> {
    let is_batch = |name: &String| batch(name).is_some() && FILE.inspect(directory, name.as_str()).is_ok();
    let is_to_go = access == Access::Work && is_old(directory);
    if !is_to_go && !names(directory)?.iter().any(is_batch) {
        return Ok(());
    }
    let (how, operation) = access.to_lock();
    let Ok(lock) = or_missing(FILE.open(directory, LOCK, how)) else { return Ok(()) };
    if lock.as_ref().is_some_and(|lock| flock(lock, operation).is_err()) {
        return Ok(());
    }
    // The last owner of the lock may have removed everything.
    let names = names(directory)?;
    if let Some(rows) = names.iter().find(|name| is_batch(name)) {
        bail!(
            "it has rows, such as {rows}, and no run.json that says of what run; delete the folder if you do not need them"
        );
    }
    let is_ours = |name: &String| (*name == LOCK || *name == BEGUN) && FILE.inspect(directory, name.as_str()).is_ok();
    if is_to_go && names.iter().all(is_ours) {
        for name in names {
            let _ = unlinkat(directory, name, AtFlags::empty());
        }
        let _ = unlinkat(root, name, AtFlags::REMOVEDIR);
    }
    Ok(())
}

fn is_old(directory: &OwnedFd) -> bool {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
    let is_before = |made: i64| u64::try_from(made).is_ok_and(|made| made.saturating_add(OLD) < now);
    fstat(directory).is_ok_and(|status| is_before(status.st_mtime))
}
