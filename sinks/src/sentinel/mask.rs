//! Takes what looks like a secret out of a command line.

use super::password_options::{Password, PasswordOptions};
use super::secret_names::{is_name, is_secret};
use super::token_forms;

/// Options whose value is `user:password`, or `user%password`.
const USERS: [&str; 5] = ["-u", "-U", "--user", "--proxy-user", "--userpwd"];
/// What stands between `Authorization:` and the secret.
const SCHEMES: [&str; 5] = ["bearer", "basic", "digest", "negotiate", "token"];
/// In a word, they tell that there are words in it.
const BRACKETS_AND_QUOTES: [char; 6] = ['{', '[', '(', '"', '\'', '`'];
/// Parameters of an address that are secret, beside those whose names say so: signatures, and keys of interfaces.
const PARAMETERS: [&str; 3] = ["key", "sig", "signature"];
/// Options whose value is a name of a user, a container or a network, and so no program.
const NAMES: [&str; 9] = ["-n", "-u", "--user", "-g", "--group", "--name", "--hostname", "--network", "--namespace"];
/// Between commands of a shell.
const BETWEEN_COMMANDS: [char; 4] = [';', '|', '&', '\n'];
const MASK: &str = "***";
/// How deep shells within shells are looked into.
const DEPTH: u32 = 6;

/// The words of a command, with the values of options, variables and headers such as `--password X`, `token=…` and
/// `-H "Authorization: …"`, the credentials in URLs, and tokens of a well-known form masked; also in a word that is a
/// command line itself.
pub(crate) fn command(words: &[String]) -> Vec<String> {
    let has_access_key = words.iter().any(|word| token_forms::has_access_key(word));
    let anywhere = |word: String| {
        let word = token_forms::mask(&parameters(&word));
        if has_access_key { token_forms::mask_secret_of_access_key(&word) } else { word }
    };
    masked(words, DEPTH).into_iter().map(anywhere).collect()
}

fn masked(words: &[String], depth: u32) -> Vec<String> {
    let (mut is_value, mut is_bare_value, mut is_user, mut is_name) = (false, false, false, false);
    let mut options = PasswordOptions::default();
    let mask = |word: &String| {
        let is_named = std::mem::replace(&mut is_name, NAMES.contains(&word.as_str()));
        let is_users = std::mem::replace(&mut is_user, USERS.contains(&word.as_str()));
        // Without a hyphen, a name is as likely one of a thing, which options come after.
        is_value |= std::mem::replace(&mut is_bare_value, is_bare_secret(word)) && !word.starts_with('-');
        if std::mem::take(&mut is_value) {
            // A scheme comes before its value, and an option that seems to be one can be the name of the next.
            is_value = SCHEMES.contains(&word.to_lowercase().as_str()) || (word.starts_with('-') && is_secret(word));
            return MASK.to_owned();
        }
        match options.take(word) {
            Some(Password::Behind(option)) => return format!("{option}{MASK}"),
            Some(Password::Next) => is_value = true,
            None if !is_named => options.see(word),
            None => (),
        }
        let (masked, names_next) = masked_word(word, depth);
        is_value |= names_next;
        if is_users { without_password(&masked) } else { masked }
    };
    words.iter().map(mask).collect()
}

/// One word, and whether it names the next one a secret.
fn masked_word(word: &str, depth: u32) -> (String, bool) {
    let parts = word.split_once(['=', ':']).filter(|(_, value)| !value.starts_with("//"));
    if let Some((name, value)) = parts {
        let start = &word[..=name.len()];
        if is_secret(name) {
            let is_behind = value.is_empty() || SCHEMES.contains(&value.to_lowercase().as_str());
            return (format!("{start}{MASK}"), is_behind);
        }
        if USERS.contains(&name) {
            return (format!("{start}{}", without_password(value)), false);
        }
        if is_user_in_one(name) {
            return (without_password(word), false);
        }
        if depth > 0 && is_name(name) && !value.is_empty() {
            // `--header=Authorization: …`, `DSN=postgres://…`
            let (value, is_behind) = masked_word(value, depth - 1);
            return (format!("{start}{value}"), is_behind);
        }
    }
    if word.split_once('%').is_some_and(|(name, _)| is_user_in_one(name)) {
        return (without_password(word), false);
    }
    if depth > 0 && (word.contains(char::is_whitespace) || !is_url(word) && word.contains(BRACKETS_AND_QUOTES)) {
        return (text(word, depth - 1), false);
    }
    (url(word), word.starts_with('-') && is_secret(word))
}

