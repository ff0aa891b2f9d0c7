//! Where some tools take a password without a name before it.

use crate::accounts::{is_url, without_password};
use crate::secret_names::{is_name, is_secret, is_whole_secret};

/// Tools (`*`: all whose names begin so), and how a password X is given to them: behind words that follow the tool, among
/// which other options may stand. `_` is any word, `a|b` one of both, `-p~X` is `-p X`, `-pX` and, as the last of several
/// letters, `-vp X`; `X…` are all words to the end.
///
/// `login` is a command of many: docker, podman, nerdctl, helm, skopeo, crane, buildah, oras, oc, az.
const FORMS: [(&[&str], &str); 73] = [
    (&["7z*"], "-pX"),
    (&["b2"], "authorize-account|authorize_account|authorize _ X"),
    (&["bcp", "sqlcmd", "tsql"], "-P~X"),
    (&["beeline"], "-p~X"),
    (&["cargo"], "login X…"),
    (&["cqlsh"], "-p~X"),
    (&["crackmapexec", "netexec", "nxc"], "-p~X"),
    (&["curl"], "--cert|--proxy-cert _:X"),
    (&["curl"], "-E~_:X"),
    (&["curl"], "-U~_:X"),
    (&["curl"], "-b~X"),
    (&["curl"], "-u~_:X"),
    (&["cypher-shell"], "-p~X"),
    (&["evil-winrm"], "-p~X"),
    (&["expdp", "impdp", "rman", "sqlldr", "sqlplus"], "_/X@_"),
    (&["htpasswd"], "X…"),
    (&["http", "https", "xh"], "-a~X"),
    (&["hydra"], "-p~X"),
    (&["influx"], "-t X"),
    (&["ipmitool"], "-P~X"),
    (&["ipmitool"], "-k~X"),
    (&["isql"], "_ _ X"),
    (&["iwconfig"], "key X"),
    (&["ldap*"], "-w~X"),
    (&["ldappasswd"], "-a~X"),
    (&["ldappasswd"], "-s~X"),
    (&["lftp"], "-u~_,X"),
    (&["login"], "-p~X"),
    (&["mariadb*", "mysql*"], "-pX"),
    (&["mc"], "alias set _ _ _ X"),
    (&["mc"], "host add _ _ _ X"),
    (&["mkpasswd"], "X…"),
    (&["mongo*"], "-p~X"),
    (&["mosquitto_*"], "-P~X"),
    (&["ncftp*"], "-p~X"),
    (&["nuget"], "-k~X"),
    (&["nuget"], "push _ X"),
    (&["openssl"], "-K X"),
    (&["openssl"], "-hmac|-psk X"),
    (&["openssl"], "-k X"),
    (&["openssl"], "passwd X…"),
    (&["pdf*"], "-opw X"),
    (&["pdf*"], "-upw X"),
    (&["poetry"], "-p~X"),
    (&["poetry"], "http-basic.* _ X"),
    (&["poetry"], "pypi-token.* X"),
    (&["qpdf"], "--encrypt X X"),
    (&["rabbitmqadmin"], "-p~X"),
    (&["rabbitmqctl"], "add_user|authenticate_user|change_password _ X"),
    (&["rar", "unrar"], "-hpX"),
    (&["rar", "unrar"], "-pX"),
    (&["rclone"], "obscure|pass X"),
    (&["rdesktop"], "-p~X"),
    (&["redis-benchmark", "redis-cli"], "-a~X"),
    (&["redis-cli"], "AUTH|auth X…"),
    (&["smbclient"], "//* X"),
    (&["snmp*"], "-A~X"),
    (&["snmp*"], "-X~X"),
    (&["snmp*"], "-c~X"),
    (&["snowsql"], "-p~X"),
    (&["ssh-keygen"], "-N~X"),
    (&["ssh-keygen"], "-P~X"),
    (&["sshpass"], "-p~X"),
    (&["swift"], "-K~X"),
    (&["twine"], "-p~X"),
    (&["unzip", "zip"], "-P~X"),
    (&["useradd", "usermod"], "-p~X"),
    (&["vault"], "kv put _ _=X…"),
    (&["vault"], "login|unseal X…"),
    (&["wandb"], "login X…"),
    (&["wlfreerdp", "xfreerdp*"], "/p:X"),
    (&["wpa_passphrase"], "_ X"),
    (&["youtube-dl", "yt-dlp"], "-p~X"),
];
const MASK: &str = "***";

