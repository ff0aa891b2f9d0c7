//! Which part of a job of several processes this run is: what starts the processes tells each its rank.

use resource_tracker_core::Job;

type Variable<'a> = &'a dyn Fn(&str) -> Option<String>;

/// What starts the processes of a job, and the variables in which it tells each of them what it is.
struct Launcher {
    name: &'static str,
    rank: &'static str,
    size: &'static str,
    local_rank: &'static str,
    local_size: &'static str,
    node_rank: &'static str,
    nodes: &'static str,
    /// The whole job; those of a batch system are asked as well.
    id: &'static str,
    /// A variable without which it is not this launcher.
    marker: &'static str,
}

const NONE: &str = "";

/// Those that are started by others come first: `srun` starts `torchrun`, which starts the ranks.
const LAUNCHERS: [Launcher; 8] = [
    Launcher {
        name: "torchrun",
        rank: "RANK",
        size: "WORLD_SIZE",
        local_rank: "LOCAL_RANK",
        local_size: "LOCAL_WORLD_SIZE",
        node_rank: "GROUP_RANK",
        nodes: "GROUP_WORLD_SIZE",
        id: "TORCHELASTIC_RUN_ID",
        marker: "WORLD_SIZE",
    },
    Launcher {
        name: "horovod",
        rank: "HOROVOD_RANK",
        size: "HOROVOD_SIZE",
        local_rank: "HOROVOD_LOCAL_RANK",
        local_size: "HOROVOD_LOCAL_SIZE",
        node_rank: "HOROVOD_CROSS_RANK",
        nodes: "HOROVOD_CROSS_SIZE",
        id: NONE,
        marker: "HOROVOD_RANK",
    },
    Launcher {
        name: "openmpi",
        rank: "OMPI_COMM_WORLD_RANK",
        size: "OMPI_COMM_WORLD_SIZE",
        local_rank: "OMPI_COMM_WORLD_LOCAL_RANK",
        local_size: "OMPI_COMM_WORLD_LOCAL_SIZE",
        node_rank: NONE,
        nodes: NONE,
        id: "PMIX_NAMESPACE",
        marker: "OMPI_COMM_WORLD_RANK",
    },
    Launcher {
        name: "mvapich",
        rank: "MV2_COMM_WORLD_RANK",
        size: "MV2_COMM_WORLD_SIZE",
        local_rank: "MV2_COMM_WORLD_LOCAL_RANK",
        local_size: "MV2_COMM_WORLD_LOCAL_SIZE",
        node_rank: NONE,
        nodes: NONE,
        id: NONE,
        marker: "MV2_COMM_WORLD_RANK",
    },
    Launcher {
        name: "pals",
        rank: "PALS_RANKID",
        size: "PALS_SIZE",
        local_rank: "PALS_LOCAL_RANKID",
        local_size: "PALS_LOCAL_SIZE",
        node_rank: "PALS_NODEID",
        nodes: NONE,
        id: "PALS_APID",
        marker: "PALS_RANKID",
    },
    // A step of Slurm, not the script of a batch job, which runs once.
    Launcher {
        name: "slurm",
        rank: "SLURM_PROCID",
        size: "SLURM_STEP_NUM_TASKS",
        local_rank: "SLURM_LOCALID",
        local_size: NONE,
        node_rank: "SLURM_NODEID",
        nodes: "SLURM_STEP_NUM_NODES",
        id: NONE,
        marker: "SLURM_STEP_ID",
    },
    // Hydra, the launcher of MPICH and Intel MPI.
    Launcher {
        name: "mpich",
        rank: "PMI_RANK",
        size: "PMI_SIZE",
        local_rank: "MPI_LOCALRANKID",
        local_size: "MPI_LOCALNRANKS",
        node_rank: NONE,
        nodes: NONE,
        id: NONE,
        marker: "PMI_RANK",
    },
    // An indexed job.
    Launcher {
        name: "kubernetes",
        rank: "JOB_COMPLETION_INDEX",
        size: NONE,
        local_rank: NONE,
        local_size: NONE,
        node_rank: NONE,
        nodes: NONE,
        id: NONE,
        marker: "JOB_COMPLETION_INDEX",
    },
];

/// Fills in what the user did not set.
pub(crate) fn complete(job: &mut Job, variable: impl Fn(&str) -> Option<String>, host: impl Fn() -> String) {
    let variable = |name: &str| variable(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty());
    let variable: Variable<'_> = &variable;
    let is_there = |launcher: &&Launcher| variable(launcher.marker).is_some();
    let mut found = LAUNCHERS.iter().filter(is_there).filter_map(|one| Some((one, number(variable, one.rank)?)));
    let Some((launcher, rank)) = found.next() else { return };
    let (of, host) = (|name| number(variable, name), host());
    let group = &mut job.group;
    group.launcher.get_or_insert_with(|| launcher.name.into());
    group.rank.get_or_insert(rank);
    for (place, name) in [
        (&mut group.size, launcher.size),
        (&mut group.local_rank, launcher.local_rank),
        (&mut group.local_size, launcher.local_size),
        (&mut group.node_rank, launcher.node_rank),
        (&mut group.nodes, launcher.nodes),
    ] {
        *place = place.or_else(|| of(name));
    }
    group.node = group.node.take().or_else(|| variable("SLURMD_NODENAME")).or_else(|| Some(host.clone()));
    group.id = group.id.take().or_else(|| id(launcher, variable, &host));
}

