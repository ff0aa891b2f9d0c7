//! Options of one letter that take a password in some programs, and something else in others.

use super::secret_names::{is_name, is_secret};

/// Programs (`*`: all whose names begin so), their options, and whether the password may also be the next word.
///
/// `login` is a command of many: docker, podman, nerdctl, helm, skopeo, crane, buildah, oras, oc, az.
const PROGRAMS: [(&[&str], &[&str], bool); 7] = [
    (&["mysql*", "mariadb*", "7z*"], &["-p"], false),
    (&["sshpass", "login", "mongo*", "cqlsh"], &["-p"], true),
    (&["sqlcmd", "bcp", "tsql", "ipmitool", "mosquitto_*", "zip", "unzip"], &["-P"], true),
    (&["ldap*"], &["-w"], true),
    (&["redis-cli", "redis-benchmark", "http", "https", "xh"], &["-a"], true),
    (&["snmp*"], &["-A", "-X"], true),
    (&["curl"], &["-b"], true),
];

/// Where a password is.
pub(super) enum Password {
    /// In the word, behind this option.
    Behind(&'static str),
    /// The next word.
    Next,
}

/// The options of the program that was seen last. Each takes one password: what a program such as `sshpass` starts has
/// options of its own.
#[derive(Default)]
pub(super) struct PasswordOptions {
    options: Vec<&'static str>,
    takes_next: bool,
}

impl PasswordOptions {
    /// To be called with each word that can be a program.
    pub(super) fn see(&mut self, word: &str) {
        let Some(name) = word.rsplit('/').next().filter(|name| is_name(name)) else { return };
        let is_it = |program: &&str| match program.strip_suffix('*') {
            Some(start) => name.starts_with(start),
            None => name == *program,
        };
        if let Some((_, options, takes_next)) = PROGRAMS.iter().find(|(programs, ..)| programs.iter().any(is_it)) {
            *self = Self { options: options.to_vec(), takes_next: *takes_next };
        }
    }

    /// Where the password is, if the word is one of the options.
    pub(super) fn take(&mut self, word: &str) -> Option<Password> {
        let at = self.options.iter().position(|option| word.starts_with(option))?;
        let behind = &word[self.options[at].len()..];
        // `-password X` is read by its name.
        let is_one = if behind.is_empty() { self.takes_next } else { !is_ports(behind) && !is_secret(word) };
        let option = is_one.then(|| self.options.remove(at))?;
        Some(if behind.is_empty() { Password::Next } else { Password::Behind(option) })
    }
}

/// `8080:80`, which containers have.
fn is_ports(text: &str) -> bool {
    text.contains(':') && text.bytes().all(|byte| byte.is_ascii_digit() || b":.".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::super::mask::tests::masked;

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
