//! The logins of a configuration.

mod offers;
mod proofs;

use std::net::IpAddr;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use humboldt_base::clock::UnixMillis;
use humboldt_conf::{
    AclKind, AuthScheme, Authentication, BasicAuth, Config, DigestAuth, DigestSecrets,
    HandshakeAuth, HelperChildren, PasswordCheck,
};
use humboldt_helpers::{Definition, Helper, Kind};
use humboldt_sys::core_dumps;

use crate::addresses::{Addresses, Limit};
use crate::basic::{self, Credentials, Read, as_text};
use crate::checker::{Checker, QueueFull, Verdict};
use crate::connection::{ConnectionLogin, Of};
use crate::delays::{Delays, TooMany};
use crate::digest;
use crate::digest_users::DigestUsers;
use crate::failure::Failure;
use crate::handshake::{self, Step};
use crate::password_file::{PasswordFile, Passwords};
use crate::program::{self, Answer, Program};
use crate::remembered::{Fingerprint, Lifetimes, Remembered};
use crate::user::{Checked, Told, User};

/// The credentials of a request, and everything that belongs to the question about them.
#[derive(Copy, Clone)]
pub struct Login<'a> {
    /// The value of Authorization or Proxy-Authorization, if there is one.
    pub value: Option<&'a [u8]>,
    /// The method of the request.
    pub method: &'a [u8],
    /// The value of the format `key_extras` of the scheme; empty if there is none.
    pub extras: &'a [u8],
    /// The client as rules see it.
    pub client: IpAddr,
    /// The client for whom a login of the connection counts, whatever rules see.
    pub owner: IpAddr,
    /// The login of the connection that brought the request.
    pub connection: &'a ConnectionLogin,
}

/// Helper programs that run.
#[derive(Copy, Clone, Default)]
pub struct Running<'a> {
    /// For Basic.
    pub basic: Option<&'a Helper>,
    /// For Digest.
    pub digest: Option<&'a Helper>,
    /// For Negotiate.
    pub negotiate: Option<&'a Helper>,
    /// For NTLM.
    pub ntlm: Option<&'a Helper>,
}

