//! The page itself: one file with its style, its program and its data.

use std::io::{self, Read, Write};
use std::path::PathBuf;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::read::GzDecoder;
use resource_tracker_metrics::CloudMetrics;
use resource_tracker_report::{Advice, Look, Rows, Span, Summary, text};
use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::charts::{LeftOut, RunCharts};
use crate::timeline::Drawing;

/// So many runs have their summary as plain text, for programs that run no scripts.
const WORDED_RUNS: usize = 20;

/// The beginning by which an older page is recognised.
pub(crate) const BEGINNING: &str = "<!DOCTYPE html>\n<!-- resource-tracker report -->\n";

/// The styles and the scripts, as the build packs them.
const PACKED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/texts.gz"));
const STYLES: usize = 2;

/// The licence of uPlot, which must go with its code.
const LICENCE: &str = include_str!("../vendor/uplot-1.6.32/LICENSE");
const BODY: &str = include_str!("../assets/body.html");

/// A run that is on a page.
pub struct PageRun {
    /// The file that it was recorded in, if it was.
    pub path: Option<PathBuf>,
    /// Its figures, and what follows from them.
    pub summary: Summary,
    /// Its charts.
    pub charts: RunCharts,
}

#[derive(Serialize)]
struct Data<'a> {
    version: &'a str,
    runs: Vec<RunData<'a>>,
}

#[derive(Serialize)]
struct RunData<'a> {
    file: Option<String>,
    words: Rows,
    /// What to ask for the next time, in numbers.
    ask_for: Option<String>,
    /// As `summary --json` has it.
    summary: &'a Summary,
    cloud: CloudMetrics,
    phases: Vec<Span>,
    left_out: LeftOut,
    drawing: Drawing<'a>,
}

impl<'a> RunData<'a> {
    fn of(run: &'a mut PageRun) -> Self {
        let name = |path: &PathBuf| path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
        Self {
            file: run.path.as_ref().map(name),
            words: Rows::of(&run.summary),
            ask_for: run.summary.advice.as_ref().map(Advice::numbers),
            summary: &run.summary,
            cloud: run.charts.cloud().clone(),
            phases: run.charts.spans().to_vec(),
            left_out: run.charts.left_out(),
            drawing: run.charts.drawing(),
        }
    }
}

/// Writes the page of these runs.
///
/// # Errors
/// When it cannot be written.
pub fn write_page(mut out: impl Write, runs: &mut [PageRun]) -> anyhow::Result<()> {
    let title = match runs {
        [run] => Rows::of(&run.summary).title,
        _ => format!("{} runs", runs.len()),
    };
    let mut texts = String::new();
    GzDecoder::new(PACKED).read_to_string(&mut texts)?;
    let texts: Vec<&str> = texts.split('\0').collect();
    let (styles, scripts) = texts.split_at(STYLES);
    // The page may load nothing, and run nothing but its own scripts.
    let (style_sources, script_sources) = (sources(styles), sources(scripts));
    let policy = format!(
        "default-src 'none'; img-src data:; style-src {style_sources}; script-src {script_sources}; base-uri 'none'; form-action 'none'"
    );
    write!(
        out,
        "{BEGINNING}<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{policy}\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"referrer\" content=\"no-referrer\">\n<link rel=\"icon\" href=\"data:,\">\n<title>{}</title>\n",
        escaped(&title)
    )?;
    write!(out, "<!-- Charts by uPlot 1.6.32:\n{LICENCE}-->\n")?;
    for style in styles {
        writeln!(out, "<style>{style}</style>")?;
    }
    write!(out, "</head>\n<body>\n{BODY}")?;
    write_words(&mut out, runs)?;
    write!(out, "<script type=\"application/json\" id=\"data\">")?;
    let data = Data { version: env!("CARGO_PKG_VERSION"), runs: runs.iter_mut().map(RunData::of).collect() };
    serde_json::to_writer(WithoutMarkup(&mut out), &data)?;
    out.write_all(b"</script>\n")?;
    for script in scripts {
        writeln!(out, "<script>{script}</script>")?;
    }
    out.write_all(b"</body>\n</html>\n")?;
    Ok(())
}

