//! Tokens that are known by their form, wherever they stand.

const MASK: &str = "***";

/// How tokens of one kind begin, and how long they are at least after that.
struct Form {
    prefix: &'static str,
    least: usize,
    /// Whether it could be the end of a word, or words with hyphens between them, such as `disk-…`.
    is_common: bool,
}

const fn form(prefix: &'static str, least: usize) -> Form {
    Form { prefix, least, is_common: false }
}

const fn common(prefix: &'static str, least: usize) -> Form {
    Form { prefix, least, is_common: true }
}

/// Those of GitHub, GitLab, OpenAI and its like, Hugging Face, npm, PyPI, Slack, Stripe, Google and DigitalOcean.
const FORMS: [Form; 21] = [
    form("ghp_", 20),
    form("gho_", 20),
    form("ghu_", 20),
    form("ghs_", 20),
    form("ghr_", 20),
    form("github_pat_", 20),
    form("glpat-", 16),
    form("xoxb-", 10),
    form("xoxp-", 10),
    form("xoxa-", 10),
    form("xoxr-", 10),
    form("xoxs-", 10),
    form("xoxe-", 10),
    form("sk_live_", 16),
    form("rk_live_", 16),
    form("AIza", 35),
    form("dop_v1_", 32),
    common("sk-", 16),
    common("hf_", 16),
    common("npm_", 30),
    common("pypi-", 30),
];
/// JSON Web Tokens: `{"` in base64. They have three parts.
const JWT: &str = "eyJ";
/// Keys of AWS, which are of no use without their secrets, and those have no form of their own.
const ACCESS_KEYS: [&str; 2] = ["AKIA", "ASIA"];
const ACCESS_KEY: usize = 20;
const SECRET_OF_ACCESS_KEY: usize = 40;
/// Addresses whose paths are secret from there on.
const HOOKS: [&str; 4] =
    ["hooks.slack.com/services/", "discord.com/api/webhooks/", "discordapp.com/api/webhooks/", "api.telegram.org/bot"];
/// How much of a token is looked at to recognise it.
const LONGEST_LOOK: usize = 1024;

/// A word with all such tokens masked.
pub(super) fn mask(word: &str) -> String {
    let (mut out, mut at, mut copied) = (String::new(), 0, 0);
    while at < word.len() {
        // Behind one, another may begin.
        match length(&word[copied..], at - copied) {
            Some(length) => {
                out.extend([&word[copied..at], MASK]);
                (at, copied) = (at + length, at + length);
            }
            None => at += word[at..].chars().next().map_or(1, char::len_utf8),
        }
    }
    out + &word[copied..]
}

/// Whether there is a key of AWS in it.
pub(super) fn has_access_key(word: &str) -> bool {
    word.char_indices().any(|(at, _)| access_key(word, at).is_some())
}

/// A word of a command that has a key of AWS, with what can be its secret masked.
pub(super) fn mask_secret_of_access_key(word: &str) -> String {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"/+".contains(&byte);
    let (mut out, mut rest) = (String::new(), word);
    while let Some(start) = rest.bytes().position(is_part) {
        let run = run(&rest[start..], usize::MAX, is_part);
        let has = |is_so: fn(&u8) -> bool| run.bytes().any(|byte| is_so(&byte));
        let is_secret = run.len() == SECRET_OF_ACCESS_KEY && has(u8::is_ascii_uppercase) && has(u8::is_ascii_lowercase);
        out.extend([&rest[..start], if is_secret { MASK } else { run }]);
        rest = &rest[start + run.len()..];
    }
    out + rest
}

/// How long the token is that begins here, if one does.
fn length(word: &str, at: usize) -> Option<usize> {
    let rest = &word[at..];
    if let Some(length) = hook(word, at) {
        return Some(length);
    }
    let form = |form: &&Form| {
        let Some(body) = rest.strip_prefix(form.prefix) else { return false };
        let body = run(body, LONGEST_LOOK, is_part);
        match form.is_common {
            // Text that is made of words has shorter parts.
            true => is_free(&word[..at]) && body.split(['-', '_']).any(|part| part.len() >= form.least),
            false => body.len() >= form.least,
        }
    };
    if FORMS.iter().any(|known| form(&known)) {
        return Some(run(rest, usize::MAX, is_part).len());
    }
    access_key(word, at).or_else(|| jwt(rest))
}

fn access_key(word: &str, at: usize) -> Option<usize> {
    let (before, rest) = word.split_at(at);
    let is_part = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit();
    if before.bytes().next_back().is_some_and(is_part) && !is_free(before) {
        return None;
    }
    ACCESS_KEYS.iter().find(|prefix| rest.starts_with(**prefix))?;
    let key = run(rest, ACCESS_KEY + 1, is_part);
    (key.len() == ACCESS_KEY).then_some(ACCESS_KEY)
}

