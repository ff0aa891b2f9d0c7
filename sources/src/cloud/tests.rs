use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;

use super::answer::cloud;
use super::*;

/// A metadata service that knows some paths, each with its answer. A path can ask for a header.
fn serve(answers: &'static [(&'static str, &'static str, &'static str)]) -> anyhow::Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let endpoint = format!("http://{}", listener.local_addr()?);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || {
                let mut lines = BufReader::new(&stream).lines().map_while(Result::ok);
                let request = lines.next().unwrap_or_default();
                let headers: Vec<String> =
                    lines.take_while(|line| !line.is_empty()).map(|line| line.to_lowercase()).collect();
                let found = answers.iter().find(|(path, header, _)| {
                    let has_header = header.is_empty() || headers.contains(&header.to_lowercase());
                    request.strip_suffix(" HTTP/1.1") == Some(path) && has_header
                });
                let (status, body) = found.map_or(("404 Not Found", ""), |(_, _, body)| ("200 OK", body));
                let length = body.len();
                let _ = write!(
                    &stream,
                    "HTTP/1.1 {status}\r\nMetadata-Flavor: Google\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
                );
            });
        }
    });
    Ok(endpoint)
}

/// Vendor, account, region, zone, type.
fn answer(answers: &'static [(&'static str, &'static str, &'static str)]) -> anyhow::Result<[Option<String>; 5]> {
    let endpoint = serve(answers)?;
    let CloudMetrics { cloud_vendor_id, cloud_account_id, cloud_region_id, cloud_zone_id, cloud_instance_type } =
        first_answer(Some(&endpoint));
    Ok([cloud_vendor_id, cloud_account_id, cloud_region_id, cloud_zone_id, cloud_instance_type])
}

fn known(values: [&str; 5]) -> [Option<String>; 5] {
    values.map(|value| Some(value.to_owned()).filter(|value| !value.is_empty()))
}

#[test]
fn aws_with_and_without_a_token() -> anyhow::Result<()> {
    let expected = known(["aws", "123456789012", "eu-west-1", "eu-west-1a", "c7i.large"]);
    let found = answer(&[
        ("PUT /latest/api/token", "x-aws-ec2-metadata-token-ttl-seconds: 60", "TOKEN"),
        ("GET /latest/meta-data/services/domain", "x-aws-ec2-metadata-token: TOKEN", "amazonaws.com"),
        ("GET /latest/meta-data/placement/region", "x-aws-ec2-metadata-token: TOKEN", "eu-west-1"),
        ("GET /latest/meta-data/placement/availability-zone", "x-aws-ec2-metadata-token: TOKEN", "eu-west-1a"),
        ("GET /latest/meta-data/instance-type", "x-aws-ec2-metadata-token: TOKEN", "c7i.large"),
        (
            "GET /latest/meta-data/identity-credentials/ec2/info",
            "x-aws-ec2-metadata-token: TOKEN",
            r#"{"Code":"Success","AccountId":"123456789012"}"#,
        ),
    ])?;
    assert_eq!(found, expected);
    let found = answer(&[
        ("GET /latest/meta-data/services/domain", "", "amazonaws.com"),
        ("GET /latest/meta-data/placement/region", "", "eu-west-1"),
        ("GET /latest/meta-data/instance-type", "", "c7i.large"),
    ])?;
    assert_eq!(found, known(["aws", "", "eu-west-1", "", "c7i.large"]));
    // What only looks like it.
    let other = answer(&[
        ("GET /latest/meta-data/services/domain", "", "example.com"),
        ("GET /latest/meta-data/instance-type", "", "x"),
    ])?;
    assert_eq!(other, known([""; 5]));
    Ok(())
}

#[test]
fn gcp_azure_and_hetzner() -> anyhow::Result<()> {
    let found = answer(&[
        (
            "GET /computeMetadata/v1/instance/machine-type",
            "metadata-flavor: Google",
            "projects/1/machineTypes/n2-standard-4",
        ),
        ("GET /computeMetadata/v1/instance/zone", "metadata-flavor: Google", "projects/1/zones/europe-west1-b"),
        ("GET /computeMetadata/v1/project/project-id", "metadata-flavor: Google", "my-project"),
    ])?;
    assert_eq!(found, known(["gcp", "my-project", "europe-west1", "europe-west1-b", "n2-standard-4"]));
    let found = answer(&[(
        "GET /metadata/instance?api-version=2021-02-01",
        "metadata: true",
        r#"{"compute":{"location":"westeurope","zone":"2","vmSize":"Standard_D2s_v5","subscriptionId":"s-1"}}"#,
    )])?;
    assert_eq!(found, known(["azure", "s-1", "westeurope", "2", "Standard_D2s_v5"]));
    let found = answer(&[(
        "GET /hetzner/v1/metadata",
        "",
        "availability-zone: fsn1-dc14\nhostname: x\ninstance-id: 42\nregion: eu-central\n",
    )])?;
    assert_eq!(found, known(["hcloud", "", "eu-central", "fsn1-dc14", ""]));
    Ok(())
}