/// The name of this machine.
pub(crate) fn host() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned()
}

fn number(variable: Variable<'_>, name: &str) -> Option<u32> {
    if name.is_empty() { None } else { variable(name)?.parse().ok() }
}

/// The whole job: as the launcher names it, or the batch system.
fn id(launcher: &Launcher, variable: Variable<'_>, host: &str) -> Option<String> {
    // `none` is what torchrun says without an id.
    let own = Some(launcher.id).filter(|name| !name.is_empty()).and_then(variable).filter(|id| id != "none");
    let slurm = || {
        let (job, step) = (variable("SLURM_JOB_ID")?, variable("SLURM_STEP_ID"));
        Some(step.map_or_else(|| job.clone(), |step| format!("{job}.{step}")))
    };
    let pod = || {
        // The pod of an indexed job is called after the job and the index.
        let index = variable("JOB_COMPLETION_INDEX")?;
        host.strip_suffix(&index)?.strip_suffix('-').map(str::to_owned)
    };
    own.or_else(slurm).or_else(|| variable("PBS_JOBID")).or_else(|| variable("LSB_JOBID")).or_else(pod)
}

#[cfg(test)]
mod tests {
    use resource_tracker_core::Group;

    use super::*;

    fn group(variables: &[(&str, &str)], host: &str) -> Group {
        let mut job = Job::default();
        let of = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        complete(&mut job, of, || host.to_owned());
        job.group
    }

    #[test]
    fn a_step_of_slurm_and_the_script_around_it() {
        let script = [("SLURM_JOB_ID", "7"), ("SLURM_PROCID", "0"), ("SLURM_NTASKS", "8"), ("SLURMD_NODENAME", "n1")];
        assert_eq!(group(&script, "h"), Group::default());
        let step = [
            ("SLURM_JOB_ID", "7"),
            ("SLURM_STEP_ID", "0"),
            ("SLURM_PROCID", "5"),
            ("SLURM_STEP_NUM_TASKS", "8"),
            ("SLURM_LOCALID", "1"),
            ("SLURM_NODEID", "1"),
            ("SLURM_STEP_NUM_NODES", "2"),
            ("SLURMD_NODENAME", "n2"),
        ];
        let group = group(&step, "h");
        assert_eq!((group.id.as_deref(), group.node.as_deref()), (Some("7.0"), Some("n2")));
        assert_eq!((group.rank, group.size, group.local_rank), (Some(5), Some(8), Some(1)));
        assert_eq!((group.node_rank, group.nodes, group.launcher.as_deref()), (Some(1), Some(2), Some("slurm")));
    }

    #[test]
    fn the_launcher_that_is_nearest_to_the_rank() {
        let torch = [
            ("SLURM_JOB_ID", "7"),
            ("SLURM_STEP_ID", "0"),
            ("SLURM_PROCID", "1"),
            ("RANK", "6"),
            ("WORLD_SIZE", "8"),
            ("LOCAL_RANK", "2"),
            ("TORCHELASTIC_RUN_ID", "none"),
        ];
        let group_of = group(&torch, "h");
        assert_eq!((group_of.launcher.as_deref(), group_of.rank), (Some("torchrun"), Some(6)));
        assert_eq!((group_of.id.as_deref(), group_of.node.as_deref()), (Some("7.0"), Some("h")));
        let mpi = [("OMPI_COMM_WORLD_RANK", "0"), ("OMPI_COMM_WORLD_SIZE", "2"), ("PMIX_NAMESPACE", "prterun-1")];
        let group_of = group(&mpi, "h");
        assert_eq!((group_of.launcher.as_deref(), group_of.id.as_deref()), (Some("openmpi"), Some("prterun-1")));
        // A variable that merely has that name is no rank.
        assert_eq!(group(&[("RANK", "colonel"), ("WORLD_SIZE", "8")], "h"), Group::default());
        assert_eq!(group(&[("RANK", "3")], "h"), Group::default());
    }

    #[test]
    fn a_pod_of_an_indexed_job() {
        let group = group(&[("JOB_COMPLETION_INDEX", "3")], "train-3");
        assert_eq!((group.id.as_deref(), group.rank, group.size), (Some("train"), Some(3), None));
    }

    #[test]
    fn what_the_user_says_stays() {
        let mut job = Job::default();
        job.group.rank = Some(9);
        job.group.id = Some("mine".into());
        complete(&mut job, |name| (name == "PMI_RANK" || name == "PMI_SIZE").then(|| "1".into()), || "h".to_owned());
        assert_eq!((job.group.rank, job.group.size, job.group.id.as_deref()), (Some(9), Some(1), Some("mine")));
    }
}
