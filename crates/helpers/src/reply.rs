//! A line of a helper: the result, and pairs of keys and values.

/// The result.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// `OK`, or `AF` of NTLM and Negotiate.
    Ok,
    /// `ERR`, an empty line, or `NA` of NTLM and Negotiate.
    Err,
    /// `BH`: the helper itself has failed.
    Broken,
    /// `TT` of NTLM and Negotiate: the client has to go on with the value of `token`.
    Challenge,
    /// None of these: an older form of answer, whose text is [`Reply::text`].
    Unknown,
}

/// The answer of a helper. Keys and values are bytes: they come from another program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The result.
    pub outcome: Outcome,
    /// Keys and values in the order of the line. The older forms of `TT`, `AF`, `NA` and `BH` have
    /// theirs under `token`, `user` and `message`.
    pub pairs: Vec<(Box<str>, Box<[u8]>)>,
    /// The text behind the pairs: all of it if the line has no result.
    pub text: Box<[u8]>,
}

impl Reply {
    /// Reads a line, without its end and without the number of a channel.
    pub fn parse(line: &[u8]) -> Self {
        let (outcome, mut rest) = outcome(line);
        let mut reply = Self { outcome, pairs: Vec::new(), text: Box::default() };
        let mut is_text = false;
        match line.get(..3) {
            Some(b"TT ") => match next_word(&mut rest) {
                Some(token) => reply.add("token", token),
                None => {
                    reply.outcome = Outcome::Broken;
                    reply.add("message", b"the token is missing".to_vec());
                }
            },
            Some(b"AF ") => match (next_word(&mut rest), next_word(&mut rest)) {
                (Some(token), Some(user)) => {
                    reply.add("token", token);
                    reply.add("user", user);
                }
                (Some(user), None) => reply.add("user", user),
                _ => {}
            },
            Some(b"NA ") => is_text = true,
            _ => {}
        }
        rest = rest.trim_ascii_start();
        while !is_text && let Some((key, value)) = next_pair(&mut rest) {
            reply.add(key, value);
            rest = rest.trim_ascii_start();
        }
        if !rest.is_empty() && (is_text || reply.outcome == Outcome::Broken) {
            reply.add("message", rest.to_vec());
        } else {
            reply.text = rest.into();
        }
        reply
    }

    /// The first value of a key.
    pub fn get(&self, key: &str) -> Option<&[u8]> {
        self.pairs.iter().find(|(name, _)| &**name == key).map(|(_, value)| &**value)
    }

    fn add(&mut self, key: &str, value: Vec<u8>) {
        self.pairs.push((key.into(), value.into()));
    }
}

/// The result that the line begins with, and the rest.
fn outcome(line: &[u8]) -> (Outcome, &[u8]) {
    if line.is_empty() {
        return (Outcome::Err, line);
    }
    let end = line.iter().position(|byte| *byte == b' ').unwrap_or(line.len());
    let (word, rest) = line.split_at(end);
    match word {
        b"OK" => (Outcome::Ok, rest),
        b"ERR" => (Outcome::Err, rest),
        b"BH" => (Outcome::Broken, rest),
        b"TT" if !rest.is_empty() => (Outcome::Challenge, rest),
        b"AF" if !rest.is_empty() => (Outcome::Ok, rest),
        b"NA" if !rest.is_empty() => (Outcome::Err, rest),
        _ => (Outcome::Unknown, line),
    }
}

/// Takes `key=value`, if that is next.
fn next_pair<'l>(rest: &mut &'l [u8]) -> Option<(&'l str, Vec<u8>)> {
    let is_key = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let length = rest.iter().take_while(|byte| is_key(byte)).count();
    let (key, after) = rest.split_at(length);
    let mut value = after.strip_prefix(b"=")?;
    if value.first().is_some_and(u8::is_ascii_whitespace) {
        return None;
    }
    let is_quoted = value.first() == Some(&b'"');
    let word = next_word(&mut value).unwrap_or_default();
    *rest = value;
    let word = if is_quoted { word } else { unescape(word) };
    Some((std::str::from_utf8(key).ok()?, word))
}

