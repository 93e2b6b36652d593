//! Where a head is written, field after field, whatever the protocol makes of it.

use crate::fields::Fields;

/// Takes the fields of a head, in their order.
///
/// Names and values come from a parsed head or are the caller's own: neither can end a line.
pub trait FieldSink {
    /// One field.
    fn field(&mut self, name: &[u8], value: &[u8]) {
        self.parts(name, &[value]);
    }

    /// One field whose value is in parts.
    fn parts(&mut self, name: &[u8], value: &[&[u8]]);
}

impl FieldSink for Fields {
    fn field(&mut self, name: &[u8], value: &[u8]) {
        self.push_named(name, value);
    }

    fn parts(&mut self, name: &[u8], value: &[&[u8]]) {
        self.push_named(name, &value.concat());
    }
}
