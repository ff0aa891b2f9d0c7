//! What the next run would cost: `summary --servers`, beside a stand-in for the service.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use resource_tracker_tests::server::{Server, http};
use resource_tracker_tests::{command, number, samples, text, track, tracker};
use serde_json::{Value as Json, json};

/// Machines, as the service knows them: the vendor and the name; CPUs, MiB of memory, GPUs, and MiB of their memory; the price.
const CATALOGUE: [(&str, &str, [u32; 4], Option<f64>); 6] = [
    ("hcloud", "spot-only", [4, 65_536, 0, 0], None),
    ("hcloud", "cx22", [2, 4096, 0, 0], Some(0.0073)),
    ("aws", "t3.large", [2, 8192, 0, 0], Some(0.0832)),
    ("aws", "c5.xlarge", [4, 8192, 0, 0], Some(0.17)),
    ("aws", "g4dn.xlarge", [4, 16_384, 1, 16_384], Some(0.526)),
    ("gcp", "a2-highgpu-2g", [24, 174_080, 2, 81_920], Some(7.35)),
];

/// The answer of the service. It takes memory in GiB, and refuses what it does not know.
fn keeper(head: &str) -> Vec<u8> {
    let target = head.split(' ').nth(1).unwrap();
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    if path == "/api/server/aws/c5.xlarge/prices" {
        let price = |region: &str, allocation: &str, system: &str, price: f64| json!({ "region_id": region, "allocation": allocation, "operating_system": system, "unit": "hour", "currency": "USD", "price": price });
        let prices = json!([
            price("us-east-1", "ondemand", "Linux", 0.17),
            price("eu-central-1", "ondemand", "Linux", 0.194),
            price("eu-central-1", "spot", "Linux", 0.07),
            price("eu-central-1", "ondemand", "Windows", 0.1),
        ]);
        return http("200 OK", "", &prices.to_string());
    }
    if path != "/api/servers" {
        return http("404 Not Found", "", "{\"detail\":\"Not Found\"}");
    }
    let mut least = [0.0; 4];
    for (name, value) in query.split('&').map(|pair| pair.split_once('=').unwrap()) {
        let number = || value.parse::<f64>().unwrap();
        match name {
            "vcpus_min" => least[0] = number(),
            "memory_min" => least[1] = 1024.0 * number(),
            "gpu_min" => least[2] = number(),
            "gpu_memory_total" => least[3] = 1024.0 * number(),
            "order_by" if value == "min_price_ondemand" => (),
            "order_dir" if value == "asc" => (),
            "limit" if number() >= 1.0 => (),
            _ => return http("422 Unprocessable Content", "", "{}"),
        }
    }
    let holds =
        CATALOGUE.iter().filter(|(_, _, has, _)| has.iter().zip(least).all(|(has, least)| f64::from(*has) >= least));
    let servers = holds.map(|(vendor, name, [vcpus, memory, gpus, gpu_memory], price)| {
        json!({
            "vendor_id": vendor, "server_id": name, "api_reference": name, "name": name, "cpu_architecture": "x86_64", "vcpus": vcpus,
            "memory_amount": memory, "gpu_count": gpus, "gpu_memory_total": gpu_memory, "min_price_ondemand": price,
            "vendor": { "vendor_id": vendor }, "score": null,
        })
    });
    http("200 OK", "Content-Type: application/json\r\n", &Json::from_iter(servers).to_string())
}

/// Writes a recording of an hour, with these cores, that peak of memory in MiB, and more.
fn record(path: &Path, cores: f64, peak: f64, more: &Json) {
    let whole = path.with_extension("recorded");
    assert!(track(["-i", "50ms", "-o", whole.to_str().unwrap(), "--", "sleep", "0.3"]).status.success());
    let mut recorded = samples(&fs::read(&whole).unwrap());
    let count = recorded.len();
    let began = recorded[0]["timestamp_ms"].as_u64().unwrap();
    for (index, sample) in recorded.iter_mut().enumerate() {
        sample["elapsed_secs"] = json!(3600.0 / count as f64);
        sample["timestamp_ms"] = json!(began + 3_600_000 * (index as u64 + 1) / count as u64);
        sample["cpu"]["process_cores_used"] = json!(cores);
        sample["cpu"]["process_peak_memory_mib"] = json!(peak);
        sample["cpu"]["process_memory_mib"] = json!(peak);
        for (name, fields) in more.as_object().unwrap() {
            if name == "cpu" {
                fields.as_object().unwrap().iter().for_each(|(name, value)| sample["cpu"][name] = value.clone());
            } else if index == 0 {
                sample[name] = fields.clone();
            }
        }
    }
    recorded[count - 1]["outcome"]["wall_secs"] = json!(3600.0);
    fs::write(path, recorded.iter().map(|sample| format!("{sample}\n")).collect::<String>()).unwrap();
}

fn on_aws(region: &str, instance_type: &str) -> Json {
    json!({ "cloud": {
        "cloud_vendor_id": "aws", "cloud_account_id": null, "cloud_region_id": region, "cloud_zone_id": null,
        "cloud_instance_type": instance_type,
    } })
}

