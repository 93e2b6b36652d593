//! A cursor over the words of one directive, with everything a value needs to parse itself and to
//! report problems.

use std::collections::VecDeque;
use std::ops::Range;

use crate::diagnostics::{Problem, Severity};
use crate::lexer::LogicalLine;
use crate::state::State;

/// Deepest nesting of `parameters("file")`, as of `include`.
const PARAMETER_DEPTH_MAX: usize = 16;

/// One word of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) text: String,
    /// Its position in the logical line. Words from a file have the position of the word that names
    /// the file.
    pub(crate) at: Range<usize>,
    /// It was written in quotes, which are removed.
    pub(crate) quoted: bool,
}

impl Token {
    pub(crate) fn error(&self, message: impl Into<String>) -> Problem {
        Problem::error(self.at.clone(), message)
    }
}

/// The rule for the end of the next word.
#[derive(Copy, Clone, PartialEq, Eq)]
enum Style {
    Word,
    /// A backslash takes the next character, blank or not, into the word.
    Regex,
}

/// The words after a directive's name.
pub(crate) struct Line<'a> {
    logical: &'a LogicalLine,
    pos: usize,
    /// Words read from files by `parameters(…)`, not handed out yet.
    pending: VecDeque<Token>,
    pub(crate) name: Token,
    pub(crate) state: &'a mut State,
}

impl<'a> Line<'a> {
    /// `None` when the line has no name (it holds only a comment).
    pub(crate) fn new(logical: &'a LogicalLine, state: &'a mut State) -> Option<Self> {
        let len = logical.text.find([' ', '\t']).unwrap_or(logical.text.len());
        let text = logical.text.get(..len).filter(|text| !text.is_empty())?.to_owned();
        let name = Token { text, at: 0..len, quoted: false };
        Some(Self { logical, pos: len, pending: VecDeque::new(), name, state })
    }

    /// The next word.
    pub(crate) fn next(&mut self) -> Result<Option<Token>, Problem> {
        self.next_styled(Style::Word)
    }

    /// The next word as a regular expression: `\` protects the character after it.
    pub(crate) fn next_regex(&mut self) -> Result<Option<Token>, Problem> {
        let token = self.next_styled(Style::Regex)?;
        match token {
            Some(token) if self.state.quoted_values => Err(token
                .error("regular expressions cannot be read while quoted values are recognised")
                .with_help("write `configuration_includes_quoted_values off` before this line")),
            other => Ok(other),
        }
    }

    /// The next word, which may be quoted, independently of `configuration_includes_quoted_values`.
    pub(crate) fn next_quoted(&mut self) -> Result<Option<Token>, Problem> {
        let saved = std::mem::replace(&mut self.state.quoted_values, true);
        let token = self.next();
        self.state.quoted_values = saved;
        token
    }

    /// The next `NAME=VALUE` in two parts. The value may be quoted, as in [`Line::next_quoted`].
    pub(crate) fn next_pair(&mut self) -> Result<Option<(Token, Token)>, Problem> {
        let Some(word) = self.peek() else { return Ok(None) };
        let wrong =
            || word.error(format!("`{}` is not a pair", word.text)).with_help("write `name=value`");
        let len = word.text.find('=').filter(|_| !word.quoted).ok_or_else(wrong)?;
        let name_text = word.text.get(..len).unwrap_or("").to_owned();
        if !self.pending.is_empty() {
            self.pending.pop_front();
            let text = word.text.get(len + 1..).unwrap_or("").to_owned();
            let name = Token { text: name_text, at: word.at.clone(), quoted: false };
            return Ok(Some((name, Token { text, at: word.at, quoted: false })));
        }
        let name_at = word.at.start..word.at.start + len;
        if word.at.len() == len + 1 {
            return Err(word.error(format!("the value of `{name_text}` is missing")));
        }
        self.pos = name_at.end + 1;
        let value = self.next_quoted()?.ok_or_else(|| self.missing("a value"))?;
        Ok(Some((Token { text: name_text, at: name_at, quoted: false }, value)))
    }

