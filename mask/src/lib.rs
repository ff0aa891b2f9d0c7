//! Takes what looks like a secret out of a command line.

mod accounts;
mod secret_names;
mod shell_words;
mod token_forms;
mod tool_forms;

use accounts::{account, is_url, is_user_in_one, parameters, url, without_password};
use secret_names::{is_bare_secret, is_name, is_secret};
use shell_words::{reads_password, shell_words, substitution, unquoted};
use tool_forms::ToolForms;

/// Options whose value is `user:password`, or `user%password`.
const USERS: [&str; 8] = ["-u", "-U", "--user", "--proxy-user", "--userpwd", "--creds", "--src-creds", "--dest-creds"];
/// What stands between `Authorization:` and the secret.
const SCHEMES: [&str; 5] = ["bearer", "basic", "digest", "negotiate", "token"];
/// In a word, these show that there are words in it.
const BRACKETS_AND_QUOTES: [char; 6] = ['{', '[', '(', '"', '\'', '`'];
/// Options whose value is a name of a user, a container or a network, and so no program.
const NAMES: [&str; 9] = ["-n", "-u", "--user", "-g", "--group", "--name", "--hostname", "--network", "--namespace"];
/// Between a name and its value, where blanks are around it.
const SIGNS: [&str; 6] = ["=", ":", ":=", "=>", "==", "+="];
/// Between commands of a shell.
const BETWEEN_COMMANDS: [char; 4] = [';', '|', '&', '\n'];
const MASK: &str = "***";
/// How deep shells within shells are looked into.
const DEPTH: u32 = 6;

/// The words of a command, with the values of options, variables and headers such as `--password X`, `token=…` and
/// `-H "Authorization: …"`, the credentials in URLs, and tokens of a well-known form masked; also in a word that is a
/// command line itself.
pub fn command(words: &[String]) -> Vec<String> {
    let mut masked = once(words);
    // A mask can show what the word beside it is. Mostly nothing changes any more.
    for _ in 0..DEPTH {
        let again = once(&masked);
        if again == masked {
            break;
        }
        masked = again;
    }
    masked
}

fn once(words: &[String]) -> Vec<String> {
    let has_access_key = words.iter().any(|word| token_forms::has_access_key(word));
    let anywhere = |word: String| {
        let word = token_forms::mask(&parameters(&word));
        if has_access_key { token_forms::mask_secret_of_access_key(&word) } else { word }
    };
    masked(words, DEPTH).into_iter().map(anywhere).collect()
}

