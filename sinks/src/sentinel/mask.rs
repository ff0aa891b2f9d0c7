//! Takes what looks like a secret out of a command line.

/// Words, in the name of an option or a variable, whose value is a secret.
const NAMES: [&str; 12] = [
    "password",
    "passwd",
    "passphrase",
    "token",
    "secret",
    "apikey",
    "api_key",
    "api-key",
    "access_key",
    "access-key",
    "private_key",
    "credential",
];
const MASK: &str = "***";

/// The words of a command, with the values of options and variables such as `--password X`, `token=…` and the
/// credentials in URLs masked.
pub(crate) fn command(words: &[String]) -> Vec<String> {
    let mut masks_next = false;
    let mask = |word: &String| {
        let is_option = word.starts_with('-');
        if std::mem::take(&mut masks_next) && !is_option {
            return MASK.to_owned();
        }
        match word.split_once(['=', ':']).filter(|(_, value)| !value.starts_with("//")) {
            Some((name, _)) if is_secret(name) => format!("{name}{}{MASK}", &word[name.len()..=name.len()]),
            _ => {
                masks_next = is_option && is_secret(word);
                url(word)
            }
        }
    };
    words.iter().map(mask).collect()
}

/// Whether what follows this name is a secret. Only a name counts, not a text in which the word stands.
fn is_secret(name: &str) -> bool {
    let name = name.trim_start_matches('-').to_lowercase();
    let is_name = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
    // Those that name a file, or how many tokens a model may write, are none.
    let is_plain = ["file", "path", "tokens", "tokenizer"].iter().any(|word| name.contains(word));
    is_name && !is_plain && (NAMES.iter().any(|word| name.contains(word)) || name == "pwd" || name == "auth")
}

/// `https://user:password@host/?token=x` without the credentials.
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
    let parameter = |parameter: &str| match parameter.split_once('=') {
        Some((name, _)) if is_secret(name) || name.eq_ignore_ascii_case("x-amz-signature") || name == "sig" => {
            format!("{name}={MASK}")
        }
        _ => parameter.to_owned(),
    };
    let query = query.map(|query| format!("?{}", query.split('&').map(parameter).collect::<Vec<_>>().join("&")));
    format!("{scheme}://{address}{}", query.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn masked(line: &str) -> String {
        command(&line.split(' ').map(str::to_owned).collect::<Vec<_>>()).join(" ")
    }

    #[test]
    fn values_of_secrets_are_masked_and_nothing_else() {
        for (line, expected) in [
            ("train --password X --epochs 5", "train --password *** --epochs 5"),
            ("train --api-key=abc token=xyz", "train --api-key=*** token=***"),
            ("env AWS_SECRET_ACCESS_KEY=abc HOME=/x run", "env AWS_SECRET_ACCESS_KEY=*** HOME=/x run"),
            ("psql postgres://me:pw@db:5432/x", "psql postgres://***@db:5432/x"),
            ("git clone https://u:p/w@host/y@v1", "git clone https://***@v1"),
            ("pip install git+https://host:80/y@v1", "pip install git+https://host:80/y@v1"),
            ("curl https://x/y?a=1&token=b", "curl https://x/y?a=1&token=***"),
            ("curl -H Authorization:abc", "curl -H Authorization:abc"),
            ("run --password -v", "run --password -v"),
            (
                "llm --max-tokens 100 --tokenizer bpe --token-file /t",
                "llm --max-tokens 100 --tokenizer bpe --token-file /t",
            ),
            ("python train.py --epochs 50", "python train.py --epochs 50"),
        ] {
            assert_eq!(masked(line), expected);
        }
    }

    proptest! {
        #[test]
        fn any_command_keeps_its_number_of_words(words in prop::collection::vec(".{0,20}", 0..6)) {
            prop_assert_eq!(command(&words).len(), words.len());
        }

        #[test]
        fn a_secret_does_not_come_through(value in "[A-Za-z0-9+]{6,20}") {
            for line in [format!("x --password {value}"), format!("x --token={value}"), format!("x http://u:{value}@h/")] {
                prop_assert!(!masked(&line).contains(&value), "{}", line);
            }
        }
    }
}
