//! Sums over network interfaces against the truth: what was sent from one network namespace to another.

use std::process::{Child, Command, Stdio};

use resource_tracker_tests::{Recording, command, has, is_root, job, number, text, tracker, wait_until};
use serde_json::Value as Json;

const MIB: f64 = 1_048_576.0;

/// A network namespace, which is there as long as a process in it.
struct Namespace(Child);

impl Namespace {
    fn new() -> Self {
        let child = command("unshare").args(["--net", "sleep", "infinity"]).spawn().unwrap();
        let namespace = Self(child);
        let of = |process: &str| std::fs::read_link(format!("/proc/{process}/ns/net")).unwrap();
        let pid = namespace.0.id().to_string();
        wait_until("a network namespace", || of(&pid) != of("self"));
        namespace.ip("link set lo up");
        namespace
    }

    /// A program in it. `/sys` stays that of the machine.
    fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = command("nsenter");
        command.args(["-t", &self.0.id().to_string(), "-n", "--"]).arg(program);
        command
    }

    /// Whether `ip` could do it.
    fn can(&self, arguments: &str) -> bool {
        let output = self.command("ip").args(arguments.split(' ')).output().unwrap();
        if !output.status.success() {
            println!("ip {arguments}: {}", text(&output.stderr));
        }
        output.status.success()
    }

    #[track_caller]
    fn ip(&self, arguments: &str) {
        assert!(self.can(arguments), "ip {arguments}");
    }

    /// Sends so many MiB to an address of another namespace, and waits until they have arrived.
    fn send(&self, to: &Self, address: &str, mib: u32) {
        let address = format!("{address}:5001");
        let mut receiver = to.command(job()).args(["receive", &address]).spawn().unwrap();
        let sockets = format!("/proc/{}/net/tcp", receiver.id());
        // Port 5001, in the state of a socket that listens.
        let listens = |line: &str| line.contains(":1389 ") && line.contains(" 0A ");
        wait_until("a socket", || std::fs::read_to_string(&sockets).is_ok_and(|text| text.lines().any(listens)));
        let sent = self.command(job()).args(["send", &address, &mib.to_string()]).status().unwrap();
        assert!(sent.success() && receiver.wait().unwrap().success());
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A container, whose `eth0` with 10.99.0.2 is a port of the bridge `br0` with 10.99.0.1 of a host.
fn container_and_host() -> Option<(Namespace, Namespace)> {
    let test = "a container with an interface";
    if !is_root(test) || !has("ip", test) || !has("nsenter", test) || !has("unshare", test) {
        return None;
    }
    let (container, host) = (Namespace::new(), Namespace::new());
    if !host.can("link add br0 type bridge") {
        println!("skipped: {test} needs bridges");
        return None;
    }
    host.ip("addr add 10.99.0.1/24 dev br0");
    host.ip("link set br0 up");
    connect(&container, "eth0", &host, "veth0");
    host.ip("link set veth0 master br0");
    container.ip("addr add 10.99.0.2/24 dev eth0");
    Some((container, host))
}

fn connect(container: &Namespace, inside: &str, host: &Namespace, outside: &str) {
    host.ip(&format!("link add {outside} type veth peer name {inside} netns {}", container.0.id()));
    host.ip(&format!("link set {outside} up"));
    container.ip(&format!("link set {inside} up"));
}

/// A run in a namespace, with JSON and CSV, that goes on until the test ends it.
struct Run {
    recording: Recording,
    tracker: Child,
}

impl Run {
    /// Starts it, and waits until it knows what the interfaces are.
    fn start(namespace: &Namespace, interval: &str) -> Self {
        let recording = Recording::new();
        let csv =
            format!("sinks.csv={{ type = 'file', path = '{}' }}", recording.path().with_extension("csv").display());
        let mut tracker_in = namespace.command(tracker());
        tracker_in.args(["-q", "-i", interval, "-o"]).arg(recording.path()).args(["--set", &csv]);
        tracker_in.args(["--", "sh", "-c", &recording.until_told()]).stdin(Stdio::null());
        let run = Self { tracker: recording.start(&mut tracker_in), recording };
        run.wait_for("a sample", |sample| interfaces(sample).iter().all(|one| one["is_counted"].is_boolean()));
        run
    }

    fn wait_for(&self, what: &str, is_so: impl Fn(&Json) -> bool) {
        wait_until(what, || self.recording.samples().last().is_some_and(&is_so));
    }

    /// The MiB received and sent, as the columns of the CSV add up, and the last sample.
    fn end(self) -> ((f64, f64), Json) {
        self.recording.go_on();
        let last = |recording: &Recording| recording.samples().pop().unwrap();
        let csv = self.recording.path().with_extension("csv");
        let output = self.recording.end(self.tracker);
        assert!(output.status.success() && output.stderr.is_empty(), "{}", text(&output.stderr));
        let csv = std::fs::read_to_string(csv).unwrap();
        let header: Vec<&str> = csv.lines().next().unwrap().split(',').collect();
        let sum = |column: &str| {
            let place = header.iter().position(|name| *name == column).unwrap();
            csv.lines().skip(1).map(|line| line.split(',').nth(place).unwrap().parse::<f64>().unwrap()).sum::<f64>()
                / MIB
        };
        ((sum("net_recv_bytes"), sum("net_sent_bytes")), last(&self.recording))
    }
}

fn interfaces(sample: &Json) -> &[Json] {
    sample["network"].as_array().unwrap()
}

#[track_caller]
fn interface<'a>(sample: &'a Json, name: &str) -> &'a Json {
    interfaces(sample).iter().find(|one| one["interface"] == name).unwrap_or_else(|| panic!("no {name} in {sample}"))
}

