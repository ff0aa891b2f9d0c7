//! What may stand at a place of the command line, for the completion of a shell.
//!
//! The script of the shell asks for it at every TAB. Names of files, and words of the wrapped command, are left to the
//! shell: it knows how to quote names, and what that command takes. The scripts of clap_complete leave neither to it,
//! and take words of the command for words of the tracker; so they are for the other shells.

use clap::{Arg, Command, ValueHint};

/// The script of bash.
pub(crate) const BASH: &str = include_str!("resource-tracker.bash");
/// The script of zsh.
pub(crate) const ZSH: &str = include_str!("resource-tracker.zsh");
/// The script of fish.
pub(crate) const FISH: &str = include_str!("resource-tracker.fish");

/// The argument of `man-page`: a tool, word by word.
const TOOL_WORDS: &str = "tool";

/// A word that may stand there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Word {
    pub(crate) text: String,
    /// What it is.
    pub(crate) about: String,
}

impl Word {
    pub(crate) fn new(text: impl Into<String>, about: &str) -> Self {
        Self { text: text.into(), about: about.split_whitespace().collect::<Vec<_>>().join(" ") }
    }
}

/// What the shell itself is to offer there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ShellHint {
    Nothing,
    Files,
    Folders,
    /// A program, or its words: the command begins with the word of this number.
    Command(usize),
}

/// What may stand at a place: words that are known here, and what the shell knows.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Completion {
    pub(crate) words: Vec<Word>,
    pub(crate) shell_hint: ShellHint,
}

/// What may stand at the place of the last of these words, the first of which is the program itself. The command must
/// be built. `values` gives the values of flags for which clap has none.
pub(crate) fn completion(command: &Command, words: &[String], values: &dyn Fn(&Arg) -> Vec<Word>) -> Completion {
    let Some((last, before)) = words.split_last() else { return ShellHint::Nothing.alone() };
    let (mut tool, mut is_tool) = (command, false);
    let (mut positionals, mut has_dashes) = (Vec::new(), false);
    let mut waiting: Option<&Arg> = None;
    for (number, word) in before.iter().enumerate().skip(1) {
        if waiting.take().is_some() {
            continue;
        }
        match word.strip_prefix('-').filter(|_| !has_dashes) {
            Some("-") if !is_tool => return ShellHint::Command(number + 1).alone(),
            Some("-") => has_dashes = true,
            Some(flag) => waiting = waiting_for_value(tool, flag),
            None => match tool.find_subcommand(word) {
                Some(inner) if !has_dashes => (tool, is_tool) = (inner, true),
                _ if !is_tool => return ShellHint::Command(number).alone(),
                _ => positionals.push(word.as_str()),
            },
        }
    }
    if let Some(flag) = waiting {
        return of_value(flag, "", last, values);
    }
    if last.starts_with('-') && !has_dashes {
        let assigned = last.strip_prefix("--").and_then(|flag| flag.split_once('='));
        return match assigned.and_then(|(name, value)| Some((long(tool, name)?, name, value))) {
            Some((flag, name, value)) => of_value(flag, &format!("--{name}="), value, values),
            None => Completion { words: flags(tool), shell_hint: ShellHint::Nothing },
        };
    }
    if !is_tool {
        // All programs that there are would hide the tools.
        let shell_hint = if last.is_empty() { ShellHint::Nothing } else { ShellHint::Command(before.len()) };
        return Completion { words: tools(tool), shell_hint };
    }
    let arguments: Vec<&Arg> = tool.get_positionals().filter(|argument| !argument.is_hide_set()).collect();
    if arguments.first().is_some_and(|argument| argument.get_id() == TOOL_WORDS) {
        let named = positionals.iter().try_fold(command, |tool, word| tool.find_subcommand(word));
        let words = named.map(tools).unwrap_or_default().into_iter().filter(|tool| tool.text != "help").collect();
        return Completion { words, shell_hint: ShellHint::Nothing };
    }
    let takes_many = |argument: &&&Arg| argument.get_num_args().is_some_and(|number| number.max_values() > 1);
    match arguments.get(positionals.len()).or_else(|| arguments.last().filter(takes_many)) {
        Some(argument) => of_value(argument, "", last, values),
        None if positionals.is_empty() => Completion { words: tools(tool), shell_hint: ShellHint::Nothing },
        None => ShellHint::Nothing.alone(),
    }
}

