//! Traffic through network namespaces that the job is in and the tracker is not: those of containers.
//!
//! Nothing of such a namespace stays open between two ticks: it ends with the last process in it, as without the tracker.

use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use resource_tracker_core::background::Background;
use resource_tracker_core::prelude::*;
use resource_tracker_metrics::JobNetworkMetrics;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::counters::interfaces;
use super::interface_table::{InterfaceLookup, InterfaceTable, NOWHERE};
use super::link::{Link, REFRESH};
use super::links::read_links;
use super::netlink::{self, Device};
use crate::backoff::{BackoffSchedule, RARE_CHECK_INTERVAL};
use crate::job::JobDetails;
use crate::pid_namespace::shows_own_pid_namespace;
use crate::procfile::read_into;
use resource_tracker_scan::find_near;

/// How many processes are looked at in one turn: a large job must not make it expensive.
const AT_ONCE: usize = 100;
/// So many namespaces are read. Beyond that the sum is not known.
const MOST: usize = 64;

/// What came and went through network namespaces of the job's own.
#[derive(Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(remote = "Self")]
pub struct JobNetworkConfig {}

from_json!(JobNetworkConfig);

#[typetag::deserialize(name = "job-network")]
impl SourceConfig for JobNetworkConfig {
    fn build(&self, host: &Host) -> anyhow::Result<Option<Box<dyn Source>>> {
        // Without the namespace of the tracker, those of the job cannot be told from it.
        let own = Id::of(&host.procfs, "self").filter(|_| shows_own_pid_namespace(&host.procfs));
        Ok(own.map(|own| -> Box<dyn Source> { Box::new(JobNetwork::new(&host.procfs, own)) }))
    }
}

register_source!(
    SourceEntry::new::<JobNetworkConfig>(
        "job-network",
        "What came and went through network namespaces of the job's own"
    )
    .on_by_default()
    .order(22)
);

/// A network namespace: where its file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Id(u64, u64);

impl Id {
    /// That of a process; `None` when it has ended, or may not be looked at.
    fn of(procfs: &Path, process: &str) -> Option<Self> {
        let file = procfs.join(process).join("ns/net").metadata().ok()?;
        Some(Self(file.dev(), file.ino()))
    }
}

/// A namespace that the job is in.
struct Namespace {
    id: Id,
    /// The process id of a member in it.
    pid: i32,
    known: InterfaceTable,
}

/// What is known of the interfaces of each namespace, in the order of their names; `None` where it is not known what they stand on.
type Links = Arc<Vec<(Id, Option<Vec<Link>>)>>;
type Question = Vec<(Id, i32, Vec<String>)>;

struct JobNetwork {
    procfs: PathBuf,
    own: Id,
    namespaces: Vec<Namespace>,
    are_too_many: bool,
    /// Whether this turn has met a process in one namespace too many.
    has_met_more: bool,
    looks: BackoffSchedule,
    /// How many of the processes were looked at in this turn.
    turn: usize,
    /// Begun with the first namespace.
    links: Option<Background<Question, Links>>,
    asked: Option<Instant>,
    text: Vec<u8>,
}

impl Source for JobNetwork {
    fn collect(&mut self, tick: &Tick, out: &mut Sections) -> anyhow::Result<()> {
        let metrics: &mut JobNetworkMetrics = out.section();
        *metrics = JobNetworkMetrics::default();
        let Some(job) = &tick.job else { return Ok(()) };
        let details = JobDetails::of(job)?;
        if self.looks.is_due(tick.at) {
            self.look(details);
        }
        let Some((sum, is_new)) = self.read(details) else { return Ok(()) };
        if let Some((rx, tx)) = sum.filter(|_| !self.are_too_many) {
            (metrics.process_network_rx_bytes, metrics.process_network_tx_bytes) = (Some(rx), Some(tx));
        }
        if is_new || self.asked.is_none_or(|at| tick.at.saturating_duration_since(at) >= REFRESH) {
            self.asked = Some(tick.at);
            self.ask();
        }
        Ok(())
    }
}

impl JobNetwork {
    fn new(procfs: &Path, own: Id) -> Self {
        Self {
            procfs: procfs.to_owned(),
            own,
            namespaces: Vec::new(),
            are_too_many: false,
            has_met_more: false,
            looks: BackoffSchedule::until(RARE_CHECK_INTERVAL),
            turn: 0,
            links: None,
            asked: None,
            text: Vec::new(),
        }
    }

    /// Looks for namespaces that are new.
    fn look(&mut self, job: &JobDetails) {
        if self.turn >= job.members().len() {
            self.turn = 0;
            // They are few again when a whole turn has met no more.
            self.are_too_many = std::mem::take(&mut self.has_met_more);
        }
        let some = job.members()[self.turn..].iter().take(AT_ONCE);
        self.turn += AT_ONCE;
        let root = job.members().iter().take(1).filter(|_| self.turn > AT_ONCE);
        for member in root.chain(some).filter(|member| !member.stat.is_dead()) {
            let Some(id) = self.not_own(member.stat.pid) else { continue };
            let is_known = self.namespaces.iter().any(|namespace| namespace.id == id);
            if is_known || self.is_inner(id, member.stat.parent, job) {
                continue;
            }
            if self.namespaces.len() == MOST {
                (self.are_too_many, self.has_met_more) = (true, true);
                return;
            }
            let known = InterfaceTable::new(InterfaceLookup::nowhere());
            self.namespaces.push(Namespace { id, pid: member.stat.pid, known });
        }
    }