/// Asserts that it is so many MiB, with headers and acknowledgements, but not 5 % more.
#[track_caller]
fn is(mib: f64, truth: f64) {
    println!("{mib} MiB of {truth}");
    assert!((truth..truth * 1.05).contains(&mib), "{mib} MiB of {truth}");
}

#[test]
fn what_a_container_sends_to_its_host_is_counted_once_and_has_not_left_the_host() {
    let Some((container, host)) = container_and_host() else { return };
    let (inside, outside) = (Run::start(&container, "0.2"), Run::start(&host, "0.2"));
    container.send(&host, "10.99.0.1", 64);
    let ((_, sent), sample) = inside.end();
    is(sent, 64.0);
    let eth0 = interface(&sample, "eth0");
    assert_eq!((&eth0["kind"], &eth0["is_counted"], &eth0["master"]), (&"veth".into(), &true.into(), &Json::Null));

    let (sums, sample) = outside.end();
    assert_eq!(sums, (0.0, 0.0), "{sample}");
    let (bridge, port) = (interface(&sample, "br0"), interface(&sample, "veth0"));
    assert_eq!((&bridge["kind"], &bridge["is_counted"]), (&"bridge".into(), &false.into()));
    assert_eq!((&bridge["lower"][0], &port["master"]), (&"veth0".into(), &"br0".into()));
    assert_eq!((&port["kind"], &port["is_counted"]), (&"veth".into(), &false.into()));
    for one in [bridge, port] {
        assert!(number(one, "/rx_bytes_total") > 64.0 * MIB, "it is listed as before: {one}");
    }
}

/// Each of the kinds that this machine has, between the same two ends.
#[test]
fn what_goes_through_an_interface_that_stands_on_another_is_counted_once() {
    let Some((container, host)) = container_and_host() else { return };
    // They stand on the other end itself, without the bridge.
    host.ip("link del br0");
    host.ip("addr add 10.99.0.1/24 dev veth0");
    let kinds = [
        ("vlan", "link add link LOWER name up0 type vlan id 5"),
        ("macvlan", "link add link LOWER name up0 type macvlan mode bridge"),
        ("ipvlan", "link add link LOWER name up0 type ipvlan mode l2"),
        ("vxlan", "link add up0 type vxlan id 5 remote REMOTE dev LOWER dstport 4789"),
    ];
    for (kind, add) in kinds {
        if !container.can(&add.replace("LOWER", "eth0").replace("REMOTE", "10.99.0.1")) {
            println!("skipped: {kind}");
            continue;
        }
        host.ip(&add.replace("LOWER", "veth0").replace("REMOTE", "10.99.0.2"));
        for (namespace, address) in [(&container, "10.98.0.2/24"), (&host, "10.98.0.1/24")] {
            namespace.ip(&format!("addr add {address} dev up0"));
            namespace.ip("link set up0 up");
        }
        let run = Run::start(&container, "0.2");
        container.send(&host, "10.98.0.1", 16);
        let ((_, sent), sample) = run.end();
        println!("{kind}:");
        // Each small packet of this one is in a larger one.
        if kind == "vxlan" {
            assert!((16.0..16.0 * 1.1).contains(&sent))
        } else {
            is(sent, 16.0)
        }
        let upper = interface(&sample, "up0");
        assert_eq!((&upper["kind"], &upper["is_counted"]), (&kind.into(), &false.into()));
        if kind != "vxlan" {
            assert_eq!(upper["lower"], serde_json::json!(["eth0"]), "of vxlan only sysfs says it");
        }
        container.ip("link del up0");
        host.ip("link del up0");
    }
}