impl ShellHint {
    fn alone(self) -> Completion {
        Completion { words: Vec::new(), shell_hint: self }
    }
}

fn long<'a>(tool: &'a Command, name: &str) -> Option<&'a Arg> {
    tool.get_arguments().find(|flag| flag.get_long() == Some(name))
}

/// The flag whose value is the next word: `--interval`, `-i` or `-qi`, written here without the first hyphen.
fn waiting_for_value<'a>(tool: &'a Command, flag: &str) -> Option<&'a Arg> {
    let takes_value = |flag: &&Arg| flag.get_action().takes_values();
    if let Some(name) = flag.strip_prefix('-') {
        return long(tool, name).filter(takes_value);
    }
    let short = |letter: char| tool.get_arguments().find(|flag| flag.get_short() == Some(letter));
    let (at, found) = flag.char_indices().find_map(|(at, letter)| Some((at, short(letter).filter(takes_value)?)))?;
    // What stands behind the letter is the value.
    flag[at..].chars().nth(1).is_none().then_some(found)
}

/// The values that may stand for this argument behind `prefix`; in a list, for its last item.
fn of_value(argument: &Arg, prefix: &str, value: &str, values: &dyn Fn(&Arg) -> Vec<Word>) -> Completion {
    let before = argument.get_value_delimiter().and_then(|comma| value.rfind(comma)).map_or("", |at| &value[..=at]);
    let possible = argument.get_possible_values();
    let known = possible.iter().filter(|value| !value.is_hide_set());
    let known =
        known.map(|value| Word::new(value.get_name(), &value.get_help().map(ToString::to_string).unwrap_or_default()));
    let words =
        known.chain(values(argument)).map(|word| Word { text: format!("{prefix}{before}{}", word.text), ..word });
    let shell_hint = match argument.get_value_hint() {
        ValueHint::AnyPath | ValueHint::FilePath => ShellHint::Files,
        ValueHint::DirPath => ShellHint::Folders,
        _ => ShellHint::Nothing,
    };
    Completion { words: words.collect(), shell_hint }
}

fn flags(tool: &Command) -> Vec<Word> {
    let shown = tool.get_arguments().filter(|flag| !flag.is_hide_set());
    let words = shown.flat_map(|flag| {
        let about = flag.get_help().map(ToString::to_string).unwrap_or_default();
        let (short, long) = (flag.get_short(), flag.get_long());
        let names = long.map(|long| format!("--{long}")).into_iter().chain(short.map(|short| format!("-{short}")));
        names.map(move |name| Word::new(name, &about))
    });
    words.collect()
}

fn tools(of: &Command) -> Vec<Word> {
    let about = |tool: &Command| tool.get_about().map(ToString::to_string).unwrap_or_default();
    of.get_subcommands()
        .filter(|tool| !tool.is_hide_set())
        .map(|tool| Word::new(tool.get_name(), &about(tool)))
        .collect()
}

