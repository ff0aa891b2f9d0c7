use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent};
use ratatui::style::Color;
use resource_tracker_metrics::{Mark, MarkKind, RunMetrics};

use super::*;
use crate::moment::{Cpu, Disk, Gpu, Job, Memory, Moment, Network, Process, Waiting};
use crate::view::Source;

/// A training on a machine with so many cores.
fn moment(second: u32, cores: usize) -> Moment {
    let busy = f64::from(second % 10);
    let mark = |name: &str| Mark { name: name.into(), kind: MarkKind::Next, at_ms: u64::from(second) * 1000 };
    Moment {
        at: f64::from(second),
        secs: 1.0,
        pid: Some(4242),
        run: (second == 1).then(|| RunMetrics {
            command: vec!["python".into(), "train.py".into()],
            interval_secs: 1.0,
            ..RunMetrics::default()
        }),
        host: Some("node7".into()),
        marks: match second {
            1 => vec![mark("load")],
            150 => vec![mark("train")],
            _ => Vec::new(),
        },
        cpu: Some(Cpu { cores: 0.3 * busy + 1.0, per_core: vec![10.0 * busy; cores], numbers: (0..cores).collect() }),
        memory: Some(Memory { used: 8192.0, total: 32_768.0, swap: 0.0 }),
        job: Some(Job {
            cores: Some(0.3 * busy),
            core_limit: Some(4.0),
            memory: Some(f64::from(second) * 10.0),
            peak_memory: Some(3500.0),
            memory_limit: Some(4096.0),
            read: Some(1.5e6),
            written: Some(0.0),
            processes: Some(9),
            threads: Some(1),
            ..Job::default()
        }),
        disks: ["nvme0n1", "sda"].map(|name| disk(name, busy)).into(),
        networks: vec![Network { name: "eth0".into(), received: 1e6 * busy, sent: 500.0 }],
        gpus: vec![Gpu {
            name: "Big 9000".into(),
            used: Some(87.0),
            memory: Some(41_000.0),
            memory_total: Some(81_559.0),
            watts: Some(312.0),
            celsius: Some(54),
        }],
        processes: vec![Process { pid: 4243, name: "python".into(), cores: 2.5, memory: 1536.0 }],
        waiting: Some(Waiting { cpu: Some(busy), memory: Some(0.0), storage: Some(3.0) }),
        ..Moment::default()
    }
}

fn disk(name: &str, busy: f64) -> Disk {
    Disk {
        name: name.into(),
        read: Some(1e6 * busy),
        written: Some(20_000.0),
        busy: Some(busy),
        fullest: Some(("/home".into(), 45.0)),
    }
}

fn view(seconds: u32, cores: usize) -> View {
    let mut view = View::new(Source::Recording);
    (1..=seconds).for_each(|second| view.add(moment(second, cores), f64::from(second)));
    view.is_caught_up = true;
    view
}

fn terminal(view: &View, width: u16, height: u16, has_colour: bool) -> Terminal<TestBackend> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(view, view.history.last() + 1.0, &Palette::new(has_colour), frame)).unwrap();
    terminal
}

/// The lines of the screen.
fn picture(view: &View, width: u16, height: u16) -> Vec<String> {
    let terminal = terminal(view, width, height, false);
    let cells = terminal.backend().buffer().content();
    cells.chunks(width.max(1).into()).map(|row| row.iter().map(|cell| cell.symbol()).collect()).collect()
}

fn press(view: &mut View, keys: &[KeyCode]) {
    assert!(keys.iter().all(|key| view.position.press(KeyEvent::from(*key), &view.history)));
}

fn has(picture: &[String], text: &str) {
    assert!(picture.iter().any(|line| line.contains(text)), "{text}\n{}", picture.join("\n"));
}

#[test]
fn eighty_columns_hold_what_matters() {
    let picture = picture(&view(300, 8), 80, 24);
    assert!(picture[0].starts_with("python train.py ") && picture[0].ends_with(" running"), "{picture:#?}");
    assert!(picture[1].starts_with("pid 4242, on node7, 5 min 0 s, a sample every 1 s"), "{picture:#?}");
    for text in [
        "CPU      ",
        "0 of 4 cores, machine 1.00 of 8",
        "2.93 GiB resident, needed 3.42 GiB of 4 GiB",
        "Cores     █ job  ░ machine  ─ limit",
        "Memory    █ job  ─ limit",
        "┊load",
        "┊train",
        "0 ········   0 %",
        "1.50 MB/s read      0 B/s written  9 processes  1 thread",
        "██████·  87 %  40.0 GiB of 79.6 GiB  312 W  54 °C  Big 9000",
        "nvme0n1      0 B/s read    20 kB/s written    0 % busy  /home 45 % full",
        "sda          0 B/s read ",
        "eth0      0 B/s received    500 B/s sent",
        "   4243  python    2.50 cores  1.50 GiB",
        "CPU 0 %, memory 0 %, storage 3 % (any program of the machine)",
        "q quit",
    ] {
        has(&picture, text);
    }
}

