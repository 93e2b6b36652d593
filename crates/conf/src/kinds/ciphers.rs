//! Lists of ciphers in OpenSSL's language (openssl-ciphers(1)), as far as they speak of ciphers
//! that are still offered.

use crate::types::Cipher;

/// Each cipher: its name, and the words that stand for it among others. All of them are ECDHE with
/// an AEAD, for TLS 1.2.
const CIPHERS: [(Cipher, &str, [&str; 5]); 6] = [
    (
        Cipher::EcdsaAes256,
        "ECDHE-ECDSA-AES256-GCM-SHA384",
        ["AES256", "AES", "AESGCM", "ECDSA", "SHA384"],
    ),
    (
        Cipher::RsaAes256,
        "ECDHE-RSA-AES256-GCM-SHA384",
        ["AES256", "AES", "AESGCM", "aRSA", "SHA384"],
    ),
    (
        Cipher::EcdsaChaCha20,
        "ECDHE-ECDSA-CHACHA20-POLY1305",
        ["CHACHA20", "CHACHA20-POLY1305", "POLY1305", "ECDSA", "SHA256"],
    ),
    (
        Cipher::RsaChaCha20,
        "ECDHE-RSA-CHACHA20-POLY1305",
        ["CHACHA20", "CHACHA20-POLY1305", "POLY1305", "aRSA", "SHA256"],
    ),
    (
        Cipher::EcdsaAes128,
        "ECDHE-ECDSA-AES128-GCM-SHA256",
        ["AES128", "AES", "AESGCM", "ECDSA", "SHA256"],
    ),
    (
        Cipher::RsaAes128,
        "ECDHE-RSA-AES128-GCM-SHA256",
        ["AES128", "AES", "AESGCM", "aRSA", "SHA256"],
    ),
];

/// Words that stand for all of them.
const ALL: [&str; 10] = [
    "ALL",
    "DEFAULT",
    "HIGH",
    "ECDHE",
    "EECDH",
    "kECDHE",
    "kEECDH",
    "TLSv1.2",
    "ECDH",
    "COMPLEMENTOFALL",
];

/// What a list says.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Chosen {
    /// The ciphers, best first.
    pub(super) ciphers: Vec<Cipher>,
    /// Single ciphers that it wants and that are not offered.
    pub(super) missing: Vec<String>,
}

/// Reads a list.
pub(super) fn choose(list: &str) -> Chosen {
    let mut chosen = Chosen::default();
    let mut removed: Vec<Cipher> = Vec::new();
    for word in list.split([':', ',', ' ']).filter(|word| !word.is_empty()) {
        let (action, words) = match word.as_bytes().first() {
            Some(b'!' | b'-' | b'+') => word.split_at(1),
            _ => ("", word),
        };
        if words.starts_with('@') || words.starts_with("TLS_") {
            // An order by strength is the one that is there; ciphers of TLS 1.3 are always offered.
            continue;
        }
        let named = |cipher: &&(Cipher, &str, [&str; 5])| {
            words.split('+').all(|part| {
                cipher.1 == part
                    || (ALL.contains(&part) && part != "COMPLEMENTOFALL")
                    || cipher.2.contains(&part)
                    || (part == "aECDSA" && cipher.2.contains(&"ECDSA"))
            })
        };
        let found: Vec<Cipher> = CIPHERS.iter().filter(named).map(|cipher| cipher.0).collect();
        match action {
            "!" => {
                removed.extend(&found);
                chosen.ciphers.retain(|cipher| !found.contains(cipher));
            }
            "-" => chosen.ciphers.retain(|cipher| !found.contains(cipher)),
            "+" => {
                let (last, first): (Vec<_>, Vec<_>) =
                    chosen.ciphers.iter().partition(|&cipher| found.contains(cipher));
                chosen.ciphers = first.into_iter().chain(last).collect();
            }
            _ => {
                if found.is_empty() && is_single(words) {
                    chosen.missing.push(words.to_owned());
                }
                let new = |cipher: &Cipher| !removed.contains(cipher);
                for cipher in found.into_iter().filter(new) {
                    if !chosen.ciphers.contains(&cipher) {
                        chosen.ciphers.push(cipher);
                    }
                }
            }
        }
    }
    chosen
}

/// Whether a word names one cipher: `ECDHE-RSA-RC4-SHA`.
fn is_single(word: &str) -> bool {
    word.contains('-') && !word.contains('+')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(list: &str) -> Vec<&'static str> {
        let name =
            |wanted: &Cipher| CIPHERS.iter().find(|known| known.0 == *wanted).map(|known| known.1);
        choose(list).ciphers.iter().filter_map(name).collect()
    }

    #[test]
    fn lists_of_real_files_leave_what_is_still_good() {
        for list in [
            "HIGH:MEDIUM:!RC4:!aNULL:!eNULL:!LOW:!3DES:!MD5:!EXP:!PSK:!SRP:!DSS",
            "ALL",
            "DEFAULT:@SECLEVEL=2",
            "EECDH+ECDSA:EECDH+aRSA:RSA+3DES",
        ] {
            assert_eq!(names(list).len(), 6, "{list}");
        }
        assert_eq!(
            names("EECDH+AESGCM:!ECDSA"),
            ["ECDHE-RSA-AES256-GCM-SHA384", "ECDHE-RSA-AES128-GCM-SHA256"]
        );
        assert_eq!(
            names("ECDHE-RSA-AES128-GCM-SHA256:AES256+aRSA"),
            ["ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-RSA-AES256-GCM-SHA384"]
        );
        assert_eq!(
            names("AES+aRSA:+AES256"),
            ["ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-RSA-AES256-GCM-SHA384"]
        );
    }

    #[test]
    fn what_is_not_offered_is_named() {
        let chosen = choose("ECDHE-RSA-RC4-SHA:DHE-RSA-AES128-SHA:!aNULL:!ADH-X");
        assert_eq!(chosen.ciphers, []);
        assert_eq!(chosen.missing, ["ECDHE-RSA-RC4-SHA", "DHE-RSA-AES128-SHA"]);
    }
}
