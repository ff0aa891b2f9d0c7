//! The service's own part: runs, and what it takes about them.

use std::sync::Mutex;
use std::time::{Instant, SystemTime};

use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::{Method, Request, Response, StatusCode};
use serde_json::{Value as Json, json};

use super::known::{BUCKET, Keys, Known, Run, TOKEN, lock};

const TEXTS: [&str; 21] = [
    "job_name",
    "project_name",
    "stage_name",
    "task_name",
    "team",
    "env",
    "language",
    "orchestrator",
    "executor",
    "external_run_id",
    "container_image",
    "command",
    "host_id",
    "host_hostname",
    "host_ip",
    "host_server_allocation",
    "host_cpu_model",
    "host_gpu_model",
    "cloud_vendor_id",
    "cloud_account_id",
    "cloud_region_id",
];
const MORE_TEXTS: [&str; 2] = ["cloud_zone_id", "cloud_instance_type"];
const NUMBERS: [&str; 5] =
    ["host_vcpus", "host_memory_mib", "host_gpu_count", "host_gpu_memory_mib", "host_storage_gb"];

/// The first line of every CSV.
pub fn header() -> String {
    let system = "processes utime stime cpu_usage memory_free_mib memory_used_mib memory_buffers_mib memory_cached_mib \
                  memory_active_mib memory_inactive_mib disk_read_bytes disk_write_bytes disk_space_total_gb \
                  disk_space_used_gb disk_space_free_gb net_recv_bytes net_sent_bytes gpu_usage gpu_vram_mib gpu_utilized";
    let process = "pid children utime stime cpu_usage memory_mib disk_read_bytes disk_write_bytes gpu_usage gpu_vram_mib \
                   gpu_utilized";
    let system = system.split_whitespace().map(|name| format!("system_{name}"));
    let process = process.split_whitespace().map(|name| format!("process_{name}"));
    let names: Vec<String> = std::iter::once("timestamp".to_owned()).chain(system).chain(process).collect();
    names.join(",") + "\n"
}

pub(crate) async fn answer(request: Request<Incoming>, known: &Mutex<Known>) -> Response<String> {
    let (parts, body) = request.into_parts();
    let body = match body.collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) => return refuse(known, StatusCode::BAD_REQUEST, &error.to_string()),
    };
    let header = |name: &str| parts.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if header("authorization") != format!("Bearer {TOKEN}") {
        return refuse(known, StatusCode::UNAUTHORIZED, "no bearer, or another one");
    }
    if parts.headers.contains_key("content-encoding") {
        return refuse(known, StatusCode::UNPROCESSABLE_ENTITY, "the body is encoded");
    }
    let json = serde_json::from_slice::<Json>(&body).ok();
    let path: Vec<&str> = parts.uri.path().split('/').skip(1).collect();
    let known_run = path.get(1).is_none_or(|id| lock(known).runs.contains_key(*id));
    match (&parts.method, path.as_slice()) {
        _ if !known_run => refuse(known, StatusCode::NOT_FOUND, "there is no such run"),
        (&Method::POST, ["runs"]) => register(known, json),
        (&Method::POST, ["runs", id, "refresh-credentials"]) if body.is_empty() => {
            if let Some(run) = lock(known).runs.get_mut(*id) {
                run.refreshes += 1;
            }
            tell(StatusCode::OK, &json!({ "upload_credentials": credentials(known), "more": "than expected" }))
        }
        (&Method::POST, ["runs", id, "finish"]) => finish(known, id, json),
        _ => refuse(known, StatusCode::UNPROCESSABLE_ENTITY, "that is not in the contract"),
    }
}

