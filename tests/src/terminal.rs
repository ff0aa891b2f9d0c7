//! A terminal with a shell.

use std::fs::File;
use std::io::{Read, Write};
use std::num::NonZero;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::Winsize;

use crate::{command, wait_until};

/// A shell on a terminal of its own.
pub struct Terminal {
    shell: Child,
    keyboard: File,
    output: Receiver<Vec<u8>>,
    /// What was printed and not expected yet.
    seen: String,
    screen: vt100::Parser,
}

impl Terminal {
    /// A new one, whose shell is ready, with 80 columns.
    #[allow(clippy::new_without_default, reason = "it starts processes")]
    pub fn new() -> Self {
        Self::with_columns(80)
    }

    /// A new one of this width, with 24 lines.
    pub fn with_columns(columns: u16) -> Self {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let master: OwnedFd = openpt(flags).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let size = Winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        rustix::termios::tcsetwinsize(&master, size).unwrap();
        let open = || File::options().read(true).write(true).open(name.to_str().unwrap()).unwrap();
        let mut shell = command("bash");
        shell.args(["--norc", "--noprofile", "-i"]).env("PS1", "prompt> ").env("TERM", "xterm").env("HISTFILE", "");
        shell.stdin(Stdio::from(open())).stdout(Stdio::from(open())).stderr(Stdio::from(open()));
        // SAFETY: both calls are plain system calls.
        unsafe {
            shell.pre_exec(|| {
                rustix::process::setsid()?;
                rustix::process::ioctl_tiocsctty(rustix::stdio::stdin())?;
                Ok(())
            })
        };
        let shell = shell.spawn().unwrap();
        let (sender, output) = mpsc::channel();
        let mut printed = File::from(master.try_clone().unwrap());
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = printed.read(&mut buffer) {
                if sender.send(buffer[..count].to_vec()).is_err() {
                    return;
                }
            }
        });
        let screen = vt100::Parser::new(NonZero::new(24).unwrap(), NonZero::new(columns).unwrap(), 0);
        let mut terminal = Self { shell, keyboard: File::from(master), output, seen: String::new(), screen };
        terminal.expect("prompt> ");
        terminal
    }

    /// Types these keys.
    pub fn press(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    /// Presses Ctrl and a letter, when the command that printed the last words has settled: a signal that meets a
    /// shell between its fork and its exec is lost without the tracker too.
    pub fn press_ctrl(&mut self, letter: u8) {
        let mut last = Vec::new();
        let mut looks = 0;
        wait_until("a command that waits", || {
            let processes = self.foreground();
            let is_settled = processes.iter().all(|(_, state)| state == "S") && processes == last;
            looks = if is_settled { looks + 1 } else { 0 };
            last = processes;
            looks >= 3
        });
        self.keyboard.write_all(&[letter & 0x1f]).unwrap();
    }

    /// The processes in the foreground but the tracker, which never rests, and the state of each.
    fn foreground(&self) -> Vec<(String, String)> {
        let group = rustix::termios::tcgetpgrp(&self.keyboard).unwrap().as_raw_pid().to_string();
        let processes = std::fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| {
            let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
            let (name, rest) = stat.rsplit_once(')')?;
            let fields: Vec<&str> = rest.split_whitespace().collect();
            let is_tracker = name.contains("(resource-track");
            (fields[2] == group && !is_tracker).then(|| (name.to_owned(), fields[0].to_owned()))
        });
        processes.collect()
    }

    /// Waits for a text to be printed, and takes everything up to its end.
    pub fn expect(&mut self, text: &str) -> String {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            if let Some(at) = self.seen.find(text) {
                return self.seen.drain(..at + text.len()).collect();
            }
            assert!(self.receive(deadline), "no {text:?} on the screen: {:?}", self.seen);
        }
    }

    /// Waits until the screen shows all of these texts, and returns it.
    pub fn expect_picture(&mut self, texts: &[&str]) -> String {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let picture = self.screen.screen().contents();
            if texts.iter().all(|text| picture.contains(text)) {
                return picture;
            }
            assert!(self.receive(deadline), "not all of {texts:?} on the screen:\n{picture}");
        }
    }

    /// Whether a program has the screen for itself.
    pub fn is_taken(&self) -> bool {
        self.screen.screen().alternate_screen() || self.screen.screen().hide_cursor()
    }

    /// Gives it another size.
    pub fn resize(&mut self, columns: u16, lines: u16) {
        self.screen.screen_mut().set_size(NonZero::new(lines).unwrap(), NonZero::new(columns).unwrap());
        let size = Winsize { ws_row: lines, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        rustix::termios::tcsetwinsize(&self.keyboard, size).unwrap();
    }

    /// Takes in what is printed next. Says whether it came before the deadline.
    fn receive(&mut self, deadline: Instant) -> bool {
        let left = deadline.saturating_duration_since(Instant::now());
        let Ok(bytes) = self.output.recv_timeout(left) else { return false };
        self.screen.process(&bytes);
        self.seen.push_str(&String::from_utf8_lossy(&bytes));
        true
    }

    /// Runs a line of shell and waits for what it prints.
    pub fn run(&mut self, line: &str, expected: &str) {
        self.press(&format!("{line}\n"));
        self.expect(expected);
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}