/// Takes a word. Quotes keep blanks, and a backslash keeps the byte behind it, as in Squid.
fn next_word(rest: &mut &[u8]) -> Option<Vec<u8>> {
    let mut bytes = rest.trim_ascii_start().iter();
    bytes.as_slice().first()?;
    let (mut word, mut quoted) = (Vec::new(), false);
    while let Some(&byte) = bytes.next() {
        match byte {
            b'\\' if quoted => match bytes.next() {
                Some(b'n') => word.push(b'\n'),
                Some(b'r') => word.push(b'\r'),
                Some(&byte) => word.push(byte),
                None => {}
            },
            b'"' => quoted = !quoted,
            _ if !quoted && byte.is_ascii_whitespace() => break,
            _ => word.push(byte),
        }
    }
    *rest = bytes.as_slice();
    Some(word)
}

/// Replaces `%XX`. A byte of zero stays escaped.
fn unescape(word: Vec<u8>) -> Vec<u8> {
    if !word.contains(&b'%') {
        return word;
    }
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let mut out = Vec::with_capacity(word.len());
    let mut rest = &word[..];
    while let [byte, tail @ ..] = rest {
        rest = tail;
        let escaped = match (byte, tail) {
            (b'%', [high, low, ..]) => digit(*high).zip(digit(*low)).map(|(h, l)| h << 4 | l),
            _ => None,
        };
        match escaped {
            Some(byte) if byte != 0 => {
                out.push(byte);
                rest = &tail[2..];
            }
            _ => out.push(*byte),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> (Outcome, Vec<(String, String)>, String) {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let reply = Reply::parse(line.as_bytes());
        let pairs = reply.pairs.iter().map(|(key, value)| (key.to_string(), text(value)));
        (reply.outcome, pairs.collect(), text(&reply.text))
    }

    fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect()
    }

    #[test]
    fn results_are_whole_words() {
        assert_eq!(read("OK"), (Outcome::Ok, vec![], String::new()));
        assert_eq!(read("ERR"), (Outcome::Err, vec![], String::new()));
        assert_eq!(read(""), (Outcome::Err, vec![], String::new()));
        assert_eq!(read("OKAY"), (Outcome::Unknown, vec![], "OKAY".into()));
        assert_eq!(read("ERRor"), (Outcome::Unknown, vec![], "ERRor".into()));
        assert_eq!(read("ok"), (Outcome::Unknown, vec![], "ok".into()));
        let old = "http://a/ 10.0.0.1/- - GET";
        assert_eq!(read(old), (Outcome::Unknown, vec![], old.into()));
    }

    #[test]
    fn values_are_quoted_or_escaped() {
        let line =
            r#"OK user="J \"D\" \\ x\nz" tag=a%20b%2 x_=%41%00 message="50%25 off" rest of it"#;
        let expected = [
            ("user", "J \"D\" \\ x\nz"),
            ("tag", "a b%2"),
            ("x_", "A%00"),
            ("message", "50%25 off"),
        ];
        assert_eq!(read(line), (Outcome::Ok, pairs(&expected), "rest of it".into()));
        assert_eq!(read("OK empty= a=1").1, pairs(&[]), "no key before a blank");
        assert_eq!(read("OK a=").1, pairs(&[("a", "")]));
        assert_eq!(read("OK a=\"\" b=2").1, pairs(&[("a", ""), ("b", "2")]));
        assert_eq!(read("OK group=a group=b").1, pairs(&[("group", "a"), ("group", "b")]));
        assert_eq!(read("OK a=\"never closed").1, pairs(&[("a", "never closed")]));
        assert_eq!(Reply::parse(b"OK group=a group=b").get("group"), Some(&b"a"[..]));
    }

    #[test]
    fn older_forms_of_login_helpers_are_understood() {
        assert_eq!(read("TT abc="), (Outcome::Challenge, pairs(&[("token", "abc=")]), "".into()));
        assert_eq!(read("TT ").0, Outcome::Broken);
        assert_eq!(read("TT").0, Outcome::Unknown);
        assert_eq!(read("AF DOM\\user").1, pairs(&[("user", "DOM\\user")]));
        assert_eq!(read("AF tok= user@R").1, pairs(&[("token", "tok="), ("user", "user@R")]));
        assert_eq!(
            read("NA user=x is unknown"),
            (Outcome::Err, pairs(&[("message", "user=x is unknown")]), "".into())
        );
        assert_eq!(
            read("BH out of order"),
            (Outcome::Broken, pairs(&[("message", "out of order")]), "".into())
        );
        assert_eq!(read("BH message=\"x y\"").1, pairs(&[("message", "x y")]));
    }
}