/// A word that is a command line, or data: `sh -c "curl -H 'Authorization: …'"`, `{"password":"…"}`.
fn text(line: &str, depth: u32) -> String {
    let spans = shell_words(line);
    let (mut out, mut at) = (String::new(), 0);
    for spans in spans.chunk_by(|(_, end), (start, _)| !line[*end..*start].contains(BETWEEN_COMMANDS)) {
        let words: Vec<String> = spans.iter().map(|(start, end)| unquoted(&line[*start..*end]).to_owned()).collect();
        let mut is_option_masked = false;
        for ((word, masked), (start, end)) in words.iter().zip(masked(&words, depth)).zip(spans) {
            if is_option_masked && line[at..*start] == *"," {
                // A shell does not part words there.
                at = *end;
                continue;
            }
            is_option_masked = line[*start..].starts_with('-') && masked.ends_with(MASK);
            out.push_str(&line[at..*start]);
            out.push_str(if *word == masked { &line[*start..*end] } else { &masked });
            at = *end;
        }
    }
    out + &line[at..]
}

/// Where the words of a command line are, roughly as a shell parts them.
fn shell_words(line: &str) -> Vec<(usize, usize)> {
    let (mut spans, mut start, mut quote) = (Vec::new(), None, None);
    for (at, c) in line.char_indices() {
        let parts_words = quote.is_none() && (c.is_whitespace() || ";|&(){}[]<>,".contains(c));
        if parts_words {
            spans.extend(start.take().map(|start| (start, at)));
            continue;
        }
        start.get_or_insert(at);
        match quote {
            Some(open) if open == c => quote = None,
            None if "'\"`".contains(c) => quote = Some(c),
            _ => (),
        }
    }
    spans.extend(start.map(|start| (start, line.len())));
    spans
}

/// Without the quotes around it.
fn unquoted(word: &str) -> &str {
    let inner = ['"', '\'', '`'].iter().find_map(|quote| {
        let inner = word.strip_prefix(*quote)?.strip_suffix(*quote)?;
        // `"name":"value"` is two of them.
        (!inner.contains(*quote)).then_some(inner)
    });
    inner.unwrap_or(word)
}

/// Whether a word is the name of a secret without being an option: `aws configure set aws_secret_access_key X`.
fn is_bare_secret(word: &str) -> bool {
    let last = word.rsplit(['.', ':']).next().unwrap_or_default();
    !word.starts_with('-') && (last.contains(['_', '-']) || last == "password") && is_secret(last)
}