/// Standard output, standard error, and the exit code.
fn summary(arguments: &[&str], files: &[&Path]) -> (String, String, Option<i32>) {
    let output = command(tracker()).arg("summary").args(arguments).args(files).output().unwrap();
    (text(&output.stdout), text(&output.stderr), output.status.code())
}

#[test]
fn the_cheapest_machine_that_holds_it_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let server = Server::start(keeper);
    let url = format!("{}/api/", server.url);
    record(&at("small"), 1.5, 2000.0, &json!({}));
    record(&at("large"), 3.5, 5000.0, &on_aws("eu-central-1", "c5.xlarge"));
    record(&at("elsewhere"), 1.5, 2000.0, &on_aws("ap-south-1", "c5.xlarge"));
    record(&at("unlisted"), 1.5, 2000.0, &on_aws("eu-central-1", "x/../9"));
    let gpu = json!({ "process_gpu_usage": 1.5, "process_gpu_vram_mib": 30_000.0, "process_gpu_utilized": 2 });
    record(&at("gpu"), 1.5, 2000.0, &json!({ "cpu": gpu }));
    for (name, cheapest, saves) in [
        ("small", "hcloud cx22 (x86_64): 2 vCPUs, 4 GiB, $0.0073 an hour: $0.0073 for 1 h 0 min", None),
        (
            "large",
            "aws c5.xlarge (x86_64): 4 vCPUs, 8 GiB, $0.17 an hour: $0.17 for 1 h 0 min",
            Some("$0.024 of $0.194 (12 %): aws c5.xlarge, which it was on, is $0.194 an hour"),
        ),
        (
            "elsewhere",
            "hcloud cx22 (x86_64): 2 vCPUs, 4 GiB, $0.0073 an hour: $0.0073 for 1 h 0 min",
            Some("$0.163 of $0.17 (96 %): aws c5.xlarge, which it was on, is $0.17 an hour"),
        ),
        ("unlisted", "hcloud cx22 (x86_64): 2 vCPUs, 4 GiB, $0.0073 an hour: $0.0073 for 1 h 0 min", None),
        ("gpu", "gcp a2-highgpu-2g (x86_64): 24 vCPUs, 170 GiB, 2 GPUs, $7.35 an hour: $7.35 for 1 h 0 min", None),
    ] {
        let (stdout, stderr, code) = summary(&["--servers", &url], &[&at(name)]);
        assert_eq!((stderr.as_str(), code), ("", Some(0)), "{name}");
        let line = |label: &str| stdout.lines().find_map(|line| line.strip_prefix(label)).map(str::trim_start);
        assert_eq!((line("Cheapest"), line("Saves")), (Some(cheapest), saves), "{name}: {stdout}");
        assert!(stdout.starts_with("sleep 0.3\nexited with 0 after 1 h 0 min\n"), "{stdout}");
    }
    // The worst of several runs counts, and a run that failed does not.
    let failed = fs::read_to_string(at("gpu")).unwrap().replace("\"exit_code\":0", "\"exit_code\":1");
    fs::write(at("failed"), failed).unwrap();
    let several = [at("small"), at("failed"), at("large")];
    let several: Vec<&Path> = several.iter().map(|path| path.as_path()).collect();
    let (stdout, _, code) = summary(&["--json", "--servers", &url], &several);
    let lines: Vec<Json> = stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((lines.len(), code), (4, Some(0)), "one for each run, and the offer");
    let offer = &lines[3]["offer"];
    assert_eq!((&offer["server"]["name"], &offer["demand"]["advice"]["gpus"]), (&json!("c5.xlarge"), &Json::Null));
    assert!(
        (number(offer, "/usd") - 0.17).abs() < 1e-9 && (number(offer, "/present/saving_usd") - 0.024).abs() < 1e-9,
        "{offer}"
    );
    let (stdout, _, _) = summary(&["--markdown", "--servers", &url], &several);
    assert!(
        stdout.contains("\n- **Cheapest**: aws c5.xlarge (x86\\_64): 4 vCPUs") && stdout.contains("\n- **Saves**: "),
        "{stdout}"
    );
    let asked = server.requests();
    assert!(asked.iter().all(
        |head| head.starts_with("GET /api/server") && head.to_lowercase().contains("user-agent: resource-tracker/")
    ));
    assert!(asked.iter().any(|head| head.starts_with("GET /api/server/aws/x%2F..%2F9/prices ")), "{asked:?}");
}

#[test]
fn nobody_is_asked_unless_told_to() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.jsonl");
    record(&path, 1.5, 2000.0, &on_aws("eu-central-1", "c5.xlarge"));
    let (stdout, stderr, code) = summary(&[], &[&path]);
    assert!(!stdout.contains("Cheapest") && stderr.is_empty() && code == Some(0), "{stdout}");
    // Before anything is read.
    for (arguments, problem) in [
        (
            &["--servers", "http://keeper.example.com"][..],
            "would be spoken to unencrypted; use https, or say --allow-http",
        ),
        (&["--servers", "keeper.example.com"], "--servers \"keeper.example.com\" is no URL"),
        (&["--servers", "ftp://keeper.example.com"], "it must be https"),
        (
            &["--servers", "https://user:word@keeper.example.com"],
            "--servers has a user, a password, a query or a fragment",
        ),
        (&["--allow-http"], "--servers"),
    ] {
        let (stdout, stderr, code) = summary(arguments, &[&path]);
        assert_eq!((stdout.as_str(), stderr.lines().count(), code), ("", 1, Some(2)), "{arguments:?}: {stderr}");
        assert!(stderr.contains(problem), "{stderr}");
    }
}

