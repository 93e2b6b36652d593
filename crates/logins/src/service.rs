//! The logins of a configuration.

use std::net::IpAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use humboldt_base::clock::UnixMillis;
use humboldt_conf::{AclKind, BasicAuth, Config};

use crate::addresses::{Addresses, Limit};
use crate::basic::{self, Read, as_text};
use crate::checker::{Checker, QueueFull, Verdict};
use crate::delays::{Delays, TooMany};
use crate::remembered::{Lifetimes, Remembered};
use crate::user::{Checked, User};

/// Why a login could not be checked.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Too many checks wait.
    Busy,
    /// The password file cannot be read.
    NoFile,
    /// There were too many wrong logins from the client's address.
    TooManyWrong,
}

impl Failure {
    /// The reason for the client.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Busy => "too many logins are being checked",
            Self::NoFile => "logins cannot be checked at the moment",
            Self::TooManyWrong => "there were too many wrong logins from your address",
        }
    }
}

/// What is learned about clients while the program runs.
struct State {
    remembered: Remembered,
    checker: Checker,
    delays: Delays,
    addresses: Addresses,
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
        basic.file.as_ref()?;
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
            ..basic.clone()
        };
        let earlier = earlier.filter(|earlier| way(&earlier.basic) == way(&self.basic));
        match (earlier, &self.basic.file) {
            // It is set once only: what is in use already stays.
            (Some(earlier), _) => _ = self.state.set(Arc::clone(earlier.state())),
            (None, Some(file)) => {
                let file = file.display();
                tracing::info!("logins are checked against {file}, without a helper program");
            }
            (None, None) => {}
        }
    }

    fn state(&self) -> &Arc<State> {
        self.state.get_or_init(|| {
            let file = self.basic.file.clone().unwrap_or_default();
            Arc::new(State {
                remembered: Remembered::default(),
                checker: Checker::new(file, self.basic.checks_at_once),
                delays: Delays::default(),
                addresses: Addresses::default(),
            })
        })
    }

    /// The value of the field that asks clients for a login.
    pub fn challenge(&self) -> &str {
        &self.challenge
    }

    /// The login, if that is known without a check. `value` is that of Authorization or
    /// Proxy-Authorization; `client` is the client as rules see it.
    pub fn remembered(
        &self,
        value: Option<&[u8]>,
        client: IpAddr,
        now: UnixMillis,
    ) -> Option<Checked> {
        let Some(value) = value else { return Some(Checked::Missing { name: None }) };
        let remembered = &self.state().remembered;
        let of = remembered.fingerprint(value);
        let user = remembered.get(of, now.0, self.lifetimes)?;
        Some(self.logged_in(user, client, now))
    }

    /// Checks the login. `asker` is the client that waits, or is to wait, after wrong logins.
    ///
    /// # Errors
    /// It could not be checked: nobody knows who the client is.
    pub async fn check(
        &self,
        value: &[u8],
        client: IpAddr,
        asker: IpAddr,
    ) -> Result<Checked, Failure> {
        let credentials = match basic::read(value, &self.basic) {
            Read::Whole(credentials) => credentials,
            Read::NameOnly(name) => return Ok(Checked::Missing { name: Some(shown(&name)) }),
            Read::Nothing => return Ok(Checked::Missing { name: None }),
        };
        let state = self.state();
        let turn_ms = state.delays.turn_ms(asker, UnixMillis::now().0);
        let turn_ms = turn_ms.map_err(|TooMany| Failure::TooManyWrong)?;
        if let Ok(wait_ms @ 1..) = u64::try_from(turn_ms) {
            tokio::time::sleep(Duration::from_millis(wait_ms)).await;
            // Another request may have been first.
            if let Some(known) = self.remembered(Some(value), client, UnixMillis::now()) {
                return Ok(known);
            }
        }
        let of = state.remembered.fingerprint(value);
        let name = shown(&credentials.user);
        let verdict = state.checker.check(of, credentials).await;
        let now = UnixMillis::now();
        match verdict.map_err(|QueueFull| Failure::Busy)? {
            Verdict::Right => {
                let user = Arc::new(User::new(name));
                state.remembered.insert(of, Arc::clone(&user), now.0, self.lifetimes);
                Ok(self.logged_in(user, client, now))
            }
            Verdict::Wrong => {
                state.delays.failed(asker, now.0);
                Ok(Checked::Missing { name: Some(name) })
            }
            Verdict::Unknown => Err(Failure::NoFile),
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

    fn check(logins: &Logins, text: &str) -> Result<Checked, Failure> {
        let client = IpAddr::from([192, 0, 2, 1]);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("a runtime");
        runtime.block_on(logins.check(&basic(text), client, client))
    }

    fn remembers(logins: &Logins, text: &str) -> bool {
        let client = IpAddr::from([192, 0, 2, 1]);
        logins.remembered(Some(&basic(text)), client, UnixMillis::now()).is_some()
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
        let wrong = Checked::Missing { name: Some("anna".into()) };
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
        let from = |last: u8| {
            let client = IpAddr::from([192, 0, 2, last]);
            logins.remembered(Some(&basic("anna:secret")), client, UnixMillis::now())
        };
        let counts = [1, 2, 1].map(|last| match from(last) {
            Some(Checked::User { addresses, .. }) => addresses,
            _ => 0,
        });
        assert_eq!(counts, [1, 2, 1]);
    }
}