#[test]
fn the_ports_of_a_bond_are_counted() {
    let Some((container, host)) = container_and_host() else { return };
    if !container.can("link add bond0 type bond mode active-backup") {
        println!("skipped: the_ports_of_a_bond_are_counted needs bonds");
        return;
    }
    container.ip("link set eth0 down");
    container.ip("link set eth0 master bond0");
    container.ip("addr flush dev eth0");
    container.ip("addr add 10.99.0.2/24 dev bond0");
    container.ip("link set bond0 up");
    let run = Run::start(&container, "0.2");
    container.send(&host, "10.99.0.1", 16);
    let ((_, sent), sample) = run.end();
    is(sent, 16.0);
    let (bond, port) = (interface(&sample, "bond0"), interface(&sample, "eth0"));
    assert_eq!(
        (&bond["kind"], &bond["is_counted"], &bond["lower"][0]),
        (&"bond".into(), &false.into(), &"eth0".into())
    );
    assert_eq!((&port["master"], &port["is_counted"]), (&"bond0".into(), &true.into()));
}

#[test]
fn an_interface_with_a_new_name_loses_no_bytes() {
    let Some((container, host)) = container_and_host() else { return };
    // All of it happens in one or two intervals.
    let run = Run::start(&container, "2");
    let index = interface(run.recording.samples().last().unwrap(), "eth0")["ifindex"].clone();
    container.send(&host, "10.99.0.1", 16);
    container.ip("link set eth0 down");
    container.ip("link set eth0 name wan0");
    container.ip("link set wan0 up");
    container.send(&host, "10.99.0.1", 16);
    run.wait_for("the new name", |sample| interfaces(sample)[0]["interface"] == "wan0");
    let ((_, sent), sample) = run.end();
    is(sent, 32.0);
    let renamed = interface(&sample, "wan0");
    assert!(index.is_u64() && renamed["ifindex"] == index, "{index} {renamed}");
    assert_eq!((&renamed["kind"], &renamed["is_counted"]), (&"veth".into(), &true.into()));
}

#[test]
fn a_new_interface_counts_from_nothing_also_where_another_had_its_name() {
    let Some((container, host)) = container_and_host() else { return };
    let run = Run::start(&container, "2");
    container.send(&host, "10.99.0.1", 4);
    connect(&container, "eth1", &host, "veth1");
    container.ip("addr add 10.98.0.2/24 dev eth1");
    host.ip("addr add 10.98.0.1/24 dev veth1");
    container.send(&host, "10.98.0.1", 16);
    let is_known = |sample: &Json, name: &str| {
        interfaces(sample).iter().any(|one| one["interface"] == name && one["is_counted"] == true)
    };
    run.wait_for("the new interface", |sample| is_known(sample, "eth1"));
    // An interface that is new by its number alone.
    container.ip("link del eth1");
    connect(&container, "eth1", &host, "veth1");
    container.ip("addr add 10.98.0.2/24 dev eth1");
    host.ip("addr add 10.98.0.1/24 dev veth1");
    container.send(&host, "10.98.0.1", 8);
    let before = interface(run.recording.samples().last().unwrap(), "eth1")["ifindex"].clone();
    run.wait_for("the one after it", |sample| {
        interfaces(sample)
            .iter()
            .any(|one| one["interface"] == "eth1" && one["ifindex"] != before && one["is_counted"] == true)
    });
    let ((_, sent), _) = run.end();
    is(sent, 28.0);
}