#[test]
fn a_large_terminal_has_all_charts() {
    let picture = picture(&view(300, 128), 200, 60);
    for chart in ["Cores", "Memory", "GPUs", "Disks", "Network", "Waiting"] {
        assert!(picture.iter().any(|line| line.contains(chart)), "{chart}\n{}", picture.join("\n"));
    }
    for legend in ["Disks     ▀ read  ▄ written", "Network   ▀ received  ▄ sent", "▀ for a CPU  ■ memory  ▄ storage"]
    {
        has(&picture, legend);
    }
    // 128 cores, in groups of eight.
    has(&picture, "  0 ········ ········ ");
    has(&picture, "10 MB/s");
    assert!(!picture.iter().any(|line| line.contains(" more")), "all details have room");
}

#[test]
fn a_scale_beyond_the_limit_is_short() {
    let mut view = view(20, 4);
    let job = Job { cores: Some(4.123_456), core_limit: Some(4.0), ..Job::default() };
    view.add(Moment { job: Some(job), ..moment(21, 4) }, 21.0);
    let picture = picture(&view, 80, 24);
    has(&picture, "4.12 ");
    assert!(!picture.iter().any(|line| line.contains("4.123")), "{picture:#?}");
}

#[test]
fn a_small_terminal_says_so() {
    let view = view(3, 2);
    has(&picture(&view, 59, 30), "59 x 30, where at least");
    has(&picture(&view, 60, 15), "60 x 16 are needed.");
    has(&picture(&view, 60, 16), "running");
}

#[test]
fn any_size_and_any_figure_can_be_drawn() {
    let mut strange = view(20, 3);
    for value in [f64::INFINITY, -1.0, f64::NAN, 1e300, 0.0] {
        let mut moment = moment(21, 3);
        moment.cpu = Some(Cpu { cores: value, per_core: vec![value; 3], numbers: vec![0, 1, 2] });
        moment.memory = Some(Memory { used: value, total: value, swap: value });
        moment.job = Some(Job {
            cores: Some(value),
            core_limit: Some(value),
            memory: Some(value),
            memory_limit: Some(value),
            ..Job::default()
        });
        moment.disks = vec![Disk { read: Some(value), busy: Some(value), ..disk(&"d".repeat(100), value) }];
        moment.gpus = vec![Gpu { used: Some(value), memory: Some(value), memory_total: Some(value), ..Gpu::default() }];
        moment.marks = vec![Mark { name: "\u{4e2d}\u{6587}".repeat(50), kind: MarkKind::Begin, at_ms: 1 }];
        strange.add(moment, 21.0);
    }
    let mut held = view(300, 300);
    press(&mut held, &[KeyCode::Home, KeyCode::Right, KeyCode::Tab]);
    let mut nothing = View::new(Source::Recording);
    nothing.add(Moment { at: 1.0, secs: 1.0, ..Moment::default() }, 1.0);
    for view in [strange, held, nothing, view(0, 0), view(1, 0)] {
        for width in [0, 59, 60, 80, 120, 160, 200] {
            for height in [0, 16, 17, 24, 32, 60] {
                picture(&view, width, height);
            }
        }
    }
}

#[test]
fn time_that_is_held_shows_what_was() {
    let mut view = view(300, 8);
    press(&mut view, &[KeyCode::Home, KeyCode::PageDown]);
    let picture = picture(&view, 80, 24);
    assert!(picture[1].ends_with("held at 2 min 30 s of 5 min 0 s"), "{picture:#?}");
    has(&picture, "1.46 GiB resident");
    has(&picture, "│");
}

#[test]
fn keys_are_told_and_messages_are_shown() {
    let mut view = view(3, 2);
    press(&mut view, &[KeyCode::Char('?')]);
    has(&picture(&view, 80, 24), "space            hold time, and let it go on");
    view.note = Some("1 line was left out".into());
    has(&picture(&view, 80, 24), "1 line was left out");
}

#[test]
fn a_machine_alone_and_an_empty_recording_have_their_words() {
    let mut alone = View::new(Source::Live);
    alone.add(Moment { job: None, run: None, ..moment(9, 2) }, 9.0);
    let lines = picture(&alone, 80, 24);
    assert!(lines[0].starts_with("the machine node7 "), "{lines:#?}");
    has(&lines, "3.70 of 2 cores");
    has(&lines, "8 GiB of 32 GiB");
    let mut empty = View::new(Source::Recording);
    empty.is_caught_up = true;
    has(&picture(&empty, 80, 24), "waiting for the first sample");
}

#[test]
fn without_colour_there_is_none() {
    let view = view(300, 8);
    let colours = |has_colour| {
        let terminal = terminal(&view, 80, 24, has_colour);
        terminal
            .backend()
            .buffer()
            .content()
            .iter()
            .filter(|cell| (cell.fg, cell.bg) != (Color::Reset, Color::Reset))
            .count()
    };
    assert!(colours(true) > 100 && colours(false) == 0);
}