/// What is learned about clients while the program runs.
struct State {
    /// Another number for each way in which logins are checked.
    number: u64,
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
    /// Negotiate, likewise.
    negotiate: Option<HandshakeAuth>,
    /// NTLM, likewise.
    ntlm: Option<HandshakeAuth>,
    /// All of these, in their order.
    schemes: Vec<AuthScheme>,
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
        let schemes: Vec<_> = auth.ways().collect();
        if schemes.is_empty() {
            return None;
        }
        let Authentication { basic, digest, negotiate, ntlm, .. } = auth.clone();
        let has = |scheme: AuthScheme| schemes.contains(&scheme);
        let limits = config.acl.iter().filter(|acl| acl.kind == AclKind::MaxUserIp);
        let limits = limits.filter_map(|acl| {
            let addresses_max = acl.values.first()?.parse().ok()?;
            Some(Limit { addresses_max, is_strict: acl.flags.strict })
        });
        Some(Self {
            basic: basic.filter(|_| has(AuthScheme::Basic)),
            digest: digest.filter(|_| has(AuthScheme::Digest)),
            negotiate: negotiate.filter(|_| has(AuthScheme::Negotiate)),
            ntlm: ntlm.filter(|_| has(AuthScheme::Ntlm)),
            schemes,
            authenticate_ttl: config.authenticate_ttl,
            limit: limits.min_by_key(|limit| limit.addresses_max),
            address_lifetime: config.authenticate_ip_ttl,
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
    fn way(&self) -> (Option<BasicAuth>, Option<DigestAuth>, [Option<HandshakeAuth>; 2]) {
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
        let handshake = |auth: &Option<HandshakeAuth>| {
            let auth = auth.clone()?;
            Some(HandshakeAuth { children: children(), keep_alive: true, ..auth })
        };
        (basic, digest, [&self.negotiate, &self.ntlm].map(handshake))
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
        let handshakes = [&self.negotiate, &self.ntlm].into_iter().flatten();
        handshakes.filter_map(|auth| auth.program.as_deref()).for_each(by_program);
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

    /// The helper program that leads handshakes of Negotiate or NTLM, if clients can log in with
    /// that.
    pub fn handshake_helper(&self, scheme: AuthScheme) -> Option<Definition> {
        let (kind, name) = match scheme {
            AuthScheme::Negotiate => (Kind::NegotiateAuthenticator, "negotiate"),
            AuthScheme::Ntlm => (Kind::NtlmAuthenticator, "ntlm"),
            AuthScheme::Basic | AuthScheme::Digest => return None,
        };
        let auth = self.handshake(scheme)?;
        Some(Definition::new(kind, name, auth.program.clone()?, auth.children.clone()))
    }

    fn handshake(&self, scheme: AuthScheme) -> Option<&HandshakeAuth> {
        match scheme {
            AuthScheme::Negotiate => self.negotiate.as_ref(),
            AuthScheme::Ntlm => self.ntlm.as_ref(),
            AuthScheme::Basic | AuthScheme::Digest => None,
        }
    }

    /// The format whose value is added to each question to the program of a scheme.
    pub fn key_extras(&self, scheme: AuthScheme) -> Option<&str> {
        if scheme != AuthScheme::Basic {
            return self.handshake(scheme)?.key_extras.as_deref();
        }
        let extras = self.basic.as_ref()?.key_extras.as_deref()?;
        self.basic_helper().map(|_| extras)
    }

    /// The scheme of the value of a field, if clients can log in with it.
    pub fn scheme_of(&self, value: &[u8]) -> Option<AuthScheme> {
        handshake::scheme_of(value).filter(|scheme| self.schemes.contains(scheme))
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
            static NUMBERS: AtomicU64 = AtomicU64::new(0);
            Arc::new(State {
                number: NUMBERS.fetch_add(1, Ordering::Relaxed),
                remembered: Remembered::default(),
                way: self.basic.as_ref().map(way),
                digest: self.digest.as_ref().map(DigestUsers::new),
                delays: Delays::default(),
                addresses: Addresses::default(),
            })
        })
    }

    /// The login, if that is known without a check.
    pub fn remembered(&self, login: Login<'_>, now: UnixMillis) -> Option<Checked> {
        let Some(value) = login.value else {
            let user = login.connection.user(self.state().number, login.owner);
            return Some(match user {
                Some(user) => self.logged_in(user, login.client, now),
                None => {
                    login.connection.forget();
                    Checked::nobody()
                }
            });
        };
        if let Some((of, _, token)) = self.handshake_for(value, login.owner) {
            if token.is_none() {
                login.connection.forget();
                return Some(Checked::nobody());
            }
            let user = login.connection.user_with(of, self.fingerprint(value, login))?;
            return Some(self.logged_in(user, login.client, now));
        }
        // Credentials of another scheme take the place of those of the connection.
        login.connection.forget();
        if let Some((digest, users)) = self.digest_for(value) {
            return self.digest_remembered(digest, users, value, login, now);
        }
        let Some(basic) = &self.basic else { return Some(Checked::nobody()) };
        let of = self.fingerprint(value, login);
        let user = self.state().remembered.get(of, now.0, self.lifetimes(basic))?;
        Some(self.logged_in(user, login.client, now))
    }

    /// A step of a handshake: its scheme, and the token of the client.
    fn handshake_for<'v>(
        &self,
        value: &'v [u8],
        client: IpAddr,
    ) -> Option<(Of, &HandshakeAuth, Option<&'v [u8]>)> {
        if self.negotiate.is_none() && self.ntlm.is_none() {
            return None;
        }
        let scheme = handshake::scheme_of(value)?;
        let of = Of { scheme, way: self.state().number, client };
        Some((of, self.handshake(scheme)?, handshake::token_of(value)))
    }

