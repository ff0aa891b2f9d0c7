//! Command lines in one word, roughly as a shell reads them.

use crate::secret_names::is_secret;

/// Whether a command takes a password from its standard input: `docker login --password-stdin`.
pub(super) fn reads_password(command: &[(&str, usize, usize)]) -> bool {
    let has = |name: &str| command.iter().any(|(word, ..)| *word == name);
    let is_option = |word: &str| {
        let name =
            word.strip_suffix("-stdin").or_else(|| word.strip_suffix("-fd")).or_else(|| word.strip_prefix("--with-"));
        word.starts_with("--") && name.is_some_and(is_secret)
    };
    has("chpasswd") || has("sudo") && has("-S") || command.iter().any(|(word, ..)| is_option(word))
}

/// How long `(…)` is, with those within it.
pub(super) fn substitution(text: &str) -> usize {
    let mut open = 0_usize;
    for (at, c) in text.char_indices() {
        match c {
            '(' => open += 1,
            ')' => open = open.saturating_sub(1),
            _ => (),
        }
        if open == 0 {
            return if c == ')' { at + 1 } else { 0 };
        }
    }
    text.len()
}

/// Where the words of a command line are, roughly as a shell parts them; commas part them in data.
pub(super) fn shell_words(line: &str) -> Vec<(usize, usize)> {
    let (mut spans, mut start, mut quote, mut open) = (Vec::new(), None, None, 0_usize);
    let bytes = line.as_bytes();
    for (at, c) in line.char_indices() {
        let is_within = || {
            let is_next = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_alphanumeric);
            let is_comma = open == 0 && c == ',' && at > 0 && is_next(at - 1) && is_next(at + 1);
            is_comma || c == '>' && bytes[..at].ends_with(b"=")
        };
        if quote.is_none() && (c.is_whitespace() || ";|&(){}[]<>,".contains(c)) && !is_within() {
            match c {
                '(' | '[' | '{' => open += 1,
                ')' | ']' | '}' => open = open.saturating_sub(1),
                _ => (),
            }
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
pub(super) fn unquoted(word: &str) -> &str {
    let inner = ['"', '\'', '`'].iter().find_map(|quote| {
        let inner = word.strip_prefix(*quote)?.strip_suffix(*quote)?;
        // `"name":"value"` is two of them.
        (!inner.contains(*quote)).then_some(inner)
    });
    inner.unwrap_or(word)
}

#[cfg(test)]
mod tests {
    use crate::tests::are_masked;

    #[test]
    fn what_is_fed_to_one_that_reads_a_password_is_masked() {
        are_masked(&[
            (
                "sh¦-c¦echo X | docker login -u me --password-stdin",
                "sh¦-c¦echo *** | docker login -u me --password-stdin",
            ),
            ("sh¦-c¦echo -n \"X\" | sudo -S ls", "sh¦-c¦echo -n \"***\" | sudo -S ls"),
            ("sh¦-c¦printf '%s' X | gpg --passphrase-fd 0", "sh¦-c¦printf '***' *** | gpg --passphrase-fd ***"),
            ("sh¦-c¦echo 'me:X' | chpasswd", "sh¦-c¦echo '***' | chpasswd"),
            ("sh¦-c¦sudo -S ls <<< X", "sh¦-c¦sudo -S ls <<< ***"),
            ("sh¦-c¦set -x; API_KEY=$(printf X | f (Y)) run $(date)", "sh¦-c¦set -x; API_KEY=*** run $(date)"),
            ("sh¦-c¦echo hello | sudo tee /x", "sh¦-c¦echo hello | sudo tee /x"),
        ]);
    }
}
