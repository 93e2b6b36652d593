//! Authorities and certificates.

use std::path::Path;
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose,
    date_time_ymd,
};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{RootCertStore, ServerConfig};

use crate::chance::Chance;

type Authority = CertifiedIssuer<'static, KeyPair>;

/// What is wrong with a certificate.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Flaw {
    None,
    SelfSigned,
    Expired,
    WrongName,
}

/// A server's certificate.
pub(super) struct Certificate {
    pub(super) flaw: Flaw,
    pub(super) der: CertificateDer<'static>,
    pub(super) config: Arc<ServerConfig>,
}

/// The authority of servers, and that of the proxy.
pub(super) struct Keys {
    servers: Authority,
    proxy: Authority,
}

impl Keys {
    pub(super) fn new() -> Self {
        Self { servers: authority("Servers"), proxy: authority("Proxy") }
    }

    /// For the configuration.
    pub(super) fn write(&self, root: &Path) {
        let put = |name: &str, text: String| {
            std::fs::write(root.join(name), text).expect("a file is written");
        };
        put("servers.pem", self.servers.pem());
        put("proxy.pem", self.proxy.pem() + &self.proxy.key().serialize_pem());
    }

    /// All that clients trust.
    pub(super) fn roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        for own in [&self.servers, &self.proxy] {
            roots.add(own.der().clone()).expect("an authority");
        }
        roots
    }

    /// A certificate for a server, with or without a flaw.
    pub(super) fn certificate(&self, name: &str, chance: &mut Chance) -> Certificate {
        let flaw = chance.weighted(&[
            (5, Flaw::None),
            (1, Flaw::SelfSigned),
            (1, Flaw::Expired),
            (1, Flaw::WrongName),
        ]);
        let named = if flaw == Flaw::WrongName { "other.sim" } else { name };
        let mut wish = CertificateParams::new([named.to_owned()]).expect("a name");
        wish.distinguished_name.push(DnType::CommonName, named);
        set_times(&mut wish, flaw);
        let key = KeyPair::generate().expect("a key");
        let made = match flaw {
            Flaw::SelfSigned => wish.self_signed(&key),
            _ => wish.signed_by(&key, &self.servers),
        };
        let der = made.expect("a certificate").der().clone();
        let private = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let mut provider = aws_lc_rs::default_provider();
        if chance.per_mille(300) {
            // No client sends a key for it at once: with TLS 1.3 it is asked again.
            provider.kx_groups = vec![aws_lc_rs::kx_group::SECP384R1];
        }
        let builder = ServerConfig::builder_with_provider(Arc::new(provider));
        // With TLS 1.2 a server shows its certificate to everybody.
        let builder = match chance.per_mille(500) {
            true => builder.with_protocol_versions(&[&rustls::version::TLS12]),
            false => builder.with_protocol_versions(rustls::ALL_VERSIONS),
        };
        let builder = builder.expect("versions").with_no_client_auth();
        let config = builder.with_single_cert(vec![der.clone()], private).expect("a certificate");
        Certificate { flaw, der, config: Arc::new(config) }
    }
}

/// Long times, as the clocks of proxy and simulation differ.
fn set_times(wish: &mut CertificateParams, flaw: Flaw) {
    let end = if flaw == Flaw::Expired { 2001 } else { 2090 };
    (wish.not_before, wish.not_after) = (date_time_ymd(2000, 1, 1), date_time_ymd(end, 1, 1));
}

fn authority(name: &str) -> Authority {
    let mut wish = CertificateParams::default();
    wish.distinguished_name.push(DnType::CommonName, name);
    wish.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    wish.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    set_times(&mut wish, Flaw::None);
    let key = KeyPair::generate().expect("a key");
    Authority::self_signed(wish, key).expect("an authority")
}