    /// The next word, or an error that names the missing part.
    pub(crate) fn expect(&mut self, what: &str) -> Result<Token, Problem> {
        self.next()?.ok_or_else(|| self.missing(what))
    }

    /// The error for a word that is not there.
    pub(crate) fn missing(&self, what: &str) -> Problem {
        let end = self.logical.text.len();
        let at = if self.pos >= end && end > 0 { 0..end } else { self.name.at.clone() };
        let mut problem = Problem::error(at, format!("{what} is missing"));
        if let Some(syntax) =
            crate::table::find(&self.name.text).map(|d| d.syntax).filter(|s| !s.is_empty())
        {
            problem = problem.with_help(format!("write `{syntax}`"));
        }
        problem
    }

    /// The next word without taking it. An error in it is found when it is taken.
    pub(crate) fn peek(&mut self) -> Option<Token> {
        let saved = self.pos;
        let token = self.next().ok().flatten();
        match token {
            Some(ref found) if self.pos == saved => self.pending.push_front(found.clone()),
            _ if self.pending.is_empty() => self.pos = saved,
            // `parameters(…)` was read: its words wait in `pending`, the first of them goes back.
            Some(ref found) => self.pending.push_front(found.clone()),
            None => {}
        }
        token
    }

    /// Everything up to the end of the line as it stands, without surrounding blanks; a quoted
    /// value where those are recognised.
    pub(crate) fn rest(&mut self) -> Result<Option<Token>, Problem> {
        self.skip_blanks();
        let text = self.logical.text.get(self.pos..).unwrap_or("");
        if text.is_empty() {
            return Ok(None);
        }
        if self.state.quoted_values && text.starts_with(['"', '\'']) {
            return self.next();
        }
        let at = self.pos..self.logical.text.len();
        let token = Token { text: text.to_owned(), at, quoted: false };
        self.pos = self.logical.text.len();
        Ok(Some(token))
    }

    /// Reports a problem without refusing the line.
    pub(crate) fn report(&mut self, problem: Problem) {
        self.state.report(self.logical, problem);
    }

    /// Reports a problem; gives back the index of its diagnostic.
    pub(crate) fn report_index(&mut self, problem: Problem) -> usize {
        self.state.report(self.logical, problem)
    }

    /// Reports a warning about a word.
    pub(crate) fn warn(&mut self, token: &Token, message: impl Into<String>, help: Option<&str>) {
        self.report_about(Severity::Warning, token, message.into(), help);
    }

    /// Reports a note about a word.
    pub(crate) fn note(&mut self, token: &Token, message: impl Into<String>, help: Option<&str>) {
        self.report_about(Severity::Note, token, message.into(), help);
    }

    fn report_about(
        &mut self,
        severity: Severity,
        token: &Token,
        message: String,
        help: Option<&str>,
    ) {
        self.report(Problem {
            severity,
            at: token.at.clone(),
            message,
            help: help.map(str::to_owned),
        });
    }

    /// The position of a word in its file.
    pub(crate) fn location(&self, token: &Token) -> crate::types::Location {
        self.state.location(self.logical, token.at.start)
    }

    fn skip_blanks(&mut self) {
        let rest = self.logical.text.get(self.pos..).unwrap_or("");
        self.pos += rest.len() - rest.trim_start_matches(is_blank).len();
    }

