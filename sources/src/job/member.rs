//! One process of the tree, and what the last readings showed of it.

use std::fs::File;
use std::time::{Duration, Instant};

use super::clock::cpu_time;
use super::files::Files;
use super::stat::{Io, Stat};
use super::status::{Status, Switches};

/// A pid alone can be given to another process later; with the start time it cannot.
pub(crate) type Identity = (i32, u64);

/// For so long, a process that has not run is taken to be unchanged: only its resident memory can change.
const BELIEVED: Duration = Duration::from_secs(5);

#[derive(Debug, Default)]
pub(crate) struct Member {
    pub(crate) stat: Stat,
    pub(crate) io: Option<Io>,
    /// Whether `io` is out of date because it cannot be read: that needs the permission to trace the process.
    pub(crate) hides_io: bool,
    /// Its own CPU time; `None` where only `stat` shows it.
    pub(crate) clock: Option<Duration>,
    /// The reading before.
    pub(crate) stat_before: Stat,
    pub(crate) io_before: Option<Io>,
    pub(crate) status: Option<Status>,
    /// Its context switches, as of the last `status`: since its birth, or since the tracker came if it `was_there`
    /// before.
    pub(crate) switches: Switches,
    pub(super) was_there: bool,
    /// The most pages of files that `status` ever showed, in bytes.
    pub(crate) most_file: u64,
    /// When `status` was last read; before that, when the process was found.
    pub(super) told_at: Option<Instant>,
    /// Whether it has run since `status` was read.
    pub(super) has_news: bool,
    pub(crate) is_root: bool,
    read_at: Option<Instant>,
    stat_file: Option<File>,
    io_file: Option<File>,
}

impl Member {
    /// A process that was just found. Its files are kept open only once it is seen to run.
    pub(super) fn new(mut stat: Stat, is_root: bool, files: &mut Files, has_clock: bool, now: Instant) -> Self {
        stat.rss = resident(&stat, files);
        let clock = has_clock.then(|| cpu_time(stat.pid)).flatten();
        let mut member = Self {
            stat,
            stat_before: stat,
            clock,
            is_root,
            has_news: true,
            told_at: Some(now),
            // `stat` is older than `clock`: the process may have run in between, and waited for a child.
            read_at: None,
            ..Self::default()
        };
        member.read_io(files, false);
        member
    }

    pub(crate) fn identity(&self) -> Identity {
        self.stat.identity()
    }

    /// Reads it again; `false` when it is gone from procfs. A process that has not run since is not read, unless it
    /// `must` be because something else has changed it.
    pub(super) fn refresh(&mut self, files: &mut Files, has_clock: bool, must: bool, now: Instant) -> bool {
        let clock = has_clock.then(|| cpu_time(self.stat.pid)).flatten();
        let has_run = clock.is_none() || clock != self.clock;
        let is_fresh = self.read_at.is_some_and(|at| now.saturating_duration_since(at) < BELIEVED);
        (self.stat_before, self.io_before) = (self.stat, self.io);
        if !has_run && is_fresh && !must && !self.stat.is_dead() {
            return true;
        }
        let stat = match files.read(self.stat.pid, "stat", &mut self.stat_file, has_run) {
            Ok(text) => Stat::parse(text),
            Err(error) if is_of_a_process_that_is_gone(&error) => return false,
            // It cannot be read now, for want of a descriptor, say: it keeps its last values.
            Err(_) => None,
        };
        let stat = stat.unwrap_or(self.stat);
        if stat.identity() != self.identity() || stat.is_taken_over() {
            return false;
        }
        self.clock = clock;
        let stat = Stat { rss: resident(&stat, files), ..stat };
        // It can be swapped out while it does not run.
        self.has_news |= stat.rss != self.stat.rss;
        self.stat = stat;
        self.read_at = Some(now);
        if has_run {
            self.has_news = true;
            self.read_io(files, true);
        }
        true
    }

    fn read_io(&mut self, files: &mut Files, keep: bool) {
        // If it cannot be read, the last values stay.
        match files.read(self.stat.pid, "io", &mut self.io_file, keep) {
            Ok(text) => (self.io, self.hides_io) = (Io::parse(text).or(self.io), false),
            Err(error) => self.hides_io |= !is_of_a_process_that_is_gone(&error),
        }
    }

    /// Takes over what `status` says now.
    pub(super) fn tell(&mut self, status: Status) {
        let before = self.status.map(|status| status.switches);
        let first = if self.was_there { status.switches } else { Switches::default() };
        self.switches = self.switches.plus(status.switches.since(before.unwrap_or(first)));
        self.most_file = self.most_file.max(status.memory.file.unwrap_or(0));
        self.status = Some(status);
    }

    /// For how long it has run since `status` was read.
    pub(crate) fn status_age(&self, now: Instant) -> Duration {
        let told_at = self.told_at.filter(|_| self.has_news);
        told_at.map_or(Duration::ZERO, |at| now.saturating_duration_since(at))
    }

    pub(super) fn close(&mut self, files: &mut Files) {
        files.close(&mut self.stat_file);
        files.close(&mut self.io_file);
    }
}

