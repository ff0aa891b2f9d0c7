//! A sandbox that refuses system calls, as containers and service managers make them.

use std::process::Command;

use nix::errno::Errno;
use nix::libc;

use crate::bare::before_exec;

/// From here on the command, and what it starts, gets this error of these system calls.
pub fn refuse(command: &mut Command, calls: &[libc::c_long], error: Errno) {
    let filter = filter(calls, error);
    before_exec(command, move || {
        let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
        // SAFETY: system calls on numbers and on a filter that outlives them, which the kernel does not change.
        let made = unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
                && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &program) == 0
        };
        if made { Ok(()) } else { Err(rustix::io::Errno::from_raw_os_error(Errno::last_raw())) }
    });
}

fn filter(calls: &[libc::c_long], error: Errno) -> Vec<libc::sock_filter> {
    let statement = |code: u32, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
    let equals = |call: &libc::c_long| libc::sock_filter {
        jf: 1,
        ..statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, *call as u32)
    };
    let answer = |action: u32| statement(libc::BPF_RET | libc::BPF_K, action);
    // The number of the call comes first in what a filter sees.
    let mut filter = vec![statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0)];
    filter.extend(calls.iter().flat_map(|call| [equals(call), answer(libc::SECCOMP_RET_ERRNO | error as u32)]));
    filter.push(answer(libc::SECCOMP_RET_ALLOW));
    filter
}
