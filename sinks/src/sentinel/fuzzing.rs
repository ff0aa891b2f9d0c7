//! Entry points for the fuzz targets: code that parses bytes from others. Not part of the interface.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::api::{Credentials, Registration};
use super::state::State;
use crate::http::Answer;
use crate::s3::client::{Object, S3};
use crate::spool::{Access, Spool, State as _, Store};

/// What rows may unpack to.
const LIMIT: u64 = 1 << 16;

/// `run.json`: what is read from it is written again unchanged, and names nothing outside of its place.
pub fn run_json(bytes: &[u8]) {
    let Ok(state) = State::parse(bytes) else { return };
    let again = serde_json::to_vec(&state).map(|text| State::parse(&text));
    assert!(again.is_ok_and(|again| again.as_ref() == Ok(&state)));
    list(&state);
    let id = state.run_id.unwrap_or_default();
    assert!(!id.contains('/') && id != ".." && !state.upload_uri_prefix.unwrap_or_default().contains("/../"));
}

/// The addresses of all batches take no more memory than is set aside for them.
fn list(state: &State) {
    assert!(state.uris().iter().map(String::len).sum::<usize>() <= 64 << 20);
}

/// The files of a run, parted by a byte that no text has: they are read within bounds, and removed with their folder. In
/// `directory`, which is the user's alone.
pub fn spool_files(directory: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let spool = Spool::open_or_make(directory)?;
    let (run, _) = spool.create(b"{}")?;
    let path = run.path().to_owned();
    let names = ["run.json", "000000.csv.gz", "000001.csv", "000003.csv", "run.json.tmp"];
    for (name, content) in names.iter().zip(bytes.split(|byte| *byte == 0xff)) {
        fs::write(path.join(name), content)?;
        fs::set_permissions(path.join(name), fs::Permissions::from_mode(0o600))?;
    }
    drop(run);
    let run = spool.left_behind(Access::Work)?.flatten().find(|run| run.path() == path);
    let run = run.ok_or_else(|| anyhow::anyhow!("it is not found"))?;
    if let Ok(Some(mut store)) = Store::<State>::recover(run) {
        for batch in [0, 1, 2, 3] {
            let rows = store.rows(batch, LIMIT).ok().flatten();
            assert!(rows.is_none_or(|rows| rows.len() as u64 <= LIMIT && rows.ends_with(b"\n")));
            let _ = store.body(batch);
        }
        while store.next() < store.closed {
            store.settle(false);
        }
        assert_eq!(store.next(), store.closed);
        list(&store.state);
        return Ok(store.remove()?);
    }
    // A run that cannot be read stays as it is, so it gets a `run.json` that can be read.
    fs::write(path.join("run.json"), "{}")?;
    let run = spool.left_behind(Access::Work)?.flatten().find(|run| run.path() == path);
    run.map_or(Ok(()), |run| Ok(run.remove()?))
}

/// An answer of the service or the store: errors repeat nothing of it, and it leads to no other host.
pub fn service_answer(bytes: &[u8]) {
    let status = bytes.first().map_or(200, |byte| 200 + u16::from(*byte) * 2);
    let body = bytes.get(1..).unwrap_or_default();
    let failure = Answer::of(status, body.to_vec()).failure("PUT x");
    let said = failure.problem().strip_prefix(&format!("PUT x: the answer is {status}"));
    assert!(said.is_some_and(|code| code.bytes().all(|byte| byte.is_ascii_alphabetic() || byte == b' ')));
    let registered = Registration::parse(body).map(|registration| registration.upload_credentials);
    for credentials in [registered, Credentials::parse(body)] {
        let credentials = match credentials {
            Ok(credentials) if credentials.region.is_some() => credentials,
            Ok(_) => continue,
            Err(problem) => {
                assert!(problem.is_ascii() && problem.len() < 100, "{problem}");
                continue;
            }
        };
        let uri = "s3://bucket/p/r/000000.csv.gz";
        let object = Object { uri, region: credentials.region.as_deref(), headers: &[], signed: &[] };
        let mut store = S3::new(ureq::Agent::new_with_defaults(), None, "eu-central-1");
        let url = store.address(&object, &credentials.keys());
        assert!(
            url.is_err() || url.is_ok_and(|url| url.host_str().is_some_and(|host| host.ends_with(".amazonaws.com")))
        );
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn answers_of_any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            service_answer(&bytes);
            run_json(&bytes);
        }

        #[test]
        fn answers_of_any_region(region in ".{0,10}|[a-z/@.:#?-]{0,10}", id in "[./a]{0,3}") {
            let keys = serde_json::json!({"access_key": "a", "secret_key": "b", "session_token": "c", "region": region});
            let answer = serde_json::json!({"run_id": id, "upload_uri_prefix": "s3://b", "upload_credentials": keys});
            service_answer(format!("x{answer}").as_bytes());
        }
    }

    proptest! {
        // Each waits for the disk.
        #![proptest_config(ProptestConfig::with_cases(50))]

        #[test]
        fn files_of_any_bytes(bytes in prop::collection::vec(prop_oneof![any::<u8>(), Just(0xff), Just(b'\n')], 0..100)) {
            let directory = tempfile::tempdir()?;
            let spooled = spool_files(&directory.path().join("spool"), &bytes);
            prop_assert!(spooled.is_ok(), "{:?}", spooled);
            prop_assert_eq!(fs::read_dir(directory.path().join("spool"))?.count(), 0);
        }
    }
}
