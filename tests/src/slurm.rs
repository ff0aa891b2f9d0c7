//! A real Slurm: two nodes of four CPUs, both on this machine.

use std::fs::{self, Permissions};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::{command, has, is_root, wait_for};

/// A cluster at work, until it is dropped.
pub struct Cluster {
    folder: tempfile::TempDir,
    children: Vec<Child>,
}

impl Cluster {
    /// `None`, said, where Slurm is not installed or nobody may start it.
    pub fn start(test: &str) -> Option<Self> {
        let programs = ["munged", "slurmctld", "slurmd", "srun"];
        if !is_root(test) || !programs.iter().all(|program| has(program, test)) {
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_owned();
        fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
        for name in ["state", "spool-n1", "spool-n2"] {
            fs::create_dir(path.join(name)).unwrap();
        }
        fs::write(path.join("munge.key"), [7; 128]).unwrap();
        fs::set_permissions(path.join("munge.key"), Permissions::from_mode(0o600)).unwrap();
        fs::write(path.join("slurm.conf"), configuration(&path)).unwrap();
        let mut cluster = Self { folder, children: Vec::new() };
        let file = |name: &str| path.join(name).display().to_string();
        cluster.daemon(
            "munged",
            &[
                "--foreground",
                "--force",
                &format!("--key-file={}", file("munge.key")),
                &format!("--socket={}", file("munge.socket")),
                &format!("--pid-file={}", file("munged.pid")),
                &format!("--log-file={}", file("munged.log")),
                &format!("--seed-file={}", file("munge.seed")),
            ],
        );
        wait_for(Duration::from_secs(10), "the socket of munged", || path.join("munge.socket").exists());
        cluster.daemon("slurmctld", &["-D"]);
        for node in ["n1", "n2"] {
            cluster.daemon("slurmd", &["-D", "-N", node]);
        }
        wait_for(Duration::from_secs(30), "two idle nodes", || {
            let nodes = cluster.command("sinfo").args(["-h", "-N", "-t", "idle", "-o", "%N"]).output().unwrap();
            String::from_utf8_lossy(&nodes.stdout).lines().count() == 2
        });
        Some(cluster)
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// A program that uses this cluster.
    pub fn command(&self, program: &str) -> Command {
        let mut command = command(program);
        command.env("SLURM_CONF", self.path().join("slurm.conf")).current_dir(self.path());
        command
    }

    /// The recording of a rank.
    pub fn recording(&self, rank: u32) -> PathBuf {
        self.path().join(format!("{rank}.jsonl"))
    }

    fn daemon(&mut self, program: &str, arguments: &[&str]) {
        let mut command = self.command(program);
        command.args(arguments).stdout(Stdio::null()).stderr(Stdio::null());
        self.children.push(command.spawn().unwrap());
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let _ = self.command("scancel").args(["--full", "--user=root"]).status();
        // First the nodes, and last what all of them need to speak to each other.
        for child in self.children.iter_mut().rev() {
            let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(child.id() as i32), nix::sys::signal::SIGTERM);
            let _ = child.wait();
        }
    }
}

fn configuration(folder: &Path) -> String {
    let listeners: Vec<TcpListener> = (0..3).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    let port = |number: usize| listeners[number].local_addr().unwrap().port();
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let (folder, host) = (folder.display(), host.trim());
    let node = |name: &str, port: u16| {
        format!(
            "NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=4 Boards=1 SocketsPerBoard=1 \
             CoresPerSocket=4 ThreadsPerCore=1 RealMemory=2000 State=UNKNOWN\n"
        )
    };
    format!(
        "ClusterName=test\nSlurmctldHost={host}(127.0.0.1)\nSlurmctldPort={}\nSlurmUser=root\nSlurmdUser=root\n\
         AuthType=auth/munge\nAuthInfo=socket={folder}/munge.socket\nCredType=cred/munge\n\
         StateSaveLocation={folder}/state\nSlurmdSpoolDir={folder}/spool-%n\nSlurmctldPidFile={folder}/slurmctld.pid\n\
         SlurmdPidFile={folder}/slurmd-%n.pid\nSlurmctldLogFile={folder}/slurmctld.log\nSlurmdLogFile={folder}/slurmd-%n.log\n\
         SlurmdParameters=config_overrides\nReturnToService=2\nProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\n\
         SwitchType=switch/none\nMpiDefault=none\nSelectType=select/cons_tres\nSelectTypeParameters=CR_Core_Memory\n\
         SchedulerParameters=bf_interval=1,sched_min_interval=0,batch_sched_delay=0\n\
         AccountingStorageType=accounting_storage/none\nJobAcctGatherType=jobacct_gather/linux\n\
         JobAcctGatherFrequency=task=1\nJobAcctGatherParams=OverMemoryKill\nKillWait=3\nOverTimeLimit=0\nInactiveLimit=0\n\
         DefMemPerCPU=400\n{}{}PartitionName=main Nodes=n1,n2 Default=YES MaxTime=INFINITE State=UP\n",
        port(0),
        node("n1", port(1)),
        node("n2", port(2)),
    )
}