    /// The namespace of a process, if the tracker is in another one.
    fn not_own(&self, pid: i32) -> Option<Id> {
        Id::of(&self.procfs, &pid.to_string()).filter(|id| *id != self.own)
    }

    /// Whether it lies within another namespace of the job: what leaves it passes that one as well.
    fn is_inner(&self, id: Id, parent: i32, job: &JobDetails) -> bool {
        let is_of_job = job.members().iter().any(|member| member.stat.pid == parent);
        is_of_job && self.not_own(parent).is_some_and(|outer| outer != id)
    }

    /// Bytes received and sent since the last reading, if it is known which interfaces count, and whether one is new; `None`
    /// without a namespace.
    fn read(&mut self, job: &JobDetails) -> Option<(Option<(u64, u64)>, bool)> {
        let Self { procfs, namespaces, links, text, .. } = self;
        let links = links.as_ref().and_then(|links| links.answer()).map(|(links, _)| links);
        let known = |id: Id| links.iter().flat_map(|links| links.iter()).find(|(other, _)| *other == id)?.1.as_deref();
        // Bytes of one namespace wait until the links of all are known.
        let are_known = namespaces.iter().all(|namespace| known(namespace.id).is_some());
        let (mut rx, mut tx, mut is_new) = (0, 0, false);
        namespaces.retain_mut(|namespace| {
            let before = namespace.pid;
            let Some(devices) = namespace.devices(procfs, job, text) else { return false };
            // The number of the namespace may have been reused in between.
            let may_be_other = namespace.pid != before;
            let sum = namespace.count(devices, known(namespace.id).filter(|_| are_known), may_be_other);
            (rx, tx, is_new) = (rx + sum.0, tx + sum.1, is_new | sum.2 | may_be_other);
            true
        });
        (!namespaces.is_empty()).then_some((are_known.then_some((rx, tx)), is_new))
    }

    fn ask(&mut self) {
        if self.links.is_none() {
            let procfs = self.procfs.clone();
            let links =
                move |question: Question| Arc::new(question.into_iter().map(|one| links_of(&procfs, one)).collect());
            self.links = Background::spawn("job-links", links).ok();
        }
        let each = self.namespaces.iter().map(|namespace| (namespace.id, namespace.pid, namespace.known.names()));
        if let Some(links) = &self.links {
            links.ask(each.collect());
        }
    }
}

impl Namespace {
    /// What `/proc/PID/net/dev` says now; `None` when no member is in it any more.
    fn devices<'a>(&mut self, procfs: &Path, job: &JobDetails, text: &'a mut Vec<u8>) -> Option<&'a [u8]> {
        let mut others = job.alive().map(|member| member.stat.pid);
        loop {
            let process = self.pid.to_string();
            let length = read_into(&procfs.join(&process).join("net/dev"), text).map(<[u8]>::len);
            // It may have moved since, or another process has its id.
            if let (Ok(length), true) = (length, Id::of(procfs, &process) == Some(self.id)) {
                return Some(&text[..length]);
            }
            self.pid = others.find(|pid| Id::of(procfs, &pid.to_string()) == Some(self.id))?;
        }
    }

    fn count(&mut self, devices: &[u8], links: Option<&[Link]>, may_be_other: bool) -> (u64, u64, bool) {
        let (mut rx, mut tx) = (0, 0);
        self.known.begin();
        let mut has_garbage = false;
        for (near, (name, now)) in interfaces(devices, &mut has_garbage).enumerate() {
            let Some((place, interface)) = self.known.find(near, name, &now) else { continue };
            if may_be_other && now.fell_since(&interface.counters) {
                interface.reset_baseline();
            }
            let link = links.and_then(|links| Some(&links[find_near(links, place, |link| interface.is_of(link))?]));
            // A card, which is on a bus or has no kind, may have come from another namespace with the bytes that it
            // counted there.
            if link.is_some_and(|link| link.is_card || link.kind.is_none()) {
                interface.exclude_initial_bytes();
            }
            let (received, sent) = interface.count(link.map(|link| link.is_counted), &now);
            (rx, tx) = (rx + received, tx + sent);
            interface.counters = now;
        }
        // Bytes of an interface that cannot be read come with its next reading. There are no rates here.
        (rx, tx, self.known.end(has_garbage, Duration::ZERO))
    }
}

/// Without the permission to enter the namespace nothing is known of its interfaces. One alone stands on no other.
fn links_of(procfs: &Path, (id, pid, names): (Id, i32, Vec<String>)) -> (Id, Option<Vec<Link>>) {
    let file = File::open(procfs.join(pid.to_string()).join("ns/net"));
    // A thread of its own: one that stayed in the namespace would keep it.
    let devices =
        file.ok().and_then(|file| std::thread::Builder::new().spawn(move || devices_in(&file)).ok()?.join().ok()?.ok());
    let devices = devices.or_else(|| (names.len() <= 1).then(Vec::new));
    // Of the namespace there is no sysfs that can be trusted: the job may have mounted anything.
    (id, devices.map(|devices| read_links(Path::new(NOWHERE), names, &devices)))
}

fn devices_in(namespace: &File) -> std::io::Result<Vec<Device>> {
    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
    netlink::devices()
}

#[cfg(test)]
mod tests;