/// The forms of the tools that were seen, each with how much of it was. A form counts once: what a program such as
/// `sshpass` starts has options of its own.
#[derive(Default)]
pub(super) struct ToolForms {
    forms: Vec<Form>,
}

struct Form {
    /// Which of [`FORMS`].
    index: usize,
    parts: Vec<&'static str>,
    seen: usize,
}

impl ToolForms {
    /// To be called with each word that can be a program.
    pub(super) fn see(&mut self, word: &str) {
        let Some(name) = word.rsplit('/').next().filter(|name| is_name(name)) else { return };
        for (index, (tools, form)) in FORMS.iter().enumerate() {
            let is_new = || self.forms.iter().all(|known| known.index != index);
            if tools.iter().any(|tool| is_like(name, tool)) && is_new() {
                self.forms.push(Form { index, parts: form.split(' ').collect(), seen: 0 });
            }
        }
    }

    /// The word with its password masked, if it has one. To be called with each word.
    pub(super) fn mask(&mut self, word: &str) -> Option<String> {
        // All of them go on.
        let masked: Vec<String> = self.forms.iter_mut().filter_map(|form| form.mask(word)).collect();
        self.forms.retain(|form| form.seen < form.parts.len());
        masked.into_iter().next()
    }
}

impl Form {
    fn mask(&mut self, word: &str) -> Option<String> {
        let part = self.parts[self.seen];
        let is_value = self.seen > 0 && self.parts[self.seen - 1].starts_with('-');
        if let Some((option, value)) = part.split_once('~') {
            let behind = word.strip_prefix(option);
            if behind.map_or_else(|| is_last_of_letters(word, option), str::is_empty) {
                (self.parts, self.seen) = (vec![option, value], 1);
                return None;
            }
            let masked = filled(behind.filter(|behind| is_password(word, behind))?, value)?;
            // What can as well be another option does not end it.
            if !is_secret(word) {
                self.seen = self.parts.len();
            }
            return Some(format!("{option}{masked}"));
        }
        // Options of no interest, and what is asked: `wandb login --host https://h X`.
        let is_passed = word.starts_with('-') && !part.starts_with('-') || part.starts_with('X') && is_url(word);
        if is_passed && !is_value {
            return None;
        }
        if let Some(rest) = part.strip_suffix('…') {
            return filled(word, rest);
        }
        if !part.contains('X') {
            self.seen = if part == "_" || part.split('|').any(|part| is_like(word, part)) { self.seen + 1 } else { 0 };
            return None;
        }
        let masked = filled(word, part);
        // A value is there whatever it is; what else stands alone is looked for further.
        if masked.is_some() || self.seen > 0 {
            self.seen += 1;
        }
        masked
    }
}

/// A word with what stands at X masked, if it has the form.
fn filled(word: &str, form: &str) -> Option<String> {
    let behind = |sign| word.split_once(sign).filter(|(before, behind)| !before.is_empty() && !behind.is_empty());
    match form {
        "X" => (!word.is_empty()).then(|| MASK.to_owned()),
        "_:X" => Some(without_password(word)).filter(|masked| masked != word),
        "_,X" => behind(',').map(|(user, _)| format!("{user},{MASK}")),
        "_=X" => behind('=').map(|(name, _)| format!("{name}={MASK}")),
        "_/X@_" => {
            let (user, rest) = behind('/').filter(|(user, _)| is_name(user))?;
            let place = rest.rfind('@').map_or("", |at| &rest[at..]);
            Some(format!("{user}/{MASK}{place}"))
        }
        _ => {
            let option = form.strip_suffix('X')?;
            let behind = word.strip_prefix(option)?;
            is_password(word, behind).then(|| format!("{option}{MASK}"))
        }
    }
}

/// `-password X` is read by its name.
fn is_password(word: &str, behind: &str) -> bool {
    !behind.is_empty() && !is_ports(behind) && !is_whole_secret(word)
}

/// `8080:80`, which containers have.
fn is_ports(text: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.contains(':') && text.split([':', '.']).all(is_number)
}

