//! Names of options, variables and headers whose values are secret.

/// Ends of names: such a name is that of a file, or of how many tokens a model may write.
const PLAIN_ENDS: [&str; 6] = ["file", "path", "dir", "tokens", "tokenizer", "tokenizers"];

/// A name of an option, a variable or a header that has one of these in it, hyphens and underscores left out, has a
/// secret as its value.
const PARTS: [&str; 21] = [
    "password",
    "passwd",
    "passphrase",
    "passcode",
    "token",
    "secret",
    "apikey",
    "accesskey",
    "accountkey",
    "authkey",
    "privatekey",
    "sharedkey",
    "signingkey",
    "encryptionkey",
    "masterkey",
    "credential",
    "authorization",
    "connectionstring",
    "cookie",
    "fromliteral",
    "requirepass",
];

/// The same for the last word of a name.
const LAST_WORDS: [&str; 9] = ["pwd", "pw", "psw", "psk", "auth", "jwt", "otp", "bearer", "sig"];

/// What ends with `pass` and is no password: ways, filters, and the directions of a compass.
const PLAIN_PASSES: [&str; 8] =
    ["bypass", "compass", "lowpass", "highpass", "bandpass", "allpass", "multipass", "surpass"];

/// Words before `key`: it is the key of a table or of data, or a public one, or something is done to keys.
const PLAIN_KEYS: [&str; 38] = [
    "add",
    "by",
    "cache",
    "column",
    "config",
    "delete",
    "dict",
    "edit",
    "export",
    "foreign",
    "gen",
    "generate",
    "group",
    "hot",
    "image",
    "import",
    "index",
    "input",
    "join",
    "json",
    "kms",
    "label",
    "list",
    "metric",
    "object",
    "order",
    "output",
    "partition",
    "primary",
    "prompt",
    "pub",
    "public",
    "recv",
    "row",
    "shard",
    "sort",
    "text",
    "unique",
];

/// Names that need neither hyphens nor a sign behind them: `nmcli … password X`.
const BARE: [&str; 3] = ["password", "requirepass", "authtoken"];

/// Whether it can be a name at all; Hydra has `+name`.
pub(super) fn is_name(name: &str) -> bool {
    let name = name.trim_start_matches(['-', '+']);
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}

/// Whether what follows this name is a secret. Only a name counts, not a text in which the word stands.
pub(super) fn is_secret(name: &str) -> bool {
    is_secret_word(name) || is_key(name)
}

/// Whether it is the name of a secret and nothing else, such as `-password`: not `-psecret1`, which can be an option `-p` with
/// its value.
pub(super) fn is_whole_secret(name: &str) -> bool {
    let name = name.trim_start_matches('-');
    name == "pass" || PARTS.contains(&name) || LAST_WORDS.contains(&name)
}

/// Whether a word is the name of a secret without being an option: `aws configure set aws_secret_access_key X`. Names
/// of keys are too often things: `apt-key add`.
pub(super) fn is_bare_secret(word: &str) -> bool {
    let last = word.rsplit(['.', ':']).next().unwrap_or_default();
    !word.starts_with('-') && (last.contains(['_', '-']) || BARE.contains(&last)) && is_secret_word(last)
}

/// Whether it is the name of a file or of a number.
fn is_plain(name: &str) -> bool {
    let joined = joined(name);
    PLAIN_ENDS.iter().any(|end| joined.ends_with(end))
}

fn is_secret_word(name: &str) -> bool {
    let name = bare(name);
    if !is_name(name) || is_plain(name) {
        return false;
    }
    let (joined, last) = (joined(name).replace("tokeniz", ""), last_word(name).1.to_lowercase());
    let is_pass = last.ends_with("pass") && !PLAIN_PASSES.iter().any(|plain| last.ends_with(plain));
    is_pass || PARTS.iter().any(|part| joined.contains(part)) || LAST_WORDS.contains(&&*last)
}

/// `OPENAI_KEY`, `X-Auth-Key`, `AccountKey`; a lone `key` is as often one to sort by.
fn is_key(name: &str) -> bool {
    let name = bare(name);
    let (before, last) = last_word(name);
    let before = last_word(before).1.to_lowercase();
    last.eq_ignore_ascii_case("key") && is_name(name) && !before.is_empty() && !PLAIN_KEYS.contains(&&*before)
}

