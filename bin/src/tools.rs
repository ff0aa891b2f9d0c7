//! The tools beside running, as words of the command line.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::ValueParser;
use clap::{Arg, Args, Subcommand, ValueHint};
use clap_complete::Shell;
use resource_tracker_report::Condition;

const REPORT: &str = "An older report that is named with --output is replaced, and nothing else.";

#[derive(Debug, Subcommand)]
pub(crate) enum Action {
    /// List sources and sinks: what is on and why, and their keys
    Components,
    /// Look at the configuration
    Config {
        #[command(subcommand)]
        action: ConfigAction,
    },
    /// Say what recorded runs took, and what to ask for the next time
    Summary(SummaryTool),
    /// Write recorded runs as one HTML page with charts, which needs no network, to the file of --output
    #[command(after_help = REPORT)]
    Report {
        /// Recordings in JSON Lines, compressed or not; - is standard input
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
    },
    /// Show what differs between recorded runs, and exit 1 if a limit is not kept
    Compare(CompareTool),
    /// Show on the terminal what happens: a recording while it grows, a process (--pid), or the machine
    View {
        /// Replay the recording from its start, so many times as fast as it was [default: show all of it at once]
        #[arg(long, value_name = "TIMES", requires = "file", value_parser = ValueParser::from(speed), allow_negative_numbers = true)]
        speed: Option<f64>,
        /// A recording in JSON Lines, compressed or not; - is standard input
        #[arg(conflicts_with = "pid")]
        file: Option<PathBuf>,
    },
    /// From inside a command: name what it does now; without a tracker around it nothing happens
    #[command(override_usage = "resource-tracker mark [--begin | --end] NAME")]
    Mark {
        /// A phase of this name begins beside others that go on
        #[arg(long, conflicts_with = "end")]
        begin: bool,
        /// The phase of this name ends
        #[arg(long)]
        end: bool,
        /// What the command does; without --begin and --end what it did before has ended
        name: Option<String>,
    },
    /// Print the JSON Schema of a sample
    Schema {
        /// Print it as tables for people
        #[arg(long)]
        markdown: bool,
        /// Print what OpenTelemetry and Prometheus call its figures, as a table
        #[arg(long, conflicts_with = "markdown")]
        metrics: bool,
    },
    /// Send what earlier runs could not send to Sentinel, and exit 1 if anything is left
    Upload {
        /// Only say what would be sent
        #[arg(long)]
        dry_run: bool,
        /// Where rows wait, when it is not the usual place
        #[arg(value_hint = ValueHint::DirPath)]
        directory: Option<PathBuf>,
    },
    /// Print a completion script
    #[command(arg_required_else_help = true)]
    Completions {
        /// For which shell
        shell: Shell,
        /// Print what may stand at the place of this word, for that script
        #[arg(long, hide = true, value_name = "NUMBER", requires = "words")]
        at: Option<usize>,
        /// The words of a command line
        #[arg(last = true, hide = true)]
        words: Vec<OsString>,
    },
    /// Print a page of the manual, or write all of them into a folder
    ManPage {
        /// Write the pages of the program and of all its tools there: share/man/man1
        #[arg(long, value_name = "DIR", conflicts_with = "tool", value_hint = ValueHint::DirPath)]
        dir: Option<PathBuf>,
        /// The tool that the page is about, as in config show; the program itself unless given
        tool: Vec<String>,
    },
}

const SERVERS: &str = "Ask this service for the cheapest machine that holds it: https://keeper.sparecores.net";

/// What is compared with what, and what has to hold.
#[derive(Debug, Args)]
pub(crate) struct CompareTool {
    /// Exit 1 if this is so, of the new runs or of the change: peak_memory > +10%, wall_time > 1h
    #[arg(long, value_name = "CONDITION")]
    pub(crate) fail_if: Vec<Condition>,
    /// Exit 1 unless this is so: cpu_time < 60s
    #[arg(long, value_name = "CONDITION")]
    pub(crate) budget: Vec<Condition>,
    /// Recordings of the baseline, up to --; all other files are new ones then
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub(crate) baseline: Vec<PathBuf>,
    /// Print the differences as JSON
    #[arg(long, conflicts_with = "markdown")]
    pub(crate) json: bool,
    /// Print them as Markdown, for the page of a job in CI
    #[arg(long)]
    pub(crate) markdown: bool,
    /// Recordings: the baseline and, after it, the new ones
    #[arg(required_unless_present = "baseline", value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
}

impl CompareTool {
    /// All that has to hold or must not.
    pub(crate) fn conditions(&self) -> impl Iterator<Item = &Condition> {
        self.fail_if.iter().chain(&self.budget)
    }
}

/// What `summary` is asked for.
#[derive(Debug, Args)]
pub(crate) struct SummaryTool {
    /// Print all figures as a JSON object for each run
    #[arg(long, conflicts_with = "markdown")]
    pub(crate) json: bool,
    /// Print it for the page of a job
    #[arg(long)]
    pub(crate) markdown: bool,
    // As a doc comment the address would have to be in brackets.
    #[arg(long, value_name = "URL", value_hint = ValueHint::Url, help = SERVERS)]
    pub(crate) servers: Option<String>,
    /// Ask it also without encryption on another machine
    #[arg(long, requires = "servers")]
    pub(crate) allow_http: bool,
    /// Recordings in JSON Lines, compressed or not; - is standard input
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
}

#[derive(Debug, Clone, Copy, Subcommand)]
pub(crate) enum ConfigAction {
    /// Report everything that is wrong with it, and exit 1 if anything is
    Check,
    /// Print the merged configuration, and where each value is from
    Show,
}

fn speed(text: &str) -> Result<f64, &'static str> {
    let speed = text.parse().ok().filter(|speed: &f64| speed.is_finite() && *speed > 0.0);
    speed.ok_or("must be a number above 0, such as 10 for ten times as fast")
}

/// Which flags of runs mean something to a tool; its help shows these.
enum Shown {
    All,
    These(&'static [&'static str]),
}

const REPORT_OUTPUT: &str = "Write the page to this file [default: report.html]; - is standard output";

impl Shown {
    fn of(tool: &str) -> Self {
        match tool {
            "check" | "show" => Self::All,
            "components" | "schema" => Self::These(&["config", "enable", "disable", "plugin", "set"]),
            "summary" | "compare" => Self::These(&["config", "plugin"]),
            "view" => Self::These(&["interval", "pid", "config", "enable", "disable", "plugin", "set"]),
            "report" => Self::These(&["output", "config", "plugin"]),
            "upload" => Self::These(&["config", "set", "spool-dir"]),
            _ => Self::These(&[]),
        }
    }

    fn has(&self, flag: &str) -> bool {
        match self {
            Self::All => true,
            Self::These(flags) => flags.contains(&flag),
        }
    }
}

/// Gives a tool, and those inside it, the flags of runs: all may stand behind its name.
pub(crate) fn with_flags(tool: clap::Command, flags: &[Arg]) -> clap::Command {
    let shown = Shown::of(tool.get_name());
    let is_report = tool.get_name() == "report";
    let own = flags.iter().map(|flag| {
        let name = flag.get_long().unwrap_or_default();
        let own = flag.clone().hide(!shown.has(name));
        if is_report && name == "output" { own.help(REPORT_OUTPUT).help_heading("Where the page goes") } else { own }
    });
    tool.args(own.collect::<Vec<_>>()).mut_subcommands(|inner| with_flags(inner, flags))
}
