use std::os::unix::fs::symlink;
use std::sync::atomic::{AtomicBool, Ordering};

use resource_tracker_core::{Moment, Observer};

use super::*;
use crate::job::{JobObserver, TrackedJob};

/// A job in a stand-in for procfs, whose root is where the tracker is.
struct Job {
    procfs: tempfile::TempDir,
    observer: JobObserver,
    source: JobNetwork,
    at: Instant,
    step: Duration,
}

impl Job {
    fn new(links: impl Fn(&str) -> Link + Send + 'static) -> Self {
        let all = move |names: Vec<String>| Some(names.iter().map(|name| links(name)).collect());
        Self::with_links(move |question| {
            Arc::new(question.into_iter().map(|(id, _, names)| (id, all(names))).collect())
        })
    }

    fn with_links(links: impl FnMut(Question) -> Links + Send + 'static) -> Self {
        let procfs = tempfile::tempdir().unwrap();
        let host = Host::new(procfs.path(), procfs.path());
        let observer = JobObserver::new(TrackedJob::attached(30), host);
        let step = RARE_CHECK_INTERVAL;
        let mut job =
            Self { source: JobNetwork::new(procfs.path(), Id(0, 0)), procfs, observer, at: Instant::now(), step };
        job.namespace("own", &[]);
        job.process(30, 1, "own");
        job.source.own = Id::of(job.procfs.path(), "30").unwrap();
        job.source.links = Some(Background::spawn("test", links).unwrap());
        job
    }

    /// What each interface of a namespace received.
    fn namespace(&self, name: &str, interfaces: &[(&str, u64)]) {
        let line = |(name, bytes): &(&str, u64)| format!("{name}: {bytes} 1 0 0 0 0 0 0 {bytes} 1 0 0 0 0 0 0\n");
        std::fs::write(self.procfs.path().join(name), interfaces.iter().map(line).collect::<String>()).unwrap();
    }

    fn process(&self, pid: i32, parent: i32, namespace: &str) {
        let folder = self.procfs.path().join(pid.to_string());
        for (link, folder) in [("net", folder.join("ns")), ("dev", folder.join("net"))] {
            std::fs::create_dir_all(&folder).unwrap();
            symlink(self.procfs.path().join(namespace), folder.join(link)).unwrap();
        }
        self.stat(pid, parent, 'S');
    }

    fn stat(&self, pid: i32, parent: i32, state: char) {
        let stat = format!(
            "{pid} (x) {state} {parent} 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 {pid}5 0 3 0 1 1 0 0 0 0 0 0 0 0 0 0 17"
        );
        std::fs::write(self.procfs.path().join(format!("{pid}/stat")), stat).unwrap();
    }

    fn end(&self, pid: i32) {
        // It may be open.
        self.stat(pid, 30, 'X');
        let folder = |name: &str| self.procfs.path().join(name);
        std::fs::rename(folder(&pid.to_string()), folder(&format!("gone{pid}"))).unwrap();
    }

    /// Bytes received since the last call. A question is answered at the next call.
    fn read(&mut self) -> Option<u64> {
        self.at += self.step;
        self.observer.observe(&Moment::new(1, self.at, self.step, self.step)).unwrap();
        let tick = Tick::new(1, self.at, self.step, self.step).with_job(self.observer.seen().job);
        let mut out = Sections::default();
        self.source.collect(&tick, &mut out).unwrap();
        while self.source.links.as_ref().is_some_and(Background::is_busy) {
            std::thread::yield_now();
        }
        out.get::<JobNetworkMetrics>().unwrap().process_network_rx_bytes
    }
}

fn link(name: &str, kind: &str) -> Link {
    let kind = Some(kind.to_owned()).filter(|kind| !kind.is_empty());
    Link { name: name.to_owned(), kind, is_counted: true, ..Link::default() }
}