/// `-sSLu`, where `-u` is the option.
fn is_last_of_letters(word: &str, option: &str) -> bool {
    let Some((letters, letter)) = word.strip_prefix('-').zip(option.strip_prefix('-')) else { return false };
    letters.ends_with(letter) && letters.bytes().all(|byte| byte.is_ascii_alphabetic()) && !is_secret(word)
}

fn is_like(word: &str, name: &str) -> bool {
    match name.strip_suffix('*') {
        Some(start) => word.starts_with(start),
        None => word == name,
    }
}

#[cfg(test)]
mod tests {
    use crate::tests::masked;

    use super::*;

    #[test]
    fn every_form_is_masked_and_they_are_sorted() {
        assert!(FORMS.is_sorted());
        for (tools, form) in FORMS {
            for (tool, form) in tools.iter().flat_map(|tool| written(form).into_iter().map(move |form| (tool, form))) {
                let masked = masked(&format!("{}¦{form}¦next", tool.replace('*', "x")));
                assert!(masked.contains(MASK) && !masked.contains('§'), "{tool}¦{form}: {masked}");
            }
        }
    }

    /// The ways to write a form, with § for the password.
    fn written(form: &str) -> Vec<String> {
        let filled = |part: &str| match part == "_" || part.contains('X') {
            true => part.replace('_', "me").replace('X', "§§"),
            false => part.replace('*', "x"),
        };
        if let Some((option, value)) = form.split_once('~') {
            let (letter, value) = (&option[1..], filled(value));
            return vec![format!("{option}¦{value}"), format!("{option}{value}"), format!("-v{letter}¦{value}")];
        }
        let parts: Vec<String> = form.trim_end_matches('…').split(' ').map(filled).collect();
        parts[0].split('|').map(|first| [&[first.to_owned()], &parts[1..]].concat().join("¦")).collect()
    }

    #[test]
    fn what_is_typed_is_read_as_the_tool_reads_it() {
        for (line, expected) in [
            ("curl¦-su¦a:X¦-sb¦a=X¦-E¦c.pem:X¦h", "curl¦-su¦a:***¦-sb¦***¦-E¦c.pem:***¦h"),
            ("curl¦-sSLu¦a:X¦-U¦1000:1000¦--cert¦c.pem¦h", "curl¦-sSLu¦a:***¦-U¦1000:1000¦--cert¦c.pem¦h"),
            ("redis-cli¦-p¦6379¦AUTH¦X", "redis-cli¦-p¦6379¦AUTH¦***"),
            ("twine¦upload¦-u¦me¦-p¦X¦dist/a", "twine¦upload¦-u¦me¦-p¦***¦dist/a"),
            ("sqlplus¦-s¦scott/X@//h:1521/x¦@a.sql", "sqlplus¦-s¦scott/***@//h:1521/x¦@a.sql"),
            ("sqlplus¦scott/X@db", "sqlplus¦scott/***@db"),
            ("openssl¦enc¦-aes-256-cbc¦-k¦X¦-in¦a", "openssl¦enc¦-aes-256-cbc¦-k¦***¦-in¦a"),
            ("openssl¦rsa¦-keyform¦PEM¦-in¦a", "openssl¦rsa¦-keyform¦PEM¦-in¦a"),
            ("lftp¦-u¦me,X¦h", "lftp¦-u¦me,***¦h"),
            ("sh¦-c¦lftp -u me,X h", "sh¦-c¦lftp -u me,*** h"),
            ("rar¦a¦-pX¦a.rar¦-hpX", "rar¦a¦-p***¦a.rar¦-hp***"),
            ("pdftotext¦-upw¦X¦a.pdf", "pdftotext¦-upw¦***¦a.pdf"),
            ("vault¦login¦-no-store¦X", "vault¦login¦-no-store¦***"),
            ("vault¦kv¦put¦-mount=a¦b¦c=X¦d=X", "vault¦kv¦put¦-mount=a¦b¦c=***¦d=***"),
            ("wandb¦login¦--relogin¦X", "wandb¦login¦--relogin¦***"),
            ("wandb¦login¦--host¦https://h¦X", "wandb¦login¦--host¦https://h¦***"),
            ("nuget¦push¦a.nupkg¦-s¦https://h/v3¦-k¦X", "nuget¦push¦a.nupkg¦-s¦https://h/v3¦-k¦***"),
            ("sshpass¦-pshop¦ssh¦h", "sshpass¦-p***¦ssh¦h"),
            // Whether it is a value or a name, nobody knows: both are masked.
            ("mysql¦-psecret1¦shop¦-e¦select 1", "mysql¦-p***¦***¦-e¦select 1"),
            ("mysql¦-pAaAAa-_Pw¦shop", "mysql¦-p***¦***"),
            ("mysql¦-password¦x", "mysql¦-password¦***"),
            ("sudo¦useradd¦-mp¦X¦me", "sudo¦useradd¦-mp¦***¦me"),
            ("zip¦-rP¦X¦a.zip¦src", "zip¦-rP¦***¦a.zip¦src"),
            ("mc¦alias¦set¦a¦http://h¦AKEY¦X", "mc¦alias¦set¦a¦http://h¦AKEY¦***"),
            ("htpasswd¦-nb¦me¦X", "htpasswd¦-nb¦***¦***"),
            ("ssh-keygen¦-f¦k¦-N¦¦-P¦X", "ssh-keygen¦-f¦k¦-N¦¦-P¦***"),
        ] {
            assert_eq!(masked(line), expected);
        }
    }