    fn next_styled(&mut self, style: Style) -> Result<Option<Token>, Problem> {
        loop {
            if let Some(token) = self.pending.pop_front() {
                return Ok(Some(token));
            }
            self.skip_blanks();
            let rest = self.logical.text.get(self.pos..).unwrap_or("");
            if rest.is_empty() || rest.starts_with('#') {
                return Ok(None);
            }
            let start = self.pos;
            if self.state.quoted_values && rest.starts_with(['"', '\'']) {
                let (text, len) =
                    unquote(rest).map_err(|why| Problem::error(start..start + rest.len(), why))?;
                self.pos = start + len;
                return Ok(Some(Token { text, at: start..self.pos, quoted: true }));
            }
            if self.state.quoted_values && rest.starts_with("parameters(") {
                self.read_parameters(start)?;
                continue;
            }
            let len = word_len(rest, style);
            self.pos = start + len;
            let text = rest.get(..len).unwrap_or("").to_owned();
            return Ok(Some(Token { text, at: start..self.pos, quoted: false }));
        }
    }

    /// `parameters("file")`: the words of the file take its place.
    fn read_parameters(&mut self, start: usize) -> Result<(), Problem> {
        let rest = self.logical.text.get(start..).unwrap_or("");
        let whole =
            Problem::error(start..start + rest.len(), "parameters() takes one file name in quotes")
                .with_help("write `parameters(\"/path/to/file\")`");
        let inner = rest.strip_prefix("parameters(").unwrap_or("");
        let quoted = inner.trim_start_matches(is_blank);
        let lead = rest.len() - quoted.len();
        if !quoted.starts_with(['"', '\'']) {
            return Err(whole);
        }
        let (path, len) = unquote(quoted).map_err(|_| whole.clone())?;
        let after = quoted.get(len..).unwrap_or("");
        let closing = after.trim_start_matches(is_blank);
        if !closing.starts_with(')') {
            return Err(whole);
        }
        self.pos = start + lead + len + (after.len() - closing.len()) + 1;
        let at = start..self.pos;
        self.pending = self.parameter_words(&path, &at, 0)?;
        Ok(())
    }

    fn parameter_words(
        &mut self,
        path: &str,
        at: &Range<usize>,
        depth: usize,
    ) -> Result<VecDeque<Token>, Problem> {
        if depth >= PARAMETER_DEPTH_MAX {
            return Err(Problem::error(
                at.clone(),
                format!("{path}: files are nested more than 16 deep"),
            ));
        }
        let text =
            self.state.read_value_file(path).map_err(|why| Problem::error(at.clone(), why))?;
        let mut words = VecDeque::new();
        for line in text.lines() {
            let mut rest = line.trim_start_matches(is_blank);
            while !rest.is_empty() && !rest.starts_with('#') {
                let (text, len, quoted) = if rest.starts_with(['"', '\'']) {
                    let (text, len) = unquote(rest)
                        .map_err(|why| Problem::error(at.clone(), format!("{path}: {why}")))?;
                    (text, len, true)
                } else if let Some(inner) = rest.strip_prefix("parameters(\"") {
                    let name_len = inner.find("\")").unwrap_or(inner.len());
                    let name = inner.get(..name_len).unwrap_or("").to_owned();
                    words.extend(self.parameter_words(&name, at, depth + 1)?);
                    let len = ("parameters(\"".len() + name_len + 2).min(rest.len());
                    rest = rest.get(len..).unwrap_or("").trim_start_matches(is_blank);
                    continue;
                } else {
                    let len = word_len(rest, Style::Word);
                    (rest.get(..len).unwrap_or("").to_owned(), len, false)
                };
                words.push_back(Token { text, at: at.clone(), quoted });
                rest = rest.get(len..).unwrap_or("").trim_start_matches(is_blank);
            }
        }
        Ok(words)
    }
}

fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r' | '\n')
}

/// Length of the word at the start of `text`; at least one character.
fn word_len(text: &str, style: Style) -> usize {
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        if is_blank(c) {
            return at;
        }
        if style == Style::Regex && c == '\\' {
            chars.next();
        }
    }
    text.len()
}