    fn lifetimes(&self, basic: &BasicAuth) -> Lifetimes {
        Lifetimes { checked: basic.credentials_ttl, unused: self.authenticate_ttl }
    }

    fn fingerprint(&self, value: &[u8], login: Login<'_>) -> Fingerprint {
        self.state().remembered.fingerprint(&[value, login.extras])
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
        let value = login.value.unwrap_or_default();
        if let Some((of, _, Some(token))) = self.handshake_for(value, login.owner) {
            return self.step(of, value, token, login, running).await;
        }
        let delays = &self.state().delays;
        let too_many = |TooMany| Failure::TooManyWrong;
        let mut place = delays.place(asker, UnixMillis::now().0).await.map_err(too_many)?;
        place.turn(UnixMillis::now().0).await.map_err(too_many)?;
        // Another request may have been first.
        if let Some(known) = self.remembered(login, UnixMillis::now()) {
            return Ok(known);
        }
        let checked = match self.digest_for(value) {
            Some((digest, users)) => {
                self.check_digest(digest, users, value, login, running.digest).await
            }
            None => self.check_basic(value, login, running.basic).await,
        };
        if let Ok(Checked::Missing { name: Some(_), is_stale: false, .. }) = checked {
            delays.failed(asker, UnixMillis::now().0);
        }
        checked
    }

    /// A step of a handshake. Wrong logins cost no delay here: the program has each password
    /// checked by a service that knows the user, and has its own limits.
    async fn step(
        &self,
        of: Of,
        value: &[u8],
        token: &[u8],
        login: Login<'_>,
        running: Running<'_>,
    ) -> Result<Checked, Failure> {
        if let Some(known) = self.remembered(login, UnixMillis::now()) {
            return Ok(known);
        }
        let helper = match of.scheme {
            AuthScheme::Negotiate => running.negotiate,
            _ => running.ntlm,
        };
        let helper = helper.ok_or(Failure::NoAnswer)?;
        let credentials = self.fingerprint(value, login);
        let stepping =
            handshake::step(login.connection, of, helper, token, login.extras, credentials);
        Ok(match stepping.await? {
            Step::User(user) => self.logged_in(user, login.client, UnixMillis::now()),
            Step::Missing(missing) => missing,
        })
    }

    async fn check_basic(
        &self,
        value: &[u8],
        login: Login<'_>,
        helper: Option<&Helper>,
    ) -> Result<Checked, Failure> {
        let state = self.state();
        let Some((basic, way)) = self.basic.as_ref().zip(state.way.as_ref()) else {
            return Ok(Checked::nobody());
        };
        let credentials = match basic::read(value, basic) {
            Read::Whole(credentials) => credentials,
            Read::NameOnly(name) => return Ok(Checked::without(Some(shown(&name)))),
            Read::Nothing => return Ok(Checked::nobody()),
        };
        let of = self.fingerprint(value, login);
        let name = shown(&credentials.user);
        let answer = ask(way, helper, of, credentials, login.extras).await?;
        let now = UnixMillis::now();
        match answer {
            Answer::Right(told) => {
                let user = Arc::new(User::new(name, told));
                state.remembered.insert(of, Arc::clone(&user), now.0, self.lifetimes(basic));
                Ok(self.logged_in(user, login.client, now))
            }
            Answer::Wrong(told) => Ok(missing(name, told, false)),
            Answer::Unknown => Err(Failure::NoAnswer),
        }
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

fn missing(name: Arc<str>, told: Told, is_stale: bool) -> Checked {
    Checked::Missing { name: Some(name), told, is_stale, handshake: None }
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
        let connection: &ConnectionLogin = Box::leak(Box::default());
        let client = IpAddr::from([192, 0, 2, last]);
        Login { value: Some(value), method: b"GET", extras: b"", client, owner: client, connection }
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