/// A job in a container in which it has another one.
#[test]
fn what_a_job_in_a_container_gets_is_its_own_and_counted_once() {
    let Some((container, host)) = container_and_host() else { return };
    let inner = Namespace::new();
    container.ip("link add br1 type bridge");
    container.ip("addr add 10.98.0.1/24 dev br1");
    container.ip("link set br1 up");
    connect(&inner, "eth0", &container, "veth1");
    container.ip("link set veth1 master br1");
    inner.ip("addr add 10.98.0.2/24 dev eth0");
    let recording = Recording::new();
    let mut tracker = command(tracker());
    let script = format!("nsenter -t {} -n {told} & {told}; wait", inner.0.id(), told = recording.until_told());
    tracker.args(["-q", "-i", "0.1", "-o"]).arg(recording.path());
    tracker.args(["--", "nsenter", "-t", &container.0.id().to_string(), "-n", "sh", "-c", &script]);
    let told = |field: &str| -> Vec<f64> {
        recording.samples().iter().filter_map(|sample| sample["cpu"][field].as_f64()).collect()
    };
    let sum = |field: &str| told(field).iter().sum::<f64>() / MIB;
    let mut has_sent = false;
    let output = recording.run_until(&mut tracker, "what was sent", || {
        // Both are found by then.
        if !has_sent && told("process_network_rx_bytes").len() > 25 {
            has_sent = true;
            container.send(&inner, "10.98.0.2", 32);
            host.send(&container, "10.99.0.2", 64);
        }
        sum("process_network_rx_bytes") >= 64.0
    });
    assert!(output.status.success() && output.stderr.is_empty(), "{}", text(&output.stderr));
    is(sum("process_network_rx_bytes"), 64.0);
    assert!(sum("process_network_tx_bytes") < 4.0, "acknowledgements only");
}

/// The job may make one all the same.
#[test]
fn the_bytes_of_a_namespace_that_may_not_be_entered_are_not_known() {
    let test = "a namespace that may not be entered";
    if !is_root(test) || !has("ip", test) || !has("setpriv", test) || !has("unshare", test) {
        return;
    }
    let without = || {
        let mut setpriv = command("setpriv");
        setpriv.arg("--bounding-set=-sys_admin");
        setpriv
    };
    if !without().args(["unshare", "-r", "-n", "true"]).status().unwrap().success() {
        println!("skipped: {test} needs namespaces for everybody");
        return;
    }
    let recording = Recording::new();
    let may_make = recording.path().with_extension("make");
    let (until_it_may, until_told) = (recording.until_in(may_make.clone(), 1, ""), recording.until_told());
    let script = format!("{until_it_may} && ip link add p0 type veth peer name p1 && {until_told}");
    let mut tracker_in = without();
    tracker_in.arg(tracker()).args(["-q", "-i", "0.1", "-o"]).arg(recording.path());
    let run = recording.start(tracker_in.args(["--", "unshare", "-r", "-n", "sh", "-c", &script]));
    let tells =
        |bytes: Json| recording.samples().last().is_some_and(|last| last["cpu"]["process_network_rx_bytes"] == bytes);
    wait_until("a namespace without an interface", || tells(0.into()));
    std::fs::write(may_make, "\n").unwrap();
    wait_until("two of which nothing is known", || tells(Json::Null));
    recording.go_on();
    let output = recording.end(run);
    assert!(output.status.success(), "{}", text(&output.stderr));
}

/// What it sends passes through the machine's interfaces, as that of others does.
#[test]
fn the_bytes_of_a_job_without_a_namespace_are_not_known() {
    let recording = Recording::new();
    let mut tracker = command(tracker());
    recording.run(tracker.args(["-i", "0.1", "-o"]).arg(recording.path()).args([
        "--",
        "sh",
        "-c",
        &recording.until(3, ""),
    ]));
    for sample in recording.samples() {
        let told = sample["cpu"].as_object().unwrap().get("process_network_rx_bytes");
        assert_eq!(told, Some(&Json::Null), "{sample}");
    }
}
