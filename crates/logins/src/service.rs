//! The logins of a configuration.

use std::net::IpAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use humboldt_base::clock::UnixMillis;
use humboldt_conf::{AclKind, BasicAuth, Config, HelperChildren, PasswordCheck};
use humboldt_helpers::{Definition, Helper, Kind};
use humboldt_sys::core_dumps;

use crate::addresses::{Addresses, Limit};
use crate::basic::{self, Credentials, Read, as_text};
use crate::checker::{Checker, QueueFull, Verdict};
use crate::delays::{Delays, TooMany};
use crate::program::{Answer, Program};
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
    /// The value of the format `key_extras`; empty if there is none.
    pub extras: &'a [u8],
    /// The client as rules see it.
    pub client: IpAddr,
}

/// What is learned about clients while the program runs.
struct State {
    remembered: Remembered,
    way: Way,
    delays: Delays,
    addresses: Addresses,
}

/// The way in which passwords are checked.
enum Way {
    File(Checker),
    Program(Program),
}

/// The logins of a configuration.
pub struct Logins {
    basic: BasicAuth,
    challenge: String,
    lifetimes: Lifetimes,
    /// The strictest `max_user_ip`.
    limit: Option<Limit>,
    address_lifetime: Duration,
    state: OnceLock<Arc<State>>,
}

impl Logins {
    /// `None` if the configuration has no way to check logins.
    pub fn new(config: &Config) -> Option<Self> {
        let basic = config.auth_param.basic.clone()?;
        basic.check.as_ref()?;
        let limits = config.acl.iter().filter(|acl| acl.kind == AclKind::MaxUserIp);
        let limits = limits.filter_map(|acl| {
            let addresses_max = acl.values.first()?.parse().ok()?;
            Some(Limit { addresses_max, is_strict: acl.flags.strict })
        });
        Some(Self {
            challenge: basic::challenge(&basic),
            lifetimes: Lifetimes {
                checked: basic.credentials_ttl,
                unused: config.authenticate_ttl,
            },
            limit: limits.min_by_key(|limit| limit.addresses_max),
            address_lifetime: config.authenticate_ip_ttl,
            basic,
            state: OnceLock::new(),
        })
    }

    /// Gets ready, before the first use. What an earlier configuration has learned is taken over
    /// if it checked logins in the same way.
    pub fn begin(&self, earlier: Option<&Self>) {
        let way = |basic: &BasicAuth| BasicAuth {
            realm: String::new(),
            credentials_ttl: Duration::ZERO,
            children: match basic.check {
                Some(PasswordCheck::File(_)) => basic.children.clone(),
                _ => HelperChildren::default(),
            },
            ..basic.clone()
        };
        let earlier = earlier.filter(|earlier| way(&earlier.basic) == way(&self.basic));
        match (earlier, &self.basic.check) {
            // It is set once only: what is in use already stays.
            (Some(earlier), _) => _ = self.state.set(Arc::clone(earlier.state())),
            (None, Some(PasswordCheck::File(file))) => {
                let file = file.display();
                tracing::info!("logins are checked against {file}, without a helper program");
            }
            (None, Some(PasswordCheck::Program(command))) => {
                let program = command.first().map_or("", String::as_str);
                tracing::info!("logins are checked by {program}");
            }
            (None, None) => {}
        }
        if let Err(error) = core_dumps::forbid() {
            tracing::warn!("a core dump of this process may have passwords in it: {error}");
        }
    }

    /// The helper program that checks passwords, if one does.
    pub fn helper(&self) -> Option<Definition> {
        let Some(PasswordCheck::Program(command)) = &self.basic.check else { return None };
        let children = self.basic.children.clone();
        Some(Definition::new(Kind::BasicAuthenticator, "basic", command.clone(), children))
    }

    /// The format whose value is added to each question to it.
    pub fn key_extras(&self) -> Option<&str> {
        self.basic.key_extras.as_deref().filter(|_| self.helper().is_some())
    }

    fn state(&self) -> &Arc<State> {
        self.state.get_or_init(|| {
            let way = match &self.basic.check {
                Some(PasswordCheck::File(file)) => {
                    Way::File(Checker::new(file.clone(), self.basic.children.max))
                }
                _ => Way::Program(Program::default()),
            };
            Arc::new(State {
                remembered: Remembered::default(),
                way,
                delays: Delays::default(),
                addresses: Addresses::default(),
            })
        })
    }

    /// The value of the field that asks clients for a login.
    pub fn challenge(&self) -> &str {
        &self.challenge
    }

    /// The login, if that is known without a check.
    pub fn remembered(&self, login: Login<'_>, now: UnixMillis) -> Option<Checked> {
        let of = self.fingerprint(login);
        let user = self.state().remembered.get(of, now.0, self.lifetimes)?;
        Some(self.logged_in(user, login.client, now))
    }

    fn fingerprint(&self, login: Login<'_>) -> Fingerprint {
        self.state().remembered.fingerprint(&[login.value, login.extras])
    }

    /// Checks the login. `asker` is the client that waits, or is to wait, after wrong logins;
    /// `helper` the running [`Logins::helper`].
    ///
    /// # Errors
    /// It could not be checked: nobody knows who the client is.
    pub async fn check(
        &self,
        login: Login<'_>,
        asker: IpAddr,
        helper: Option<&Helper>,
    ) -> Result<Checked, Failure> {
        let missing = |name| Checked::Missing { name, told: Told::default() };
        let credentials = match basic::read(login.value, &self.basic) {
            Read::Whole(credentials) => credentials,
            Read::NameOnly(name) => return Ok(missing(Some(shown(&name)))),
            Read::Nothing => return Ok(missing(None)),
        };
        let state = self.state();
        let turn_ms = state.delays.turn_ms(asker, UnixMillis::now().0);
        let turn_ms = turn_ms.map_err(|TooMany| Failure::TooManyWrong)?;
        if let Ok(wait_ms @ 1..) = u64::try_from(turn_ms) {
            tokio::time::sleep(Duration::from_millis(wait_ms)).await;
            // Another request may have been first.
            if let Some(known) = self.remembered(login, UnixMillis::now()) {
                return Ok(known);
            }
        }
        let of = self.fingerprint(login);
        let name = shown(&credentials.user);
        let answer = ask(&state.way, helper, of, credentials, login.extras).await?;
        let now = UnixMillis::now();
        match answer {
            Answer::Right(told) => {
                let user = Arc::new(User::new(name, told));
                state.remembered.insert(of, Arc::clone(&user), now.0, self.lifetimes);
                Ok(self.logged_in(user, login.client, now))
            }
            Answer::Wrong(told) => {
                state.delays.failed(asker, now.0);
                Ok(Checked::Missing { name: Some(name), told })
            }
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

async fn ask(
    way: &Way,
    helper: Option<&Helper>,
    of: Fingerprint,
    credentials: Credentials,
    extras: &[u8],
) -> Result<Answer, Failure> {
    let verdict = match (way, helper) {
        (Way::File(checker), _) => checker.check(of, credentials).await,
        (Way::Program(program), Some(helper)) => {
            return Ok(program.check(helper, of, &credentials, extras).await);
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
        Login { value, extras: b"", client: IpAddr::from([192, 0, 2, last]) }
    }

    fn check(logins: &Logins, text: &str) -> Result<Checked, Failure> {
        let value = basic(text);
        let login = from(1, &value);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(logins.check(login, login.client, None))
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
        let wrong = Checked::Missing { name: Some("anna".into()), told: Told::default() };
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