/// Takes a quoted string from the start of `text`: its value and its length with the quotes.
fn unquote(text: &str) -> Result<(String, usize), &'static str> {
    let mut chars = text.char_indices();
    let Some((_, quote)) = chars.next() else { return Err("a quoted value is missing") };
    let mut value = String::new();
    while let Some((at, c)) = chars.next() {
        match c {
            c if c == quote => {
                let after = text.get(at + 1..).unwrap_or("").chars().next();
                return match after {
                    None | Some(' ' | '\t' | '\r' | '\n' | '(' | ')' | '#') => Ok((value, at + 1)),
                    Some(_) => Err("a blank is missing after the closing quote"),
                };
            }
            '\\' => match chars.next() {
                Some((_, 'r')) => value.push('\r'),
                Some((_, 'n')) => value.push('\n'),
                Some((_, 't')) => value.push('\t'),
                Some((_, c)) if c.is_ascii_alphanumeric() => {
                    return Err("this escape is not known; \\r \\n \\t \\\\ and \\\" are");
                }
                Some((_, c)) => value.push(c),
                None => return Err("the closing quote is missing"),
            },
            c => value.push(c),
        }
    }
    Err("the closing quote is missing")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str, quoted_values: bool) -> Result<Vec<String>, String> {
        let logical = crate::lexer::Lines::new(text).next().expect("a line");
        let mut state = State::for_tests(text);
        state.quoted_values = quoted_values;
        let mut line = Line::new(&logical, &mut state).expect("a name");
        let mut out = Vec::new();
        while let Some(token) = line.next().map_err(|p| p.message)? {
            out.push(token.text);
        }
        Ok(out)
    }

    #[test]
    fn a_hash_after_a_blank_ends_the_line_and_inside_a_word_does_not() {
        assert_eq!(words("x a#b  c # d", false).expect("ok"), ["a#b", "c"]);
    }

    #[test]
    fn quotes_count_only_when_asked_for() {
        assert_eq!(words("x \"a b\" c", false).expect("ok"), ["\"a", "b\"", "c"]);
        assert_eq!(words(r#"x "a \"b\" \t" 'c d'"#, true).expect("ok"), ["a \"b\" \t", "c d"]);
        assert!(words("x \"a b", true).is_err());
        assert!(words("x \"a\"b", true).is_err());
        assert!(words(r#"x "\q""#, true).is_err());
    }

    #[test]
    fn peeking_changes_nothing() {
        let text = "x a b";
        let logical = crate::lexer::Lines::new(text).next().expect("a line");
        let mut state = State::for_tests(text);
        let mut line = Line::new(&logical, &mut state).expect("a name");
        assert_eq!(line.peek().map(|t| t.text).as_deref(), Some("a"));
        assert_eq!(line.peek().map(|t| t.text).as_deref(), Some("a"));
        assert_eq!(line.rest().expect("ok").map(|t| t.text).as_deref(), Some("a b"));
        assert_eq!(line.peek(), None);
    }

    #[test]
    fn parameters_come_from_a_file() {
        let dir = tempfile::tempdir().expect("dir");
        let path = dir.path().join("list");
        std::fs::write(&path, "one # comment\n\"two words\"\n\n three\n").expect("write");
        let text = format!("x parameters(\"{}\") four", path.display());
        assert_eq!(words(&text, true).expect("ok"), ["one", "two words", "three", "four"]);
        let logical = crate::lexer::Lines::new(&text).next().expect("a line");
        let mut state = State::for_tests(&text);
        state.quoted_values = true;
        let mut line = Line::new(&logical, &mut state).expect("a name");
        assert_eq!(line.peek().map(|t| t.text).as_deref(), Some("one"));
        assert_eq!(line.next().expect("ok").map(|t| t.text).as_deref(), Some("one"));
        assert_eq!(line.next().expect("ok").map(|t| t.text).as_deref(), Some("two words"));
        assert!(words("x parameters(\"/nonexistent/file\")", true).is_err());
        assert!(words("x parameters(1)", true).is_err());
    }
}
