//! The manual: a page for the program, and one for each of its tools.

use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Inline, Roff, bold, roman};

use crate::cli::{self, EXAMPLES, VARIABLES};

/// What an exit code means, of the program and of its tools.
const EXIT_STATUS: [(&str, &[(&str, &str)]); 7] = [
    (
        "",
        &[
            (
                "that of the command",
                "It ran. If a signal ended it, the same signal ends the tracker: a shell shows 128 and its number.",
            ),
            (
                "0",
                "Without a command: the tracker was told to stop, or the process of --pid and its descendants have ended.",
            ),
            ("2", "A flag, the configuration or an output is wrong, and nothing was started."),
            ("126", "The command was found, and cannot be executed."),
            ("127", "The command was not found."),
        ],
    ),
    ("check", &[("0", "Nothing is wrong."), ("1", "Something is wrong, and was said.")]),
    (
        "summary",
        &[
            ("0", "All that was asked for was said."),
            ("1", "With --servers: no machine could be told, or not what it saves. The summary is there all the same."),
            ("2", "A file cannot be read, or is no recording."),
        ],
    ),
    (
        "compare",
        &[
            ("0", "Every limit is kept, or there is none."),
            ("1", "A limit is not kept, or nobody knows."),
            ("2", "A file cannot be read, or a limit is none."),
        ],
    ),
    ("mark", &[("0", "The tracker was told, or there is none around it."), ("2", "The tracker cannot be told.")]),
    (
        "upload",
        &[
            ("0", "Nothing is left."),
            ("1", "Something is left, and why was said."),
            ("2", "A flag or the configuration is wrong."),
        ],
    ),
    ("any", &[("0", "It was done."), ("2", "A flag or the configuration is wrong.")]),
];

const FILES: [(&str, &str); 3] = [
    (
        "resource-tracker.toml",
        "The configuration, in the current folder. It is read if it and its folder belong to you or root, and nobody else can write to them; another one is named with --config.",
    ),
    (
        "$XDG_STATE_HOME/resource-tracker/spool",
        "Where rows wait until the Sentinel service has them; ~/.local/state stands for the variable where it is not set.",
    ),
    (
        "/proc/PID/fd/100",
        "Of a tracker around a command: the pipe in which resource-tracker-mark(1) tells it. Where that number was in use, it is the next free one up to 115, which a warning says.",
    ),
];

const ENVIRONMENT: [(&str, &str); 6] = [
    ("TRACKER_CONFIG", "The configuration file, in place of the one in the current folder."),
    (
        "SENTINEL_API_TOKEN",
        "With it, samples are streamed to the Sentinel service, and the cloud is asked what machine this is. Without it nothing is sent.",
    ),
    ("SENTINEL_API_URL", "Where that service is."),
    ("HTTPS_PROXY, ALL_PROXY, NO_PROXY", "The proxy on the way to that service, and to that of summary --servers."),
    ("XDG_STATE_HOME, HOME", "Where the spool is."),
    ("NO_COLOR, TERM", "A summary has colours on a terminal, unless the one is set or the other is dumb."),
];

/// All pages, each with the name of its file.
pub(crate) fn pages() -> Vec<(String, Vec<u8>)> {
    fn add(command: &Command, pages: &mut Vec<(String, Vec<u8>)>) {
        pages.push((format!("{}.1", name(command)), page(command)));
        command.get_subcommands().for_each(|tool| add(tool, pages));
    }
    let mut pages = Vec::new();
    add(&command(), &mut pages);
    pages
}

/// The page of a tool by its words; that of the program itself for none.
///
/// # Errors
/// When there is no such tool; it says which there are.
pub(crate) fn page_of(words: &[String]) -> Result<Vec<u8>, String> {
    let whole = command();
    let mut tool = &whole;
    for word in words {
        tool = tool.find_subcommand(word).ok_or_else(|| {
            let names: Vec<&str> = whole.get_subcommands().map(Command::get_name).collect();
            format!("there is no page about {:?}; there are those about {}", words.join(" "), names.join(", "))
        })?;
    }
    Ok(page(tool))
}

/// The command line, changed where that reads better on a page.
fn command() -> Command {
    let mut command =
        with_values_in_words(cli::command().disable_help_subcommand(true).subcommand_help_heading("TOOLS"));
    command.build();
    command
}

