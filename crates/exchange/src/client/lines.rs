//! Fields as the lines of HTTP/1.

use humboldt_http::{FieldSink, Version, h1};
use humboldt_store::StoredHead;

use crate::head::ReplySink;

/// Writes fields as the lines of HTTP/1.
pub(crate) struct Lines<'a>(pub(crate) &'a mut Vec<u8>);

impl FieldSink for Lines<'_> {
    fn field(&mut self, name: &[u8], value: &[u8]) {
        h1::write_field(self.0, name, value);
    }

    fn parts(&mut self, name: &[u8], value: &[&[u8]]) {
        self.0.extend_from_slice(name);
        self.0.extend_from_slice(b": ");
        value.iter().for_each(|part| self.0.extend_from_slice(part));
        self.0.extend_from_slice(b"\r\n");
    }
}

impl ReplySink for Lines<'_> {
    fn status(&mut self, status: u16, reason: &[u8]) {
        h1::write_status_line(self.0, Version::Http11, status, reason);
    }

    /// A stored head has the form of HTTP/1: one copy.
    fn stored(&mut self, head: &StoredHead) {
        self.0.extend_from_slice(head.bytes());
    }
}
