//! The files of Amazon's tools: `~/.aws/credentials` and `~/.aws/config`.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::path::PathBuf;

use anyhow::{Context, bail, ensure};

use super::super::client::Keys;
use super::remote::WebIdentity;
use super::variables::variable;
use crate::http::read_file;

/// Ways to keys that a profile can have and that are not gone here.
const UNKNOWN: [&str; 4] = ["credential_process", "sso_session", "sso_start_url", "role_arn"];

/// What the files say of one profile. Values of the credentials file go first.
pub(super) struct Profile {
    name: String,
    values: HashMap<String, String>,
}

impl Profile {
    /// Reads a profile; the one called `default` unless it is named.
    ///
    /// # Errors
    /// When a file cannot be read, or the named profile is in neither.
    pub(super) fn read(name: Option<&str>) -> anyhow::Result<Self> {
        let file = |variable_name, default: &str| {
            let named = variable(variable_name).map(PathBuf::from);
            named.or_else(|| Some(PathBuf::from(variable("HOME")?).join(default)))
        };
        let credentials = read(file("AWS_SHARED_CREDENTIALS_FILE", ".aws/credentials"))?;
        let config = read(file("AWS_CONFIG_FILE", ".aws/config"))?;
        Self::of(name, &credentials, &config)
    }

    fn of(name: Option<&str>, credentials: &str, config: &str) -> anyhow::Result<Self> {
        let wanted = name.unwrap_or("default");
        let own = section(config, |title| match title.strip_prefix("profile ") {
            Some(profile) => profile.trim() == wanted,
            None => title == "default" && wanted == "default",
        });
        let first = section(credentials, |title| title == wanted);
        ensure!(
            name.is_none() || own.is_some() || first.is_some(),
            "there is no profile {wanted:?} in the files of Amazon's tools"
        );
        let mut values = own.unwrap_or_default();
        values.extend(first.unwrap_or_default());
        Ok(Self { name: wanted.to_owned(), values })
    }

    fn value(&self, key: &str) -> Option<String> {
        self.values.get(key).filter(|value| !value.is_empty()).cloned()
    }

    /// Its keys, if it has some.
    pub(super) fn keys(&self) -> anyhow::Result<Option<Keys>> {
        let Some(access_key) = self.value("aws_access_key_id") else { return Ok(None) };
        let secret_key = self.value("aws_secret_access_key");
        let secret_key = secret_key.with_context(|| format!("profile {:?} has no aws_secret_access_key", self.name))?;
        Ok(Some(Keys::lasting(access_key, secret_key, self.value("aws_session_token"))))
    }

    pub(super) fn region(&self) -> Option<String> {
        self.value("region")
    }

    /// The role that a token of another service stands for.
    pub(super) fn web_identity(&self) -> Option<WebIdentity> {
        let token_file = self.value("web_identity_token_file")?.into();
        Some(WebIdentity { token_file, role: self.value("role_arn")?, session: self.value("role_session_name") })
    }

    /// Looks whether it has only what cannot be used here.
    ///
    /// # Errors
    /// When it has.
    pub(super) fn check_unknown(&self) -> anyhow::Result<()> {
        match UNKNOWN.into_iter().find(|key| self.value(key).is_some()) {
            Some(key) => bail!(
                "profile {:?} has {key}, which only Amazon's own tools know: eval \"$(aws configure export-credentials --format env)\" gives you keys for the environment",
                self.name
            ),
            None => Ok(()),
        }
    }
}

/// The text of a file; an empty one if it is not there.
fn read(path: Option<PathBuf>) -> anyhow::Result<String> {
    let Some(path) = path else { return Ok(String::new()) };
    match read_file(&path) {
        Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(String::new()),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
}

/// The values of the sections whose title is wanted; `None` when there is none.
fn section(text: &str, is_wanted: impl Fn(&str) -> bool) -> Option<HashMap<String, String>> {
    let (mut values, mut is_in) = (None, false);
    for line in text.lines() {
        let is_nested = line.starts_with([' ', '\t']);
        let line = line.trim();
        if line.starts_with(['#', ';']) || line.is_empty() {
            continue;
        }
        if let Some(title) = line.strip_prefix('[') {
            is_in = is_wanted(title.split(']').next().unwrap_or_default().trim());
            if is_in {
                values.get_or_insert_with(HashMap::new);
            }
        } else if is_in
            && !is_nested
            && let (Some(values), Some((key, value))) = (&mut values, line.split_once('='))
        {
            // A comment begins with a space.
            let value = value.split_once(" #").map_or(value, |(value, _)| value);
            values.insert(key.trim().to_ascii_lowercase(), value.trim().to_owned());
        }
    }
    values
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CREDENTIALS: &str = "# mine\n[default]\naws_access_key_id = AKDEFAULT\naws_secret_access_key=abc/+=  # note\n\
        [ci]\nAWS_ACCESS_KEY_ID = AKCI\naws_secret_access_key = s#cret\naws_session_token = tok=en==\n[half]\naws_access_key_id = AK\n";
    const CONFIG: &str = "[default]\nregion = eu-north-1\ns3 =\n  addressing_style = path\n  region = nested\n\
        [profile ci]\nregion=us-west-2\noutput = json\n[profile sso]\nsso_session = x\n[profile web]\n\
        web_identity_token_file = /t\nrole_arn = arn:x\n[sso-session x]\nregion = wrong\n";

    fn of(name: Option<&str>) -> anyhow::Result<Profile> {
        Profile::of(name, CREDENTIALS, CONFIG)
    }

    #[test]
    fn both_files_say_something_of_a_profile() -> anyhow::Result<()> {
        let keys = of(None)?.keys()?.context("none")?;
        assert_eq!((keys.access_key.expose(), keys.secret_key.expose()), ("AKDEFAULT", "abc/+="));
        assert_eq!(of(None)?.region().as_deref(), Some("eu-north-1"));
        let keys = of(Some("ci"))?.keys()?.context("none")?;
        assert_eq!((keys.access_key.expose(), keys.secret_key.expose()), ("AKCI", "s#cret"));
        assert_eq!(keys.session_token.as_ref().map(|token| token.expose()), Some("tok=en=="));
        assert_eq!(of(Some("ci"))?.region().as_deref(), Some("us-west-2"));
        assert!(of(Some("web"))?.keys()?.is_none() && of(Some("web"))?.web_identity().is_some());
        Ok(())
    }

    #[test]
    fn a_profile_that_gives_no_keys_says_why() {
        let said = |error: anyhow::Error| error.to_string();
        assert!(of(Some("nobody")).map(drop).is_err_and(|error| said(error).contains("no profile \"nobody\"")));
        assert!(
            of(Some("half")).and_then(|half| half.keys()).is_err_and(|error| said(error).contains("secret_access"))
        );
        let unknown = of(Some("sso")).and_then(|sso| sso.check_unknown());
        assert!(unknown.is_err_and(|error| said(error).contains("sso_session")));
        assert!(Profile::of(None, "", "").and_then(|none| none.check_unknown()).is_ok());
    }

    proptest! {
        #[test]
        fn any_text_is_read(text in "([\\[\\]=# \na-z]|\\PC){0,80}") {
            let _ = Profile::of(Some("a"), &text, &text);
        }
    }
}