fn jwt(rest: &str) -> Option<usize> {
    rest.strip_prefix(JWT)?;
    let header = run(rest, LONGEST_LOOK, is_part);
    let behind = rest[header.len()..].strip_prefix('.').filter(|_| header.len() > 4)?;
    let payload = run(behind, usize::MAX, is_part);
    behind[payload.len()..].strip_prefix('.').filter(|_| payload.len() > 4)?;
    Some(run(rest, usize::MAX, |byte| is_part(byte) || byte == b'.').len())
}

/// What is behind an address whose path is secret.
fn hook(word: &str, at: usize) -> Option<usize> {
    let (before, rest) = word.split_at(at);
    HOOKS.iter().find(|hook| before.ends_with(**hook))?;
    let path = run(rest, usize::MAX, |byte| byte.is_ascii_graphic() && !b"\"'`?#;,|&<>(){}[]".contains(&byte));
    (!path.is_empty()).then_some(path.len())
}

/// Whether a name may begin after this: at the beginning, after an option of one letter, or after what is no letter; those
/// of `%3D` and `\n` are none.
fn is_free(before: &str) -> bool {
    let bytes = before.as_bytes();
    match bytes {
        [] | [b'-', _] | [.., b'\\', b'n' | b't' | b'r'] => true,
        [.., b'%', high, low] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => true,
        [.., last] => !last.is_ascii_alphanumeric(),
    }
}

fn is_part(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-'
}

