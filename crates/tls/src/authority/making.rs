//! A new authority, for those who have none.

use humboldt_base::civil::civil_from_days;
use rcgen::{BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa};
use rcgen::{KeyPair, KeyUsagePurpose, date_time_ymd};
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

const DAY_S: i64 = 24 * 60 * 60;

/// Most bytes of an authority's name (RFC 5280, ub-common-name).
const NAME_BYTES_MAX: usize = 64;

/// An authority that has just been made.
pub struct NewAuthority {
    /// Its certificate, which clients are to trust, in PEM.
    pub certificate: String,
    /// Its key, which nobody else may have, in PEM. It is overwritten after use.
    pub key: Zeroizing<String>,
    /// The digest that people compare (SHA-256, `AB:CD:…`).
    pub fingerprint: String,
    /// The day on which it ends: year, month, day.
    pub last_day: (i64, i64, i64),
}

/// Makes an authority that is called `name` and good for `days`. Its key is of P-256.
///
/// # Errors
/// The name cannot be one, or the library does not make keys.
pub fn make_authority(name: &str, days: u16, now_s: i64) -> Result<NewAuthority, String> {
    if name.is_empty() || name.len() > NAME_BYTES_MAX || name.contains(char::is_control) {
        return Err(format!(
            "the name must have 1 to {NAME_BYTES_MAX} bytes, and no control characters"
        ));
    }
    let today = now_s.div_euclid(DAY_S);
    let last_day = civil_from_days(today + i64::from(days));
    let mut subject = DistinguishedName::new();
    subject.push(DnType::CommonName, name);
    let mut wish = CertificateParams::default();
    wish.distinguished_name = subject;
    // It signs certificates of servers, and no authorities.
    wish.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    wish.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    // Clocks of clients may be slow.
    let date =
        |(year, month, day): (i64, i64, i64)| date_time_ymd(year as i32, month as u8, day as u8);
    wish.not_before = date(civil_from_days(today - 1));
    wish.not_after = date(last_day);
    let key = Zeroizing::new(KeyPair::generate().map_err(|error| error.to_string())?);
    let own = wish.self_signed(&*key).map_err(|error| error.to_string())?;
    let digest = Sha256::digest(own.der());
    let digest: Vec<String> = digest.iter().map(|byte| format!("{byte:02X}")).collect();
    Ok(NewAuthority {
        certificate: own.pem(),
        key: Zeroizing::new(key.serialize_pem()),
        fingerprint: digest.join(":"),
        last_day,
    })
}