/// The words as they were typed, each with its number in the list of bash, which takes them apart at `=`.
pub(crate) fn rejoined(words: &[String]) -> Vec<(usize, String)> {
    let mut joined: Vec<(usize, String)> = Vec::new();
    let mut goes_on = false;
    for (number, word) in words.iter().enumerate() {
        let is_break = word == "=";
        match joined.last_mut() {
            Some((_, last)) if is_break || (goes_on && !word.is_empty()) => last.push_str(word),
            _ => joined.push((number, word.clone())),
        }
        goes_on = is_break;
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(line: &str) -> (Vec<String>, ShellHint) {
        let mut command = crate::cli::command();
        command.build();
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let values = |flag: &Arg| match flag.get_id().as_str() {
            "enable" => vec![Word::new("cpu", ""), Word::new("disk", "")],
            _ => Vec::new(),
        };
        let completion = completion(&command, &words, &values);
        (completion.words.into_iter().map(|word| word.text).collect(), completion.shell_hint)
    }

    #[test]
    fn words_of_the_tracker() {
        for (line, expected) in [
            ("t config ", &["check", "show", "help"][..]),
            ("t -i 2 --set a=b config ", &["check", "show", "help"]),
            ("t help config ", &["check", "show"]),
            ("t -f ", &["json", "csv"]),
            ("t -qf ", &["json", "csv"]),
            ("t --format=c", &["--format=json", "--format=csv"]),
            ("t --enable ", &["cpu", "disk"]),
            ("t config show --enable cpu,d", &["cpu,cpu", "cpu,disk"]),
            ("t --enable=cpu,d", &["--enable=cpu,cpu", "--enable=cpu,disk"]),
            ("t completions ", &["bash", "elvish", "fish", "powershell", "zsh"]),
            ("t completions bash ", &[]),
            ("t mark ", &[]),
            ("t man-page config ", &["check", "show"]),
            ("t man-page nobody ", &[]),
            ("t -n config", &[]),
        ] {
            let (words, shell_hint) = at(line);
            assert_eq!(
                (words, shell_hint),
                (expected.iter().map(|word| (*word).to_owned()).collect(), ShellHint::Nothing),
                "{line}"
            );
        }
        let ((all, _), (pages, shell_hint)) = (at("t "), at("t man-page "));
        assert!(shell_hint == ShellHint::Nothing && all.iter().filter(|tool| *tool != "help").eq(&pages), "{pages:?}");
        assert!(["config", "summary", "help"].iter().all(|tool| all.contains(&(*tool).to_owned())), "{all:?}");
        let (flags, _) = at("t -");
        assert!(["--interval", "-i", "--help"].iter().all(|flag| flags.contains(&(*flag).to_owned())), "{flags:?}");
        let (flags, _) = at("t summary --");
        assert!(flags.contains(&"--markdown".into()) && !flags.contains(&"--interval".into()), "{flags:?}");
    }

    #[test]
    fn what_the_shell_knows() {
        for (line, expected) in [
            ("t summary ", ShellHint::Files),
            ("t summary a.jsonl b", ShellHint::Files),
            ("t summary -- -", ShellHint::Files),
            ("t compare a --baseline ", ShellHint::Files),
            ("t -o ", ShellHint::Files),
            ("t --output=r", ShellHint::Files),
            ("t -q -c ", ShellHint::Files),
            ("t upload ", ShellHint::Folders),
            ("t --spool-dir=", ShellHint::Folders),
            ("t ", ShellHint::Nothing),
            ("t py", ShellHint::Command(1)),
            ("t -- ", ShellHint::Command(2)),
            ("t -i 0.5 -- git ", ShellHint::Command(4)),
            ("t -qi 0.5 git config ", ShellHint::Command(3)),
            ("t -i0.5 git --", ShellHint::Command(2)),
            ("t -n config git -", ShellHint::Command(3)),
        ] {
            assert_eq!(at(line).1, expected, "{line}");
        }
    }

    #[test]
    fn bash_takes_words_apart() {
        let joined = |words: &[&str]| rejoined(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>());
        let of = |words: &[(usize, &str)]| words.iter().map(|(at, word)| (*at, (*word).to_owned())).collect::<Vec<_>>();
        assert_eq!(joined(&["t", "--enable", "=", "cp"]), of(&[(0, "t"), (1, "--enable=cp")]));
        assert_eq!(
            joined(&["t", "--set", "a", "=", "", "git", "x"]),
            of(&[(0, "t"), (1, "--set"), (2, "a="), (4, ""), (5, "git"), (6, "x")])
        );
        assert_eq!(joined(&["t", "-o", "="]), of(&[(0, "t"), (1, "-o=")]));
    }
}
