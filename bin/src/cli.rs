//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::ValueParser;
use clap::error::ErrorKind;
use clap::{Arg, ArgMatches, Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueHint};
use resource_tracker_core::config::Interval;

use crate::tables::NO_PROCESS_ID;
use crate::tools::{self, Action};

const VERSION: &str =
    concat!(env!("CARGO_PKG_VERSION"), " (commit ", env!("TRACKER_COMMIT"), ", ", env!("TRACKER_TARGET"), ")");

const ABOUT: &str = "Put it in front of any command to record what the command and the machine use.

The command starts at once and keeps its input, output, signals and exit code. Samples go to standard error, one JSON
object a line, or to the file of --output; on a terminal a summary at the end takes their place. Without a command, the machine is sampled until SIGTERM or Ctrl-C, and
samples go to standard output.";

/// What the program is good for, and how that is written.
pub(crate) const EXAMPLES: [(&str, &str); 3] = [
    (
        "Record a training run every half second, in a file",
        "resource-tracker -i 0.5 -o run.jsonl -- python train.py --epochs 50",
    ),
    (
        "Watch how many cores a process that already runs uses",
        "resource-tracker --pid 4242 | jq .cpu.process_cores_used",
    ),
    (
        "Keep a day of the whole machine as compressed CSV, one row every ten seconds",
        "timeout 1d resource-tracker -i 10s -o day.csv.gz",
    ),
];

pub(crate) const VARIABLES: &str =
    "Every flag has an environment variable: --job-name is TRACKER_JOB_NAME, --interval is TRACKER_INTERVAL, and so on; any
other key of the configuration is TRACKER_ and its path, as in TRACKER_SINKS__FILE__PATH=run.jsonl. What can be given
more than once is a list with commas: TRACKER_TAG=a=1,b=2. Flags win over variables, variables over the file.";

const WORDS: &str = "The words
components, config, summary, report, compare, view, mark, schema, upload, completions, man-page and help are commands of the tracker; to run a program of
that name, put -- in front of it.";

const CONFIGURATION: &str = "Configuration";
const METADATA: &str = "What the run is called";

#[derive(Debug, Parser)]
#[command(name = crate::PROGRAM, version = VERSION, about = ABOUT.split_once('\n').map(|(first, _)| first), long_about = ABOUT)]
#[command(after_help = after_help(), override_usage = "resource-tracker [OPTIONS] [--] [COMMAND [ARGUMENTS]...]")]
#[command(subcommand_value_name = "TOOL", subcommand_help_heading = "Tools", max_term_width = 100)]
pub(crate) struct Cli {
    // Not a subcommand to clap: `command` adds the tools.
    #[arg(skip)]
    pub(crate) action: Option<Action>,

    #[command(flatten)]
    pub(crate) sampling: Sampling,

    #[command(flatten)]
    pub(crate) output: Output,

    #[command(flatten)]
    pub(crate) configuration: Configuration,

    #[command(flatten)]
    pub(crate) metadata: Metadata,

    #[command(flatten)]
    pub(crate) lists: Lists,

    /// The command to run and track, with its arguments
    #[arg(trailing_var_arg = true, value_name = "COMMAND", conflicts_with = "pid", help_heading = None)]
    pub(crate) command: Vec<OsString>,
}

impl Cli {
    /// Reads the arguments. Flags may stand on either side of a tool's name; of one that stands on both, the last counts.
    pub(crate) fn parse(arguments: Vec<OsString>) -> Result<Self, clap::Error> {
        let ends_in_dashes = arguments.last().is_some_and(|last| last == "--");
        let matches = matches(&arguments)?;
        let mut cli = Self::from_arg_matches(&matches)?;
        cli.action = matches.subcommand().map(|_| Action::from_arg_matches(&matches)).transpose()?;
        let mut level = &matches;
        while let Some((_, tool)) = level.subcommand() {
            cli.lists.extend(Lists::from_arg_matches(tool)?);
            level = tool;
        }
        if ends_in_dashes && cli.action.is_none() && cli.command.is_empty() {
            // A variable that should have held a command is empty: the machine until somebody stops it is not what was meant.
            return Err(clap::Error::raw(ErrorKind::MissingRequiredArgument, "no command after --"));
        }
        Ok(cli)
    }
}

#[derive(Debug, Args)]
#[command(next_help_heading = "What is sampled")]
pub(crate) struct Sampling {
    /// Time between samples: seconds (0.05) or with a unit (50ms, 2s, 1m); from 1ms, reliably from 10ms [default: 1]
    #[arg(short, long, global = true, value_name = "TIME", value_parser = ValueParser::from(str::parse::<Interval>), allow_negative_numbers = true)]
    pub(crate) interval: Option<Interval>,

