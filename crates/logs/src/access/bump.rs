//! What is logged about the interception of TLS.

use data_encoding::BASE64;
use humboldt_base::bump::{BumpFacts, version_name};
use humboldt_conf::LogCode as Code;

use super::compile::Value;
use crate::text::{Escape, push_escaped};

/// Between two faults.
const SEPARATOR: &[u8] = b":";

/// The version of TLS that a server names in the old field, whatever newer one it has chosen.
const TLS_1_2: u16 = 0x0303;

/// Bytes of a line of PEM before it is written in Base64: 64 characters.
const PEM_LINE_BYTES: usize = 48;

/// Appends a fact; nothing where it is not known.
pub(super) fn push(
    out: &mut Vec<u8>,
    code: Code,
    value: &Value,
    facts: &BumpFacts,
    escape: Escape,
) {
    let (hello, server) = (facts.hello.as_ref(), facts.server.as_deref());
    let certificate = server.and_then(|server| server.certificate.as_ref());
    let version = |version: Option<u16>| version.and_then(version_name);
    let server_version = || server.map(|server| server.version).filter(|version| *version > 0);
    let text = match code {
        Code::Sni => facts.sni(),
        Code::BumpMode => facts.action.map(|action| action.name()),
        Code::ClientHelloVersion => version(hello.map(|hello| hello.record_version)),
        Code::ClientTlsVersion => version(hello.map(|hello| hello.newest_version)),
        Code::ServerSubject => certificate.map(|own| own.subject.line.as_str()),
        Code::ServerIssuer => certificate.map(|own| own.issuer.line.as_str()),
        Code::ServerTlsVersion | Code::ServerSupportedVersion => version(server_version()),
        Code::ServerHelloVersion => version(server_version().map(|own| own.min(TLS_1_2))),
        Code::ServerTlsCipher => server.and_then(|server| server.cipher),
        Code::ServerFaults => {
            let separator = value.field.as_deref().unwrap_or(SEPARATOR);
            for (n, fault) in facts.faults().iter().enumerate() {
                if n > 0 {
                    push_escaped(out, separator, escape);
                }
                push_escaped(out, fault.as_bytes(), escape);
            }
            None
        }
        _ => {
            let der = server.map(|server| &*server.der).filter(|der| !der.is_empty());
            if let Some(der) = der {
                push_escaped(out, pem(der).as_bytes(), escape);
            }
            None
        }
    };
    push_escaped(out, text.unwrap_or_default().as_bytes(), escape);
}

fn pem(der: &[u8]) -> String {
    let mut out = "-----BEGIN CERTIFICATE-----\n".to_owned();
    for line in der.chunks(PEM_LINE_BYTES) {
        BASE64.encode_append(line, &mut out);
        out.push('\n');
    }
    out.push_str("-----END CERTIFICATE-----\n");
    out
}
