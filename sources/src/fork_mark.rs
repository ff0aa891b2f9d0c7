//! Whether a child of this program was forked by it, and not by the command that it tracks.
//!
//! A program that adopts orphans of a command gets children that it did not fork. It can mark those that it forks: its
//! own soft `RLIMIT_RSS`, which Linux has not enforced since version 2.4.30, is handed on by `fork` and `exec` and
//! stays readable until the process is waited for. The command is started without it.

/// Whether a process has the mark, a soft `RLIMIT_RSS`. `false` where that cannot be read.
pub fn is_on(pid: i32, mark: u64) -> bool {
    limit(pid).or_else(|| in_procfs(pid)) == Some(mark)
}

/// Refused for processes of other users, such as a program that is setuid.
fn limit(pid: i32) -> Option<u64> {
    let mut found = libc::rlimit64 { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the call writes one value, which outlives it; without a new limit nothing changes.
    let asked = unsafe { libc::prlimit64(pid, libc::RLIMIT_RSS, std::ptr::null(), &mut found) };
    (asked == 0).then_some(found.rlim_cur)
}

fn in_procfs(pid: i32) -> Option<u64> {
    let limits = std::fs::read_to_string(format!("/proc/{pid}/limits")).ok()?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max resident set"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt;
    use std::process::{Child, Command};

    use rustix::process::{Pid, Resource, Rlimit, WaitId, WaitIdOptions, setrlimit, waitid};

    use super::*;

    const MARK: u64 = (1 << 40) + 1;

    fn child(mark: Option<u64>) -> Child {
        let mut child = Command::new("sleep");
        // SAFETY: it makes nothing but a system call.
        unsafe {
            child.arg("100").pre_exec(move || Ok(setrlimit(Resource::Rss, Rlimit { current: mark, maximum: None })?))
        };
        child.spawn().unwrap()
    }

    #[test]
    fn a_child_and_what_is_left_of_it_bear_the_mark() {
        for (set, expected) in [(Some(MARK), true), (Some(MARK - 1), false), (None, false)] {
            let mut child = child(set);
            let pid = child.id() as i32;
            for left in [false, true] {
                if left {
                    child.kill().unwrap();
                    let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
                    waitid(WaitId::Pid(Pid::from_child(&child)), options).unwrap();
                }
                assert_eq!(is_on(pid, MARK), expected, "{set:?} {left}");
                assert_eq!(in_procfs(pid) == Some(MARK), expected, "{set:?} {left}");
            }
            child.wait().unwrap();
            assert!(!is_on(pid, MARK));
        }
    }
}