/// The last process has its turn only at every third look.
#[test]
fn too_many_namespaces_are_too_many_whoever_is_looked_at() {
    let mut job = Job::new(|name| link(name, "veth"));
    for number in 0..200 {
        let namespace = if number < 64 { number } else { 0 };
        job.namespace(&format!("n{namespace}"), &[("eth0", 5)]);
        job.process(100 + number, 30, &format!("n{namespace}"));
    }
    job.read();
    assert_eq!(job.read(), Some(0), "as many as can be read");
    job.namespace("last", &[]);
    job.process(300, 30, "last");
    let mut looks = 0;
    while job.read().is_some() {
        looks += 1;
        assert!(looks < 10);
    }
    for _ in 0..10 {
        assert_eq!(job.read(), None);
    }
    job.end(300);
    (0..6).for_each(|_| _ = job.read());
    for _ in 0..6 {
        assert_eq!(job.read(), Some(0));
    }
}

/// As without the permission to enter it.
#[test]
fn what_stands_on_what_has_to_be_known() {
    let mut procfs = std::path::PathBuf::new();
    let (tell, told) = std::sync::mpsc::channel();
    let mut job = Job::with_links(move |question| {
        procfs = told.try_recv().unwrap_or(std::mem::take(&mut procfs));
        Arc::new(question.into_iter().map(|one| links_of(&procfs, one)).collect())
    });
    tell.send(job.procfs.path().to_owned()).unwrap();
    job.namespace("a", &[("lo", 9), ("br0", 100), ("veth1", 100)]);
    job.process(40, 30, "a");
    for bytes in [100, 200, 300] {
        job.namespace("a", &[("lo", 9), ("br0", bytes), ("veth1", bytes)]);
        assert_eq!(job.read(), None, "each byte is in both");
    }
    // What another one gets waits no longer than it lives.
    job.namespace("b", &[("lo", 9), ("tap0", 100)]);
    job.process(50, 30, "b");
    assert_eq!((job.read(), job.read()), (None, None));
    job.end(40);
    job.namespace("b", &[("lo", 99), ("tap0", 107)]);
    assert_eq!((job.read(), job.read()), (None, Some(7)), "one interface stands on no other");
    job.namespace("b", &[("lo", 99), ("tap0", 108)]);
    job.source.links = Background::spawn("test", |_| Arc::default()).ok();
    assert_eq!((job.read(), job.read()), (None, None), "nobody answers");
}

#[test]
fn a_number_that_another_namespace_has_by_now() {
    static IS_PORT: AtomicBool = AtomicBool::new(false);
    let mut job = Job::new(|name| Link { is_counted: !IS_PORT.load(Ordering::Relaxed), ..link(name, "veth") });
    job.namespace("a", &[("eth0", 1000)]);
    job.process(40, 30, "a");
    job.read();
    job.namespace("a", &[("eth0", 1500)]);
    assert_eq!(job.read(), Some(500));
    // It is not yet time to ask again.
    job.step = Duration::from_millis(1);
    job.end(40);
    job.process(50, 30, "a");
    job.namespace("a", &[("eth0", 70)]);
    assert_eq!(job.read(), Some(70));
    // Another process in the same namespace.
    job.process(60, 30, "a");
    job.namespace("a", &[("eth0", 90)]);
    assert_eq!(job.read(), Some(20));
    job.end(50);
    job.namespace("a", &[("eth0", 95)]);
    assert_eq!(job.read(), Some(5));
    IS_PORT.store(true, Ordering::Relaxed);
    job.end(60);
    job.process(70, 30, "a");
    assert_eq!(job.read(), Some(0));
    job.namespace("a", &[("eth0", 99)]);
    assert_eq!(job.read(), Some(0), "it was asked what the interface is there");
}

#[test]
fn a_card_that_is_moved_in_begins_with_its_first_reading() {
    let mut job =
        Job::new(|name| Link { is_card: name == "ib0", ..link(name, if name == "enp1" { "" } else { "veth" }) });
    job.namespace("a", &[("lo", 0)]);
    job.process(40, 30, "a");
    assert_eq!((job.read(), job.read()), (None, Some(0)));
    job.namespace("a", &[("enp1", 9_000_000), ("veth0", 50), ("ib0", 8_000_000)]);
    assert_eq!(job.read(), Some(0), "nobody knows yet what they are");
    job.namespace("a", &[("enp1", 9_000_001), ("veth0", 52), ("ib0", 8_000_004)]);
    assert_eq!(job.read(), Some(1 + 52 + 4));
    job.namespace("a", &[("enp1", 9_000_002), ("veth0", 52), ("ib0", 8_000_004)]);
    assert_eq!(job.read(), Some(1));
}