#[test]
fn upcloud_digitalocean_and_vultr() -> anyhow::Result<()> {
    let found = answer(&[("GET /metadata/v1.json", "", r#"{"cloud_name":"upcloud","region":"fi-hel1"}"#)])?;
    assert_eq!(found, known(["upcloud", "", "fi-hel1", "fi-hel1", ""]));
    let found = answer(&[("GET /metadata/v1.json", "", r#"{"droplet_id":7,"region":"ams3"}"#)])?;
    assert_eq!(found, known(["digitalocean", "", "ams3", "ams3", ""]));
    let found = answer(&[("GET /v1.json", "", r#"{"instance-v2-id":"a","region":{"regioncode":"AMS"}}"#)])?;
    assert_eq!(found, known(["vultr", "", "AMS", "AMS", ""]));
    Ok(())
}

#[test]
fn alibaba_ovh_and_the_others() -> anyhow::Result<()> {
    let found = answer(&[
        ("GET /latest/meta-data/region-id", "", "cn-hangzhou"),
        ("GET /latest/meta-data/zone-id", "", "cn-hangzhou-i"),
        ("GET /latest/meta-data/instance/instance-type", "", "ecs.g7.large"),
        ("GET /latest/meta-data/owner-account-id", "", "99"),
    ])?;
    assert_eq!(found, known(["alicloud", "99", "cn-hangzhou", "cn-hangzhou-i", "ecs.g7.large"]));
    let found = answer(&[
        ("GET /openstack/latest/network_data.json", "", r#"{"services":[{"type":"dns","address":"213.186.33.99"}]}"#),
        ("GET /openstack/latest/meta_data.json", "", r#"{"availability_zone":"GRA11","project_id":"p"}"#),
        ("GET /latest/meta-data/instance-type", "", "b2-7"),
    ])?;
    assert_eq!(found, known(["ovh", "p", "GRA11", "GRA11", "b2-7"]));
    let found = answer(&[(
        "GET /opc/v2/instance/",
        "authorization: Bearer Oracle",
        r#"{"shape":"VM.Standard.E4.Flex","region":"fra","canonicalRegionName":"eu-frankfurt-1","availabilityDomain":"x:AD-1","compartmentId":"c"}"#,
    )])?;
    assert_eq!(found, known(["oci", "c", "eu-frankfurt-1", "x:AD-1", "VM.Standard.E4.Flex"]));
    let found =
        answer(&[("GET /conf?format=json", "", r#"{"commercial_type":"DEV1-S","zone":"fr-par-1","project":"p"}"#)])?;
    assert_eq!(found, known(["scaleway", "p", "fr-par", "fr-par-1", "DEV1-S"]));
    let found = answer(&[
        ("PUT /v1/token", "metadata-token-expiry-seconds: 60", "T"),
        ("GET /v1/instance", "metadata-token: T", r#"{"region":"us-east","type":"g6-nanode-1","account_euuid":"e"}"#),
    ])?;
    assert_eq!(found, known(["linode", "e", "us-east", "", "g6-nanode-1"]));
    Ok(())
}

#[test]
fn what_is_no_name_is_not_known() {
    let long = "x".repeat(900_000);
    for (value, expected) in [
        ("eu-west-1", true),
        ("x:AD-1", true),
        (long.as_str(), false),
        ("a b", false),
        ("a\nb", false),
        ("\u{1b}[2J", false),
    ] {
        let region =
            cloud("v", [None, Some(format!(" {value}\n")), None, None]).and_then(|cloud| cloud.cloud_region_id);
        assert_eq!(region.is_some(), expected, "{:.20}", value);
    }
    crate::fuzzing::metadata_answer(long.as_bytes());
    let deep = format!("{{\"region\":{}", "[".repeat(200_000));
    crate::fuzzing::metadata_answer(deep.as_bytes());
}

proptest::proptest! {
    #[test]
    fn any_answer_is_read_or_left(words in proptest::collection::vec("[{}\\[\\]\",:a-z0-9 ]{0,8}|region|compute|vmSize|droplet_id|cloud_name|upcloud", 0..40)) {
        crate::fuzzing::metadata_answer(words.concat().as_bytes());
    }
}

#[test]
fn t_cld_02_a_service_that_is_silent_is_not_waited_for() -> anyhow::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let start = Instant::now();
    let cloud = first_answer(Some(&format!("http://{}", listener.local_addr()?)));
    assert_eq!(cloud, CloudMetrics::default());
    assert!(start.elapsed() < Duration::from_millis(2900), "{:?}", start.elapsed());
    assert_eq!(first_answer(Some("http://127.0.0.1:1")), CloudMetrics::default());
    assert_eq!(first_answer(Some("no address")), CloudMetrics::default());
    Ok(())
}