/// The summaries as plain text: some mail programs run no scripts.
fn write_words(out: &mut impl Write, runs: &[PageRun]) -> io::Result<()> {
    for run in runs.iter().take(WORDED_RUNS) {
        let said = text(&run.summary, Look { width: 0, colour: false });
        writeln!(out, "<noscript><pre>{}</pre></noscript>", escaped(&said))?;
    }
    Ok(())
}

/// The texts as sources in a policy, which names them by their hashes.
fn sources(texts: &[&str]) -> String {
    let source = |text: &&str| format!("'sha256-{}'", STANDARD.encode(Sha256::digest(text)));
    texts.iter().map(source).collect::<Vec<_>>().join(" ")
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

/// JSON in which nothing looks like an end of the script, or like a comment. In JSON, a `<` is always in a text.
struct WithoutMarkup<W>(W);

impl<W: Write> Write for WithoutMarkup<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for (index, part) in bytes.split(|byte| *byte == b'<').enumerate() {
            if index > 0 {
                self.0.write_all(b"\\u003c")?;
            }
            self.0.write_all(part)?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use resource_tracker_core::Sample;
    use resource_tracker_report::{Kinds, RunStatistics};
    use serde_json::{Value as Json, json};

    use super::*;

    fn page_of(samples: &[Json]) -> (String, Json) {
        let kinds = Kinds::of_schema(|| {
            let (joules, total) =
                (json!({ "kind": "delta", "unit": "joules" }), json!({ "kind": "counter", "unit": "bytes" }));
            json!({ "properties": { "meter": { "items": { "properties": { "joules": joules, "total": total } } } } })
        });
        let (mut statistics, mut charts) = (RunStatistics::default(), RunCharts::default());
        for sample in samples {
            let sample = Sample::from_json(&sample.to_string()).unwrap();
            statistics.add(&sample, &kinds);
            charts.add(&sample, &kinds);
        }
        let run = PageRun { path: None, summary: statistics.summary(), charts };
        let mut page = Vec::new();
        write_page(&mut page, &mut [run]).unwrap();
        let page = String::from_utf8(page).unwrap();
        let (_, data) = page.split_once("id=\"data\">").unwrap();
        let data = serde_json::from_str(data.split_once("</script>").unwrap().0).unwrap();
        (page, data)
    }

    fn sample(second: u64, sections: Json) -> Json {
        let mut sample = json!({ "timestamp_ms": 1_700_000_000_000_u64 + second * 1000, "elapsed_secs": 1 });
        sample.as_object_mut().unwrap().extend(sections.as_object().unwrap().clone());
        sample
    }

    #[test]
    fn nothing_that_a_stranger_wrote_is_markup() {
        let evil = "</script><script>alert(1)</script><!--";
        let run = json!({ "run": {
            "id": "1", "command": ["echo", evil], "started_ms": 1, "interval_secs": 1, "version": "1", "labels": {}, "tags": {evil: evil},
        } });
        let (page, data) = page_of(&[sample(1, run), sample(2, json!({ evil: { evil: 1 } }))]);
        assert_eq!(data["runs"][0]["summary"]["run"]["command"][1], evil);
        assert!(!page.contains("alert(1)<") && !page.contains("<!--\"") && page.matches("</script>").count() == 3);
        assert!(page.contains("<title>echo &lt;/script>"), "{}", &page[..2000]);
    }

    #[test]
    fn what_is_counted_is_drawn_by_the_second() {
        let meter = |joules: u64, total: u64| json!({ "meter": [{ "name": "a", "joules": joules, "total": total }] });
        let figure = |figure: u64| json!({ "nobody": { "knows": figure } });
        let samples = [
            sample(1, meter(5, 100)),
            sample(2, meter(7, 150)),
            sample(3, figure(3)),
            sample(10, meter(8, 166)),
            sample(11, meter(9, 4)),
        ];
        let (_, data) = page_of(&samples);
        let drawing = &data["runs"][0]["drawing"];
        assert_eq!(drawing["ends"], json!([1.0, 2.0, 3.0, 9.0, 10.0, 11.0]), "six seconds are missing");
        let charts = drawing["charts"].as_array().unwrap().iter();
        let drawn: Vec<_> = charts
            .map(|chart| {
                let series = &chart["series"][0];
                [&chart["title"], &chart["unit"], &series["label"], &series["mean"]].map(Json::to_string).join(" ")
            })
            .collect();
        let expected = [
            r#""meter" "bytes/second" "a total" [null,50,null,null,2,4]"#,
            r#""meter" "joules/second" "a joules" [5,7,null,null,8,9]"#,
            r#""nobody.knows" "" "knows" [null,null,3,null,null,null]"#,
        ];
        assert_eq!(drawn, expected);
    }

    #[test]
    fn what_an_older_version_did_not_write_is_said() {
        let old = json!({
            "cpu": { "cores_used": 1.5, "utilization_pct": 1.5, "per_core_pct": [75, 75], "processes_running": 2 },
            "memory": { "total_mib": 1000, "used_mib": 300 },
        });
        let (_, data) = page_of(&[sample(1, old)]);
        let run = &data["runs"][0];
        let series = |chart: &Json| {
            chart["series"].as_array().unwrap().iter().map(|one| one["label"].to_string()).collect::<Vec<_>>()
        };
        let drawn: Vec<_> = run["drawing"]["charts"].as_array().unwrap().iter().flat_map(series).collect();
        assert_eq!(drawn, [r#""machine""#, r#""all of the machine""#, r#""that run, or could""#]);
        let [unreadable] = &run["left_out"]["unreadable"].as_array().unwrap()[..] else { panic!("{run}") };
        let said = "memory could not be read 1 time, and is not in the charts there: missing field";
        assert!(unreadable.as_str().unwrap().starts_with(said), "{unreadable}");
    }

    fn process(pid: u32, name: &str, cores: f64) -> Json {
        json!({ "pid": pid, "name": name, "cores_used": cores, "rss_mib": 9 })
    }

    #[test]
    fn programs_that_are_not_among_the_busiest_are_idle() {
        let (make, cc1) = (process(6, "make", 0.5), process(7, "cc1", 1.0));
        let lists = [
            json!({ "top_processes": [make] }),
            json!({ "top_processes": [make, cc1] }),
            json!({ "cpu": {} }),
            json!({ "top_processes": [] }),
        ];
        let samples: Vec<Json> = (1..).zip(lists).map(|(second, list)| sample(second, list)).collect();
        let programs = |data: &Json| {
            let series = data["runs"][0]["drawing"]["charts"][0]["series"].as_array().unwrap().iter();
            series.map(|series| [&series["label"], &series["mean"]].map(Json::to_string).join(" ")).collect::<Vec<_>>()
        };
        assert_eq!(programs(&page_of(&samples).1), [r#""make" [0.5,0.5,null,0]"#, r#""cc1" [0,1,null,0]"#]);
        let day: Vec<Json> = (0..1024)
            .map(|second| {
                sample(second + 1, json!({ "top_processes": samples[usize::from(second == 1000)]["top_processes"] }))
            })
            .collect();
        let (_, data) = page_of(&day);
        assert_eq!(data["runs"][0]["drawing"]["samples_per_point"], 2);
        assert!(programs(&data)[1].contains("0,0.5,0"), "{}", programs(&data)[1]);
    }

    #[test]
    fn programs_of_one_name_are_one_line() {
        let top = [process(7, "cc1", 0.75), process(8, "cc1", 0.5), process(6, "make", 0.25)];
        let (_, data) = page_of(&[sample(1, json!({ "top_processes": top }))]);
        let charts = &data["runs"][0]["drawing"]["charts"];
        let series = |place: usize| (&charts[0]["series"][place]["label"], &charts[0]["series"][place]["mean"]);
        assert_eq!((charts.as_array().unwrap().len(), &charts[0]["unit"]), (1, &json!("cores")));
        assert_eq!(series(0), (&json!("cc1"), &json!([1.25])));
        assert_eq!(series(1), (&json!("make"), &json!([0.25])));
    }
}