/// `user:password` with the password masked; two numbers are those of a user and a group. Samba has `user%password`, and
/// `date -u` a format there.
fn without_password(word: &str) -> String {
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
fn is_user_in_one(name: &str) -> bool {
    let user = name.strip_prefix("-u").or_else(|| name.strip_prefix("-U"));
    user.is_some_and(|user| is_name(user) && !user.bytes().all(|byte| byte.is_ascii_digit()))
}

fn is_url(word: &str) -> bool {
    let is_scheme = |scheme: &str| scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
    word.split_once("://").is_some_and(|(scheme, _)| is_scheme(scheme))
}

/// `https://user:password@host/` without the credentials.
fn url(word: &str) -> String {
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

/// The secrets of `?token=x&key=y`, which need not stand in a whole address.
fn parameters(text: &str) -> String {
    let (mut out, mut rest) = (String::new(), text);
    while let Some(before) = rest.find(['?', '&', '#']) {
        let (start, behind) = rest.split_at(before + 1);
        out.push_str(start);
        rest = behind;
        let name = &behind[..behind.find(|c: char| !c.is_ascii_alphanumeric() && !"-_.".contains(c)).unwrap_or(0)];
        let Some(value) = behind[name.len()..].strip_prefix('=').filter(|_| is_secret_parameter(name)) else {
            continue;
        };
        let end = value.find(|c: char| c.is_whitespace() || "&#\"'`;<>|".contains(c)).unwrap_or(value.len());
        out.extend([name, "=", MASK]);
        rest = &value[end..];
    }
    out + rest
}

fn is_secret_parameter(name: &str) -> bool {
    let last = name.rsplit('-').next().unwrap_or_default().to_lowercase();
    is_secret(name) || PARAMETERS.contains(&name.to_lowercase().as_str()) || last == "signature"
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Words are parted by `¦`.
    pub(in super::super) fn masked(line: &str) -> String {
        command(&line.split('¦').map(str::to_owned).collect::<Vec<_>>()).join("¦")
    }

    #[test]
    fn values_of_secrets_are_masked_and_nothing_else() {
        for (line, expected) in [
            ("train¦--password¦X¦--epochs¦5", "train¦--password¦***¦--epochs¦5"),
            ("train¦--pass¦x", "train¦--pass¦***"),
            ("train¦--password¦-x¦-v", "train¦--password¦***¦-v"),
            ("train¦--no-token¦--password¦-x", "train¦--no-token¦***¦***"),
            ("train¦--db-pass=x¦-pass¦y", "train¦--db-pass=***¦-pass¦***"),
            ("train¦--api-key=abc¦token=xyz", "train¦--api-key=***¦token=***"),
            ("train¦--profile-token¦x¦--apiKey¦y", "train¦--profile-token¦***¦--apiKey¦***"),
            ("env¦AWS_SECRET_ACCESS_KEY=abc¦HOME=/x¦run", "env¦AWS_SECRET_ACCESS_KEY=***¦HOME=/x¦run"),
            ("docker¦run¦-e¦PGPASSWORD=x¦-u¦1000:1000", "docker¦run¦-e¦PGPASSWORD=***¦-u¦1000:1000"),
            ("psql¦postgres://me:pw@db:5432/x", "psql¦postgres://***@db:5432/x"),
            ("run¦--dsn=postgres://me:pw@db:5432/x", "run¦--dsn=postgres://***@db:5432/x"),
            ("git¦clone¦https://u:p/w@host/y@v1", "git¦clone¦https://***@v1"),
            ("pip¦install¦git+https://host:80/y@v1", "pip¦install¦git+https://host:80/y@v1"),
            ("curl¦https://x/y?a=1&token=b", "curl¦https://x/y?a=1&token=***"),
            ("curl¦-H¦Authorization: Bearer abc¦https://x/", "curl¦-H¦Authorization:***¦https://x/"),
            ("curl¦-HAuthorization:abc¦-u¦me:pw", "curl¦-HAuthorization:***¦-u¦me:***"),
            ("curl¦-u¦admin:123456¦-U¦7:pw", "curl¦-u¦admin:***¦-U¦7:***"),
            ("curl¦-uadmin:123456¦-u1000:1000", "curl¦-uadmin:***¦-u1000:1000"),
            ("curl¦--user=bob:hunter3¦--proxy-user=bob:1", "curl¦--user=bob:***¦--proxy-user=bob:***"),
            ("run¦--user=1000:1000¦--user=bob", "run¦--user=1000:1000¦--user=bob"),
            ("curl¦-d¦{\"password\":\"hunter2\"}", "curl¦-d¦{\"password\":***}"),
            ("curl¦-d{\"a\":1,\"password\":\"h,2\",\"b\":[2]}", "curl¦-d{\"a\":1,\"password\":***,\"b\":[2]}"),
            ("curl¦--data={'user':{'token':'abc'}}", "curl¦--data={'user':{'token':***}}"),
            ("run¦{\\\"password\\\":\\\"x\\\"}¦{token:abc}", "run¦{\\\"password\\\":***}¦{token:***}"),
            ("run¦[\"--password\",\"x\",\"-v\"]", "run¦[\"--password\",***,\"-v\"]"),
            ("run¦f(token='abc')¦http://u:p{w@h/", "run¦f(token=***)¦http://***@h/"),
            ("run¦{\"epochs\":50,\"name\":\"it's\"}", "run¦{\"epochs\":50,\"name\":\"it's\"}"),
            ("curl¦--header=X-Api-Key: abc", "curl¦--header=X-Api-Key:***"),
            ("curl¦--header¦Cookie: a=b; c=d", "curl¦--header¦Cookie:***"),
            ("curl¦-H¦Accept: text/html", "curl¦-H¦Accept: text/html"),
            ("http¦Authorization:¦Bearer¦abc¦x", "http¦Authorization:***¦***¦***¦x"),
            (
                "sh¦-c¦curl -H 'Authorization: Bearer abc' \"https://u:p@x/\" && run --password \"x y\" -v",
                "sh¦-c¦curl -H Authorization:*** https://***@x/ && run --password *** -v",
            ),
            ("sh¦-c¦ssh h 'curl -H \"PRIVATE-TOKEN: abc\" x'", "sh¦-c¦ssh h curl -H PRIVATE-TOKEN:*** x"),
            ("python¦-c¦f(a=1, token='abc')", "python¦-c¦f(a=1, token=***)"),
            ("sh¦-c¦sleep 0.3; exit 3", "sh¦-c¦sleep 0.3; exit 3"),
            (
                "llm¦--max-tokens¦100¦--tokenizer¦bpe¦--token-file¦/t¦--tokenizer-name=b",
                "llm¦--max-tokens¦100¦--tokenizer¦bpe¦--token-file¦/t¦--tokenizer-name=b",
            ),
            ("sh¦-c¦run -a,b --token=x,y,z -v (--pass=x) 1", "sh¦-c¦run -a,b --token=*** -v (--pass=***) 1"),
            (
                "aws¦configure¦set¦aws_secret_access_key¦x¦--profile¦p",
                "aws¦configure¦set¦aws_secret_access_key¦***¦--profile¦p",
            ),
            ("npm¦config¦set¦//reg.example.com/:_authToken¦x", "npm¦config¦set¦//reg.example.com/:_authToken¦***"),
            ("sh¦-c¦git config x.api-token y; ls z", "sh¦-c¦git config x.api-token ***; ls z"),
            ("nmcli¦wifi¦connect¦net¦password¦x", "nmcli¦wifi¦connect¦net¦password¦***"),
            ("aws¦secretsmanager¦get-secret-value¦--region¦x", "aws¦secretsmanager¦get-secret-value¦--region¦x"),
            (
                "pytest¦test_password.py¦test_x.py¦tokens_per_word¦1",
                "pytest¦test_password.py¦test_x.py¦tokens_per_word¦***",
            ),
            (
                "kubectl¦create¦secret¦generic¦x¦--from-literal=a=b",
                "kubectl¦create¦secret¦generic¦x¦--from-literal=***",
            ),
            ("keytool¦-storepass¦x¦-keypass¦y", "keytool¦-storepass¦***¦-keypass¦***"),
            ("smbclient¦-U¦me%x¦//h/s", "smbclient¦-U¦me%***¦//h/s"),
            ("rpcclient¦-U¦D\\me%x¦--user=me%x¦-Ume%x", "rpcclient¦-U¦D\\me%***¦--user=me%***¦-Ume%***"),
            ("date¦-u¦+%Y-%m-%dT%H:%M", "date¦-u¦+%Y-%m-%dT%H:%M"),
            ("rsync¦host:/path¦--bypass¦1¦--compass=2", "rsync¦host:/path¦--bypass¦1¦--compass=2"),
            ("python¦train.py¦--epochs¦50", "python¦train.py¦--epochs¦50"),
        ] {
            assert_eq!(masked(line), expected);
        }
    }

    #[test]
    fn a_long_word_is_no_deep_recursion() {
        for part in ["a=", "a:", "'a ", "--a=\" '", "(\"'` "] {
            assert_eq!(command(&[part.repeat(100_000)]).len(), 1);
        }
    }

    proptest! {
        #[test]
        fn any_command_keeps_its_number_of_words(words in prop::collection::vec("[-=:/'\" a-z?@]{0,20}|.{0,20}", 0..6)) {
            prop_assert_eq!(command(&words).len(), words.len());
        }

        #[test]
        fn a_secret_does_not_come_through(value in "[A-Za-z0-9+]{6,20}") {
            for line in [
                format!("x¦--password¦{value}"),
                format!("x¦--password¦-{value}"),
                format!("x¦--token={value}"),
                format!("x¦-u¦admin:{value}"),
                format!("x¦-uadmin:{value}"),
                format!("x¦--user=bob:{value}"),
                format!("x¦{{\"password\":\"{value}\"}}"),
                format!("x¦--data={{\"a\":[{{\"password\":\"{value}\"}}]}}"),
                format!("x¦[\"--password\",\"{value}\"]"),
                format!("x¦http://u:{value}@h/"),
                format!("x¦-H¦Authorization: Bearer {value}"),
                format!("aws¦configure¦set¦aws_secret_access_key¦{value}"),
                format!("docker¦login¦-u¦me¦-p¦{value}"),
                format!("smbclient¦-U¦me%{value}¦//h/s"),
                format!("sh¦-c¦mongo -u me -p {value} && ldapsearch -w '{value}' && curl -b s={value} x"),
                format!("sh¦-c¦exec x --password '{value} {value}' -H \"Authorization: Bearer {value}\""),
            ] {
                prop_assert!(!masked(&line).contains(&value), "{}", line);
            }
        }
    }
}
