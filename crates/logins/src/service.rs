//! The logins of a configuration.

use std::net::IpAddr;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use humboldt_base::clock::UnixMillis;
use humboldt_conf::{
    AclKind, BasicAuth, Config, DigestAuth, DigestSecrets, HelperChildren, PasswordCheck,
};
use humboldt_helpers::{Definition, Helper, Kind};
use humboldt_sys::core_dumps;

use crate::addresses::{Addresses, Limit};
use crate::basic::{self, Credentials, Read, as_text};
use crate::checker::{Checker, QueueFull, Verdict};
use crate::delays::{Delays, TooMany};
use crate::digest::{self, Proof};
use crate::digest_users::{self, DigestUsers, Found};
use crate::password_file::{PasswordFile, Passwords};
use crate::program::{self, Answer, Program};
use crate::remembered::{Fingerprint, Lifetimes, Remembered};
use crate::user::{Checked, Told, User};

/// Why a login could not be checked.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Too many checks wait.
    Busy,
    /// The password file cannot be read, or the program gives no answer.
    NoAnswer,
    /// There were too many wrong logins from the client's address.
    TooManyWrong,
}

impl Failure {
    /// The reason for the client.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Busy => "too many logins are being checked",
            Self::NoAnswer => "logins cannot be checked at the moment",
            Self::TooManyWrong => "there were too many wrong logins from your address",
        }
    }
}

/// The credentials of a request, and everything that belongs to the question about them.
#[derive(Copy, Clone)]
pub struct Login<'a> {
    /// The value of Authorization or Proxy-Authorization.
    pub value: &'a [u8],
    /// The method of the request.
    pub method: &'a [u8],
    /// The value of the format `key_extras` of Basic; empty if there is none.
    pub extras: &'a [u8],
    /// The client as rules see it.
    pub client: IpAddr,
}

/// Helper programs that run.
#[derive(Copy, Clone, Default)]
pub struct Running<'a> {
    /// For Basic.
    pub basic: Option<&'a Helper>,
    /// For Digest.
    pub digest: Option<&'a Helper>,
}

/// What is learned about clients while the program runs.
struct State {
    remembered: Remembered,
    way: Option<Way>,
    digest: Option<DigestUsers>,
    delays: Delays,
    addresses: Addresses,
}

/// The way in which passwords are checked.
enum Way {
    File(Checker<PasswordFile<Passwords>>),
    Program(Program<Answer>),
}

/// The logins of a configuration.
pub struct Logins {
    /// Basic, if clients can log in with it.
    basic: Option<BasicAuth>,
    /// Digest, likewise.
    digest: Option<DigestAuth>,
    digest_is_first: bool,
    authenticate_ttl: Duration,
    /// The strictest `max_user_ip`.
    limit: Option<Limit>,
    address_lifetime: Duration,
    state: OnceLock<Arc<State>>,
}

impl Logins {
    /// `None` if the configuration has no way to check logins.
    pub fn new(config: &Config) -> Option<Self> {
        let auth = &config.auth_param;
        let basic = auth.basic.clone().filter(|basic| basic.check.is_some());
        let digest = auth.digest.clone().filter(|digest| digest.secrets.is_some());
        if basic.is_none() && digest.is_none() {
            return None;
        }
        let limits = config.acl.iter().filter(|acl| acl.kind == AclKind::MaxUserIp);
        let limits = limits.filter_map(|acl| {
            let addresses_max = acl.values.first()?.parse().ok()?;
            Some(Limit { addresses_max, is_strict: acl.flags.strict })
        });
        Some(Self {
            digest_is_first: auth.digest_is_first,
            authenticate_ttl: config.authenticate_ttl,
            limit: limits.min_by_key(|limit| limit.addresses_max),
            address_lifetime: config.authenticate_ip_ttl,
            basic,
            digest,
            state: OnceLock::new(),
        })
    }