#[test]
fn whatever_a_service_says_the_summary_is_shown() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.jsonl");
    record(&path, 1.5, 2000.0, &on_aws("eu-central-1", "c5.xlarge"));
    let (plain, _, _) = summary(&[], &[&path]);
    let ok = |body: &str| http("200 OK", "", body);
    let good =
        json!({ "vendor_id": "v", "server_id": "s", "vcpus": 2, "memory_amount": 4096, "min_price_ondemand": 0.1 });
    let with = |name: &str, value: Json| {
        let mut server = good.clone();
        server[name] = value;
        ok(&json!([server]).to_string())
    };
    let none = "no machine with a price has 2 cores, 2560 MiB";
    let no_list = "the answer is no list of objects";
    let cases = [
        (http("500 Oops", "", "secret"), "/servers: the answer is 500"),
        (http("404 Not Found", "", "[]"), "/servers: the answer is 404"),
        (http("302 Found", "Location: http://127.0.0.1:1/\r\n", ""), "/servers: the answer is 302"),
        (b"hello\r\n\r\n".to_vec(), "/servers: the answer is no HTTP"),
        (Vec::new(), "/servers: "),
        (ok(""), no_list),
        (ok("<html>"), no_list),
        (ok("{\"servers\": []}"), no_list),
        (ok(&"[".repeat(100_000)), no_list),
        (ok(&format!("[\"{}\"]", "x".repeat(2 << 20))), "/servers: the answer is too long"),
        (ok("[1, \"two\", {}]"), "nothing in the answer is what was asked for"),
        (ok("[]"), none),
        // It has misunderstood.
        (with("memory_amount", json!(2048)), none),
        (with("vcpus", json!(1)), none),
        (with("min_price_ondemand", json!(null)), none),
        (with("min_price_ondemand", json!(0)), none),
        (with("min_price_ondemand", json!(-1)), none),
        (with("min_price_ondemand", json!(1e300)), none),
        (with("vcpus", json!("many")), "nothing in the answer is what was asked for"),
    ];
    for (answer, problem) in cases {
        let server = Server::start(move |_| answer.clone());
        let (stdout, stderr, code) = summary(&["--servers", &server.url], &[&path]);
        assert_eq!((stdout.as_str(), code), (plain.as_str(), Some(1)), "{problem}: {stderr}");
        assert!(
            stderr.contains(problem) && stderr.lines().count() == 1 && !stderr.contains("secret"),
            "{problem}: {stderr}"
        );
    }
    // No service is there, or one that never answers.
    let (stdout, stderr, code) = summary(&["--servers", "http://127.0.0.1:1"], &[&path]);
    assert!(stdout == plain && code == Some(1) && stderr.contains("http://127.0.0.1:1/servers: "), "{stderr}");
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let begin = Instant::now();
    let (stdout, stderr, code) = summary(&["--servers", &format!("http://{}", silent.local_addr().unwrap())], &[&path]);
    assert!(stdout == plain && code == Some(1) && stderr.contains("no answer in time"), "{stderr}");
    assert!(begin.elapsed() >= Duration::from_secs(9), "it was given time");
    // The names are the service's, and reach no terminal as they are; the price of the machine itself is another answer.
    let listed = json!([{ "vendor_id": "v\u{1b}[2J", "server_id": "s\n\u{202e}", "vcpus": 2, "memory_amount": 4096, "min_price_ondemand": 0.1 }]);
    let server = Server::start(move |head| match head.starts_with("GET /servers?") {
        true => http("200 OK", "", &listed.to_string()),
        false => http("500 Oops", "", ""),
    });
    let (stdout, stderr, code) = summary(&["--servers", &server.url], &[&path]);
    assert!(stdout.starts_with(&plain) && stdout.contains("\nCheapest   v [2J s : 2 vCPUs"), "{stdout:?}");
    assert!(code == Some(1) && stderr.contains("/server/aws/c5.xlarge/prices: the answer is 500"), "{stderr}");
}

#[test]
fn a_run_that_does_not_say_what_it_needs_is_not_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.jsonl");
    assert_eq!(
        track(["-i", "50ms", "-o", path.to_str().unwrap(), "--", "sh", "-c", "sleep 0.2; exit 3"]).status.code(),
        Some(3)
    );
    let server = Server::start(keeper);
    let (stdout, stderr, code) = summary(&["--servers", &server.url], &[&path]);
    assert!(stdout.contains("exited with 3") && code == Some(1), "{stdout}");
    assert!(
        stderr.contains("nobody was asked, because no run that is known to have ended well says what it needs"),
        "{stderr}"
    );
    assert!(server.requests().is_empty());
}