    #[test]
    fn passwords_behind_a_letter_are_masked() {
        for (line, expected) in [
            ("sshpass¦-p¦x¦ssh¦-p¦22¦h", "sshpass¦-p¦***¦ssh¦-p¦22¦h"),
            ("sshpass¦-px¦ssh¦-p22¦h", "sshpass¦-p***¦ssh¦-p22¦h"),
            ("redis-cli¦-h¦c¦-a¦x¦get¦k", "redis-cli¦-h¦c¦-a¦***¦get¦k"),
            ("sh¦-c¦mysqldump -px db | ssh -p22 h", "sh¦-c¦mysqldump -p*** db | ssh -p22 h"),
            ("docker¦login¦-u¦me¦-p¦x¦reg.example.com", "docker¦login¦-u¦me¦-p¦***¦reg.example.com"),
            ("helm¦registry¦login¦-u¦me¦-px¦host", "helm¦registry¦login¦-u¦me¦-p***¦host"),
            ("docker¦run¦-p¦80:80¦--name¦login¦-p¦81:81¦x", "docker¦run¦-p¦80:80¦--name¦login¦-p¦81:81¦x"),
            ("az¦login¦-u¦me¦-p¦x", "az¦login¦-u¦me¦-p¦***"),
            ("mongo¦-u¦me¦-p¦x¦--host¦h", "mongo¦-u¦me¦-p¦***¦--host¦h"),
            ("/usr/bin/mongodump¦-u¦me¦-password¦x¦-o¦d", "/usr/bin/mongodump¦-u¦me¦-password¦***¦-o¦d"),
            ("ldapsearch¦-x¦-D¦cn=me¦-w¦x¦-b¦dc=y", "ldapsearch¦-x¦-D¦cn=me¦-w¦***¦-b¦dc=y"),
            ("sqlcmd¦-S¦h¦-U¦sa¦-Px", "sqlcmd¦-S¦h¦-U¦sa¦-P***"),
            ("ipmitool¦-H¦h¦-U¦admin¦-P¦x¦power¦status", "ipmitool¦-H¦h¦-U¦admin¦-P¦***¦power¦status"),
            ("snmpget¦-A¦x¦-X¦y¦h", "snmpget¦-A¦***¦-X¦***¦h"),
            ("curl¦-b¦session=x¦https://h/", "curl¦-b¦***¦https://h/"),
            ("sh¦-c¦cd /x && curl -bsession=x h; ls -b y", "sh¦-c¦cd /x && curl -b*** h; ls -b y"),
            ("unzip¦-P¦x¦a.zip", "unzip¦-P¦***¦a.zip"),
            ("7z¦x¦-px¦a.7z", "7z¦x¦-p***¦a.7z"),
            ("loginctl¦show-user¦-p¦State", "loginctl¦show-user¦-p¦State"),
        ] {
            assert_eq!(masked(line), expected);
        }
    }
}