/// Adds the values that a flag can have to its sentence.
fn with_values_in_words(command: Command) -> Command {
    let command = command.mut_args(|flag| {
        let values = flag.get_possible_values();
        let names: Vec<&str> = values.iter().map(|value| value.get_name()).collect();
        match (flag.get_help().map(ToString::to_string), names.split_last()) {
            (Some(help), Some((last, others))) if flag.get_action().takes_values() => {
                let (sentence, default) = help.split_at(help.find(" [").unwrap_or(help.len()));
                flag.help(format!("{sentence}: {} or {last}{default}", others.join(", "))).hide_possible_values(true)
            }
            _ => flag,
        }
    });
    command.mut_subcommands(with_values_in_words)
}

/// `resource-tracker-config-show`
fn name(command: &Command) -> &str {
    command.get_display_name().unwrap_or_else(|| command.get_name())
}

fn page(command: &Command) -> Vec<u8> {
    let mut page = Vec::new();
    // Writing into memory cannot fail.
    let _ = write_page(command, &mut page);
    page
}

fn write_page(command: &Command, page: &mut Vec<u8>) -> std::io::Result<()> {
    let is_program = command.get_name() == crate::PROGRAM;
    let source = format!("{} {}", crate::PROGRAM, env!("CARGO_PKG_VERSION"));
    let usage = command.clone().render_usage().to_string();
    // Without this, the synopsis has every flag of a tool.
    let used = command.clone().override_usage(usage.trim_start_matches("Usage: ").to_owned());
    let man = Man::new(used).title(name(command).to_uppercase()).source(source).manual("User Commands");
    // With an empty date, the other parts of the title would move to its place.
    let man = man.date(" ");
    man.render_title(page)?;
    let mut head = Roff::new();
    // Names of flags and pages must not be broken across lines.
    head.control("nh", []);
    head.control("ad", ["l"]);
    head.control("SH", ["NAME"]);
    head.text([roman(format!("{} - {}", name(command), in_a_sentence(command)))]);
    head.to_writer(page)?;
    man.render_synopsis_section(page)?;
    man.render_description_section(page)?;
    if !is_program {
        let mut more = Roff::new();
        more.control("PP", []);
        more.text([roman("The flags of "), bold(crate::PROGRAM), roman("(1) may stand behind it as well.")]);
        more.to_writer(page)?;
    }
    man.render_options_section(page)?;
    if command.has_subcommands() {
        man.render_subcommands_section(page)?;
    }
    let mut rest = Roff::new();
    let of_tool = EXIT_STATUS.iter().find(|(tool, _)| *tool == if is_program { "" } else { command.get_name() });
    let of_any = EXIT_STATUS.iter().find(|(tool, _)| *tool == "any");
    section(&mut rest, "EXIT STATUS", of_tool.or(of_any).map_or(&[], |(_, codes)| *codes));
    if is_program {
        section(&mut rest, "FILES", &FILES);
        section(&mut rest, "ENVIRONMENT", &ENVIRONMENT);
        rest.control("PP", []);
        rest.text([roman(VARIABLES.replace('\n', " "))]);
        rest.control("SH", ["EXAMPLES"]);
        for (what, line) in EXAMPLES {
            rest.control("PP", []);
            rest.text([roman(format!("{what}:"))]);
            rest.control("RS", ["4"]);
            rest.text([bold(line)]);
            rest.control("RE", []);
        }
    }
    rest.control("SH", ["SEE ALSO"]);
    rest.text(see_also(command));
    rest.to_writer(page)
}

/// The text behind the name: without a full stop, and with a small first letter.
fn in_a_sentence(command: &Command) -> String {
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    let mut letters = about.trim_end_matches('.').chars();
    letters.next().map(|first| first.to_lowercase().chain(letters).collect()).unwrap_or_default()
}

fn section(roff: &mut Roff, title: &str, items: &[(&str, &str)]) {
    roff.control("SH", [title]);
    for (item, text) in items {
        roff.control("TP", []);
        roff.text([bold(*item)]);
        roff.text([roman(*text)]);
    }
}

/// The pages of the tools, or the one above.
fn see_also(command: &Command) -> Vec<Inline> {
    let mut pages: Vec<String> = command.get_subcommands().map(|tool| name(tool).to_owned()).collect();
    if let Some((above, _)) = name(command).rsplit_once(&format!("-{}", command.get_name())) {
        pages.insert(0, above.to_owned());
    }
    let mut line = Vec::new();
    for page in pages {
        if !line.is_empty() {
            line.push(roman(", "));
        }
        line.extend([bold(page), roman("(1)")]);
    }
    line
}
