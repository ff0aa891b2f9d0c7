//! Keys for a while, which a service gives: for a token of another one, to a container, to a machine.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use jiff::Timestamp;
use serde::Deserialize;
use ureq::Agent;
use ureq::http::Method;
use url::{Host, Url, form_urlencoded};

use super::super::client::{Keys, is_region};
use super::variables::variable;
use crate::http::{self, Answer, element, read_file, send};
use crate::secret::Secret;

/// Where containers of Amazon's have keys.
const CONTAINER: &str = "http://169.254.170.2";
/// Where else they may: Amazon's addresses for it.
const CONTAINER_HOSTS: [&str; 3] = ["169.254.170.2", "169.254.170.23", "fd00:ec2::23"];
/// Where machines of Amazon's have them.
const MACHINE: &str = "http://169.254.169.254";
/// It is on this link, or nowhere.
const PATIENCE: Duration = Duration::from_secs(2);

/// A token of another service that stands for a role of Amazon's.
pub(super) struct WebIdentity {
    pub(super) token_file: PathBuf,
    pub(super) role: String,
    pub(super) session: Option<String>,
}

impl WebIdentity {
    pub(super) fn of_environment() -> Option<Self> {
        let token_file = variable("AWS_WEB_IDENTITY_TOKEN_FILE")?.into();
        Some(Self { token_file, role: variable("AWS_ROLE_ARN")?, session: variable("AWS_ROLE_SESSION_NAME") })
    }

    /// Exchanges the token for keys.
    pub(super) fn keys(&self, agent: &Agent, region: Option<&str>) -> anyhow::Result<Keys> {
        let token = read_file(&self.token_file);
        let token = token.with_context(|| format!("cannot read the token of {}", self.token_file.display()))?;
        let token = String::from_utf8(token).ok().context("the token is no text")?;
        let region = variable("AWS_REGION").or_else(|| region.map(str::to_owned)).filter(|region| is_region(region));
        let url = match (variable("AWS_ENDPOINT_URL_STS"), region) {
            (Some(url), _) => {
                http::address("AWS_ENDPOINT_URL_STS", &url, false, "another").map_err(anyhow::Error::msg)?
            }
            (None, Some(region)) => Url::parse(&format!("https://sts.{region}.amazonaws.com/"))?,
            (None, None) => Url::parse("https://sts.amazonaws.com/")?,
        };
        let mut form = form_urlencoded::Serializer::new(String::new());
        form.append_pair("Action", "AssumeRoleWithWebIdentity").append_pair("Version", "2011-06-15");
        form.append_pair("RoleArn", &self.role).append_pair("WebIdentityToken", token.trim());
        form.append_pair("RoleSessionName", self.session.as_deref().unwrap_or("resource-tracker"));
        let (what, body) = ("POST AssumeRoleWithWebIdentity", form.finish());
        let headers = [("content-type", "application/x-www-form-urlencoded"), ("accept", "application/xml")];
        let answer = Answer::read(what, send(agent, Method::POST, url.as_str(), &headers, body.as_bytes()));
        let answer = answer.map_err(|failure| anyhow::anyhow!("{}", failure.problem()))?;
        ensure!(answer.is_success(), "{}", answer.failure(what).problem());
        let text = String::from_utf8_lossy(&answer.body);
        let part =
            |name| element(&text, name).map(str::to_owned).with_context(|| format!("{what}: no {name} in the answer"));
        Ok(Answered {
            access_key_id: Secret::new(part("AccessKeyId")?),
            secret_access_key: Secret::new(part("SecretAccessKey")?),
            token: Some(Secret::new(part("SessionToken")?)),
            expiration: part("Expiration").ok(),
        }
        .into())
    }
}

/// Keys as containers and machines of Amazon's have them.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Answered {
    access_key_id: Secret,
    secret_access_key: Secret,
    token: Option<Secret>,
    expiration: Option<String>,
}

impl From<Answered> for Keys {
    fn from(answered: Answered) -> Self {
        let Answered { access_key_id, secret_access_key, token, expiration } = answered;
        let expires = expiration.and_then(|text| text.parse::<Timestamp>().ok());
        Self {
            access_key: access_key_id,
            secret_key: secret_access_key,
            session_token: token,
            expires,
            can_be_replaced: true,
        }
    }
}

/// The keys of an answer. Errors repeat nothing of it.
fn parse(what: &str, answer: &Answer) -> anyhow::Result<Keys> {
    ensure!(answer.is_success(), "{}", answer.failure(what).problem());
    let answered: Option<Answered> = serde_json::from_slice(&answer.body).ok();
    Ok(answered.with_context(|| format!("{what}: the answer has no keys"))?.into())
}

