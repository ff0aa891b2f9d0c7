//! A machine that is not there: the files of procfs and sysfs that the sources read, as large as is asked for.

use std::fs;
use std::path::Path;

use tempfile::TempDir;

/// How much there is of everything.
#[derive(Clone, Copy)]
pub(crate) struct Size {
    pub(crate) cpus: usize,
    pub(crate) disks: usize,
    pub(crate) interfaces: usize,
    /// Of the job, all children of its root.
    pub(crate) members: usize,
    pub(crate) others: usize,
}

/// The id of the job's root.
pub(crate) const ROOT: usize = 1000;

pub(crate) struct Machine {
    folder: TempDir,
    pub(crate) size: Size,
}

impl Machine {
    pub(crate) fn make(size: Size) -> anyhow::Result<Self> {
        let machine = Self { folder: tempfile::tempdir_in("/dev/shm")?, size };
        machine.write_proc()?;
        machine.write_sys()?;
        Ok(machine)
    }

    pub(crate) fn root(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn members(&self) -> impl Iterator<Item = usize> {
        ROOT..ROOT + self.size.members
    }

    fn write(&self, path: &str, text: &str) -> std::io::Result<()> {
        let path = self.root().join(path);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::write(path, text)
    }

    fn write_proc(&self) -> std::io::Result<()> {
        let Size { cpus, disks, interfaces, members, others } = self.size;
        let cpu = |name: String| format!("{name} 123456 2 34567 8901234 567 0 89 0 0 0\n");
        let each: String = (0..cpus).map(|index| cpu(format!("cpu{index}"))).collect();
        let more = "intr 12345 0 0\nctxt 123456\nbtime 1700000000\nprocesses 4711\nprocs_running 1\nprocs_blocked 0\n";
        self.write("proc/stat", &(cpu("cpu ".into()) + &each + more))?;
        let info = |index: usize| format!("processor\t: {index}\nmodel name\t: A processor\nphysical id\t: 0\n\n");
        self.write("proc/cpuinfo", &(0..cpus).map(info).collect::<String>())?;
        self.write("proc/loadavg", "1.00 0.50 0.25 1/20000 30000\n")?;
        self.write("proc/uptime", "86400.00 86400.00\n")?;
        for name in ["meminfo", "vmstat", "pressure/cpu", "pressure/memory", "pressure/io", "self/mountinfo"] {
            self.write(
                &format!("proc/{name}"),
                &fs::read_to_string(Path::new("/proc").join(name)).unwrap_or_default(),
            )?;
        }
        let disk = |index: usize| format!("   8 {} sd{index} 1000 0 8000 10 1000 0 8000 10 0 10 20\n", index * 16);
        self.write("proc/diskstats", &(0..disks).map(disk).collect::<String>())?;
        let line = |index: usize| format!("  eth{index}: 1000 10 0 0 0 0 0 0 1000 10 0 0 0 0 0 0\n");
        let lines: String = (0..interfaces).map(line).collect();
        let head = "Inter-|   Receive                            |  Transmit\n face |bytes    packets errs drop fifo frame \
                    compressed multicast|bytes    packets errs drop fifo colls carrier compressed\n";
        for path in ["proc/net/dev", "proc/self/net/dev", "proc/1/net/dev"] {
            self.write(path, &(head.to_owned() + &lines))?;
        }
        for pid in 1..=others.min(ROOT - 1) {
            self.write_process(pid, 0)?;
        }
        for pid in self.members() {
            self.write_process(pid, if pid == ROOT { 1 } else { ROOT })?;
        }
        for pid in (ROOT + members..).take(others.saturating_sub(ROOT - 1)) {
            self.write_process(pid, 1)?;
        }
        Ok(())
    }

    fn write_process(&self, pid: usize, parent: usize) -> std::io::Result<()> {
        let times = format!("{pid} (job) S {parent} {pid} {pid} 0 -1 4194560 100 0 0 0 10 5 0 0 20 0 1 0 {pid}");
        let rest = "10000000 500 18446744073709551615 1 1 0 0 0 0 0 0 0 0 0 0 17 0 0 0 0 0 0 0 0 0 0 0 0 0 0";
        self.write(&format!("proc/{pid}/stat"), &format!("{times} {rest}\n"))?;
        self.write(&format!("proc/{pid}/statm"), "2000 500 300 1 0 200 0\n")?;
        let io = "rchar: 1\nwchar: 1\nsyscr: 1\nsyscw: 1\nread_bytes: 0\nwrite_bytes: 0\ncancelled_write_bytes: 0\n";
        self.write(&format!("proc/{pid}/io"), io)?;
        let children: String = match pid {
            ROOT => self.members().skip(1).map(|pid| format!("{pid} ")).collect(),
            _ => String::new(),
        };
        self.write(&format!("proc/{pid}/task/{pid}/children"), &children)?;
        self.write(&format!("proc/{pid}/status"), "VmHWM:\t2000 kB\nVmRSS:\t2000 kB\nThreads:\t1\n")
    }

    fn write_sys(&self) -> std::io::Result<()> {
        for index in 0..self.size.disks {
            let disk = format!("sys/block/sd{index}");
            self.write(&format!("{disk}/size"), "1000000\n")?;
            self.write(&format!("{disk}/stat"), "1000 0 8000 10 1000 0 8000 10 0 10 20\n")?;
            self.write(&format!("{disk}/device/model"), "A disk\n")?;
            self.write(&format!("{disk}/queue/rotational"), "0\n")?;
        }
        for index in 0..self.size.interfaces {
            let interface = format!("sys/class/net/eth{index}");
            for (name, text) in [("speed", "1000\n"), ("operstate", "up\n"), ("mtu", "1500\n"), ("address", "02::01\n")]
            {
                self.write(&format!("{interface}/{name}"), text)?;
            }
            fs::create_dir_all(self.root().join(&interface).join("device"))?;
        }
        Ok(())
    }
}
