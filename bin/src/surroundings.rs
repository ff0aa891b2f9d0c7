//! What the surroundings tell about a run: the workflow, the batch system or the container that it was started by.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;

use resource_tracker_core::Job;

/// A system that starts jobs, and the variables that have its names for them.
struct System {
    /// A variable that shows that the system is there.
    marker: &'static str,
    name: &'static str,
    role: Role,
    /// Each field with the variables that hold it, the best first.
    fields: &'static [(Field, &'static [&'static str])],
}

#[derive(PartialEq)]
enum Role {
    Orchestrator,
    Executor,
}

type Field = fn(&mut Job) -> &mut Option<String>;

const JOB: Field = |job| &mut job.name;
const PROJECT: Field = |job| &mut job.project_name;
const STAGE: Field = |job| &mut job.stage_name;
const TASK: Field = |job| &mut job.task_name;
const RUN: Field = |job| &mut job.external_run_id;
const IMAGE: Field = |job| &mut job.container_image;

/// Workflows come before batch systems, and these before clusters: the system nearest to the user names the run.
const SYSTEMS: [System; 14] = [
    System {
        marker: "METAFLOW_RUN_ID",
        name: "metaflow",
        role: Role::Orchestrator,
        fields: &[
            (JOB, &["METAFLOW_FLOW_NAME"]),
            (STAGE, &["METAFLOW_STEP_NAME"]),
            (TASK, &["METAFLOW_TASK_ID"]),
            (RUN, &["METAFLOW_RUN_ID"]),
        ],
    },
    System {
        marker: "FLYTE_INTERNAL_EXECUTION_ID",
        name: "flyte",
        role: Role::Orchestrator,
        fields: &[
            (PROJECT, &["FLYTE_INTERNAL_EXECUTION_PROJECT"]),
            (JOB, &["FLYTE_INTERNAL_EXECUTION_WORKFLOW"]),
            (TASK, &["FLYTE_INTERNAL_TASK_NAME"]),
            (RUN, &["FLYTE_INTERNAL_EXECUTION_ID"]),
            (IMAGE, &["FLYTE_INTERNAL_IMAGE"]),
        ],
    },
    System {
        marker: "AIRFLOW_CTX_DAG_ID",
        name: "airflow",
        role: Role::Orchestrator,
        fields: &[(JOB, &["AIRFLOW_CTX_DAG_ID"]), (TASK, &["AIRFLOW_CTX_TASK_ID"]), (RUN, &["AIRFLOW_CTX_DAG_RUN_ID"])],
    },
    System {
        marker: "GITHUB_ACTIONS",
        name: "github-actions",
        role: Role::Orchestrator,
        fields: &[
            (PROJECT, &["GITHUB_REPOSITORY"]),
            (JOB, &["GITHUB_WORKFLOW"]),
            (STAGE, &["GITHUB_JOB"]),
            (RUN, &["GITHUB_RUN_ID"]),
        ],
    },
    System {
        marker: "GITLAB_CI",
        name: "gitlab-ci",
        role: Role::Orchestrator,
        fields: &[
            (PROJECT, &["CI_PROJECT_PATH"]),
            (JOB, &["CI_JOB_NAME"]),
            (STAGE, &["CI_JOB_STAGE"]),
            (RUN, &["CI_JOB_ID"]),
            (IMAGE, &["CI_JOB_IMAGE"]),
        ],
    },
    System {
        marker: "JENKINS_URL",
        name: "jenkins",
        role: Role::Orchestrator,
        fields: &[(JOB, &["JOB_NAME"]), (STAGE, &["STAGE_NAME"]), (RUN, &["BUILD_TAG", "BUILD_NUMBER"])],
    },
    System {
        marker: "SLURM_JOB_ID",
        name: "slurm",
        role: Role::Executor,
        fields: &[(JOB, &["SLURM_JOB_NAME"]), (TASK, &["SLURM_ARRAY_TASK_ID"]), (RUN, &["SLURM_JOB_ID"])],
    },
    System {
        marker: "PBS_JOBID",
        name: "pbs",
        role: Role::Executor,
        fields: &[(JOB, &["PBS_JOBNAME"]), (TASK, &["PBS_ARRAY_INDEX", "PBS_ARRAYID"]), (RUN, &["PBS_JOBID"])],
    },
    System {
        marker: "LSB_JOBID",
        name: "lsf",
        role: Role::Executor,
        fields: &[(JOB, &["LSB_JOBNAME"]), (TASK, &["LSB_JOBINDEX"]), (RUN, &["LSB_JOBID"])],
    },
    System {
        marker: "SGE_TASK_ID",
        name: "sge",
        role: Role::Executor,
        fields: &[(JOB, &["JOB_NAME"]), (TASK, &["SGE_TASK_ID"]), (RUN, &["JOB_ID"])],
    },
    System {
        marker: "AWS_BATCH_JOB_ID",
        name: "aws-batch",
        role: Role::Executor,
        fields: &[(TASK, &["AWS_BATCH_JOB_ARRAY_INDEX"]), (RUN, &["AWS_BATCH_JOB_ID"])],
    },
    System { marker: "RAY_JOB_ID", name: "ray", role: Role::Executor, fields: &[(RUN, &["RAY_JOB_ID"])] },
    System {
        marker: "KUBERNETES_SERVICE_HOST",
        name: "k8s",
        role: Role::Executor,
        // The host name of a pod is its own name.
        fields: &[(RUN, &["HOSTNAME"])],
    },
    System { marker: "container", name: "", role: Role::Executor, fields: &[] },
];

/// The variables with the rank and the number of processes under MPI.
const RANKS: [(&str, &str); 4] = [
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMIX_RANK", "PMIX_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
];

/// Fills in what the user did not set.
pub(crate) fn complete(job: &mut Job, command: &[OsString], variable: impl Fn(&str) -> Option<String>, root: &Path) {
    let variable = |name: &str| variable(name).filter(|value| !value.trim().is_empty());
    for system in SYSTEMS {
        let Some(mark) = variable(system.marker) else { continue };
        // `container` names the kind, as systemd and Podman set it.
        let name = if system.name.is_empty() { mark } else { system.name.to_owned() };
        let role = if system.role == Role::Orchestrator { &mut job.orchestrator } else { &mut job.executor };
        role.get_or_insert(name);
        for (field, names) in system.fields {
            let place = field(job);
            *place = place.take().or_else(|| names.iter().find_map(|name| variable(name)));
        }
    }
    if let Some(image) = std::fs::read_to_string(root.join("run/.containerenv")).ok().as_deref().and_then(podman_image)
    {
        job.container_image.get_or_insert(image);
    }
    if root.join(".dockerenv").exists() {
        job.executor.get_or_insert("docker".into());
    }
    // The script of a batch job of Slurm has the variables of rank 0, but is none.
    let is_script = variable("SLURM_STEP_ID").is_none();
    let of_rank = |(rank, size): &(&str, &str)| Some((variable(rank)?, variable(size)));
    let mut ranks = RANKS.iter().filter(|(rank, _)| !is_script || !rank.starts_with("SLURM"));
    if let Some((rank, size)) = ranks.find_map(of_rank) {
        job.tags.entry("mpi_rank".into()).or_insert(rank);
        size.map(|size| job.tags.entry("mpi_size".into()).or_insert(size));
    }
    job.language = job.language.take().or_else(|| language(command));
}

/// Adds tags, each from the variable that has it. A tag that the user has given stays unless this is enforced, and a variable
/// that is not set gives none.
pub(crate) fn tag(
    job: &mut Job,
    tags: &BTreeMap<String, String>,
    variable: impl Fn(&str) -> Option<String>,
    is_enforced: bool,
) {
    for (tag, name) in tags {
        if let Some(value) = variable(name).filter(|value| !value.is_empty())
            && (is_enforced || !job.tags.contains_key(tag))
        {
            job.tags.insert(tag.clone(), value);
        }
    }
}

/// `image="docker.io/library/python:3"` of `/run/.containerenv`.
fn podman_image(text: &str) -> Option<String> {
    let image = text.lines().find_map(|line| line.strip_prefix("image="))?.trim_matches('"');
    Some(image.to_owned()).filter(|image| !image.is_empty())
}

/// The language of the program that does the work.
fn language(command: &[OsString]) -> Option<String> {
    // Words such as `env`, `nice` or `uv run` stand before it.
    command
        .iter()
        .take(6)
        .find_map(|word| {
            let word = word.to_string_lossy();
            let name = Path::new(&*word).file_name()?.to_str()?.to_owned();
            let plain = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
            Some(match plain {
                "python" | "pypy" | "ipython" | "pytest" | "torchrun" | "accelerate" | "jupyter" | "papermill" => {
                    "python"
                }
                "Rscript" | "R" => "r",
                "julia" => "julia",
                "node" | "npm" | "npx" | "deno" | "bun" => "javascript",
                "java" | "spark-submit" => "java",
                "ruby" => "ruby",
                "perl" => "perl",
                "php" => "php",
                "matlab" | "octave" => "matlab",
                "cargo" | "rustc" => "rust",
                "go" => "go",
                _ if name.ends_with(".py") => "python",
                _ if name.ends_with(".R") || name.ends_with(".r") => "r",
                _ if name.ends_with(".jl") => "julia",
                _ if name.ends_with(".sh") => "shell",
                _ => return None,
            })
        })
        .map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn completed(mut job: Job, command: &str, variables: &[(&str, &str)]) -> Job {
        let variables: HashMap<_, _> = variables.iter().copied().collect();
        let command: Vec<OsString> = command.split(' ').map(OsString::from).collect();
        let root = tempfile::tempdir().unwrap();
        complete(&mut job, &command, |name| variables.get(name).map(|value| (*value).to_owned()), root.path());
        job
    }

    #[test]
    fn a_workflow_on_a_batch_system() {
        let variables = [
            ("AIRFLOW_CTX_DAG_ID", "nightly"),
            ("AIRFLOW_CTX_TASK_ID", "fit"),
            ("AIRFLOW_CTX_DAG_RUN_ID", "2026"),
            ("SLURM_JOB_ID", "77"),
            ("SLURM_JOB_NAME", "wrap"),
            ("SLURM_STEP_ID", "0"),
            ("SLURM_PROCID", "3"),
            ("SLURM_NTASKS", "8"),
        ];
        let mut said = Job::default();
        said.team = Some("t".into());
        let job = completed(said, "srun python3.12 fit.py", &variables);
        assert_eq!((job.orchestrator.as_deref(), job.executor.as_deref()), (Some("airflow"), Some("slurm")));
        assert_eq!((job.name.as_deref(), job.task_name.as_deref()), (Some("nightly"), Some("fit")));
        assert_eq!((job.external_run_id.as_deref(), job.language.as_deref()), (Some("2026"), Some("python")));
        assert_eq!(job.tags, [("mpi_rank".into(), "3".into()), ("mpi_size".into(), "8".into())].into());
        assert_eq!(job.team.as_deref(), Some("t"));
    }

    #[test]
    fn the_script_of_a_batch_job_is_no_rank() {
        let script = [("SLURM_JOB_ID", "77"), ("SLURM_PROCID", "0"), ("SLURM_NTASKS", "8")];
        assert_eq!(completed(Job::default(), "train", &script).tags, BTreeMap::new());
        let mpi = [("SLURM_PROCID", "0"), ("PMI_RANK", "5"), ("PMI_SIZE", "8")];
        assert_eq!(completed(Job::default(), "train", &mpi).tags["mpi_rank"], "5");
    }

    #[test]
    fn tags_of_the_environment() {
        let mut job = Job::default();
        job.tags.insert("a".into(), "mine".into());
        let tags = [("a", "A"), ("b", "B"), ("c", "C"), ("d", "D")].map(|(tag, name)| (tag.into(), name.into()));
        let variable = |name: &str| match name {
            "A" | "B" => Some("theirs".to_owned()),
            "C" => Some(String::new()),
            _ => None,
        };
        let from = BTreeMap::from(tags);
        tag(&mut job, &from, variable, false);
        let mut enforced = job.clone();
        tag(&mut enforced, &from, variable, true);
        assert_eq!(enforced.tags["a"], "theirs");
        let tags: Vec<_> = job.tags.iter().map(|(tag, value)| (tag.as_str(), value.as_str())).collect();
        assert_eq!(tags, [("a", "mine"), ("b", "theirs")]);
    }

    #[test]
    fn what_the_user_says_stays() {
        let mut said = Job::default();
        (said.name, said.orchestrator) = (Some("mine".into()), Some("cron".into()));
        (said.language, said.tags) = (Some("c".into()), [("mpi_rank".into(), "x".into())].into());
        let variables = [("GITLAB_CI", "true"), ("CI_JOB_NAME", "test"), ("CI_JOB_IMAGE", "rust:1"), ("PMI_RANK", "0")];
        let job = completed(said.clone(), "python x.py", &variables);
        assert_eq!((job.name, job.orchestrator, job.language), (said.name, said.orchestrator, said.language));
        assert_eq!((job.container_image.as_deref(), &job.tags), (Some("rust:1"), &said.tags));
    }

    #[test]
    fn each_system_is_known_by_its_marker() {
        for system in SYSTEMS.iter().filter(|system| !system.name.is_empty()) {
            let job = completed(Job::default(), "x", &[(system.marker, "1")]);
            let found = if system.role == Role::Orchestrator { job.orchestrator } else { job.executor };
            assert_eq!(found.as_deref(), Some(system.name));
        }
        assert_eq!(completed(Job::default(), "x", &[("container", "podman")]).executor.as_deref(), Some("podman"));
        assert_eq!(completed(Job::default(), "x", &[("GITLAB_CI", "")]), Job::default());
    }

    #[test]
    fn the_language_of_a_command() {
        for (command, expected) in [
            ("python train.py", Some("python")),
            ("env A=1 /usr/bin/python3 x", Some("python")),
            ("uv run train.py", Some("python")),
            ("Rscript a.R", Some("r")),
            ("./solver", None),
            ("java -jar x.jar", Some("java")),
        ] {
            assert_eq!(completed(Job::default(), command, &[]).language.as_deref(), expected, "{command}");
        }
        assert_eq!(podman_image("engine=\"podman\"\nimage=\"docker.io/x:1\"\n").as_deref(), Some("docker.io/x:1"));
        assert_eq!(podman_image(""), None);
    }
}
