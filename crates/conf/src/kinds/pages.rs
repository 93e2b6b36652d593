//! Error pages: the directory, the language, the style sheet. Their files are read when the whole
//! configuration is known.

use super::Kind;
use crate::diagnostics::Problem;
use crate::line::Line;
use crate::types::{PageDirectory, PageLanguages, StyleSheet};

/// The directory of templates.
pub(crate) struct Directory;
/// The tag of a language.
pub(crate) struct Language;
/// The file of a style sheet.
pub(crate) struct Style;
/// Text to the end of the line.
pub(crate) struct RestOfLine;

impl Kind for Directory {
    type Out = Option<PageDirectory>;
    const NAME: &'static str = "directory";

    fn apply(out: &mut Option<PageDirectory>, line: &mut Line<'_>) -> Result<(), Problem> {
        let token = line.expect("a directory")?;
        if !token.text.starts_with('/') {
            let message = "the path is relative, and a daemon leaves its directory";
            return Err(token.error(message).with_help("write an absolute path"));
        }
        let location = line.location(&token);
        *out = Some(PageDirectory { path: token.text, location, ..PageDirectory::default() });
        Ok(())
    }
}

impl Kind for Language {
    type Out = PageLanguages;
    const NAME: &'static str = "tag of a language";

    fn apply(out: &mut PageLanguages, line: &mut Line<'_>) -> Result<(), Problem> {
        let token = line.expect("a language")?;
        let is_tag = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        if !token.text.bytes().all(is_tag) {
            let why = format!("`{}` is not the tag of a language", token.text);
            return Err(token.error(why).with_help("write a tag like `de` or `pt-br`"));
        }
        out.location = line.location(&token);
        out.default = Some(token.text.to_ascii_lowercase());
        Ok(())
    }
}

impl Kind for Style {
    type Out = StyleSheet;
    const NAME: &'static str = "file, or `none`";

    fn apply(out: &mut StyleSheet, line: &mut Line<'_>) -> Result<(), Problem> {
        let token = line.expect("a file")?;
        out.location = line.location(&token);
        out.path = Some(token.text);
        Ok(())
    }
}

impl Kind for RestOfLine {
    type Out = Option<String>;
    const NAME: &'static str = "text";

    fn apply(out: &mut Option<String>, line: &mut Line<'_>) -> Result<(), Problem> {
        *out = Some(line.rest()?.ok_or_else(|| line.missing("the text"))?.text);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::{Severity, parse_str};

    #[test]
    fn the_words_of_pages() {
        let text = "http_port 1\nhttp_access allow all\nerr_html_text <b>a  b</b> # c\n\
                    email_err_data on\nerr_page_stylesheet none\n";
        let (config, found) = parse_str("t", text);
        assert_eq!(found.count(Severity::Warning), 0, "{}", found.render(false));
        assert_eq!(config.err_html_text.as_deref(), Some("<b>a  b</b> # c"));
        assert!(config.email_err_data);
        for bad in ["error_directory pages", "error_default_language ../de"] {
            assert!(parse_str("t", &format!("http_port 1\n{bad}\n")).1.has_errors(), "{bad}");
        }
    }
}
