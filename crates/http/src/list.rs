//! Comma-separated lists (RFC 9110 5.6.1).

use crate::syntax::trim_ows;

/// Iterator over the elements of one list value; see [`split_list`].
#[derive(Clone, Debug)]
pub struct ListItems<'a> {
    rest: &'a [u8],
}

/// The elements of a comma-separated list: trimmed, empty ones skipped. A comma inside a quoted
/// string does not separate.
///
/// A quoted string begins where a value begins: directly behind `=`, or at the start of an element.
/// A comma, a semicolon or the end follows it, after optional white space. Other quotes are
/// ordinary bytes: a stray pair in `foo", no-store, bar"` must not hide the text between them, nor
/// must a quote that is not closed.
#[must_use]
pub fn split_list(value: &[u8]) -> ListItems<'_> {
    ListItems { rest: value }
}

impl<'a> Iterator for ListItems<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        while !self.rest.is_empty() {
            let (element, tail) = self.rest.split_at_checked(element_end(self.rest))?;
            self.rest = tail.get(1..).unwrap_or_default();
            let element = trim_ows(element);
            if !element.is_empty() {
                return Some(element);
            }
        }
        None
    }
}

/// Index of the comma that ends the first element, or the length.
///
/// Linear in the length of the list, over all its elements: text that was searched in vain for the
/// end of a string has no other place where a string could begin.
fn element_end(value: &[u8]) -> usize {
    let mut at = 0;
    let mut may_begin = true;
    while let Some(&byte) = value.get(at) {
        match byte {
            b',' => return at,
            b'"' if may_begin => match quoted_end(value, at) {
                Some(end) => {
                    (at, may_begin) = (end, false);
                    continue;
                }
                None => may_begin = false,
            },
            b'=' => may_begin = true,
            // White space before the first byte of an element.
            b' ' | b'\t'
                if may_begin
                    && at.checked_sub(1).is_none_or(|before| is_ows(value.get(before))) => {}
            _ => may_begin = false,
        }
        at += 1;
    }
    value.len()
}

/// The index behind the quoted string that begins at `start`, if it is one, and if the text after
/// it may follow a value.
fn quoted_end(value: &[u8], start: usize) -> Option<usize> {
    let mut at = start + 1;
    loop {
        match value.get(at)? {
            b'\\' => at += 2,
            b'"' => break,
            _ => at += 1,
        }
    }
    let end = at + 1;
    let next = value.get(end..)?.iter().find(|byte| !is_ows(Some(byte)));
    matches!(next, None | Some(b',' | b';')).then_some(end)
}

fn is_ows(byte: Option<&u8>) -> bool {
    matches!(byte, Some(b' ' | b'\t'))
}

#[cfg(test)]
mod tests {
    use super::split_list;

    #[test]
    fn splits_trims_and_skips_empties() {
        let cases: &[(&[u8], &[&[u8]])] = &[
            (b"", &[]),
            (b" , ,\t", &[]),
            (b"a", &[b"a"]),
            (b"a, b ,,c", &[b"a", b"b", b"c"]),
            (br#"a="x,\",y", b"#, &[br#"a="x,\",y""#, b"b"]),
            (br#"a="x,y" ;b="c,d"	, e"#, &[br#"a="x,y" ;b="c,d""#, b"e"]),
            (br#""a, b" , "c,d""#, &[br#""a, b""#, br#""c,d""#]),
            (b"a,\t \"b, c\"", &[b"a", b"\"b, c\""]),
            (br#"a="""#, &[br#"a="""#]),
        ];
        for (value, want) in cases {
            assert_eq!(
                split_list(value).collect::<Vec<_>>(),
                *want,
                "{}",
                String::from_utf8_lossy(value)
            );
        }
    }

    #[test]
    fn a_quote_that_begins_or_ends_no_value_is_a_byte() {
        let cases: &[(&[u8], &[&[u8]])] = &[
            (br#""open, b"#, &[br#""open"#, b"b"]),
            (br#"x="a, no-store, y"#, &[br#"x="a"#, b"no-store", b"y"]),
            // Pairs across elements.
            (br#"foo", no-store, bar", c"#, &[br#"foo""#, b"no-store", br#"bar""#, b"c"]),
            (br#"a="b"c", private, d", e"#, &[br#"a="b"c""#, b"private", br#"d""#, b"e"]),
            (br#"a" , private, "b"#, &[br#"a""#, b"private", br#""b"#]),
            (br#"a="b" c, private, d" e"#, &[br#"a="b" c"#, b"private", br#"d" e"#]),
            (br#"a ="b, private, c" d"#, &[br#"a ="b"#, b"private", br#"c" d"#]),
            (br#"a= "b, private, c""#, &[br#"a= "b"#, b"private", br#"c""#]),
            (br#"a b"c, private, d""#, &[br#"a b"c"#, b"private", br#"d""#]),
            (br#"a ""#, &[br#"a ""#]),
            (br#"a "b, private", c"#, &[br#"a "b"#, br#"private""#, b"c"]),
            (br#"x="a,b", y="c, "d,e"#, &[br#"x="a,b""#, br#"y="c"#, br#""d"#, b"e"]),
            (br#""\",\",\",a"#, &[br#""\""#, br#"\""#, br#"\""#, b"a"]),
            (br#"a="b\"#, &[br#"a="b\"#]),
        ];
        for (value, want) in cases {
            assert_eq!(
                split_list(value).collect::<Vec<_>>(),
                *want,
                "{}",
                String::from_utf8_lossy(value)
            );
        }
    }
}