/// Its resident memory in pages. Where the first thread has ended, another thread shows it: it is the same for all.
fn resident(stat: &Stat, files: &mut Files) -> u64 {
    if !stat.has_lost_leader() {
        return stat.rss;
    }
    let threads = files.threads(stat.pid);
    let mut pages = threads.filter_map(|tid| {
        let text = files.read(stat.pid, &format!("task/{tid}/stat"), &mut None, false).ok()?;
        Stat::parse(text).map(|thread| thread.rss)
    });
    pages.find(|pages| *pages > 0).unwrap_or(0)
}

/// `ENOENT` when it is opened, `ESRCH` when it is read.
pub(crate) fn is_of_a_process_that_is_gone(error: &std::io::Error) -> bool {
    error.kind() == std::io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ESRCH)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn switches_of_one_that_was_there_count_from_when_it_is_first_read() {
        for (was_there, expected) in [(false, [50, 53, 53, 60]), (true, [0, 3, 3, 10])] {
            let mut member = Member { was_there, ..Member::default() };
            // A thread that ends takes its own along.
            let counted = [50, 53, 20, 27].map(|voluntary| {
                member.tell(Status { switches: Switches { voluntary, involuntary: 0 }, ..Status::default() });
                member.switches.voluntary
            });
            assert_eq!(counted, expected);
        }
    }

    /// A program of another user can be begun at any time, and end.
    #[test]
    fn io_that_cannot_be_read_any_more_is_hidden_and_as_it_was() {
        let procfs = tempfile::tempdir().unwrap();
        let folder = procfs.path().join("9");
        std::fs::create_dir(&folder).unwrap();
        let stat = "9 (sh) S 7 9 9 -1 -1 0 0 0 0 0 50 60 0 0 20 0 1 0 99 0 3 0 1 1 0 0 0 0 0 0 0 0 0 0 17";
        std::fs::write(folder.join("stat"), stat).unwrap();
        let mut files = Files::new(procfs.path()).unwrap();
        let mut member = Member::new(Stat::parse(stat.as_bytes()).unwrap(), false, &mut files, false, Instant::now());
        assert!(!member.hides_io, "this kernel has none");
        let mut read = |member: &mut Member| {
            member.close(&mut files);
            member.refresh(&mut files, false, false, Instant::now());
            (member.io.map(|io| io.read_bytes), member.hides_io)
        };
        let text =
            |n: u64| format!("rchar: {n}\nwchar: 0\nread_bytes: {n}\nwrite_bytes: 0\ncancelled_write_bytes: 0\n");
        std::fs::write(folder.join("io"), text(5)).unwrap();
        assert_eq!(read(&mut member), (Some(5), false));
        // Root may read everything, but no folder.
        std::fs::remove_file(folder.join("io")).unwrap();
        std::fs::create_dir(folder.join("io")).unwrap();
        assert_eq!(read(&mut member), (Some(5), true));
        std::fs::remove_dir(folder.join("io")).unwrap();
        assert_eq!(read(&mut member), (Some(5), true), "it has just ended");
        std::fs::write(folder.join("io"), text(7)).unwrap();
        assert_eq!(read(&mut member), (Some(7), false));
    }

    /// It waited for a child, say, before its clock was read, and sleeps since.
    #[test]
    fn what_is_older_than_the_clock_is_read_again() {
        let mut sleeper = std::process::Command::new("sleep").arg("100").spawn().unwrap();
        let pid = sleeper.id() as i32;
        let mut files = Files::new(Path::new("/proc")).unwrap();
        let mut read = || {
            let stat = Stat::parse(files.read(pid, "stat", &mut None, false).unwrap()).unwrap();
            (stat, cpu_time(pid))
        };
        while read() != read() || read().0.state != b'S' {
            std::thread::sleep(Duration::from_millis(10));
        }
        let now = read().0;
        let mut member = Member::new(Stat { minor_faults: 0, ..now }, false, &mut files, true, Instant::now());
        assert!(member.refresh(&mut files, true, false, Instant::now()));
        sleeper.kill().unwrap();
        sleeper.wait().unwrap();
        assert!(now.minor_faults > 0 && member.stat.minor_faults >= now.minor_faults);
    }

    #[test]
    fn one_that_ended_is_there_until_its_parent_has_taken_over() {
        let procfs = tempfile::tempdir().unwrap();
        std::fs::create_dir(procfs.path().join("9")).unwrap();
        let mut files = Files::new(procfs.path()).unwrap();
        let mut read = |state: char| {
            let text =
                format!("9 (sh) {state} 7 9 9 -1 -1 0 0 0 0 0 50 60 0 0 20 0 1 0 99 0 3 0 1 1 0 0 0 0 0 0 0 0 0 0 17");
            std::fs::write(procfs.path().join("9/stat"), &text).unwrap();
            let mut member =
                Member::new(Stat::parse(text.as_bytes()).unwrap(), false, &mut files, false, Instant::now());
            let here = member.refresh(&mut files, false, false, Instant::now());
            (here, member.stat.is_dead())
        };
        assert_eq!([read('S'), read('Z')], [(true, false), (true, true)]);
        assert!(!read('X').0);
    }
}
