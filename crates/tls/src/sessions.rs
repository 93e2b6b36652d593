//! The sessions with servers that later connections take up.
//!
//! A server whose session is taken up does not prove again who it is, and sends new tickets all the
//! time. So each name has a time, from the last proof on, in which that is enough.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rustls::NamedGroup;
use rustls::client::{
    ClientSessionMemoryCache, ClientSessionStore, Tls12ClientSessionValue, Tls13ClientSessionValue,
};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};

/// Most servers of which sessions are kept, for each line with settings.
const SESSION_SERVERS_MAX: usize = 256;

/// Sessions that the library keeps for a server.
const SESSIONS_OF_SERVER: usize = 8;

/// How long a server is believed after it has proved who it is, at most: until one of its
/// certificates expires, if that is sooner.
const PROOF_TIME: Duration = Duration::from_secs(24 * 3600);

/// Until when each server is believed, in seconds of Unix time.
#[derive(Debug, Default)]
pub(crate) struct Proofs {
    until: Mutex<HashMap<ServerName<'static>, u64>>,
}

impl Proofs {
    /// Notes that a server has proved at the time `now` who it is.
    pub(crate) fn note(
        &self,
        name: &ServerName<'_>,
        own: &CertificateDer<'_>,
        chain: &[CertificateDer<'_>],
        now: UnixTime,
    ) {
        let expires = |certificate: &CertificateDer<'_>| {
            let parsed = x509_parser::parse_x509_certificate(certificate);
            parsed.map_or(0, |(_, certificate)| certificate.validity().not_after.timestamp())
        };
        let last_s = [own].into_iter().chain(chain).map(expires).min().unwrap_or(0);
        let last_s = u64::try_from(last_s).unwrap_or(0).min(now.as_secs() + PROOF_TIME.as_secs());
        let mut until = self.until.lock();
        if until.len() >= SESSION_SERVERS_MAX
            && !until.contains_key(name)
            && let Some(other) = until.keys().next().cloned()
        {
            until.remove(&other);
        }
        until.insert(name.to_owned(), last_s);
    }

    fn holds(&self, name: &ServerName<'_>, now: UnixTime) -> bool {
        self.until.lock().get(name).is_some_and(|until| now.as_secs() <= *until)
    }
}

/// The sessions under the settings of a line.
#[derive(Debug)]
pub(crate) struct Sessions {
    kept: ClientSessionMemoryCache,
    proofs: Arc<Proofs>,
}

impl Sessions {
    pub(crate) fn new(proofs: Arc<Proofs>) -> Self {
        Self {
            kept: ClientSessionMemoryCache::new(SESSION_SERVERS_MAX * SESSIONS_OF_SERVER),
            proofs,
        }
    }
}

impl ClientSessionStore for Sessions {
    fn set_kx_hint(&self, server_name: ServerName<'static>, group: NamedGroup) {
        self.kept.set_kx_hint(server_name, group);
    }

    fn kx_hint(&self, server_name: &ServerName<'_>) -> Option<NamedGroup> {
        self.kept.kx_hint(server_name)
    }

    fn set_tls12_session(&self, server_name: ServerName<'static>, value: Tls12ClientSessionValue) {
        self.kept.set_tls12_session(server_name, value);
    }

    fn tls12_session(&self, server_name: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        self.proofs
            .holds(server_name, UnixTime::now())
            .then(|| self.kept.tls12_session(server_name))?
    }

    fn remove_tls12_session(&self, server_name: &ServerName<'static>) {
        self.kept.remove_tls12_session(server_name);
    }

    fn insert_tls13_ticket(
        &self,
        server_name: ServerName<'static>,
        value: Tls13ClientSessionValue,
    ) {
        self.kept.insert_tls13_ticket(server_name, value);
    }

    fn take_tls13_ticket(
        &self,
        server_name: &ServerName<'static>,
    ) -> Option<Tls13ClientSessionValue> {
        if self.proofs.holds(server_name, UnixTime::now()) {
            return self.kept.take_tls13_ticket(server_name);
        }
        while self.kept.take_tls13_ticket(server_name).is_some() {}
        None
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    use super::*;

    fn certificate(last_year: i32) -> CertificateDer<'static> {
        let mut params = CertificateParams::new(vec!["a.test".to_owned()]).expect("parameters");
        params.not_after = date_time_ymd(last_year, 1, 1);
        let key = KeyPair::generate().expect("a key");
        params.self_signed(&key).expect("a certificate").der().clone()
    }

    fn name(text: &str) -> ServerName<'static> {
        ServerName::try_from(text.to_owned()).expect("a name")
    }

    #[test]
    fn a_server_is_believed_for_a_day_but_not_beyond_its_certificates() {
        let at = |s: u64| UnixTime::since_unix_epoch(Duration::from_secs(s));
        let (day_s, new_year_2030_s) = (24 * 3600, 1_893_456_000);
        let (own, old) = (certificate(2030), certificate(2029));
        let proofs = Proofs::default();
        assert!(!proofs.holds(&name("a.test"), at(5)), "it has proved nothing");
        for (chain, proved_s, last_s) in [
            (&[][..], 1_000, 1_000 + day_s),
            (&[], new_year_2030_s - 10, new_year_2030_s),
            (std::slice::from_ref(&old), new_year_2030_s - 10, 0),
        ] {
            proofs.note(&name("a.test"), &own, chain, at(proved_s));
            let last_s = if last_s == 0 { 1_861_920_000 } else { last_s };
            assert!(proofs.holds(&name("a.test"), at(last_s)), "{last_s}");
            assert!(!proofs.holds(&name("a.test"), at(last_s + 1)), "{last_s}");
            assert!(!proofs.holds(&name("b.test"), at(last_s)));
        }
    }

    #[test]
    fn the_number_of_servers_is_bounded() {
        let (proofs, own) = (Proofs::default(), certificate(2030));
        let now = UnixTime::since_unix_epoch(Duration::from_secs(1_000));
        for at in 0..=SESSION_SERVERS_MAX {
            proofs.note(&name(&format!("{at}.test")), &own, &[], now);
        }
        assert_eq!(proofs.until.lock().len(), SESSION_SERVERS_MAX);
        assert!(proofs.holds(&name(&format!("{SESSION_SERVERS_MAX}.test")), now));
    }
}