    /// Track a process that already runs, and its descendants, until they have ended; one that does not exist is waited for
    #[arg(short, long, global = true, value_name = "PID", value_parser = ValueParser::from(process_id), allow_negative_numbers = true)]
    pub(crate) pid: Option<i32>,

    /// Do not adopt processes of the command whose parent has ended (be no subreaper): daemons are then not counted
    #[arg(long, global = true)]
    pub(crate) no_subreaper: bool,

    /// Make no cgroup for the command; what its children used for which nobody waits is then an estimate
    #[arg(long, global = true)]
    pub(crate) no_cgroup: bool,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Where samples go")]
pub(crate) struct Output {
    /// Append samples to a file instead; - is standard output
    #[arg(short, long, global = true, value_name = "FILE", value_hint = ValueHint::FilePath, value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub(crate) output: Option<String>,

    /// How samples are written [default: json, or csv for a file named .csv or .csv.gz]
    #[arg(short, long, global = true, value_name = "FORMAT", value_parser = ["json", "csv"])]
    pub(crate) format: Option<String>,

    /// Which columns a CSV has: the machine's, the command's as well (job), or those of another program [default: tracker]
    #[arg(long, global = true, value_name = "SET", value_parser = ["tracker", "job", "python", "sentinel"])]
    pub(crate) csv_columns: Option<String>,

    /// Write no samples to standard output or standard error
    #[arg(short, long, global = true)]
    pub(crate) quiet: bool,

    /// Say at the end what the run took, also where standard error is no terminal
    #[arg(long, global = true)]
    pub(crate) summary: bool,

    /// The spool: where rows wait until the Sentinel service has them [default: $XDG_STATE_HOME/resource-tracker/spool]
    #[arg(long, global = true, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) spool_dir: Option<PathBuf>,

    /// What may wait there, in MiB; the oldest goes first [default: 1024]
    #[arg(long, global = true, value_name = "MIB")]
    pub(crate) spool_max: Option<u32>,
}

#[derive(Debug, Args)]
#[command(next_help_heading = CONFIGURATION)]
pub(crate) struct Configuration {
    /// Configuration file; one that is missing or broken counts as empty [default:
    /// resource-tracker.toml, if nobody else can write it]
    #[arg(short, long, global = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(next_help_heading = METADATA)]
pub(crate) struct Metadata {
    /// Label of the run, in every sample
    #[arg(short = 'n', long, global = true, value_name = "NAME")]
    pub(crate) job_name: Option<String>,

    /// Project that the run belongs to
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) project_name: Option<String>,

    /// Stage of the workflow
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) stage_name: Option<String>,

    /// Task of the stage
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) task_name: Option<String>,

    /// Team that owns the run
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) team: Option<String>,

    /// Environment, such as dev or prod
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) env: Option<String>,

    /// Programming language of the command
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) language: Option<String>,

    /// What started the run, such as airflow
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) orchestrator: Option<String>,

    /// What carries the run out, such as slurm or k8s
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) executor: Option<String>,

    /// Identifier of the run in the orchestrator
    #[arg(long, global = true, value_name = "ID")]
    pub(crate) external_run_id: Option<String>,

    /// Container image, with its tag
    #[arg(long, global = true, value_name = "IMAGE")]
    pub(crate) container_image: Option<String>,
}

/// Flags that can be given more than once. They are not global: of those, clap forgets what stands in front of a tool's
/// name when more stands behind it.
#[derive(Debug, Args)]
pub(crate) struct Lists {
    /// Turn sources or sinks on, by name
    #[arg(long, value_name = "NAME", value_delimiter = ',', help_heading = CONFIGURATION)]
    pub(crate) enable: Vec<String>,

    /// Turn sources or sinks off, by name
    #[arg(long, value_name = "NAME", value_delimiter = ',', help_heading = CONFIGURATION)]
    pub(crate) disable: Vec<String>,

    /// Load the sources and sinks of a plugin; can be given more than once
    #[arg(long, value_name = "FILE", help_heading = CONFIGURATION)]
    pub(crate) plugin: Vec<PathBuf>,

    /// Set any key of the configuration, as in sinks.file.path=run.jsonl
    #[arg(long, value_name = "KEY=VALUE", value_parser = ValueParser::from(assignment), help_heading = CONFIGURATION)]
    pub(crate) set: Vec<(String, String)>,

    /// Any further label; can be given more than once
    #[arg(long, value_name = "KEY=VALUE", value_parser = ValueParser::from(assignment), help_heading = METADATA)]
    pub(crate) tag: Vec<(String, String)>,
}

impl Lists {
    fn extend(&mut self, more: Self) {
        self.enable.extend(more.enable);
        self.disable.extend(more.disable);
        self.plugin.extend(more.plugin);
        self.set.extend(more.set);
        self.tag.extend(more.tag);
    }
}

