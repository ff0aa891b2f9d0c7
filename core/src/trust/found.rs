//! Files that the user did not name.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags};

use super::file_requirement::{FileRequirement, OthersWrite};
use super::group::STICKY;

/// Adds to the reason what can be done about it.
fn with_way_out(why: io::Error, path: &Path) -> io::Error {
    let Some(OthersWrite { mode }) = why.get_ref().and_then(|why| why.downcast_ref()) else { return why };
    match mode & STICKY {
        0 => io::Error::other(format!("{why}: chmod go-w {}", path.display())),
        // A sticky folder is for all users.
        _ => io::Error::other(format!("{why}: move it to a folder of your own")),
    }
}

/// Opens a file that the user did not name. `None` if there is none.
///
/// # Errors
/// Says why it is not trusted: what it is, whose it is, or who can write there. It never waits, whatever the file is.
pub(crate) fn open_found(path: &Path) -> io::Result<Option<File>> {
    let file = match FileRequirement::TRUSTED_FILE.open(CWD, path, OFlags::RDONLY) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        // In a folder that may not be searched, nothing is known to be there.
        Err(error) if error.kind() == ErrorKind::PermissionDenied && path.symlink_metadata().is_err() => {
            return Ok(None);
        }
        Err(error) => return Err(with_way_out(error, path)),
    };
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // Only the folder itself matters here, not the way to it.
    let open = rustix::fs::open(folder, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).map_err(io::Error::from);
    let judged = open.and_then(|open| FileRequirement::TRUSTED_FOLDER.check(open));
    judged.map_err(|why| io::Error::new(why.kind(), format!("its folder: {}", with_way_out(why, folder))))?;
    Ok(Some(file.into()))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::super::folder::tests::mode;
    use super::*;

    #[test]
    fn what_nobody_named_has_to_be_a_plain_file_in_a_folder_of_ones_own() {
        let root = tempfile::tempdir().unwrap();
        mode(root.path(), 0o755);
        let file = root.path().join("found");
        let said = || open_found(&file).map(|file| file.is_some()).map_err(|why| why.to_string());
        assert_eq!(said(), Ok(false));
        fs::write(&file, "x").unwrap();
        mode(&file, 0o644);
        assert_eq!(said(), Ok(true));
        mode(&file, 0o646);
        assert_eq!(said(), Err(format!("others can write to it (mode 646): chmod go-w {}", file.display())));
        mode(&file, 0o644);
        mode(root.path(), 0o1777);
        assert_eq!(
            said(),
            Err("its folder: others can write to it (mode 1777): move it to a folder of your own".into())
        );
        mode(root.path(), 0o755);
        fs::rename(&file, root.path().join("elsewhere")).unwrap();
        symlink("elsewhere", &file).unwrap();
        assert_eq!(said(), Err("it is a link, not a regular file".into()));
        fs::remove_file(&file).unwrap();
        fs::create_dir(&file).unwrap();
        assert_eq!(said(), Err("it is a folder, not a regular file".into()));
    }
}
