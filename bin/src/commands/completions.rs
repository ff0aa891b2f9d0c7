//! `completions`: the scripts for the shells, and the words that these ask for.

use std::ffi::OsString;

use clap::Arg;
use clap_complete::Shell;
use resource_tracker_core::config::Component;
use resource_tracker_core::registry::{ComponentKind, Registry};
use resource_tracker_report::FIGURES;
use serde_json::Value as Json;

use super::standard_output::print;
use crate::cli::Cli;
use crate::completion::{BASH, FISH, ShellHint, Word, ZSH, completion, rejoined};
use crate::settings::{config_files, tables_and_files};
use crate::tables::KNOWN_TABLES;

/// A word that has begun with one is not whole yet.
const QUOTES: [char; 2] = ['\'', '"'];

/// The script that completes the command line.
pub(crate) fn completions(shell: Shell) -> anyhow::Result<i32> {
    match shell {
        Shell::Bash => print(BASH.as_bytes()),
        Shell::Zsh => print(ZSH.as_bytes()),
        Shell::Fish => print(FISH.as_bytes()),
        other => {
            let mut script = Vec::new();
            clap_complete::generate(other, &mut crate::cli::command(), crate::PROGRAM, &mut script);
            print(&script)
        }
    }
}

/// Prints what may stand at the place of a word: a line that tells the shell what to add itself, and a line for each
/// word.
pub(crate) fn completions_at(cli: &Cli, shell: Shell, place: usize, words: &[OsString]) -> anyhow::Result<i32> {
    let words: Vec<String> = words.iter().take(place + 1).map(|word| word.to_string_lossy().into_owned()).collect();
    let (numbers, joined): (Vec<usize>, Vec<String>) = match shell {
        Shell::Bash => rejoined(&words).into_iter().unzip(),
        _ => words.iter().cloned().enumerate().unzip(),
    };
    let mut command = crate::cli::command();
    command.build();
    let found = completion(&command, &joined, &|flag| values(cli, flag));
    let last = joined.last().map_or("", |word| word.trim_start_matches(QUOTES));
    // Bash completes only the part behind the last `=`.
    let own = words.last().filter(|word| *word != "=").map_or("", |word| word.trim_start_matches(QUOTES));
    let known = last.strip_suffix(own).unwrap_or_default();
    let mut text = match found.shell_hint {
        ShellHint::Nothing => "nothing\n".to_owned(),
        ShellHint::Files => "files\n".to_owned(),
        ShellHint::Folders => "folders\n".to_owned(),
        // The command may begin with the next word, which is not there yet.
        ShellHint::Command(word) => format!("command {}\n", numbers.get(word).copied().unwrap_or(words.len())),
    };
    for Word { text: word, about } in found.words {
        text += &match shell {
            Shell::Bash if word.starts_with(last) => format!("{}\n", word.strip_prefix(known).unwrap_or(&word)),
            Shell::Bash => String::new(),
            Shell::Zsh => format!("{}:{about}\n", word.replace(':', "\\:")),
            _ => format!("{word}\t{about}\n"),
        };
    }
    print(text.as_bytes())
}

/// Whether no shell takes it for more than a word: another user may have written the configuration that it comes from.
fn is_plain(name: &str) -> bool {
    name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}

/// The values that a flag can have: names of components, keys of the configuration, names of figures. No plugin is loaded for
/// that.
fn values(cli: &Cli, flag: &Arg) -> Vec<Word> {
    let flag = flag.get_id().as_str();
    match flag {
        "enable" | "disable" | "set" => (),
        "fail_if" | "budget" => {
            return FIGURES.iter().map(|figure| Word::new(figure.name, figure.unit.noun())).collect();
        }
        _ => return Vec::new(),
    }
    let settings = tables_and_files(Registry::new(), &config_files(cli));
    let components = ComponentKind::all()
        .flat_map(|kind| settings.named_components(kind).into_iter().map(move |component| (kind, component)))
        .filter(|(_, component)| is_plain(&component.name));
    if flag != "set" {
        let word = |component: Component| Word::new(component.name, component.component_type.description);
        return components.map(|(_, component)| word(component)).collect();
    }
    let keys = |table: String, schema: Json| {
        let keys = schema["properties"].as_object().cloned().unwrap_or_default();
        let about = |key: &Json| key["description"].as_str().unwrap_or_default().to_owned();
        keys.into_iter().map(move |(name, key)| Word::new(format!("{table}.{name}="), &about(&key)))
    };
    let of_program = KNOWN_TABLES.into_iter().flat_map(|table| keys(table.name().to_owned(), table.schema()));
    let of_components = components.flat_map(|(kind, component)| {
        let table = format!("{}.{}", kind.table(), component.name);
        let enabled = Word::new(format!("{table}.enabled="), "Whether it is on");
        std::iter::once(enabled).chain(keys(table, component.component_type.schema()))
    });
    of_program.chain(of_components).collect()
}
