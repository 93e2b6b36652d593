//! Field lines of a head or trailer section: one buffer of bytes and spans into it.

use crate::list::split_list;
use crate::name::FieldName;
use crate::syntax;

/// Most bytes a [`Fields`] holds. A field that would exceed it is not added: received heads are
/// bounded far below (64 KiB by default), so only a faulty caller gets here.
pub const FIELDS_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Room that a parsed head keeps for lines that are added to it.
const SPARE_BYTES: usize = 128;
const SPARE_LINES: usize = 2;

/// A range of bytes in the buffer of the head that owns it.
#[derive(Copy, Clone, Default, PartialEq, Eq, Debug)]
pub struct Span {
    /// First byte.
    pub start: u32,
    /// One past the last byte.
    pub end: u32,
}

impl Span {
    /// The bytes of this span in `bytes`; empty when the span does not lie inside.
    #[inline]
    #[must_use]
    pub fn of(self, bytes: &[u8]) -> &[u8] {
        bytes.get(self.start as usize..self.end as usize).unwrap_or_default()
    }

    /// The span of `len` bytes from `start`. Both are bounded by [`FIELDS_BYTES_MAX`].
    #[inline]
    pub(crate) fn new(start: usize, len: usize) -> Span {
        Span { start: start as u32, end: (start + len) as u32 }
    }
}

/// One field line.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Field {
    /// The name, if known.
    pub id: FieldName,
    /// The name as received.
    pub name: Span,
    /// The value without surrounding white space.
    pub value: Span,
}

/// Field lines in order, with their bytes.
///
/// Reusable: [`Fields::clear`] keeps the capacity. Presence of a known name is one bit test.
#[derive(Clone, Default, Debug)]
pub struct Fields {
    pub(crate) bytes: Vec<u8>,
    fields: Vec<Field>,
    /// Known names that occur, as bits.
    present: u128,
    /// Known names that occur more than once, as bits.
    repeated: u128,
}

impl Fields {
    /// No fields, nothing allocated.
    #[must_use]
    pub fn new() -> Fields {
        Fields::default()
    }

    /// Whether a line with this known name occurs. Always false for [`FieldName::Other`].
    #[inline]
    #[must_use]
    pub fn has(&self, name: FieldName) -> bool {
        self.present & name.bit() != 0
    }

    /// Whether more than one line with this known name occurs.
    #[inline]
    #[must_use]
    pub fn is_repeated(&self, name: FieldName) -> bool {
        self.repeated & name.bit() != 0
    }

    /// The value of the first line with this known name.
    #[inline]
    #[must_use]
    pub fn get(&self, name: FieldName) -> Option<&[u8]> {
        if !self.has(name) {
            return None;
        }
        self.fields.iter().find(|field| field.id == name).map(|field| self.value(field))
    }

    /// The values of all lines with this known name, in order.
    #[inline]
    pub fn get_all(&self, name: FieldName) -> impl Iterator<Item = &[u8]> + Clone {
        let lines = if self.has(name) { self.fields.as_slice() } else { &[] };
        lines.iter().filter(move |field| field.id == name).map(|field| self.value(field))
    }

    /// The elements of the comma list that all lines with this known name form together (RFC 9110
    /// 5.6.1): trimmed, quoted strings kept whole, empty elements skipped.
    pub fn list(&self, name: FieldName) -> impl Iterator<Item = &[u8]> + Clone {
        self.get_all(name).flat_map(split_list)
    }

    /// The value of the first line whose name equals `name` without regard to case.
    #[must_use]
    pub fn get_by_name(&self, name: &[u8]) -> Option<&[u8]> {
        self.get_all_by_name(name).next()
    }

