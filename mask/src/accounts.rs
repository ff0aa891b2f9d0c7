//! Passwords behind the names of their users, and in addresses.

use crate::secret_names::{is_name, is_secret};

/// Parameters of an address that are secret, beside those whose names say so: signatures, and keys of interfaces.
const PARAMETERS: [&str; 3] = ["key", "sig", "signature"];
/// Words before a colon and a mail address, or a version, that are no users.
const NO_USERS: [&str; 14] = [
    "acct",
    "author",
    "docker",
    "domain",
    "email",
    "from",
    "group",
    "mail",
    "mailto",
    "npm",
    "principal",
    "serviceaccount",
    "to",
    "user",
];
const MASK: &str = "***";

/// `user:password` with the password masked; two numbers are those of a user and a group. Samba has `user%password`, and
/// `date -u` a format there.
pub(super) fn without_password(word: &str) -> String {
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let Some(at) = word.find([':', '%']) else { return word.to_owned() };
    let (user, password) = (&word[..at], &word[at + 1..]);
    let is_both = match word.as_bytes()[at] {
        b'%' => user.trim_start_matches('-').starts_with(|c: char| c.is_alphanumeric()),
        _ => !is_number(user) || !is_number(password),
    };
    if is_both { format!("{}{MASK}", &word[..=at]) } else { word.to_owned() }
}

/// Whether this is an option with one letter and a user: `-uadmin`.
pub(super) fn is_user_in_one(name: &str) -> bool {
    let user = name.strip_prefix("-u").or_else(|| name.strip_prefix("-U"));
    user.is_some_and(|user| is_name(user) && !user.bytes().all(|byte| byte.is_ascii_digit()))
}

/// `user:password@host` with the password masked, if it is that: no image with its digest, no package with its version,
/// no path at a host.
pub(super) fn account(word: &str) -> Option<String> {
    let (user, rest) = word.split_once(':')?;
    let (password, host) = rest.rsplit_once('@')?;
    let is_user = |user: &str| user.chars().all(|c| c.is_alphanumeric() || "-_.+/\\".contains(c));
    let is_address = |host: &str| host.split('.').count() >= 4 && host.starts_with(|c: char| c.is_ascii_digit());
    let is_host = host.starts_with(|c: char| c.is_alphabetic() || c == '[') || is_address(host);
    let is_digest = host.starts_with("sha256:") || host.starts_with("sha512:");
    let is_one =
        !user.is_empty() && is_user(user) && !NO_USERS.contains(&&*user.to_lowercase()) && is_host && !is_digest;
    let is_path = password.starts_with(['/', '\\']);
    (is_one && !is_path && !word.contains(char::is_whitespace)).then(|| format!("{user}:{MASK}@{host}"))
}

pub(super) fn is_url(word: &str) -> bool {
    let is_scheme = |scheme: &str| scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
    word.split_once("://").is_some_and(|(scheme, _)| is_scheme(scheme))
}

/// `https://user:password@host/` without the credentials.
pub(super) fn url(word: &str) -> String {
    let Some((scheme, rest)) = word.split_once("://") else { return word.to_owned() };
    let (address, query) = rest.split_once('?').map_or((rest, None), |(address, query)| (address, Some(query)));
    let slash = address.find('/').unwrap_or(address.len());
    // A slash can stand in a password, though it should not: what follows the colon is then no port.
    let is_port = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let has_more = address[..slash].rsplit_once(':').is_some_and(|(_, port)| !port.ends_with(']') && !is_port(port));
    let end = if has_more { address.len() } else { slash };
    let address = match address[..end].rsplit_once('@') {
        Some((_, host)) => format!("{MASK}@{host}{}", &address[end..]),
        None => address.to_owned(),
    };
    let query = query.map(|query| format!("?{query}")).unwrap_or_default();
    format!("{scheme}://{address}{query}")
}

/// The secrets of `?token=x&key=y`, which need not stand in a whole address, and those in lists: `Server=h;Password=x`,
/// `user=a,password=x`.
pub(super) fn parameters(text: &str) -> String {
    let (mut out, mut rest) = (String::new(), text);
    while let Some(before) = rest.find(['?', '&', '#', ';', ',']) {
        let (start, behind) = rest.split_at(before + 1);
        out.push_str(start);
        rest = behind;
        let is_list = start.ends_with([';', ',']);
        let name = &behind[..behind.find(|c: char| !c.is_ascii_alphanumeric() && !"-_.".contains(c)).unwrap_or(0)];
        let is_one = is_secret(name) || !is_list && is_secret_parameter(name);
        let sign = behind[name.len()..].chars().next().filter(|c| *c == '=' || is_list && *c == ':');
        let Some(sign) = sign.filter(|_| is_one) else { continue };
        let value = &behind[name.len() + 1..];
        if value.starts_with('=') && !is_secret(name) {
            // `Tags[?Key=='Name']` compares.
            continue;
        }
        let quote = value.chars().next().filter(|c| "\"'`".contains(*c));
        let quoted = quote.map_or(0, |quote| value[1..].find(quote).map_or(value.len(), |end| end + 2));
        let is_end = |c: char| c.is_whitespace() || "&#\"'`;<>|".contains(c) || c == ',' && start.ends_with(',');
        let end = value[quoted..].find(is_end).map_or(value.len(), |end| quoted + end);
        out.push_str(name);
        out.push(sign);
        out.push_str(MASK);
        rest = &value[end..];
    }
    out + rest
}

fn is_secret_parameter(name: &str) -> bool {
    let last = name.rsplit('-').next().unwrap_or_default().to_lowercase();
    PARAMETERS.contains(&name.to_lowercase().as_str()) || last == "signature"
}

#[cfg(test)]
mod tests {
    use crate::tests::are_masked;

    #[test]
    fn a_password_stands_between_a_user_and_a_host() {
        are_masked(&[
            ("curl¦-x¦a:X@proxy:80¦h", "curl¦-x¦a:***@proxy:80¦h"),
            ("curl¦a:X@host/x", "curl¦a:***@host/x"),
            ("mysqlsh¦me:X@h", "mysqlsh¦me:***@h"),
            ("run¦--dsn=me:X@tcp(h:3306)/db¦me:X@10.0.0.1", "run¦--dsn=me:***@tcp(h:3306)/db¦me:***@10.0.0.1"),
            ("podman¦pull¦--creds¦a:X¦x", "podman¦pull¦--creds¦a:***¦x"),
            ("skopeo¦copy¦--src-creds=a:X¦--dest-creds¦a:X", "skopeo¦copy¦--src-creds=a:***¦--dest-creds¦a:***"),
            ("sh¦-c¦curl -su a:X,Y h", "sh¦-c¦curl -su a:*** h"),
            (
                "docker¦pull¦reg:5000/x:1@sha256:ab¦npm:react@18.2.0",
                "docker¦pull¦reg:5000/x:1@sha256:ab¦npm:react@18.2.0",
            ),
            ("git¦clone¦git@h:a/b@v1¦host:/x@y¦user:me@h", "git¦clone¦git@h:a/b@v1¦host:/x@y¦user:me@h"),
        ]);
    }
}
