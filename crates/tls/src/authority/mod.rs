//! The authority of a port with `ssl-bump`: it makes the certificates of the servers that clients
//! are to believe in, one for each server, and keeps them within a bound.

mod draft;
mod issuer;
mod leaves;
mod making;
mod tickets;
mod wish;
mod write;

#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;

use humboldt_base::bump::SignAs;
use humboldt_conf::{BumpPort, CertificateFiles, Cipher, TlsPort, TlsSettings};
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::CertificateDer;
use rustls::server::{NoServerSessionStorage, ProducesTickets};
use rustls::sign::{CertifiedKey, SigningKey, SingleCertAndKey};
use sha2::{Digest, Sha256};

pub use making::{NewAuthority, make_authority};
pub use wish::{LeafChanges, LeafFault, LeafWish};

use self::draft::Draft;
use self::issuer::{Issuer, LeafKey};
use self::leaves::{Key, Leaves};
use self::tickets::LeafTickets;
use self::write::Contents;
use crate::ALPN;
use crate::error::SetupProblem;
use crate::files::{Files, Noting};
use crate::named::ByName;
use crate::provider::{provider, versions};
use crate::server::{ServerSide, identity};

/// A certificate that is ready to be used.
#[derive(Clone, Debug)]
pub struct Leaf {
    /// The settings of the connection with the client.
    pub side: ServerSide,
    /// It has been made now, and was not found among those of before.
    pub was_made: bool,
}

/// The authority of a port, shared by all cores.
#[derive(Clone)]
pub struct BumpAuthority {
    kind: Arc<Kind>,
    /// The digest of the line and of the contents of its files.
    made_of: [u8; 32],
}

enum Kind {
    /// All clients get the certificate of the file (`generate-host-certificates=off`).
    Fixed(ServerSide),
    Makes(Box<Maker>),
}

/// Makes certificates.
struct Maker {
    trusted: Issuer,
    /// Nobody knows it, and it ends with the process.
    untrusted: Issuer,
    /// The key of all certificates that are made.
    leaf_key: LeafKey,
    /// The settings of connections, without a certificate.
    template: ServerConfig,
    tickets: Option<Arc<dyn ProducesTickets>>,
    leaves: Leaves,
}

impl fmt::Debug for BumpAuthority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BumpAuthority").finish_non_exhaustive()
    }
}

impl BumpAuthority {
    /// The authority of a port; `None`: it has no certificate, and can make none.
    ///
    /// # Errors
    /// Files that cannot be read, or that are not those of an authority.
    pub fn new(port: &BumpPort, files: &dyn Files) -> Result<Option<Self>, SetupProblem> {
        Self::after(None, port, files)
    }

    /// The authority of a port in a reconfiguration. If line and files are those of an `earlier`
    /// one, it goes on, with its certificates, keys and tickets: otherwise all connections that
    /// come next would need signatures and whole handshakes, and exceptions that users have made
    /// for certificates would be gone.
    ///
    /// # Errors
    /// As [`BumpAuthority::new`].
    pub fn after(
        earlier: Option<&Self>,
        port: &BumpPort,
        files: &dyn Files,
    ) -> Result<Option<Self>, SetupProblem> {
        let Some(pair) = &port.certificate else { return Ok(None) };
        let BumpPort { certificate, generates, leaf_cache_bytes, settings, location: _ } = port;
        let line = format!("{certificate:?} {generates} {leaf_cache_bytes} {settings:?}");
        let noting = Noting::new(files);
        // The files are read once, so that what is compared is what was made of them.
        let kind = Kind::new(port, pair, &noting)?;
        let made_of = Sha256::new().chain_update(noting.noted()).chain_update(line);
        let made_of = made_of.finalize().into();
        if let Some(earlier) = earlier.filter(|earlier| earlier.made_of == made_of) {
            return Ok(Some(earlier.clone()));
        }
        Ok(Some(Self { kind: Arc::new(kind), made_of }))
    }

    /// The settings for a connection with a client, if the certificate that is wished is there.
    ///
    /// # Errors
    /// As [`BumpAuthority::leaf`].
    pub fn find(&self, wish: &LeafWish<'_>, now_s: i64) -> Result<Option<ServerSide>, LeafFault> {
        match &*self.kind {
            Kind::Fixed(side) => fixed(side, wish).map(Some),
            Kind::Makes(maker) => Ok(maker.leaves.get(Key::of(wish, now_s))),
        }
    }

    /// New certificates that one client may have in a second.
    pub fn leaves_per_client_s(&self) -> u32 {
        match &*self.kind {
            Kind::Fixed(_) => u32::MAX,
            Kind::Makes(maker) => maker.trusted.leaves_per_client_s(),
        }
    }

    /// The settings for a connection with a client, with a certificate as it is wished: one that
    /// is there, or a new one. To make one costs a signature of the authority: tens of microseconds
    /// with P-256, a millisecond with RSA. A core that wants the same one at the same time waits
    /// for it.
    ///
    /// # Errors
    /// Why there is no certificate. The client must get none then.
    pub fn leaf(&self, wish: &LeafWish<'_>, now_s: i64) -> Result<Leaf, LeafFault> {
        match &*self.kind {
            Kind::Fixed(side) => Ok(Leaf { side: fixed(side, wish)?, was_made: false }),
            Kind::Makes(maker) => {
                let key = Key::of(wish, now_s);
                let make = || maker.make(wish, now_s);
                let (side, was_made) = maker.leaves.get_or_make(key, make)?;
                Ok(Leaf { side, was_made })
            }
        }
    }