    /// The values of all lines whose name equals `name` without regard to case.
    pub fn get_all_by_name<'a, 'n>(
        &'a self,
        name: &'n [u8],
    ) -> impl Iterator<Item = &'a [u8]> + use<'a, 'n> {
        let id = FieldName::from_bytes(name);
        let known_absent = id != FieldName::Other && !self.has(id);
        let lines = if known_absent { &[] } else { self.fields.as_slice() };
        lines
            .iter()
            .filter(move |field| {
                field.id == id
                    && (id != FieldName::Other || self.name(field).eq_ignore_ascii_case(name))
            })
            .map(|field| self.value(field))
    }

    /// All lines in order: known name, name as received, value.
    pub fn iter(&self) -> impl Iterator<Item = (FieldName, &[u8], &[u8])> {
        self.fields.iter().map(|field| (field.id, self.name(field), self.value(field)))
    }

    /// All lines in order, as spans.
    #[must_use]
    pub fn lines(&self) -> &[Field] {
        &self.fields
    }

    /// The name of one of this head's lines, as received.
    #[inline]
    #[must_use]
    pub fn name(&self, field: &Field) -> &[u8] {
        field.name.of(&self.bytes)
    }

    /// The value of one of this head's lines.
    #[inline]
    #[must_use]
    pub fn value(&self, field: &Field) -> &[u8] {
        field.value.of(&self.bytes)
    }

    /// Number of lines.
    #[must_use]
    pub fn len(&self) -> usize {
        self.fields.len()
    }

    /// Whether there are no lines.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }

    /// Adds a line with a known name; [`FieldName::Other`] has no text and adds nothing. A byte
    /// that cannot stand in a value (CR, LF, NUL, other controls) becomes a space, so that no value
    /// can end its line (RFC 9110 5.5).
    pub fn push(&mut self, name: FieldName, value: &[u8]) {
        self.append(name, name.as_str().as_bytes(), value);
    }

    /// Adds a line with any name. A name that is not a token (RFC 9110 5.1) adds nothing; the value
    /// is treated as in [`Fields::push`].
    pub fn push_named(&mut self, name: &[u8], value: &[u8]) {
        self.append(FieldName::from_bytes(name), name, value);
    }

    /// Removes all lines with this known name. Their bytes stay in the buffer until
    /// [`Fields::clear`].
    pub fn remove(&mut self, name: FieldName) {
        if self.has(name) {
            self.fields.retain(|field| field.id != name);
            self.present &= !name.bit();
            self.repeated &= !name.bit();
        }
    }

    /// Removes all lines whose name equals `name` without regard to case.
    pub fn remove_by_name(&mut self, name: &[u8]) {
        match FieldName::from_bytes(name) {
            FieldName::Other => {
                let bytes = &self.bytes;
                self.fields.retain(|field| !field.name.of(bytes).eq_ignore_ascii_case(name));
            }
            known => self.remove(known),
        }
    }

    /// Removes everything and keeps the capacity.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.fields.clear();
        self.present = 0;
        self.repeated = 0;
    }

    /// A copy with room for a few more lines.
    #[must_use]
    pub fn roomy_clone(&self) -> Fields {
        let mut copy =
            Fields { present: self.present, repeated: self.repeated, ..Fields::default() };
        copy.reserve(self.bytes.len(), self.fields.len());
        copy.bytes.extend_from_slice(&self.bytes);
        copy.fields.extend_from_slice(&self.fields);
        copy
    }

    /// Makes room for `bytes` and `lines`, and for a few more that are added later (Date, Via).
    pub(crate) fn reserve(&mut self, bytes: usize, lines: usize) {
        self.bytes.reserve(bytes + SPARE_BYTES);
        self.fields.reserve(lines + SPARE_LINES);
    }

    /// Records a line whose bytes are in the buffer already.
    #[inline]
    pub(crate) fn record(&mut self, field: Field) {
        let bit = field.id.bit() & !FieldName::Other.bit();
        self.repeated |= self.present & bit;
        self.present |= bit;
        self.fields.push(field);
    }

    /// Appends bytes and line.
    fn append(&mut self, id: FieldName, name: &[u8], value: &[u8]) {
        let start = self.bytes.len();
        let value = syntax::trim_ows(value);
        if !syntax::is_token(name) || start + name.len() + value.len() > FIELDS_BYTES_MAX {
            return;
        }
        self.bytes.extend_from_slice(name);
        self.bytes.extend(value.iter().map(|&b| if syntax::is_value_byte(b) { b } else { b' ' }));
        self.record(Field {
            id,
            name: Span::new(start, name.len()),
            value: Span::new(start + name.len(), value.len()),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Fields {
        let mut fields = Fields::new();
        fields.push(FieldName::Host, b"example.org");
        fields.push_named(b"vary", b" a, b ");
        fields.push_named(b"X-One", b"1");
        fields.push(FieldName::Vary, b"\"x, y\",, c");
        fields
    }

    #[test]
    fn finds_lines_by_known_and_by_any_name() {
        let fields = sample();
        assert_eq!(fields.get(FieldName::Host), Some(&b"example.org"[..]));
        assert_eq!(fields.get(FieldName::Vary), Some(&b"a, b"[..]));
        assert_eq!(fields.get_by_name(b"x-ONE"), Some(&b"1"[..]));
        assert_eq!(fields.get_by_name(b"HOST"), Some(&b"example.org"[..]));
        assert_eq!(fields.get_by_name(b"x-two"), None);
        assert_eq!(fields.get(FieldName::Age), None);
        assert!(fields.is_repeated(FieldName::Vary) && !fields.is_repeated(FieldName::Host));
        assert!(!fields.has(FieldName::Other));
    }

    #[test]
    fn list_joins_lines_and_respects_quotes() {
        let fields = sample();
        let list: Vec<_> = fields.list(FieldName::Vary).collect();
        assert_eq!(list, [&b"a"[..], b"b", b"\"x, y\"", b"c"]);
    }

    #[test]
    fn remove_forgets_all_lines() {
        let mut fields = sample();
        fields.remove(FieldName::Vary);
        fields.remove_by_name(b"x-one");
        assert_eq!(fields.len(), 1);
        assert!(!fields.has(FieldName::Vary) && !fields.is_repeated(FieldName::Vary));
        fields.clear();
        assert!(fields.is_empty() && fields.get(FieldName::Host).is_none());
    }

    #[test]
    fn a_value_cannot_end_its_line() {
        let mut fields = Fields::new();
        fields.push(FieldName::Via, b"a\r\nX: b\0");
        assert_eq!(fields.get(FieldName::Via), Some(&b"a  X: b "[..]));
        fields.push_named(b"bad name", b"x");
        fields.push_named(b"", b"x");
        assert_eq!(fields.len(), 1);
    }
}
