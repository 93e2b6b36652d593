//! The names of ciphers.

/// The name of a cipher as OpenSSL writes it, and with it Squid; `None`: it has no place here.
/// Those that this program does not speak are there for servers that are only looked at.
pub fn cipher_name(number: u16) -> Option<&'static str> {
    let known = NAMES.iter().find(|(known, _)| *known == number);
    known.map(|(_, name)| *name)
}

#[rustfmt::skip]
const NAMES: [(u16, &str); 27] = [
    (0x1301, "TLS_AES_128_GCM_SHA256"),
    (0x1302, "TLS_AES_256_GCM_SHA384"),
    (0x1303, "TLS_CHACHA20_POLY1305_SHA256"),
    (0xc02b, "ECDHE-ECDSA-AES128-GCM-SHA256"),
    (0xc02c, "ECDHE-ECDSA-AES256-GCM-SHA384"),
    (0xcca9, "ECDHE-ECDSA-CHACHA20-POLY1305"),
    (0xc02f, "ECDHE-RSA-AES128-GCM-SHA256"),
    (0xc030, "ECDHE-RSA-AES256-GCM-SHA384"),
    (0xcca8, "ECDHE-RSA-CHACHA20-POLY1305"),
    (0xc009, "ECDHE-ECDSA-AES128-SHA"),
    (0xc00a, "ECDHE-ECDSA-AES256-SHA"),
    (0xc023, "ECDHE-ECDSA-AES128-SHA256"),
    (0xc024, "ECDHE-ECDSA-AES256-SHA384"),
    (0xc013, "ECDHE-RSA-AES128-SHA"),
    (0xc014, "ECDHE-RSA-AES256-SHA"),
    (0xc027, "ECDHE-RSA-AES128-SHA256"),
    (0xc028, "ECDHE-RSA-AES256-SHA384"),
    (0x009e, "DHE-RSA-AES128-GCM-SHA256"),
    (0x009f, "DHE-RSA-AES256-GCM-SHA384"),
    (0xccaa, "DHE-RSA-CHACHA20-POLY1305"),
    (0x009c, "AES128-GCM-SHA256"),
    (0x009d, "AES256-GCM-SHA384"),
    (0x002f, "AES128-SHA"),
    (0x0035, "AES256-SHA"),
    (0x003c, "AES128-SHA256"),
    (0x003d, "AES256-SHA256"),
    (0x000a, "DES-CBC3-SHA"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cipher_that_is_spoken_has_its_name() {
        for suite in rustls::crypto::aws_lc_rs::DEFAULT_CIPHER_SUITES {
            // `TLS13_AES_128_GCM_SHA256`, `TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256`
            let long = format!("{:?}", suite.suite()).replace("TLS13_", "TLS_");
            let name = cipher_name(suite.suite().into()).expect("a name");
            let short = long.trim_start_matches("TLS_").replace("_WITH", "").replace("AES_", "AES");
            let short = short.replace("POLY1305_SHA256", "POLY1305").replace('_', "-");
            assert!(name == long || name == short, "{name}: {long}");
        }
        assert_eq!(cipher_name(0x0a0a), None);
    }
}
