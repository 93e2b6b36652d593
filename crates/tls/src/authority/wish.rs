//! What a certificate is wished to be.

use humboldt_base::bump::SignAs;

/// The certificate that a client is to get.
#[derive(Copy, Clone, Debug, Default)]
pub struct LeafWish<'a> {
    /// The names and addresses that it is for, the common name first. Without meaning if a server's
    /// certificate is there.
    pub names: &'a [&'a str],
    /// The server's certificate (DER), whose subject, names, validity and purposes it has.
    pub mimic: Option<&'a [u8]>,
    /// The time that the server's whole chain has in common, if it is shorter: an authority whose
    /// time is over makes the certificate one whose time is over.
    pub within_s: Option<(i64, i64)>,
    /// The server has faults.
    pub has_faults: bool,
    /// Who signs it.
    pub sign: SignAs,
    /// The changes of `sslproxy_cert_adapt`.
    pub changes: LeafChanges<'a>,
}

/// What is not as in the server's certificate (`sslproxy_cert_adapt`).
#[derive(Copy, Clone, Debug, Default)]
pub struct LeafChanges<'a> {
    /// `setValidAfter`: it ends when the authority's own does.
    pub ends_with_authority: bool,
    /// `setValidBefore`: it begins when the authority's own does.
    pub begins_with_authority: bool,
    /// `setCommonName`: it is for this name alone.
    pub common_name: Option<&'a str>,
}

/// Why a certificate cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LeafFault {
    /// There is no name that a certificate could be for.
    #[error("`{0}` is no name that a certificate could be for")]
    NoName(String),
    /// The server's certificate cannot be read.
    #[error("the certificate of the server cannot be read")]
    Unreadable,
    /// The port has one certificate for all clients, which would hide the server's faults.
    #[error("the server's certificate has faults, and `generate-host-certificates=off` hides them")]
    HidesFaults,
    /// The library does not sign.
    #[error("the certificate cannot be signed: {0}")]
    Unsigned(String),
}