    /// Gets ready, before the first use. What an earlier configuration has learned is taken over
    /// if it checked logins in the same way.
    pub fn begin(&self, earlier: Option<&Self>) {
        let earlier = earlier.filter(|earlier| earlier.way() == self.way());
        if let Some(earlier) = earlier {
            // It is set once only: what is in use already stays.
            _ = self.state.set(Arc::clone(earlier.state()));
        } else {
            self.describe();
        }
        if let Err(error) = core_dumps::forbid() {
            tracing::warn!("a core dump of this process may have passwords in it: {error}");
        }
    }

    /// All that decides whether what was learned still counts.
    fn way(&self) -> (Option<BasicAuth>, Option<DigestAuth>) {
        let children = HelperChildren::default;
        let basic = self.basic.clone().map(|basic| BasicAuth {
            realm: String::new(),
            credentials_ttl: Duration::ZERO,
            children: match basic.check {
                Some(PasswordCheck::File(_)) => basic.children,
                _ => children(),
            },
            ..basic
        });
        let digest = self.digest.clone().map(|digest| DigestAuth {
            children: match digest.secrets {
                Some(DigestSecrets::File { .. }) => digest.children,
                _ => children(),
            },
            ..digest
        });
        (basic, digest)
    }

    /// Lines for cache.log.
    fn describe(&self) {
        let in_file = |file: &Path| {
            let file = file.display();
            tracing::info!("logins are checked against {file}, without a helper program");
        };
        let by_program = |command: &[String]| {
            let program = command.first().map_or("", String::as_str);
            tracing::info!("logins are checked by {program}");
        };
        match self.basic.as_ref().and_then(|basic| basic.check.as_ref()) {
            Some(PasswordCheck::File(file)) => in_file(file),
            Some(PasswordCheck::Program(command)) => by_program(command),
            None => {}
        }
        match self.digest.as_ref().and_then(|digest| digest.secrets.as_ref()) {
            Some(DigestSecrets::File { path, .. }) => in_file(path),
            Some(DigestSecrets::Program(command)) => by_program(command),
            None => {}
        }
    }

    /// The helper program that checks passwords of Basic, if one does.
    pub fn basic_helper(&self) -> Option<Definition> {
        let basic = self.basic.as_ref()?;
        let Some(PasswordCheck::Program(command)) = &basic.check else { return None };
        let children = basic.children.clone();
        Some(Definition::new(Kind::BasicAuthenticator, "basic", command.clone(), children))
    }

    /// The helper program that tells secrets of Digest, if one does.
    pub fn digest_helper(&self) -> Option<Definition> {
        let digest = self.digest.as_ref()?;
        let Some(DigestSecrets::Program(command)) = &digest.secrets else { return None };
        let children = digest.children.clone();
        Some(Definition::new(Kind::DigestAuthenticator, "digest", command.clone(), children))
    }

    /// The format whose value is added to each question to the program of Basic.
    pub fn key_extras(&self) -> Option<&str> {
        let extras = self.basic.as_ref()?.key_extras.as_deref()?;
        self.basic_helper().map(|_| extras)
    }

    fn state(&self) -> &Arc<State> {
        self.state.get_or_init(|| {
            let way = |basic: &BasicAuth| match &basic.check {
                Some(PasswordCheck::File(file)) => {
                    let file = PasswordFile::new(file.clone());
                    Way::File(Checker::new(file, basic.children.max))
                }
                _ => Way::Program(Program::default()),
            };
            Arc::new(State {
                remembered: Remembered::default(),
                way: self.basic.as_ref().map(way),
                digest: self.digest.as_ref().map(DigestUsers::new),
                delays: Delays::default(),
                addresses: Addresses::default(),
            })
        })
    }