fn bare(name: &str) -> &str {
    name.trim_matches(['-', '+', '"', '\'', '`', '\\'])
}

fn joined(name: &str) -> String {
    name.chars().filter(|c| !"-_.".contains(*c)).flat_map(char::to_lowercase).collect()
}

/// The last word of a name, parted by `-`, `_`, `.` or a capital behind a small letter, and what is before it.
fn last_word(name: &str) -> (&str, &str) {
    let bytes = name.as_bytes();
    let is_start = |at: &usize| {
        b"-_.".contains(&bytes[at - 1]) || bytes[at - 1].is_ascii_lowercase() && bytes[*at].is_ascii_uppercase()
    };
    let start = (1..bytes.len()).rev().find(|at| name.is_char_boundary(*at) && is_start(at)).unwrap_or(0);
    (name[..start].trim_end_matches(['-', '_', '.']), &name[start..])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::are_masked;

    #[test]
    fn the_last_word_of_a_name_tells() {
        for name in [
            "OPENAI_KEY",
            "STRIPE_KEY",
            "AZURE_STORAGE_KEY",
            "APP_KEY",
            "--openai-key",
            "--openai_key",
            "AccountKey",
            "apiKey",
            "SharedAccessKey",
            "X-Auth-Key",
            "Ocp-Apim-Subscription-Key",
            "x-functions-key",
            "--sse-c-key",
            "secrets.key",
            "+secrets.key",
            "SSHPASS",
            "PGPASSWORD",
            "smbpass",
            "dbPass",
            "-keypass",
            "--authkey",
            "Pwd",
            "WPA_PSK",
        ] {
            assert!(is_secret(name), "{name}");
        }
        for name in [
            "--sort-key",
            "--primary-key",
            "PUBLIC_KEY",
            "SSH_PUBLIC_KEY",
            "publicKey",
            "--partition-key",
            "--keyboard",
            "--key-size",
            "--key",
            "-k",
            "key",
            "MONKEY",
            "monkey",
            "--hotkey",
            "--key-file",
            "--label-key",
            "--passes",
            "--bypass",
            "COMPASS",
            "lowpass",
            "--passive",
            "--max-tokens",
            "KEYMAP",
            "é_Key",
            "",
        ] {
            assert!(!is_secret(name), "{name}");
        }
        assert!(!is_bare_secret("apt-key") && is_bare_secret("api-token") && is_bare_secret("preshared-key"));
    }

    #[test]
    fn the_last_word_of_a_name_makes_it_secret() {
        are_masked(&[
            (
                "env¦OPENAI_KEY=X¦STRIPE_KEY=X¦AZURE_STORAGE_KEY=X¦run",
                "env¦OPENAI_KEY=***¦STRIPE_KEY=***¦AZURE_STORAGE_KEY=***¦run",
            ),
            (
                "env¦SSHPASS=X¦PGPASSWORD=X¦nmap¦--script-args¦smbpass=X",
                "env¦SSHPASS=***¦PGPASSWORD=***¦nmap¦--script-args¦smbpass=***",
            ),
            (
                "run¦--openai-key¦X¦--openai_key=X¦+secrets.key=X",
                "run¦--openai-key¦***¦--openai_key=***¦+secrets.key=***",
            ),
            (
                "curl¦-H¦X-Auth-Key: X¦-sH¦Ocp-Apim-Subscription-Key: X",
                "curl¦-H¦X-Auth-Key:***¦-sH¦Ocp-Apim-Subscription-Key:***",
            ),
            ("curl¦-H¦x-functions-key: X", "curl¦-H¦x-functions-key:***"),
            ("tailscale¦up¦--authkey¦X", "tailscale¦up¦--authkey¦***"),
            ("redis-server¦--requirepass¦X", "redis-server¦--requirepass¦***"),
            ("redis-cli¦config¦set¦requirepass¦X", "redis-cli¦config¦set¦requirepass¦***"),
            ("wg¦set¦wg0¦preshared-key¦X", "wg¦set¦wg0¦preshared-key¦***"),
            (
                "sort¦--sort-key¦a¦--primary-key=b¦PUBLIC_KEY=c¦--key-size¦4096",
                "sort¦--sort-key¦a¦--primary-key=b¦PUBLIC_KEY=c¦--key-size¦4096",
            ),
        ]);
    }
}
