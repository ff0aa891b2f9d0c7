//! `summary`: what recorded runs took.

use std::io;

use anyhow::Error;
use resource_tracker_core::registry::Registry;
use resource_tracker_core::sample_schema;
use resource_tracker_report::{
    Advice, Kinds, Look, ServerRequirement, Summary, json, markdown, offer_markdown, offer_text, printable, read_runs,
    text,
};
use serde::Serialize;

use super::standard_output::print;
use crate::cli::Cli;
use crate::servers::{Found, Servers};
use crate::settings::{config_files, settings};
use crate::tools::SummaryTool;

/// The kinds of the figures of all sections, those of configured plugins included. Recordings can be read without a
/// configuration.
pub(super) fn kinds(cli: &Cli) -> Kinds {
    let registry = match settings(cli, &config_files(cli)) {
        Ok(settings) => settings.registry().clone(),
        Err(error) => {
            log::warn!("{error:#}; figures of plugins are taken as they come");
            Registry::new()
        }
    };
    Kinds::of_schema(move || sample_schema(crate::PROGRAM, &registry))
}

const NOBODY_ASKED: &str =
    "--servers: nobody was asked, because no run that is known to have ended well says what it needs";

/// The form of the output.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Text(Look),
    Json,
    Markdown,
}

/// One of several summaries.
#[derive(Serialize)]
struct OfFile<'a> {
    /// The file that the run begins in.
    file: &'a str,
    #[serde(flatten)]
    summary: &'a Summary,
}

pub(crate) fn summary(cli: &Cli, tool: &SummaryTool) -> anyhow::Result<i32> {
    let form = match (tool.json, tool.markdown) {
        (true, _) => Form::Json,
        (_, true) => Form::Markdown,
        _ => Form::Text(Look::of(&io::stdout())),
    };
    let servers = tool.servers.as_ref().map(|url| Servers::at(url, tool.allow_http)).transpose().map_err(Error::msg)?;
    let mut demand: Option<ServerRequirement> = None;
    let mut count = 0;
    read_runs(&tool.files, &kinds(cli), &mut |run| {
        let text = match form {
            Form::Json if tool.files.len() > 1 => {
                json(&OfFile { file: &run.path.to_string_lossy(), summary: &run.summary })?
            }
            Form::Json => json(&run.summary)?,
            Form::Markdown => markdown(&run.summary),
            Form::Text(look) => text(&run.summary, look),
        };
        if count > 0 && form != Form::Json {
            print(b"\n")?;
        }
        if tool.files.len() > 1 && form != Form::Json {
            let file = printable(&run.path.to_string_lossy());
            let line = if form == Form::Markdown {
                format!("`{}`:\n\n", file.replace('`', "'"))
            } else {
                format!("{file}:\n")
            };
            print(line.as_bytes())?;
        }
        print(text.as_bytes())?;
        count += 1;
        demand = ServerRequirement::of(demand.take(), &run.summary);
        Ok(())
    })?;
    if let Some(ServerRequirement { advice, .. }) = demand.as_ref().filter(|_| count > 1 && form != Form::Json) {
        let Advice { slurm, docker, kubernetes, .. } = advice;
        let enough = format!("\nEnough for each of the runs that ended well: {}\n", advice.numbers());
        let flags = [("Slurm", slurm), ("Docker", docker), ("Kubernetes", kubernetes)];
        let line = |(who, flags): (&str, &String)| match form {
            Form::Markdown => format!("- {who}: `{flags}`\n"),
            _ => format!("{who:<11} {flags}\n"),
        };
        let flags: String = flags.map(line).concat();
        let gap = if form == Form::Markdown { "\n" } else { "" };
        print(format!("{enough}{gap}{flags}").as_bytes())?;
    }
    match servers {
        Some(servers) => say_cheapest(&servers, demand, form),
        None => Ok(0),
    }
}

/// Prints what the next run would cost. Returns 1 if that is not known in full; the summaries are printed by then.
fn say_cheapest(servers: &Servers, demand: Option<ServerRequirement>, form: Form) -> anyhow::Result<i32> {
    let found = demand.map_or_else(|| Err(NOBODY_ASKED.to_owned()), |demand| servers.cheapest(demand));
    let problem = match found {
        Ok(Found { offer, problem }) => {
            let text = match form {
                Form::Json => serde_json::to_string(&serde_json::json!({ "offer": offer }))? + "\n",
                Form::Markdown => offer_markdown(&offer),
                Form::Text(look) => offer_text(&offer, look),
            };
            print(text.as_bytes())?;
            problem
        }
        Err(problem) => Some(problem),
    };
    if let Some(problem) = &problem {
        log::error!("{problem}");
    }
    Ok(i32::from(problem.is_some()))
}