/// The characters of ASCII that `rest` begins with, so many at most.
fn run(rest: &str, most: usize, is_part: impl Fn(u8) -> bool) -> &str {
    &rest[..rest.bytes().take(most).take_while(|byte| is_part(*byte)).count()]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use crate::command;
    use crate::tests::masked;

    #[test]
    fn tokens_are_masked_and_what_is_like_them_is_not() {
        let secret = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";
        let github = "ghp_0123456789abcdefghijABCDEFGHIJ456789";
        for (line, expected) in [
            (format!("run¦{github}"), "run¦***"),
            (format!("run¦-t{github}¦x:{github}@y"), "run¦-t***¦x:***@y"),
            ("run¦-k¦sk-proj-abc_DEF-0123456789abcdefghij".to_owned(), "run¦-k¦***"),
            ("run¦-ksk-0123456789abcdef0123456789abcdef".to_owned(), "run¦-k***"),
            ("run¦disk-0123456789abcdef0123".to_owned(), "run¦disk-0123456789abcdef0123"),
            ("pip¦install¦sk-learn-contrib-and-more-of-it".to_owned(), "pip¦install¦sk-learn-contrib-and-more-of-it"),
            ("run¦half_hf_abcdefghijklmnop012345".to_owned(), "run¦half_***"),
            ("run¦-v¦eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abc-_9¦x".to_owned(), "run¦-v¦***¦x"),
            ("run¦eyJhbGciOiJIUzI1NiJ9.toml".to_owned(), "run¦eyJhbGciOiJIUzI1NiJ9.toml"),
            (
                "curl¦-d¦x¦https://hooks.slack.com/services/T0/B0/x".to_owned(),
                "curl¦-d¦x¦https://hooks.slack.com/services/***",
            ),
            ("get¦https://api.telegram.org/bot1:x/send?a=b".to_owned(), "get¦https://api.telegram.org/bot***?a=b"),
            ("get¦https://discord.com/api/webhooks/".to_owned(), "get¦https://discord.com/api/webhooks/"),
            (format!("s3¦AKIAIOSFODNN7EXAMPLE¦{secret}"), "s3¦***¦***"),
            (format!("s3¦AKIAIOSFODNN7EXAMPLE:{secret}"), "s3¦***:***"),
            (format!("s3¦--access-key=AKIAIOSFODNN7EXAMPLE¦{secret}"), "s3¦--access-key=***¦***"),
            (format!("s3¦AKIAIOSFODNN7EXAMPLES¦{secret}"), &format!("s3¦AKIAIOSFODNN7EXAMPLES¦{secret}")),
            (
                "git¦checkout¦0123456789abcdef0123456789abcdef01234567".to_owned(),
                "git¦checkout¦0123456789abcdef0123456789abcdef01234567",
            ),
        ] {
            assert_eq!(masked(&line), expected);
        }
    }

    #[test]
    fn beginnings_of_tokens_are_none_however_many() {
        for part in ["sk-", "eyJ", "eyJ.", "AKIA", "hf_", "AKIAé", "&a", "?a=", "ghp_é"] {
            let word = part.repeat(20_000);
            assert!(command(std::slice::from_ref(&word)) == [word], "{part}");
        }
    }

    #[test]
    fn commands_without_a_secret_stay_as_they_are() {
        let lines: Vec<&str> = include_str!("commands.txt").lines().collect();
        assert!(lines.len() >= 150, "{}", lines.len());
        for line in lines {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            assert_eq!(command(&words).join(" "), line);
            // As one word, which a shell would take apart.
            assert_eq!(command(&["-c".to_owned(), line.to_owned()])[1], line);
        }
    }

    proptest! {
        #[test]
        fn a_token_does_not_come_through(
            token in prop_oneof![
                "gh[pousr]_[A-Za-z0-9]{36}",
                "github_pat_[A-Za-z0-9]{22}_[A-Za-z0-9]{59}",
                "glpat-[A-Za-z0-9_-]{20}",
                "sk-[A-Za-z0-9]{20,48}",
                "sk-(proj|ant-api03)-[A-Za-z0-9]{40}",
                "xox[bpars]-[0-9]{11,13}-[0-9]{11,13}-[A-Za-z0-9]{24}",
                "hf_[A-Za-z]{34}",
                "A[KS]IA[A-Z2-7]{16}",
                "eyJ[A-Za-z0-9_-]{10,40}\\.eyJ[A-Za-z0-9_-]{10,80}\\.[A-Za-z0-9_-]{20,60}",
            ],
            place in 0..14_usize,
        ) {
            let line = [
                "x¦T", "x¦--model¦T¦-v", "x¦--model=T", "x¦-mT", "env¦NAME=T¦x", "x¦(T)", "x¦{\"a\":[\"T\"]}", "x¦a,T,b",
                "x¦https://host/T/y?z=1", "sh¦-c¦run --x 'T' && y", "sh¦-c¦printf 'a\\nT'", "x¦q%3DT", "x¦user:T@host",
                "x¦Ü=T",
            ][place].replace('T', &token);
            let masked = masked(&line);
            // Also not its greater part.
            prop_assert!(!masked.contains(&token[5..token.len() - 2]), "{line}: {masked}");
        }

        #[test]
        fn the_secret_of_an_access_key_does_not_come_through(
            key in "AKIA[A-Z2-7]{16}",
            secret in "[A-Za-z0-9][A-Za-z0-9/+]{38}[A-Za-z0-9]",
            between in "[ :,|;¦\"]",
        ) {
            let line = masked(&format!("x¦{key}{between}{secret}"));
            prop_assert!(!line.contains(&key) && !line.contains(&secret), "{line}");
        }

        #[test]
        fn a_parameter_does_not_come_through(
            name in prop::sample::select(vec!["token", "key", "api_key", "access_token", "sig", "X-Amz-Signature", "Signature"]),
            secret in "[A-Za-z0-9._-]{6,20}",
            place in 0..6_usize,
        ) {
            let line = ["x¦host/y?@=§", "x¦y?a=1&@=§", "x¦https://h/y?a=1&@=§#z", "x¦'y?@=§'", "sh¦-c¦get \"h/y?a=1&@=§\"", "x¦a=1&@=§"];
            let line = masked(&line[place].replace('@', name).replace('§', &secret));
            prop_assert!(!line.contains(&secret), "{line}");
        }

        #[test]
        fn a_password_of_a_database_does_not_come_through(
            program in prop::sample::select(vec!["mysql", "/usr/bin/mariadb", "mysqldump", "mariadb-dump", "mysqladmin"]),
            secret in prop_oneof![
                "[A-Za-z0-9!%+_][A-Za-z0-9!%+,:_.-]{7,20}[A-Za-z!]",
                "(my|the|X)?[_-]?(secret|token|assword|Password|pw|api_?key|auth)[_-]?[A-Za-z0-9_-]{2,8}",
            ],
            place in 0..5_usize,
        ) {
            let line = [
                "P¦-pS¦db", "sudo¦P¦-uroot¦-pS", "docker¦exec¦-it¦db¦P¦-u¦root¦-h¦127.0.0.1¦-pS¦-e¦select 1",
                "sh¦-c¦P -u root -pS db | gzip", "sudo¦-u¦mysql¦P¦-pS",
            ][place].replace('P', "§").replace('S', &secret).replace('§', program);
            let masked = masked(&line);
            // `-p80:8080` is taken for ports of a container, which commas part.
            let first = secret.split(',').next().unwrap_or_default();
            let is_other = |c: char| !c.is_ascii_digit() && !":.".contains(c);
            prop_assume!(first == secret || !first.contains(':') || first.contains(is_other));
            prop_assert!(!masked.contains(&secret), "{masked}");
        }
    }
}
