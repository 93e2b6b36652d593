//! Values of `logformat` codes for rules.

use std::net::SocketAddr;

use humboldt_logs::access::{AccessFormat, AccessRecord};

use crate::request::{Request, unmapped};

/// The value of a format before the request is answered.
pub(crate) fn early(format: &AccessFormat, request: &Request) -> Vec<u8> {
    let facts = request.facts();
    let client = SocketAddr::new(unmapped(request.client_ip()), facts.client.port());
    let helped = request.helped.facts();
    let helped = helped.as_deref();
    let tls = facts.tls.get();
    let record = AccessRecord {
        certificate: tls.and_then(|tls| tls.certificate.as_ref()),
        tls: tls.map(|tls| (tls.version, tls.cipher)),
        bump: request.bump(),
        local: Some(facts.chosen()),
        method: request.head.method_bytes(),
        url: request.url.as_bytes(),
        client_url: request.is_rewritten().then(|| request.shown_url()),
        version: Some(request.head.version),
        user: request.user_name(),
        ext_user: helped.and_then(|facts| facts.user.as_deref()),
        ext_tag: helped.and_then(|facts| facts.tag.as_deref()),
        ext_log: helped.and_then(|facts| facts.log.as_deref()),
        client_name: request.client_name.get().and_then(|name| name.as_deref().ok()),
        hardware: facts.hardware.flatten(),
        number: request.number,
        generation: request.snapshot().generation(),
        request: Some(&request.head.fields),
        notes: Some(&request.notes),
        ..AccessRecord::new(request.received, client)
    };
    written(format, &record)
}

/// The value of a format. Control characters are removed, so that no text from a client can end a
/// field or a line.
pub(crate) fn written(format: &AccessFormat, record: &AccessRecord<'_>) -> Vec<u8> {
    let mut value = Vec::with_capacity(64);
    format.write(&mut value, record, false);
    value.retain(|byte| !byte.is_ascii_control());
    value
}
