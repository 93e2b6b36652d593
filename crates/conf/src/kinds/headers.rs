//! Rules about header fields.

use super::Kind;
use super::access::{read_rule, read_terms};
use super::logs::{check_early_log_format, warn_of_hardware_address};
use crate::diagnostics::Problem;
use crate::line::{Line, Token};
use crate::types::{HeaderAdd, HeaderReplace, HeaderRule};

/// `FIELD allow|deny ACL…`
pub(crate) struct HeaderRules;
/// `FIELD TEXT`
pub(crate) struct HeaderReplaces;
/// `FIELD VALUE [ACL…]`
pub(crate) struct HeaderAdds;

impl Kind for HeaderRules {
    type Out = Vec<HeaderRule>;
    const NAME: &'static str = "field and access rules";

    fn apply(out: &mut Vec<HeaderRule>, line: &mut Line<'_>) -> Result<(), Problem> {
        let header = read_field_name(line)?;
        out.push(HeaderRule { header, rule: read_rule(line)? });
        Ok(())
    }
}

impl Kind for HeaderReplaces {
    type Out = Vec<HeaderReplace>;
    const NAME: &'static str = "field and text";

    fn apply(out: &mut Vec<HeaderReplace>, line: &mut Line<'_>) -> Result<(), Problem> {
        let header = read_field_name(line)?;
        let value = line.rest()?.ok_or_else(|| line.missing("the new value"))?;
        check_field_value(&value)?;
        out.push(HeaderReplace { header, value: value.text });
        Ok(())
    }
}

impl Kind for HeaderAdds {
    type Out = Vec<HeaderAdd>;
    const NAME: &'static str = "field, value and ACLs";

    fn apply(out: &mut Vec<HeaderAdd>, line: &mut Line<'_>) -> Result<(), Problem> {
        let header = read_field_name(line)?;
        let value = line.next_quoted()?.ok_or_else(|| line.missing("a value"))?;
        check_field_value(&value)?;
        if value.quoted {
            check_early_log_format(&value, line);
            warn_of_hardware_address(&value, "all who get this field", line);
        }
        out.push(HeaderAdd {
            header,
            formatted: value.quoted,
            value: value.text,
            terms: read_terms(line)?,
        });
        Ok(())
    }
}

/// A field name is a token (RFC 9110 5.6.2).
fn read_field_name(line: &mut Line<'_>) -> Result<String, Problem> {
    let token = line.expect("the name of a header field")?;
    let is_token_char = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    if token.text.bytes().all(is_token_char) {
        Ok(token.text)
    } else {
        Err(token.error(format!("`{}` cannot be the name of a header field", token.text)))
    }
}

/// A value must not end the field (RFC 9110 5.5).
fn check_field_value(value: &Token) -> Result<(), Problem> {
    if value.text.bytes().any(|b| matches!(b, b'\r' | b'\n' | 0)) {
        return Err(value.error("a header field cannot contain CR, LF or NUL"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::parse_str;

    #[test]
    fn the_three_directives_about_fields() {
        let text = "http_port 1\nrequest_header_access User-Agent deny all\n\
                    request_header_replace User-Agent Mozilla/5.0 (none) # 1\n\
                    request_header_add X-Via \"a %>a\" all\nreply_header_add X-Plain yes\n";
        let (config, diagnostics) = parse_str("t", text);
        assert!(!diagnostics.has_errors(), "{}", diagnostics.render(false));
        assert_eq!(config.request_header_access[0].header, "User-Agent");
        assert_eq!(config.request_header_replace[0].value, "Mozilla/5.0 (none) # 1");
        let add = &config.request_header_add[0];
        assert_eq!((add.value.as_str(), add.formatted, add.terms.len()), ("a %>a", true, 1));
        assert!(!config.reply_header_add[0].formatted);
    }

    #[test]
    fn values_cannot_split_the_head() {
        assert!(
            parse_str("t", "http_port 1\nrequest_header_add X \"a\\r\\nb\" all\n").1.has_errors()
        );
        assert!(parse_str("t", "http_port 1\nrequest_header_access A:B deny all\n").1.has_errors());
    }
}
