//! Runs that ended before everything had arrived: they are completed by the next run, or by `resource-tracker upload`.

use std::path::Path;
use std::time::Duration;

use anyhow::Context;

use crate::http::Failure;
use crate::http::receiver::{Kind, SavedReceiver};
use crate::s3::S3State;
use crate::sentinel::{SentinelConfig, SentinelState};
use crate::spool::{
    Access, Destination, RowsState, RunDirectory, Spool, Store, UNUSABLE, Upload, default_directory, not_a_state,
    send_rest, sink_of,
};
use crate::{otlp, prometheus};

/// A run that is not complete yet.
pub struct LeftBehind {
    /// Its folder.
    path: String,
    run: Run,
}

/// What waits of it, by the sink that it is of.
enum Run {
    Sentinel(Store<SentinelState>),
    S3(Store<S3State>),
    Requests(Store<SavedReceiver>),
}

/// Why a run was not sent.
#[derive(Debug)]
pub enum Unsent {
    /// Others can be sent.
    Run(String),
    /// No other can be sent to that destination now, either.
    Destination(String),
}

/// Calls `each` with every run that is not complete yet, the oldest first, or with the error that keeps one as it is. Only
/// the run of the current call is locked. With `only_look`, nothing on the disk changes. `directory` is one that must be
/// there; otherwise it is `usual`, or the default one of the user, which the first run makes.
///
/// # Errors
/// When the spool cannot be used, when `directory` names one that is not there, or when `each` fails.
pub fn left_behind(
    directory: Option<&Path>,
    usual: Option<&Path>,
    only_look: bool,
    mut each: impl FnMut(anyhow::Result<LeftBehind>) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let path = directory.or(usual).map_or_else(default_directory, Path::to_owned);
    let Some(spool) = Spool::open(&path).context(UNUSABLE)? else {
        anyhow::ensure!(directory.is_none(), "there is no folder {}", path.display());
        return Ok(());
    };
    let access = if only_look { Access::Look } else { Access::Work };
    for run in spool.left_behind(access).context(UNUSABLE)? {
        match run.and_then(LeftBehind::open).transpose() {
            Some(run) => each(run)?,
            None => continue,
        }
    }
    Ok(())
}

impl LeftBehind {
    /// Reads what is in the directory of a run. `None` when another process has just sent and removed it.
    fn open(directory: RunDirectory) -> anyhow::Result<Option<Self>> {
        let path = directory.path().display().to_string();
        let run = Run::open(directory).with_context(|| format!("{path} cannot be read, and stays as it is"))?;
        Ok(run.map(|run| Self { path, run }))
    }

    /// Its folder.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// What waits, in words.
    pub fn describe(&self) -> String {
        match &self.run {
            Run::Sentinel(store) => {
                let is_registered = store.state.run_id.is_some();
                let name = if is_registered { "a registered run" } else { "a run that is not registered" };
                count(name, "batch", "batches", store)
            }
            Run::S3(store) => {
                count(&format!("a run for {}", store.state.bucket().escape_debug()), "object", "objects", store)
            }
            Run::Requests(store) => {
                count(&format!("a run for {}", store.state.url.escape_debug()), "request", "requests", store)
            }
        }
    }

    /// Where it goes: when one run cannot be sent there, neither can the others.
    pub fn destination(&self) -> String {
        match &self.run {
            Run::Sentinel(_) => String::new(),
            Run::S3(store) => store.state.bucket(),
            Run::Requests(store) => store.state.url.clone(),
        }
    }

    /// Whether it goes to the Sentinel service, for which there must be a token.
    pub fn needs_token(&self) -> bool {
        matches!(self.run, Run::Sentinel(_))
    }

    /// Sends what is left of it. It calls `waits` before each new attempt, with the reason and the pause. What needs more
    /// than the spool has is taken from the configuration of the service, and from the environment.
    ///
    /// # Errors
    /// Without a token, when the run belongs to another service, or when not everything was taken; what was not taken
    /// stays.
    pub fn send(self, sentinel: &SentinelConfig, waits: impl FnMut(&str, Duration)) -> Result<(), Unsent> {
        match self.run {
            Run::Sentinel(store) => send(sentinel.service(), store, waits),
            Run::S3(store) => send(store.state.saved_destination(), store, waits),
            Run::Requests(store) => {
                let receiver = match store.state.kind {
                    Kind::Otlp | Kind::OtlpGzip => otlp::saved_receiver(&store.state),
                    Kind::RemoteWrite => prometheus::saved_receiver(&store.state),
                };
                send(receiver, store, waits)
            }
        }
    }
}

impl Run {
    fn open(directory: RunDirectory) -> anyhow::Result<Option<Self>> {
        let Some(text) = directory.state()? else { return Ok(None) };
        let sink = sink_of(&text).map_err(not_a_state)?;
        Ok(match sink.as_deref() {
            None => Store::recover(directory)?.map(Self::Sentinel),
            Some(S3State::NAME) => Store::recover(directory)?.map(Self::S3),
            Some(_) => Store::recover(directory)?.map(Self::Requests),
        })
    }
}

fn count<S: RowsState>(name: &str, one: &str, more: &str, store: &Store<S>) -> String {
    let waiting = store.waiting();
    format!("{name}, {waiting} {}", if waiting == 1 { one } else { more })
}

fn send<D: Destination>(
    destination: anyhow::Result<D>,
    store: Store<<D::Upload as Upload>::State>,
    waits: impl FnMut(&str, Duration),
) -> Result<(), Unsent> {
    let destination = destination.map_err(|why| Unsent::Destination(format!("{why:#}")))?;
    let sent = destination.upload(store).and_then(|mut upload| {
        send_rest(&mut upload, waits)?;
        Ok((upload.store().passed(), upload.store().left_out()))
    });
    match sent {
        Ok((0, 0)) => Ok(()),
        Ok((0, _)) if !D::Upload::KEEPS_LEFT_OUT => Ok(()),
        Ok((0, left_out)) => Err(Unsent::Run(format!("{left_out} of its files could not be read, and stay"))),
        Ok((passed, _)) => Err(Unsent::Run(format!("{passed} of its requests were refused"))),
        Err(Failure::Unavailable(problem, _)) => Err(Unsent::Destination(problem)),
        Err(failure) => Err(Unsent::Run(failure.problem().to_owned())),
    }
}