/// `KEY=VALUE` in its parts.
pub(crate) fn assignment(text: &str) -> Result<(String, String), &'static str> {
    let (key, value) = text.split_once('=').ok_or("must be KEY=VALUE")?;
    if key.trim().is_empty() { Err("must have a KEY before the =") } else { Ok((key.trim().into(), value.into())) }
}

fn process_id(text: &str) -> Result<i32, &'static str> {
    text.parse().ok().filter(|pid| *pid > 0).ok_or(NO_PROCESS_ID)
}

fn after_help() -> String {
    let examples: String = EXAMPLES.iter().map(|(what, line)| format!("  {what}\n      {line}\n\n")).collect();
    format!("Examples:\n{examples}{VARIABLES} {WORDS}")
}

/// What clap makes of the arguments. The tools are there only where one can be called, or clap has something to say: to make
/// them takes longer than all else that is done before the command starts.
fn matches(arguments: &[OsString]) -> Result<ArgMatches, clap::Error> {
    let mut words = arguments.iter().skip(1).take_while(|word| *word != "--");
    if !words.any(|word| word.to_str().is_some_and(is_tool)) {
        match Cli::command().try_get_matches_from(arguments) {
            Err(error) if error.kind() != ErrorKind::DisplayVersion => (),
            result => return result,
        }
    }
    command().try_get_matches_from(arguments)
}

fn is_tool(word: &str) -> bool {
    Action::has_subcommand(word) || word == "help"
}

/// The command line as clap sees it.
pub(crate) fn command() -> clap::Command {
    let command = Action::augment_subcommands(Cli::command());
    let flags: Vec<Arg> = command.get_arguments().filter(|flag| flag.get_long().is_some()).cloned().collect();
    command.mut_subcommands(|tool| tools::with_flags(tool, &flags))
}

/// Prints what clap has to say: help in full, an error in one line. Returns the exit code.
pub(crate) fn report(error: &clap::Error) -> i32 {
    let is_help = error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;
    if is_help || !error.use_stderr() {
        // Nothing is left to do when nobody reads the help.
        let _ = error.print();
        return if is_help { crate::USAGE } else { 0 };
    }
    let text = error.to_string();
    let paragraphs = text
        .trim_start_matches("error: ")
        .split("\n\n")
        .map(|paragraph| paragraph.split_whitespace().collect::<Vec<_>>().join(" "));
    let useful = paragraphs.filter(|paragraph| {
        !paragraph.is_empty() && !paragraph.starts_with("Usage:") && !paragraph.starts_with("For more information")
    });
    log::error!("{}; see --help", useful.collect::<Vec<_>>().join("; "));
    crate::USAGE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tool_is_known_by_its_name() {
        let mut command = command();
        command.build();
        for tool in command.get_subcommands() {
            assert!(std::iter::once(tool.get_name()).chain(tool.get_all_aliases()).all(is_tool), "{tool}");
        }
        assert!(!is_tool("resource-tracker") && !is_tool("make"));
    }

    /// Of a line, what both command lines make of it: the one that [`matches`] takes, and the whole one.
    #[test]
    fn that_tools_are_made_only_where_one_is_called_makes_no_difference() {
        let lines = [
            "",
            "true",
            "-q --tag a=1 --tag b=2 --set tracker.detect=false sh -c x",
            "-o x.jsonl -i 50ms -- config show",
            "make config",
            "make -- summary",
            "--pid 1",
            "--job-name report",
            "-- help",
            "summary a.jsonl --servers x",
            "-n a config show --enable perf",
            "compare --baseline a b -- c",
            "report",
            "help",
            "help view",
            "view --help",
            "--help",
            "-h",
            "--version",
            "--sumary",
            "--fail-if x",
            "-i soon true",
            "--pid 1 true",
            "--format xml",
        ];
        for line in lines {
            let arguments: Vec<OsString> =
                ["resource-tracker"].into_iter().chain(line.split_whitespace()).map(Into::into).collect();
            let said = |matches: Result<ArgMatches, clap::Error>| match matches {
                Ok(matches) => format!("{:?} {:?}", Cli::from_arg_matches(&matches), matches.subcommand()),
                Err(error) => error.to_string(),
            };
            assert_eq!(said(matches(&arguments)), said(command().try_get_matches_from(&arguments)), "{line}");
        }
    }

    #[test]
    fn the_help_names_the_commands_of_the_tracker_and_no_others() {
        let mut command = command();
        command.build();
        let names: Vec<&str> = command.get_subcommands().map(clap::Command::get_name).collect();
        let (last, others) = names.split_last().unwrap();
        let expected = format!("The words {} and {last} are commands of the tracker", others.join(", "));
        let help = WORDS.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(help.contains(&expected), "{expected} is not in: {help}");
    }
}