/// The keys of a container; `None` when the environment names no place for them.
pub(super) fn of_container(agent: &Agent) -> anyhow::Result<Option<Keys>> {
    let url = match (variable("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"), variable("AWS_CONTAINER_CREDENTIALS_FULL_URI"))
    {
        (Some(path), _) => Url::parse(&format!("{CONTAINER}/{}", path.trim_start_matches('/')))?,
        (None, Some(url)) => container_address(&url)?,
        (None, None) => return Ok(None),
    };
    let authorization = match variable("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE") {
        Some(path) => {
            let token = read_file(path.as_ref()).with_context(|| format!("cannot read {path}"))?;
            Some(String::from_utf8_lossy(&token).trim().to_owned())
        }
        None => variable("AWS_CONTAINER_AUTHORIZATION_TOKEN"),
    };
    let authorization = authorization.map(Secret::new);
    ensure!(
        authorization.as_ref().is_none_or(Secret::is_header),
        "the token for the keys of the container has characters that no header has"
    );
    let headers: Vec<_> = authorization.iter().map(|token| ("authorization", token.expose())).collect();
    let what = "GET the keys of the container";
    let answer = Answer::read(what, send(agent, Method::GET, url.as_str(), &headers, &[]));
    parse(what, &answer.map_err(|failure| anyhow::anyhow!("{}", failure.problem()))?).map(Some)
}

/// An address that a container may have its keys at: encrypted, or on this machine or its link.
fn container_address(text: &str) -> anyhow::Result<Url> {
    const NAME: &str = "AWS_CONTAINER_CREDENTIALS_FULL_URI";
    let url = Url::parse(text).ok().with_context(|| format!("{NAME} is no URL"))?;
    let host = match url.host() {
        Some(Host::Ipv4(address)) => address.to_string(),
        Some(Host::Ipv6(address)) => address.to_string(),
        _ => String::new(),
    };
    if CONTAINER_HOSTS.contains(&host.as_str()) {
        return Ok(url);
    }
    http::address(NAME, text, false, "let it be on this machine").map_err(anyhow::Error::msg)
}

/// The keys of the role of a machine; `None` when it is none of Amazon's, or has no role.
pub(super) fn of_machine() -> anyhow::Result<Option<Keys>> {
    if variable("AWS_EC2_METADATA_DISABLED").is_some_and(|text| text.eq_ignore_ascii_case("true")) {
        return Ok(None);
    }
    let base = match variable("AWS_EC2_METADATA_SERVICE_ENDPOINT") {
        Some(text) => Url::parse(&text).ok().context("AWS_EC2_METADATA_SERVICE_ENDPOINT is no URL")?.to_string(),
        None => MACHINE.to_owned(),
    };
    let base = format!("{}/latest", base.trim_end_matches('/'));
    let agent = http::agent_with(Vec::new(), PATIENCE);
    let ask = |what: &str, method, path: &str, headers: &[(&str, &str)]| {
        Answer::read(what, send(&agent, method, &format!("{base}/{path}"), headers, &[])).ok()
    };
    let age = [("x-aws-ec2-metadata-token-ttl-seconds", "600")];
    let Some(token) = ask("PUT the machine's token", Method::PUT, "api/token", &age) else { return Ok(None) };
    let token = Secret::new(String::from_utf8_lossy(&token.body).trim());
    if !token.is_printable() {
        return Ok(None);
    }
    let header = [("x-aws-ec2-metadata-token", token.expose())];
    const PATH: &str = "meta-data/iam/security-credentials";
    let roles = ask("GET the machine's role", Method::GET, &format!("{PATH}/"), &header).filter(Answer::is_success);
    let Some(roles) = roles else { return Ok(None) };
    let roles = String::from_utf8_lossy(&roles.body);
    let role = roles.lines().next().unwrap_or_default().trim();
    let is_name =
        !role.is_empty() && role.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+=,.@-_".contains(&byte));
    if !is_name {
        bail!("the machine's role has no name");
    }
    let what = "GET the keys of the machine's role";
    let answer = ask(what, Method::GET, &format!("{PATH}/{role}"), &header).context("the machine gives no keys")?;
    parse(what, &answer).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_a_container_and_what_is_none() -> anyhow::Result<()> {
        let of = |status, text: &str| parse("GET x", &Answer::of(status, text.as_bytes().to_vec()));
        let keys = of(
            200,
            r#"{"RoleArn":"r","AccessKeyId":"AK","SecretAccessKey":"SK","Token":"T","Expiration":"2026-01-01T00:00:00Z"}"#,
        )?;
        assert_eq!((keys.access_key.expose(), keys.can_be_replaced), ("AK", true));
        assert_eq!(keys.expires.map(Timestamp::as_second), Some(1_767_225_600));
        for (status, text) in [(200, "SECRET"), (200, r#"{"AccessKeyId":"SECRET"}"#), (403, "SECRET")] {
            let error = of(status, text).err().map(|error| format!("{error:#}")).unwrap_or_default();
            assert!(error.starts_with("GET x") && !error.contains("SECRET"), "{error}");
        }
        Ok(())
    }

    #[test]
    fn keys_of_a_container_are_on_this_machine_its_link_or_encrypted() {
        for good in
            ["http://169.254.170.23/v1/credentials", "http://[fd00:ec2::23]/x", "http://localhost:1/x", "https://x/y"]
        {
            assert!(container_address(good).is_ok(), "{good}");
        }
        for bad in ["http://evil.example/x", "http://169.254.170.3/", "file:///etc/passwd", ""] {
            assert!(container_address(bad).is_err(), "{bad}");
        }
    }
}