fn masked(words: &[String], depth: u32) -> Vec<String> {
    let (mut is_value, mut is_bare_value, mut is_user, mut is_plain_name) = (false, false, false, false);
    let (mut is_named, mut is_masked) = (false, false);
    let mut tools = ToolForms::default();
    let mask = |word: &String| {
        let is_plain_name = std::mem::replace(&mut is_plain_name, NAMES.contains(&word.as_str()));
        let is_users = std::mem::replace(&mut is_user, USERS.contains(&word.as_str()));
        let by_tool = tools.mask(word);
        if !is_plain_name {
            tools.see(word);
        }
        let is_bare = is_bare_secret(word);
        let is_named = std::mem::replace(&mut is_named, is_bare || is_secret(word));
        let is_masked = std::mem::replace(&mut is_masked, is_value);
        // `name = value`, and `name: type = value`.
        if (is_named || is_masked || is_value) && SIGNS.contains(&word.as_str()) {
            (is_value, is_bare_value) = (true, false);
            return word.clone();
        }
        if is_named && !is_value && word.starts_with(['=', ':']) {
            is_bare_value = false;
            return format!("{}{MASK}", &word[..1]);
        }
        // Without a hyphen, the name may as well be that of a thing, with options after it.
        is_value |= std::mem::replace(&mut is_bare_value, is_bare) && !word.starts_with('-');
        if std::mem::take(&mut is_value) {
            // A scheme comes before its value, and an option in place of a value can be the name of the next one.
            is_value = SCHEMES.contains(&word.to_lowercase().as_str()) || (word.starts_with('-') && is_secret(word));
            return MASK.to_owned();
        }
        if let Some(masked) = by_tool {
            // `-psecret1` can as well be the name of the next one.
            is_value |= word.starts_with('-') && is_secret(word);
            return masked;
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
        if let Some(masked) = account(word) {
            return (masked, false);
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
    let is_one_command =
        |(_, end): &(usize, usize), (start, _): &(usize, usize)| !line[*end..*start].contains(BETWEEN_COMMANDS);
    let commands: Vec<Vec<(&str, usize, usize)>> = spans
        .chunk_by(is_one_command)
        .map(|spans| spans.iter().map(|(start, end)| (unquoted(&line[*start..*end]), *start, *end)).collect())
        .collect();
    let (mut out, mut at) = (String::new(), 0);
    for (index, command) in commands.iter().enumerate() {
        let words: Vec<String> = command.iter().map(|(word, ..)| (*word).to_owned()).collect();
        let next = commands.get(index + 1).filter(|_| ["echo", "printf"].contains(&command[0].0));
        let is_fed = next.is_some_and(|next| reads_password(next));
        let mut is_option_masked = false;
        for (place, (masked, (word, start, end))) in masked(&words, depth).into_iter().zip(command).enumerate() {
            if *start < at {
                continue;
            }
            let between = &line[at..*start];
            if is_option_masked && between == "," {
                // A shell does not part words there.
                at = *end;
                continue;
            }
            let is_said =
                is_fed && place > 0 && !word.starts_with('-') || between.contains("<<<") && reads_password(command);
            let masked = if is_said { MASK.to_owned() } else { masked };
            is_option_masked = line[*start..].starts_with('-') && masked.ends_with(MASK);
            out.push_str(between);
            let raw = &line[*start..*end];
            let quote = &raw[..(raw.len() - word.len()) / 2];
            out.extend(if *word == masked { [raw, "", ""] } else { [quote, &masked, quote] });
            at = *end;
            if *word != masked && word.ends_with('$') {
                // `KEY=$(…)` is one word.
                at += substitution(&line[at..]);
            }
        }
    }
    out + &line[at..]
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Words are parted by `¦`.
    pub(crate) fn masked(line: &str) -> String {
        command(&line.split('¦').map(str::to_owned).collect::<Vec<_>>()).join("¦")
    }

    /// Lines, and what they become.
    pub(crate) fn are_masked(cases: &[(&str, &str)]) {
        for (line, expected) in cases {
            assert_eq!(masked(line), *expected);
        }
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
            ("run¦[\"--password\",\"x\",\"-v\"]", "run¦[\"--password\",\"***\",\"-v\"]"),
            ("run¦f(token='abc')¦http://u:p{w@h/", "run¦f(token=***)¦http://***@h/"),
            ("run¦{\"epochs\":50,\"name\":\"it's\"}", "run¦{\"epochs\":50,\"name\":\"it's\"}"),
            ("curl¦--header=X-Api-Key: abc", "curl¦--header=X-Api-Key:***"),
            ("curl¦--header¦Cookie: a=b; c=d", "curl¦--header¦Cookie:***"),
            ("curl¦-H¦Accept: text/html", "curl¦-H¦Accept: text/html"),
            ("http¦Authorization:¦Bearer¦abc¦x", "http¦Authorization:***¦***¦***¦x"),
            (
                "sh¦-c¦curl -H 'Authorization: Bearer abc' \"https://u:p@x/\" && run --password \"x y\" -v",
                "sh¦-c¦curl -H 'Authorization:***' \"https://***@x/\" && run --password \"***\" -v",
            ),
            ("sh¦-c¦ssh h 'curl -H \"PRIVATE-TOKEN: abc\" x'", "sh¦-c¦ssh h 'curl -H \"PRIVATE-TOKEN:***\" x'"),
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
    fn blanks_quotes_and_brackets_may_stand_between_a_name_and_its_value() {
        are_masked(&[
            ("psql¦host=h user=me password = X", "psql¦host=h user=me password = ***"),
            ("psql¦host=h password =X user=me", "psql¦host=h password =*** user=me"),
            ("python¦-c¦os.environ[\"HF_TOKEN\"] = \"X\"", "python¦-c¦os.environ[\"HF_TOKEN\"] = \"***\""),
            ("python¦-c¦os.environ['HF_TOKEN']='X'; f()", "python¦-c¦os.environ['HF_TOKEN']=***; f()"),
            ("python¦-c¦api_key = \"X\"", "python¦-c¦api_key = \"***\""),
            ("python¦-c¦x(); token: str = 'X'", "python¦-c¦x(); token:*** *** = '***'"),
            ("python¦-c¦x = {\"token\" : \"X\", \"a\" : 1}", "python¦-c¦x = {\"token\" : \"***\", \"a\" : 1}"),
            ("ruby¦-e¦{:password => 'X', :a => 1}", "ruby¦-e¦{:password => '***', :a => 1}"),
            ("http¦post¦h¦password¦=¦X", "http¦post¦h¦password¦=¦***"),
            ("python¦-c¦a = 1; epochs : 5", "python¦-c¦a = 1; epochs : 5"),
        ]);
    }

    #[test]
    fn names_count_within_lists() {
        are_masked(&[
            ("run¦--conn¦Server=h;Password=X;", "run¦--conn¦Server=h;Password=***;"),
            ("run¦--db=Server=h;Uid=a;Pwd=X;Port=1", "run¦--db=Server=h;Uid=a;Pwd=***;Port=1"),
            ("run¦Server=h;Password=\"X;Y\";Port=1", "run¦Server=h;Password=***;Port=1"),
            ("run¦AccountName=a;AccountKey=X==", "run¦AccountName=a;AccountKey=***"),
            ("run¦Endpoint=sb://h/;SharedAccessKey=X", "run¦Endpoint=sb://h/;SharedAccessKey=***"),
            ("java¦jdbc:sqlserver://h;user=a;password=X", "java¦jdbc:sqlserver://h;user=a;password=***"),
            ("mount¦-o¦username=a,password=X,uid=1¦/m", "mount¦-o¦username=a,password=***,uid=1¦/m"),
            ("helm¦--set¦a=1,db.password=X", "helm¦--set¦a=1,db.password=***"),
            ("sh¦-c¦mount -o username=a,password=X /m", "sh¦-c¦mount -o username=a,password=*** /m"),
        ]);
    }

    #[test]
    fn a_long_word_is_no_deep_recursion() {
        for part in ["a=", "a:", "'a ", "--a=\" '", "(\"'` "] {
            assert_eq!(command(&[part.repeat(20_000)]).len(), 1);
        }
    }

    /// Words of what commands are made of, and of anything.
    fn words() -> impl Strategy<Value = Vec<String>> {
        let parts = [
            "--password",
            "token",
            "API_KEY",
            "curl",
            "mysql",
            "vault",
            "login",
            "-p",
            "-su",
            "a:b",
            "@host",
            "://",
            "=",
            ":",
            " = ",
            ";",
            ",",
            "|",
            " ",
            "'",
            "\"",
            "`",
            "(",
            ")",
            "$(",
            "[",
            "]",
            "{",
            "}",
            "<<<",
            "echo ",
            "sudo -S",
            "Bearer ",
            "x",
            "é",
            "***",
            "?sig=",
            "\n",
            "\\",
            "%",
            "/",
            "-",
            "hooks.slack.com/services/",
            "AKIAIOSFODNN7EXAMPLE",
            "sk-0123456789abcdefgh",
        ];
        let made = prop::collection::vec(prop::sample::select(parts.to_vec()), 0..12).prop_map(|parts| parts.concat());
        prop::collection::vec(prop_oneof![made, "[-=:/'\" a-z?@]{0,20}", ".{0,20}"], 0..6)
    }

    proptest! {
        #[test]
        fn what_is_masked_stays_as_it_is(words in words()) {
            let once = command(&words);
            prop_assert_eq!(command(&once), once);
        }

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
                format!("sh¦-c¦sshpass -px{value} ssh h; curl -sSu me:{value} h; me:{value}@h"),
                format!("run¦DB_KEY={value}¦Server=h;Password={value};Port=1¦a=1,b.key={value}"),
                format!("python¦-c¦os.environ[\"HF_TOKEN\"] = \"{value}\"; api_key = '{value}'"),
                format!("sh¦-c¦mongo -u me -p {value} && ldapsearch -w '{value}' && curl -b s={value} x"),
                format!("sh¦-c¦exec x --password '{value} {value}' -H \"Authorization: Bearer {value}\""),
            ] {
                prop_assert!(!masked(&line).contains(&value), "{}", line);
            }
        }
    }
}
