//! `/proc/PID/mountinfo`: what is mounted, and where.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use resource_tracker_scan::lines;

/// One mount: a line such as `36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct MountInfo<'a> {
    /// Major and minor number of the file system: `98:0`.
    pub(crate) device_number: Cow<'a, str>,
    /// The directory of the file system that is mounted: `/mnt1`.
    pub(crate) root: Cow<'a, Path>,
    /// Where it is mounted: `/mnt2`.
    pub(crate) point: Cow<'a, Path>,
    /// Type of the file system: `ext3`.
    pub(crate) filesystem: Cow<'a, str>,
    /// What is mounted: `/dev/root`.
    pub(crate) source: Cow<'a, str>,
    /// Options of the whole file system: `rw,errors=continue`.
    pub(crate) super_options: Cow<'a, str>,
}

/// The mounts that a file lists. Lines that cannot be read are left out.
pub(crate) fn parse(text: &[u8]) -> impl Iterator<Item = MountInfo<'_>> {
    lines(text).filter_map(MountInfo::parse)
}

impl<'a> MountInfo<'a> {
    fn parse(line: &'a [u8]) -> Option<Self> {
        // One space is between two fields, and a field can be empty.
        let mut fields = line.split(|byte| *byte == b' ');
        let device_number = text(fields.nth(2)?);
        let (root, point) = (path(fields.next()?), path(fields.next()?));
        // Behind the options of the mount there are optional fields, and a hyphen ends them.
        fields.find(|field| *field == b"-")?;
        let (filesystem, source) = (text(fields.next()?), text(fields.next()?));
        let super_options = text(fields.next().unwrap_or_default());
        Some(Self { device_number, root, point, filesystem, source, super_options })
    }

    /// The same without the text that it is of.
    pub(crate) fn into_owned(self) -> MountInfo<'static> {
        fn owned<T: ToOwned + ?Sized>(field: Cow<'_, T>) -> Cow<'static, T> {
            Cow::Owned(field.into_owned())
        }
        MountInfo {
            device_number: owned(self.device_number),
            root: owned(self.root),
            point: owned(self.point),
            filesystem: owned(self.filesystem),
            source: owned(self.source),
            super_options: owned(self.super_options),
        }
    }
}

fn text(field: &[u8]) -> Cow<'_, str> {
    match unescape(field) {
        Cow::Borrowed(bytes) => String::from_utf8_lossy(bytes),
        Cow::Owned(bytes) => String::from_utf8_lossy(&bytes).into_owned().into(),
    }
}

fn path(field: &[u8]) -> Cow<'_, Path> {
    match unescape(field) {
        Cow::Borrowed(bytes) => Path::new(OsStr::from_bytes(bytes)).into(),
        Cow::Owned(bytes) => Cow::Owned(OsString::from_vec(bytes).into()),
    }
}

/// The kernel writes space, tab, line feed, backslash and `#` as a backslash and three octal digits: `\040` for a space.
fn unescape(field: &[u8]) -> Cow<'_, [u8]> {
    if !field.contains(&b'\\') {
        return field.into();
    }
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, after)) = rest.split_first() {
        let escaped = after.first_chunk().filter(|_| *first == b'\\').and_then(octal);
        bytes.push(escaped.unwrap_or(*first));
        rest = if escaped.is_some() { &after[3..] } else { after };
    }
    bytes.into()
}

/// The byte that three octal digits stand for.
fn octal(digits: &[u8; 3]) -> Option<u8> {
    let digit = |byte: &u8| byte.checked_sub(b'0').filter(|digit| *digit < 8).map(u32::from);
    let value = digits.iter().try_fold(0, |value, byte| Some(value * 8 + digit(byte)?))?;
    u8::try_from(value).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn all_fields_with_and_without_optional_ones() {
        let text = b"36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 shared:7 - ext3 /dev/root rw,errors=continue\n\
                     37 35 0:5 / /proc rw - proc  rw\n38 35 0:6 / /short rw -\nnoise\n";
        let mounts: Vec<_> = parse(text).collect();
        let expected = MountInfo {
            device_number: "98:0".into(),
            root: Path::new("/mnt1").into(),
            point: Path::new("/mnt2").into(),
            filesystem: "ext3".into(),
            source: "/dev/root".into(),
            super_options: "rw,errors=continue".into(),
        };
        assert_eq!((mounts.len(), &mounts[0]), (2, &expected));
        assert_eq!((&*mounts[1].source, &*mounts[1].super_options), ("", "rw"));
        assert_eq!(mounts[0].clone().into_owned(), expected);
    }

    #[test]
    fn every_octal_escape_is_undone_and_nothing_else() {
        for (escaped, plain) in [
            (r"/my\040disk", "/my disk"),
            (r"/a\011b\012c\134d\043e", "/a\tb\nc\\d#e"),
            (r"\101\000\177", "A\0\u{7f}"),
            (r"\134040", r"\040"),
            (r"a\04", r"a\04"),
            (r"\\040", "\\ "),
            (r"\048\400\x40", r"\048\400\x40"),
        ] {
            assert_eq!(*unescape(escaped.as_bytes()), *plain.as_bytes(), "{escaped}");
        }
        assert_eq!(*unescape(br"\377\200"), [255, 128]);
    }

    #[test]
    fn agrees_with_the_procfs_crate_about_this_machine() -> anyhow::Result<()> {
        let theirs = procfs::process::Process::myself()?.mountinfo()?;
        let text = std::fs::read("/proc/self/mountinfo")?;
        let ours: Vec<_> = parse(&text).collect();
        assert_eq!(ours.len(), theirs.0.len());
        for (ours, theirs) in ours.iter().zip(&theirs.0) {
            assert_eq!((&*ours.filesystem, &*ours.device_number), (&*theirs.fs_type, &*theirs.majmin));
        }
        Ok(())
    }

    proptest! {
        #[test]
        fn any_line_is_read_or_refused(line in prop::collection::vec(any::<u8>(), 0..200)) {
            MountInfo::parse(&line);
        }

        #[test]
        fn what_the_kernel_escapes_comes_back(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            let escape = |byte: &u8| match byte {
                b' ' | b'\t' | b'\n' | b'\\' | b'#' => format!("\\{byte:03o}").into_bytes(),
                _ => vec![*byte],
            };
            let escaped: Vec<u8> = bytes.iter().flat_map(escape).collect();
            prop_assert_eq!(&*unescape(&escaped), &*bytes);
        }

        #[test]
        fn any_byte_can_be_escaped(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            let escaped: String = bytes.iter().map(|byte| format!("\\{byte:03o}")).collect();
            prop_assert_eq!(&*unescape(escaped.as_bytes()), &*bytes);
        }
    }
}
