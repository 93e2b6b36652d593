//! The names of faults of certificates: the values of the ACL `ssl_error`.

/// Names that this program gives to faults, see `crates/tls`.
const FOUND_HERE: [&str; 12] = [
    "SQUID_X509_V_ERR_DOMAIN_MISMATCH",
    "SQUID_X509_V_ERR_NO_CERTIFICATE",
    "X509_V_ERR_CA_MD_TOO_WEAK",
    "X509_V_ERR_CERT_HAS_EXPIRED",
    "X509_V_ERR_CERT_NOT_YET_VALID",
    "X509_V_ERR_CERT_REJECTED",
    "X509_V_ERR_CERT_REVOKED",
    "X509_V_ERR_CERT_SIGNATURE_FAILURE",
    "X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT",
    "X509_V_ERR_INVALID_PURPOSE",
    "X509_V_ERR_UNABLE_TO_GET_CRL",
    "X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY",
];

/// Names that only Squid and OpenSSL give.
const FOUND_ELSEWHERE: [&str; 48] = [
    "SQUID_TLS_ERR_ACCEPT",
    "SQUID_TLS_ERR_CONNECT",
    "SQUID_X509_V_ERR_CERT_CHANGE",
    "SQUID_X509_V_ERR_INFINITE_VALIDATION",
    "X509_V_ERR_AKID_ISSUER_SERIAL_MISMATCH",
    "X509_V_ERR_AKID_SKID_MISMATCH",
    "X509_V_ERR_APPLICATION_VERIFICATION",
    "X509_V_ERR_CA_KEY_TOO_SMALL",
    "X509_V_ERR_CERT_CHAIN_TOO_LONG",
    "X509_V_ERR_CERT_UNTRUSTED",
    "X509_V_ERR_CRL_HAS_EXPIRED",
    "X509_V_ERR_CRL_NOT_YET_VALID",
    "X509_V_ERR_CRL_PATH_VALIDATION_ERROR",
    "X509_V_ERR_CRL_SIGNATURE_FAILURE",
    "X509_V_ERR_DIFFERENT_CRL_SCOPE",
    "X509_V_ERR_EE_KEY_TOO_SMALL",
    "X509_V_ERR_ERROR_IN_CERT_NOT_AFTER_FIELD",
    "X509_V_ERR_ERROR_IN_CERT_NOT_BEFORE_FIELD",
    "X509_V_ERR_ERROR_IN_CRL_LAST_UPDATE_FIELD",
    "X509_V_ERR_ERROR_IN_CRL_NEXT_UPDATE_FIELD",
    "X509_V_ERR_EXCLUDED_VIOLATION",
    "X509_V_ERR_INVALID_CA",
    "X509_V_ERR_INVALID_EXTENSION",
    "X509_V_ERR_INVALID_NON_CA",
    "X509_V_ERR_INVALID_POLICY_EXTENSION",
    "X509_V_ERR_KEYUSAGE_NO_CERTSIGN",
    "X509_V_ERR_KEYUSAGE_NO_CRL_SIGN",
    "X509_V_ERR_KEYUSAGE_NO_DIGITAL_SIGNATURE",
    "X509_V_ERR_NO_EXPLICIT_POLICY",
    "X509_V_ERR_OUT_OF_MEM",
    "X509_V_ERR_PATH_LENGTH_EXCEEDED",
    "X509_V_ERR_PERMITTED_VIOLATION",
    "X509_V_ERR_PROXY_CERTIFICATES_NOT_ALLOWED",
    "X509_V_ERR_PROXY_PATH_LENGTH_EXCEEDED",
    "X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN",
    "X509_V_ERR_SUBJECT_ISSUER_MISMATCH",
    "X509_V_ERR_SUBTREE_MINMAX",
    "X509_V_ERR_UNABLE_TO_DECODE_ISSUER_PUBLIC_KEY",
    "X509_V_ERR_UNABLE_TO_DECRYPT_CERT_SIGNATURE",
    "X509_V_ERR_UNABLE_TO_DECRYPT_CRL_SIGNATURE",
    "X509_V_ERR_UNABLE_TO_GET_CRL_ISSUER",
    "X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT",
    "X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE",
    "X509_V_ERR_UNHANDLED_CRITICAL_CRL_EXTENSION",
    "X509_V_ERR_UNHANDLED_CRITICAL_EXTENSION",
    "X509_V_ERR_UNNESTED_RESOURCE",
    "X509_V_ERR_UNSUPPORTED_EXTENSION_FEATURE",
    "X509_V_ERR_UNSUPPORTED_NAME_SYNTAX",
];

/// Short names, each for one or several faults.
const SHORT: [(&str, &[&str]); 5] = [
    ("ssl::certHasExpired", &["X509_V_ERR_CERT_HAS_EXPIRED"]),
    ("ssl::certNotYetValid", &["X509_V_ERR_CERT_NOT_YET_VALID"]),
    ("ssl::certDomainMismatch", &["SQUID_X509_V_ERR_DOMAIN_MISMATCH"]),
    (
        "ssl::certUntrusted",
        &[
            "X509_V_ERR_INVALID_CA",
            "X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN",
            "X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE",
            "X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT",
            "X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY",
            "X509_V_ERR_CERT_UNTRUSTED",
        ],
    ),
    ("ssl::certSelfSigned", &["X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT"]),
];

/// The faults that a value of `ssl_error` stands for, by their names; `None`: it is none.
pub fn tls_error_names(value: &str) -> Option<Vec<&'static str>> {
    let bare = value.strip_prefix("ssl::").unwrap_or(value);
    if let Some((_, names)) =
        SHORT.iter().find(|(short, _)| short.strip_prefix("ssl::") == Some(bare))
    {
        return Some(names.to_vec());
    }
    let mut names = FOUND_HERE.iter().chain(&FOUND_ELSEWHERE);
    names.find(|name| **name == value).map(|name| vec![*name])
}

/// Whether this program ever finds one of these faults.
pub(crate) fn is_found_here(names: &[&str]) -> bool {
    names.iter().any(|name| FOUND_HERE.contains(name))
}

/// All names, for suggestions.
pub(crate) fn all_tls_errors() -> impl Iterator<Item = &'static str> {
    let short = SHORT.iter().map(|(short, _)| *short);
    FOUND_HERE.iter().chain(&FOUND_ELSEWHERE).copied().chain(short)
}

/// The ACLs for the short names, which exist without being defined.
pub(crate) fn predefined() -> String {
    SHORT.iter().map(|(short, _)| format!("acl {short} ssl_error {short}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stand_for_faults() {
        assert_eq!(
            tls_error_names("certSelfSigned"),
            Some(vec!["X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT"])
        );
        assert_eq!(tls_error_names("ssl::certUntrusted").map(|names| names.len()), Some(6));
        assert_eq!(tls_error_names("X509_V_ERR_INVALID_CA"), Some(vec!["X509_V_ERR_INVALID_CA"]));
        assert_eq!(tls_error_names("X509_V_ERR_NOTHING"), None);
        for (_, names) in SHORT {
            assert!(names.iter().all(|name| tls_error_names(name).is_some()), "{names:?}");
        }
    }
}
