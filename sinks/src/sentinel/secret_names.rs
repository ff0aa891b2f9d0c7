//! Names of options, variables and headers whose values are secret.

/// At the end of a name: it tells of a file, or how many tokens a model may write.
const PLAIN_ENDS: [&str; 6] = ["file", "path", "dir", "tokens", "tokenizer", "tokenizers"];

/// A name of an option, a variable or a header that has one of these in it, hyphens and underscores left out, has a
/// secret as its value.
const PARTS: [&str; 18] = [
    "password",
    "passwd",
    "passphrase",
    "passcode",
    "token",
    "secret",
    "apikey",
    "accesskey",
    "accountkey",
    "privatekey",
    "signingkey",
    "encryptionkey",
    "masterkey",
    "credential",
    "authorization",
    "connectionstring",
    "cookie",
    "fromliteral",
];

/// The same for the last word of a name.
const LAST_WORDS: [&str; 11] =
    ["pass", "storepass", "keypass", "pwd", "pw", "psw", "auth", "jwt", "otp", "bearer", "sig"];

/// Whether it can be a name at all.
pub(super) fn is_name(name: &str) -> bool {
    let name = name.trim_start_matches('-');
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}

/// Whether what follows this name is a secret. Only a name counts, not a text in which the word stands.
pub(super) fn is_secret(name: &str) -> bool {
    let name = name.trim_matches(['-', '"', '\'', '`', '\\']).to_lowercase();
    let joined: String = name.chars().filter(|c| !"-_.".contains(*c)).collect();
    let last = name.rsplit(['-', '_', '.']).next().unwrap_or_default();
    let is_plain = PLAIN_ENDS.iter().any(|end| joined.ends_with(end));
    let joined = joined.replace("tokeniz", "");
    is_name(&name) && !is_plain && (PARTS.iter().any(|part| joined.contains(part)) || LAST_WORDS.contains(&last))
}