fn register(known: &Mutex<Known>, facts: Option<Json>) -> Response<String> {
    let Some(Json::Object(facts)) = facts else {
        return refuse(known, StatusCode::UNPROCESSABLE_ENTITY, "the body is no object");
    };
    for (key, value) in &facts {
        let is_good = match key.as_str() {
            "tags" => value.as_object().is_some_and(|tags| tags.values().all(Json::is_string)),
            "command" => value.as_str().is_some_and(|text| serde_json::from_str::<Vec<String>>(text).is_ok()),
            key if TEXTS.contains(&key) || MORE_TEXTS.contains(&key) => value.is_string(),
            key if NUMBERS.contains(&key) => value.is_number(),
            _ => false,
        };
        if !is_good {
            return refuse(known, StatusCode::UNPROCESSABLE_ENTITY, &format!("{key}: {value} is not taken"));
        }
    }
    let credentials = credentials(known);
    let mut known = lock(known);
    let run_id = format!("run-{}", known.runs.len() + 1);
    known.runs.insert(run_id.clone(), Run { facts: facts.into(), ..Run::default() });
    let mut answer = json!({
        "run_id": run_id, "upload_uri_prefix": format!("s3://{BUCKET}/some/prefix"), "upload_credentials": credentials,
        "more": { "than": "expected" },
    });
    for (key, value) in known.answer.as_object().into_iter().flatten() {
        match (&mut answer[key], value) {
            (Json::Object(object), Json::Object(more)) => object.extend(more.clone()),
            (place, value) => *place = value.clone(),
        }
    }
    tell(StatusCode::CREATED, &answer)
}

fn finish(known: &Mutex<Known>, id: &str, body: Option<Json>) -> Response<String> {
    let Some(Json::Object(body)) = body else {
        return refuse(known, StatusCode::UNPROCESSABLE_ENTITY, "the body is no object");
    };
    let text = |key: &str| body.get(key).and_then(Json::as_str);
    let is_good = |(key, value): (&String, &Json)| match key.as_str() {
        "exit_code" => value.is_i64(),
        "run_status" => ["finished", "failed"].contains(&value.as_str().unwrap_or_default()),
        "finished_at" => value.as_str().is_some_and(|text| text.len() == 20 && text.ends_with('Z')),
        "data_source" => true,
        "data_uris" => {
            let is_uri = |uri: &Json| {
                uri.as_str().is_some_and(|uri| uri.starts_with(&format!("s3://{BUCKET}/some/prefix/{id}/")))
            };
            text("data_source") == Some("s3")
                && value.as_array().is_some_and(|uris| !uris.is_empty() && uris.iter().all(is_uri))
        }
        "data_csv" => {
            text("data_source") == Some("inline") && value.as_str().is_some_and(|csv| csv.starts_with(&header()))
        }
        _ => false,
    };
    if let Some((key, value)) = body.iter().find(|member| !is_good(*member)) {
        return refuse(known, StatusCode::UNPROCESSABLE_ENTITY, &format!("{key}: {value} is not taken"));
    }
    if text("run_status").is_none() || (!body.contains_key("data_uris") && !body.contains_key("data_csv")) {
        return refuse(known, StatusCode::UNPROCESSABLE_ENTITY, "something is missing");
    }
    let mut known = lock(known);
    if let Some(run) = known.runs.get_mut(id) {
        run.finish = Some(body.into());
    }
    tell(StatusCode::OK, &json!({ "statistics": {} }))
}

/// Credentials as the security token service would give them.
fn credentials(known: &Mutex<Known>) -> Json {
    let mut known = lock(known);
    let number = known.keys.len();
    let access_key = format!("ASIATEST{number}");
    let keys = Keys {
        secret: format!("secret/key+{number}"),
        token: format!("session//token+{number}=="),
        end: Instant::now() + known.early_end.unwrap_or(known.lifetime),
    };
    let end = SystemTime::now() + known.lifetime;
    let end = jiff::Timestamp::try_from(end).expect("a time").strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let mut credentials = json!({
        "access_key": access_key, "secret_key": keys.secret, "session_token": keys.token, "expiration": end,
    });
    if known.tells_region {
        credentials["region"] = "eu-west-1".into();
    }
    known.keys.insert(access_key, keys);
    credentials
}

fn tell(status: StatusCode, body: &Json) -> Response<String> {
    let mut answer = Response::new(body.to_string());
    *answer.status_mut() = status;
    answer
}

fn refuse(known: &Mutex<Known>, status: StatusCode, why: &str) -> Response<String> {
    lock(known).complaints.push(why.to_owned());
    tell(status, &json!({ "detail": why }))
}