    /// The values of the fields that ask clients for a login, in their order.
    pub fn challenges(&self, is_stale: bool, now: UnixMillis) -> Vec<String> {
        let basic = self.basic.as_ref().map(basic::challenge);
        let digest = self.digest.as_ref().zip(self.state().digest.as_ref());
        let digest = digest.map(|(digest, users)| {
            digest::challenge(&digest.realm, &users.nonces.make(now.0), is_stale)
        });
        let all = match self.digest_is_first {
            true => [digest, basic],
            false => [basic, digest],
        };
        all.into_iter().flatten().collect()
    }

    /// The login, if that is known without a check.
    pub fn remembered(&self, login: Login<'_>, now: UnixMillis) -> Option<Checked> {
        if let Some((digest, users)) = self.digest_for(login.value) {
            return self.digest_remembered(digest, users, login, now);
        }
        let Some(basic) = &self.basic else { return Some(Checked::nobody()) };
        let of = self.fingerprint(login);
        let user = self.state().remembered.get(of, now.0, self.lifetimes(basic))?;
        Some(self.logged_in(user, login.client, now))
    }

    fn lifetimes(&self, basic: &BasicAuth) -> Lifetimes {
        Lifetimes { checked: basic.credentials_ttl, unused: self.authenticate_ttl }
    }

    fn fingerprint(&self, login: Login<'_>) -> Fingerprint {
        self.state().remembered.fingerprint(&[login.value, login.extras])
    }

    /// Digest, if clients can log in with it, and the value is one of it.
    fn digest_for(&self, value: &[u8]) -> Option<(&DigestAuth, &DigestUsers)> {
        let digest = self.digest.as_ref().filter(|_| digest::is_digest(value))?;
        Some((digest, self.state().digest.as_ref()?))
    }

    /// Checks the login. `asker` is the client that waits, or is to wait, after wrong logins.
    ///
    /// # Errors
    /// It could not be checked: nobody knows who the client is.
    pub async fn check(
        &self,
        login: Login<'_>,
        asker: IpAddr,
        running: Running<'_>,
    ) -> Result<Checked, Failure> {
        let delays = &self.state().delays;
        let too_many = |TooMany| Failure::TooManyWrong;
        let mut place = delays.place(asker, UnixMillis::now().0).await.map_err(too_many)?;
        place.turn(UnixMillis::now().0).await.map_err(too_many)?;
        // Another request may have been first.
        if let Some(known) = self.remembered(login, UnixMillis::now()) {
            return Ok(known);
        }
        let checked = match self.digest_for(login.value) {
            Some((digest, users)) => self.check_digest(digest, users, login, running.digest).await,
            None => self.check_basic(login, running.basic).await,
        };
        if let Ok(Checked::Missing { name: Some(_), is_stale: false, .. }) = checked {
            delays.failed(asker, UnixMillis::now().0);
        }
        checked
    }

    async fn check_basic(
        &self,
        login: Login<'_>,
        helper: Option<&Helper>,
    ) -> Result<Checked, Failure> {
        let state = self.state();
        let Some((basic, way)) = self.basic.as_ref().zip(state.way.as_ref()) else {
            return Ok(Checked::nobody());
        };
        let credentials = match basic::read(login.value, basic) {
            Read::Whole(credentials) => credentials,
            Read::NameOnly(name) => return Ok(Checked::without(Some(shown(&name)))),
            Read::Nothing => return Ok(Checked::nobody()),
        };
        let of = self.fingerprint(login);
        let name = shown(&credentials.user);
        let answer = ask(way, helper, of, credentials, login.extras).await?;
        let now = UnixMillis::now();
        match answer {
            Answer::Right(told) => {
                let user = Arc::new(User::new(name, told));
                state.remembered.insert(of, Arc::clone(&user), now.0, self.lifetimes(basic));
                Ok(self.logged_in(user, login.client, now))
            }
            Answer::Wrong(told) => Ok(Checked::Missing { name: Some(name), told, is_stale: false }),
            Answer::Unknown => Err(Failure::NoAnswer),
        }
    }

