//! Secrets of users for Digest: from a file or a program, and those that are remembered.

use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;
use humboldt_conf::{DigestAuth, DigestSecrets};
use humboldt_helpers::{Helper, NoAnswer, Outcome, Reply};
use parking_lot::Mutex;

use crate::basic::as_text;
use crate::checker::{Checker, Judge, QueueFull};
use crate::digest::{Proof, Secret};
use crate::nonces::Nonces;
use crate::password_file::{FromText, PasswordFile};
use crate::program::Program;
use crate::remembered::{Fingerprint, Lifetimes, is_valid};
use crate::user::{Told, User};

/// Most users whose secrets are remembered. Beyond it one of them is forgotten, an expired one if
/// there is one: it is looked up again.
pub(crate) const SECRETS_MAX: usize = 65_536;

/// Entries of the full table that are looked at for one to forget.
const LOOKED_AT: usize = 16;

/// The result of a look-up.
#[derive(Clone)]
pub(crate) enum Found {
    Secret(Secret, Told),
    /// There is no such user.
    Nobody(Told),
    /// There is no answer.
    Unknown,
}

/// What is known while the program runs.
pub(crate) struct DigestUsers {
    source: Source,
    known: Mutex<HashMap<Box<[u8]>, Known>>,
    pub(crate) nonces: Nonces,
}

enum Source {
    File(Checker<SecretFile>),
    Program(Program<Found>),
}

struct Known {
    secret: Secret,
    user: Arc<User>,
    checked_ms: i64,
    used_ms: i64,
}

impl DigestUsers {
    pub(crate) fn new(digest: &DigestAuth) -> Self {
        let source = match &digest.secrets {
            Some(DigestSecrets::File { path, is_hashed }) => {
                let (realm, is_hashed) = (digest.realm.clone(), *is_hashed);
                let file = SecretFile { file: PasswordFile::new(path.clone()), realm, is_hashed };
                Source::File(Checker::new(file, digest.children.max))
            }
            _ => Source::Program(Program::default()),
        };
        Self { source, known: Mutex::default(), nonces: Nonces::default() }
    }

    /// The user of this proof, if the secret is remembered and fits.
    pub(crate) fn known(
        &self,
        proof: &Proof<'_>,
        methods: &[&[u8]],
        now_ms: i64,
        lifetimes: Lifetimes,
    ) -> Option<Arc<User>> {
        let mut known = self.known.lock();
        let entry = known.get_mut(&*proof.user)?;
        if !is_valid(entry.checked_ms, entry.used_ms, now_ms, lifetimes) {
            known.remove(&*proof.user);
            return None;
        }
        methods.iter().find(|method| proof.proves(&entry.secret, method))?;
        entry.used_ms = now_ms;
        Some(Arc::clone(&entry.user))
    }

    /// Remembers a secret that fits.
    pub(crate) fn insert(
        &self,
        proof: &Proof<'_>,
        secret: Secret,
        told: Told,
        now_ms: i64,
        lifetimes: Lifetimes,
    ) -> Arc<User> {
        let user = Arc::new(User::new(as_text(&proof.user), told));
        let entry = Known { secret, user: Arc::clone(&user), checked_ms: now_ms, used_ms: now_ms };
        let mut known = self.known.lock();
        if known.len() >= SECRETS_MAX && !known.contains_key(&*proof.user) {
            let is_expired =
                |entry: &Known| !is_valid(entry.checked_ms, entry.used_ms, now_ms, lifetimes);
            let mut some = known.iter().take(LOOKED_AT);
            let expired = some.find(|(_, entry)| is_expired(entry));
            let leaving = expired
                .or_else(|| known.iter().take(LOOKED_AT).min_by_key(|(_, entry)| entry.used_ms));
            if let Some(leaving) = leaving.map(|(user, _)| user.clone()) {
                known.remove(&leaving);
            }
        }
        known.insert(proof.user.clone().into(), entry);
        user
    }

    /// Looks the secret of a user up.
    pub(crate) async fn look_up(
        &self,
        user: &[u8],
        realm: &str,
        of: Fingerprint,
        helper: Option<&Helper>,
    ) -> Result<Found, QueueFull> {
        match (&self.source, helper) {
            (Source::File(checker), _) => checker.check(of, user.to_vec()).await,
            (Source::Program(program), Some(helper)) => {
                let line = [b"\"", user, b"\":\"", realm.as_bytes(), b"\""].concat();
                Ok(program.check(helper, of, &line, read).await)
            }
            (Source::Program(_), None) => Ok(Found::Unknown),
        }
    }
}

/// The answer of a program: `OK ha1="…"`, or the secret alone.
fn read(reply: Result<Reply, NoAnswer>) -> Found {
    let Ok(reply) = reply else { return Found::Unknown };
    let secret = match reply.outcome {
        Outcome::Ok => reply.get("ha1").and_then(Secret::parse),
        Outcome::Unknown => Secret::parse(&reply.text),
        Outcome::Err | Outcome::Broken | Outcome::Challenge => None,
    };
    let told = Told::new(reply.pairs);
    match secret {
        Some(secret) => Found::Secret(secret, told),
        None => Found::Nobody(told),
    }
}