    /// What people should know about the authority, in words.
    pub fn warnings(&self, now_s: i64, files: &dyn Files) -> Vec<String> {
        match &*self.kind {
            Kind::Fixed(_) => Vec::new(),
            Kind::Makes(maker) => maker.trusted.warnings(now_s, files),
        }
    }

    /// When the certificate of the authority ends, in seconds since 1970, if certificates are made:
    /// clients believe none of them afterwards.
    pub fn ends_s(&self) -> Option<i64> {
        match &*self.kind {
            Kind::Fixed(_) => None,
            Kind::Makes(maker) => Some(maker.trusted.ends_s),
        }
    }
}

impl Kind {
    fn new(
        port: &BumpPort,
        pair: &CertificateFiles,
        files: &dyn Files,
    ) -> Result<Self, SetupProblem> {
        Ok(match port.generates {
            true => Self::Makes(Box::new(Maker::new(port, pair, files)?)),
            false => {
                let port = TlsPort {
                    certificates: vec![pair.clone()],
                    settings: port.settings.clone(),
                    stapled: Vec::new(),
                    clients: None,
                    location: port.location.clone(),
                };
                Self::Fixed(ServerSide::new(&port, files)?)
            }
        })
    }
}

/// The one certificate for all clients, where it hides nothing.
fn fixed(side: &ServerSide, wish: &LeafWish<'_>) -> Result<ServerSide, LeafFault> {
    match wish.sign != SignAs::Trusted || wish.has_faults {
        true => Err(LeafFault::HidesFaults),
        false => Ok(side.clone()),
    }
}

impl Maker {
    fn new(
        port: &BumpPort,
        pair: &CertificateFiles,
        files: &dyn Files,
    ) -> Result<Self, SetupProblem> {
        let settings = &port.settings;
        if !can_use_leaf_key(settings) {
            return Err(SetupProblem::Settings(
                "certificates that are made have ECDSA keys, and the ciphers of the line are all \
                 for RSA; name one that begins with ECDHE-ECDSA-"
                    .to_owned(),
            ));
        }
        let provider = provider(settings);
        let unusable = |error: String| SetupProblem::Settings(error);
        let trusted = Issuer::of_files(identity(pair, &provider, files)?, pair)?;
        let untrusted = Issuer::unknown(&trusted, &provider).map_err(unusable)?;
        let leaf_key = LeafKey::new(&provider).map_err(unusable)?;
        let mut template = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&versions(settings))
            .map_err(|error| unusable(error.to_string()))?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(ByName::new(Vec::new())));
        template.alpn_protocols = vec![ALPN.to_vec()];
        template.ignore_client_order = settings.prefers_own_order;
        template.session_storage = Arc::new(NoServerSessionStorage {});
        let tickets = match settings.resumes {
            true => Some(aws_lc_rs::Ticketer::new().map_err(|error| unusable(error.to_string()))?),
            false => {
                template.send_tls13_tickets = 0;
                None
            }
        };
        let leaves = Leaves::new(usize::try_from(port.leaf_cache_bytes).unwrap_or(usize::MAX));
        Ok(Self { trusted, untrusted, leaf_key, template, tickets, leaves })
    }

    /// Makes a certificate, and says how much memory it takes.
    fn make(&self, wish: &LeafWish<'_>, now_s: i64) -> Result<(ServerSide, usize), LeafFault> {
        let (chain, key, contents) = self.sign(wish, now_s)?;
        let bytes = chain.iter().map(|der| der.len()).sum();
        let identity = CertifiedKey::new(chain, key);
        let mut config = self.template.clone();
        config.cert_resolver = Arc::new(SingleCertAndKey::from(identity));
        if let Some(tickets) = &self.tickets {
            config.ticketer = Arc::new(LeafTickets::new(Arc::clone(tickets), contents));
        }
        Ok((ServerSide::of(config), bytes))
    }

    /// A certificate with those above it, its key, and the digest of its contents.
    fn sign(&self, wish: &LeafWish<'_>, now_s: i64) -> Result<Signed, LeafFault> {
        let draft = Draft::of(wish, &self.trusted, now_s)?;
        let issuer = match wish.sign {
            SignAs::Trusted => Some(&self.trusted),
            SignAs::Untrusted => Some(&self.untrusted),
            SignAs::SelfSigned => None,
        };
        // Somebody may come to trust one that is signed by itself, and its key with it.
        let provider = self.template.crypto_provider();
        let lone_key = match issuer {
            Some(_) => None,
            None => Some(LeafKey::new(provider).map_err(LeafFault::Unsigned)?),
        };
        let leaf_key = lone_key.as_ref().unwrap_or(&self.leaf_key);
        let (own, contents) = write::certificate(&draft, leaf_key, issuer)?;
        let mut chain = vec![own];
        chain.extend(issuer.into_iter().flat_map(|issuer| issuer.chain.iter().cloned()));
        Ok((chain, Arc::clone(&leaf_key.key), contents))
    }
}

type Signed = (Vec<CertificateDer<'static>>, Arc<dyn SigningKey>, Contents);

/// Whether clients can verify the key of certificates that are made.
fn can_use_leaf_key(settings: &TlsSettings) -> bool {
    let is_for_it = |cipher: &Cipher| {
        matches!(cipher, Cipher::EcdsaAes256 | Cipher::EcdsaAes128 | Cipher::EcdsaChaCha20)
    };
    let tls12 = || settings.ciphers.as_ref().is_none_or(|some| some.iter().any(is_for_it));
    !settings.allows_tls12 || tls12()
}