    /// The login of a proof, if the secret is remembered, or no secret helps.
    fn digest_remembered(
        &self,
        digest: &DigestAuth,
        users: &DigestUsers,
        login: Login<'_>,
        now: UnixMillis,
    ) -> Option<Checked> {
        let Some(proof) = Proof::read(login.value, &digest.realm) else {
            return Some(Checked::nobody());
        };
        // Of an earlier process, perhaps.
        let Some(nonce) = users.nonces.read(&proof.nonce) else { return Some(stale(&proof)) };
        let lifetimes = digest_users::lifetimes(digest, self.authenticate_ttl);
        let user =
            users.known(&proof, methods(digest, &[login.method, b"GET"]), now.0, lifetimes)?;
        Some(match users.nonces.take(nonce, proof.count, now.0, digest) {
            true => self.logged_in(user, login.client, now),
            false => stale(&proof),
        })
    }

    async fn check_digest(
        &self,
        digest: &DigestAuth,
        users: &DigestUsers,
        login: Login<'_>,
        helper: Option<&Helper>,
    ) -> Result<Checked, Failure> {
        let Some(proof) = Proof::read(login.value, &digest.realm) else {
            return Ok(Checked::nobody());
        };
        let Some(nonce) = users.nonces.read(&proof.nonce) else { return Ok(stale(&proof)) };
        let of = self.state().remembered.fingerprint(&[b"digest", &proof.user]);
        let found = users.look_up(&proof.user, &digest.realm, of, helper).await;
        let (secret, told) = match found.map_err(|QueueFull| Failure::Busy)? {
            Found::Secret(secret, told) => (secret, told),
            Found::Nobody(told) => return Ok(wrong(&proof, told)),
            Found::Unknown => return Err(Failure::NoAnswer),
        };
        let own = [login.method, b"GET"];
        if !methods(digest, &own).iter().any(|method| proof.proves(&secret, method)) {
            return Ok(wrong(&proof, told));
        }
        let now = UnixMillis::now();
        let lifetimes = digest_users::lifetimes(digest, self.authenticate_ttl);
        let user = users.insert(&proof, secret, told, now.0, lifetimes);
        Ok(match users.nonces.take(nonce, proof.count, now.0, digest) {
            true => self.logged_in(user, login.client, now),
            false => stale(&proof),
        })
    }

    fn logged_in(&self, user: Arc<User>, client: IpAddr, now: UnixMillis) -> Checked {
        let note = |limit| {
            let lifetime = self.address_lifetime;
            self.state().addresses.note(&user, client, now.0, lifetime, limit)
        };
        let addresses = self.limit.map_or(0, note);
        Checked::User { user, addresses }
    }
}