/// A file of Squid's `digest_file_auth`.
struct SecretFile {
    file: PasswordFile<Lines>,
    realm: String,
    /// It has hashes instead of passwords.
    is_hashed: bool,
}

/// The last parts of lines, by what is before: a name, or a name and a realm.
struct Lines(HashMap<Box<[u8]>, Box<[u8]>>);

impl FromText for Lines {
    /// A line is `user:password` or `user:realm:password`; lines that begin with `#` are comments.
    fn parse(text: &[u8]) -> Self {
        let mut lines = HashMap::new();
        for line in text.split(|byte| matches!(byte, b'\n' | b'\r')) {
            let mut parts = line.splitn(3, |byte| *byte == b':');
            match (parts.next(), parts.next(), parts.next()) {
                (Some([b'#', ..] | []), ..) => {}
                (Some(user), Some(realm), Some(password)) => {
                    let key = [user, b":", realm].concat();
                    lines.insert(key.into(), password.into());
                }
                (Some(user), Some(password), None) => {
                    lines.insert(user.into(), password.into());
                }
                _ => {}
            }
        }
        Self(lines)
    }
}

impl Judge for SecretFile {
    type Question = Vec<u8>;
    type Answer = Found;

    fn unknown() -> Found {
        Found::Unknown
    }

    fn judge(&self, user: &Vec<u8>) -> Found {
        let Some((lines, _)) = self.file.passwords_or_complain() else { return Found::Unknown };
        let realm = self.realm.as_bytes();
        let of_realm = lines.0.get([user, &b":"[..], realm].concat().as_slice());
        let Some(text) = of_realm.or_else(|| lines.0.get(user.as_slice())) else {
            return Found::Nobody(Told::default());
        };
        let hashed = text.strip_prefix(b"{HHA1}").or(self.is_hashed.then_some(&**text));
        let secret = match hashed {
            Some(hash) => Secret::parse(hash),
            None => Some(Secret::of(user, realm, text)),
        };
        match secret {
            Some(secret) => Found::Secret(secret, Told::default()),
            None => Found::Nobody(Told::default()),
        }
    }
}

/// How long secrets are remembered: as long as a nonce, so that a change soon counts.
pub(crate) fn lifetimes(digest: &DigestAuth, unused: Duration) -> Lifetimes {
    Lifetimes { checked: digest.nonce_max_duration, unused }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_have_passwords_or_hashes_for_all_realms_or_for_one() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("secrets");
        let secret = Secret::of(b"anna", b"r", b"secret");
        let hash = std::str::from_utf8(&secret.0).expect("ASCII");
        let found = |text: &str, is_hashed, user: &str| {
            std::fs::write(&path, text).expect("written");
            let file = PasswordFile::new(path.clone());
            let file = SecretFile { file, realm: "r".into(), is_hashed };
            match file.judge(&user.as_bytes().to_vec()) {
                Found::Secret(found, _) => Some(found == secret),
                Found::Nobody(_) => None,
                Found::Unknown => panic!("cannot be read"),
            }
        };
        for (text, is_hashed, wanted) in [
            ("anna:secret\n".to_owned(), false, Some(true)),
            ("anna:r:secret\n".to_owned(), false, Some(true)),
            ("anna:other\nanna:r:secret\n".to_owned(), false, Some(true)),
            ("anna:s:secret\n".to_owned(), false, None),
            ("#anna:secret\n".to_owned(), false, None),
            ("bo:secret\n".to_owned(), false, None),
            (format!("anna:r:{hash}\n"), true, Some(true)),
            (format!("anna:{hash}\n"), true, Some(true)),
            (format!("anna:r:{{HHA1}}{hash}\n"), false, Some(true)),
            (format!("anna:r:{hash}\n"), false, Some(false)),
            ("anna:secret\n".to_owned(), true, None),
        ] {
            assert_eq!(found(&text, is_hashed, "anna"), wanted, "{text}");
        }
    }

    #[test]
    fn programs_tell_secrets_in_two_forms() {
        let secret = "939e7578ed9e3c518a452acee763bce9";
        let is_found = |line: String| match read(Ok(Reply::parse(line.as_bytes()))) {
            Found::Secret(found, _) => Some(found.0 == secret.as_bytes()),
            _ => None,
        };
        assert_eq!(is_found(format!("OK ha1=\"{secret}\"")), Some(true));
        assert_eq!(is_found(secret.to_owned()), Some(true));
        for other in ["ERR", "OK", "OK ha1=x", "BH ha1=939e7578ed9e3c518a452acee763bce9", "x"] {
            assert_eq!(is_found(other.to_owned()), None, "{other}");
        }
        assert!(matches!(read(Err(NoAnswer::TimedOut)), Found::Unknown));
    }
}