/// The methods for which a proof may be: with `post_workaround` GET too.
fn methods<'a>(digest: &DigestAuth, own: &'a [&'a [u8]; 2]) -> &'a [&'a [u8]] {
    match digest.post_workaround {
        true => own,
        false => &own[..1],
    }
}

fn stale(proof: &Proof<'_>) -> Checked {
    Checked::Missing { name: Some(shown(&proof.user)), told: Told::default(), is_stale: true }
}

fn wrong(proof: &Proof<'_>, told: Told) -> Checked {
    Checked::Missing { name: Some(shown(&proof.user)), told, is_stale: false }
}

async fn ask(
    way: &Way,
    helper: Option<&Helper>,
    of: Fingerprint,
    credentials: Credentials,
    extras: &[u8],
) -> Result<Answer, Failure> {
    let verdict = match (way, helper) {
        (Way::File(checker), _) => checker.check(of, credentials).await,
        (Way::Program(questions), Some(helper)) => {
            let line = program::line(&credentials, extras);
            return Ok(questions.check(helper, of, &line, program::read).await);
        }
        (Way::Program(_), None) => return Ok(Answer::Unknown),
    };
    Ok(match verdict.map_err(|QueueFull| Failure::Busy)? {
        Verdict::Right => Answer::Right(Told::default()),
        Verdict::Wrong => Answer::Wrong(Told::default()),
        Verdict::Unknown => Answer::Unknown,
    })
}

fn shown(name: &[u8]) -> Arc<str> {
    as_text(name).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use humboldt_conf::parse_str;

    fn logins(dir: &tempfile::TempDir, more: &str) -> Logins {
        let path = dir.path().join("passwd");
        // The password is `secret`.
        std::fs::write(&path, "anna:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=\n").expect("written");
        let program = format!("auth_param basic program /x/ncsa_auth {}", path.display());
        let (config, diagnostics) = parse_str("t", &format!("http_port 1\n{program}\n{more}"));
        assert!(!diagnostics.has_errors(), "{}", diagnostics.render(false));
        Logins::new(&config).expect("a way to log in")
    }

    fn basic(text: &str) -> Vec<u8> {
        format!("Basic {}", data_encoding::BASE64.encode(text.as_bytes())).into_bytes()
    }

    fn from(last: u8, value: &[u8]) -> Login<'_> {
        Login { value, method: b"GET", extras: b"", client: IpAddr::from([192, 0, 2, last]) }
    }

    fn check(logins: &Logins, text: &str) -> Result<Checked, Failure> {
        let value = basic(text);
        let login = from(1, &value);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(logins.check(login, login.client, Running::default()))
    }

    fn remembers(logins: &Logins, text: &str) -> bool {
        logins.remembered(from(1, &basic(text)), UnixMillis::now()).is_some()
    }

    #[test]
    fn a_right_login_is_remembered_and_a_wrong_one_is_not() {
        let dir = tempfile::tempdir().expect("a directory");
        let logins = logins(&dir, "");
        assert!(!remembers(&logins, "anna:secret"));
        let anna = check(&logins, "Anna:secret").expect("checked");
        assert_eq!(anna.name(), Some("anna"));
        assert!(matches!(anna, Checked::User { addresses: 0, .. }));
        assert!(remembers(&logins, "Anna:secret") && !remembers(&logins, "anna:other"));
        let wrong = Checked::without(Some("anna".into()));
        assert_eq!(check(&logins, "anna:other"), Ok(wrong.clone()));
        assert_eq!(check(&logins, "anna:"), Ok(wrong));
        assert!(!remembers(&logins, "anna:other"));
    }

    #[test]
    fn many_wrong_logins_make_the_next_ones_wait_or_fail() {
        let dir = tempfile::tempdir().expect("a directory");
        let logins = logins(&dir, "");
        let client = IpAddr::from([192, 0, 2, 1]);
        let now = UnixMillis::now().0;
        (0..20).for_each(|_| logins.state().delays.failed(client, now));
        while logins.state().delays.turn_ms(client, now).is_ok() {}
        assert_eq!(check(&logins, "anna:secret"), Err(Failure::TooManyWrong));
    }

    #[test]
    fn a_reconfiguration_keeps_what_it_can() {
        let dir = tempfile::tempdir().expect("a directory");
        let first = logins(&dir, "");
        check(&first, "anna:secret").expect("checked");
        let same = logins(&dir, "auth_param basic realm other");
        same.begin(Some(&first));
        assert!(remembers(&same, "anna:secret"));
        let other = logins(&dir, "auth_param basic casesensitive on");
        other.begin(Some(&first));
        assert!(!remembers(&other, "anna:secret"));
    }

    #[test]
    fn addresses_are_counted_where_a_rule_asks() {
        let dir = tempfile::tempdir().expect("a directory");
        let logins = logins(&dir, "acl many max_user_ip -s 1\nauthenticate_ip_ttl 1 hour");
        check(&logins, "anna:secret").expect("checked");
        let value = basic("anna:secret");
        let known = |last: u8| logins.remembered(from(last, &value), UnixMillis::now());
        let counts = [1, 2, 1].map(|last| match known(last) {
            Some(Checked::User { addresses, .. }) => addresses,
            _ => 0,
        });
        assert_eq!(counts, [1, 2, 1]);
    }
}
