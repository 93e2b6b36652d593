//! Reading a scenario. The grammar is one of lines; `docs/scenarios.md` describes it.

use crate::script::{
    Act, Action, Expected, Outgoing, Party, Piece, Scenario, Side, Start, Step, Wanted,
};
use crate::text::Text;

/// The fault of one line.
type Fault = (usize, String);

/// One line at the left edge, and the indented lines below it.
struct Block<'a> {
    line: usize,
    text: &'a str,
    below: Vec<(usize, &'a str)>,
}

/// Reads a scenario; a mistake is reported as `path:line: what`.
pub(crate) fn parse(path: &str, source: &str) -> Result<Scenario, String> {
    read(path, source).map_err(|(line, fault)| format!("{path}:{line}: {fault}"))
}

fn read(path: &str, source: &str) -> Result<Scenario, Fault> {
    let first = source.lines().next().unwrap_or_default();
    let title = first.strip_prefix('#').map(str::trim).unwrap_or_default();
    if title.is_empty() {
        return Err((
            1,
            "the first line says the idea: `# What must hold (RFC 9111, 4.2)`".to_owned(),
        ));
    }
    let mut scenario = Scenario {
        path: path.to_owned(),
        title: title.to_owned(),
        known: None,
        is_accelerator: false,
        config: String::new(),
        steps: Vec::new(),
    };
    for block in blocks(source)? {
        let (line, text) = (block.line, block.text);
        if header(&mut scenario, &block)? {
            if !scenario.steps.is_empty() {
                return Err((line, format!("`{text}` belongs above the script")));
            }
            continue;
        }
        let action = action(&block)?;
        scenario.steps.push(Step { line, action });
    }
    if scenario.steps.is_empty() {
        return Err((
            source.lines().count(),
            "the script is missing: `client sends GET /a`".to_owned(),
        ));
    }
    Ok(scenario)
}

fn blocks(source: &str) -> Result<Vec<Block<'_>>, Fault> {
    let mut blocks: Vec<Block<'_>> = Vec::new();
    for (index, raw) in source.lines().enumerate() {
        let line = index + 1;
        let text = raw.trim();
        if text.is_empty() || text.starts_with('#') {
            continue;
        }
        if raw.starts_with([' ', '\t']) {
            let block = blocks
                .last_mut()
                .ok_or((line, "an indented line belongs to a line above it".to_owned()))?;
            block.below.push((line, text));
        } else {
            blocks.push(Block { line, text, below: Vec::new() });
        }
    }
    Ok(blocks)
}

/// Takes the lines above the script; false for other lines.
fn header(scenario: &mut Scenario, block: &Block<'_>) -> Result<bool, Fault> {
    if let Some(reason) = block.text.strip_prefix("known:") {
        if reason.trim().is_empty() {
            return Err((block.line, "say why it is known to fail: `known: reason`".to_owned()));
        }
        scenario.known = Some(reason.trim().to_owned());
    } else if block.text == "accelerator" {
        scenario.is_accelerator = true;
    } else if block.text == "config" {
        for (_, line) in &block.below {
            scenario.config += line;
            scenario.config += "\n";
        }
        if scenario.config.is_empty() {
            return Err((
                block.line,
                "`config` is followed by indented lines of squid.conf".to_owned(),
            ));
        }
        return Ok(true);
    } else {
        return Ok(false);
    }
    no_lines_below(block).map(|()| true)
}

fn no_lines_below(block: &Block<'_>) -> Result<(), Fault> {
    match block.below.first() {
        None => Ok(()),
        Some((line, _)) => Err((*line, format!("`{}` has no indented lines below it", block.text))),
    }
}

fn action(block: &Block<'_>) -> Result<Action, Fault> {
    let here = |fault: String| (block.line, fault);
    let (word, rest) = split(block.text);
    let action = match (word, rest) {
        ("origin", "is not asked") => Action::OriginNotAsked,
        ("origin", "stops") => Action::OriginStops,
        ("origin", "starts") => Action::OriginStarts,
        ("proxy", "restarts") => Action::Restart,
        ("proxy", "is killed") => Action::Kill,
        ("logged", words) if !words.is_empty() => {
            Action::Logged(words.split_whitespace().map(str::to_owned).collect())
        }
        ("stored", path) if path.starts_with('/') => Action::Stored(path.to_owned()),
        ("client", rest) => return wire(Side::Client, rest, block),
        ("origin", rest) => return wire(Side::Origin, rest, block),
        _ => {
            return Err(here(format!(
                "`{}` is no step; steps begin with `client`, `origin`, `proxy restarts`, `proxy is killed`, \
                 `logged WORDS` or `stored /PATH`",
                block.text
            )));
        }
    };
    no_lines_below(block)?;
    Ok(action)
}

const VERBS: [&str; 5] = ["sends", "gets", "closes", "half-closes", "resets"];

fn wire(side: Side, rest: &str, block: &Block<'_>) -> Result<Action, Fault> {
    let here = |fault: String| (block.line, fault);
    let (first, after) = split(rest);
    let (label, verb, rest) = if VERBS.contains(&first) {
        ("", first, after)
    } else {
        let (second, after) = split(after);
        (first, second, after)
    };
    let party = Party { side, label: label.to_owned() };
    let act = match verb {
        "sends" => sends(side, rest, block)?,
        "gets" => gets(side, rest, block)?,
        "closes" | "half-closes" | "resets" => {
            no_lines_below(block)?;
            if !rest.is_empty() {
                return Err(here(format!("nothing follows `{verb}`")));
            }
            match verb {
                "closes" => Act::Close,
                "resets" => Act::Reset,
                _ => Act::HalfClose,
            }
        }
        _ => {
            return Err(here(format!(
                "`{}` needs one of the verbs {}",
                block.text,
                VERBS.join(", ")
            )));
        }
    };
    Ok(Action::Wire { party, act })
}

fn sends(side: Side, rest: &str, block: &Block<'_>) -> Result<Act, Fault> {
    let here = |fault: String| (block.line, fault);
    let (word, after) = split(rest);
    if word == "raw" {
        return texts(after, block).map(Act::SendRaw);
    }
    if matches!(word, "body" | "chunk" | "last-chunk") {
        let mut pieces = vec![piece(rest).map_err(here)?];
        for (line, text) in &block.below {
            pieces.push(piece(text).map_err(|fault| (*line, fault))?);
        }
        return Ok(Act::SendMore(in_order(pieces)));
    }
    let start = start(side == Side::Client, false, rest).map_err(here)?;
    let mut message =
        Outgoing { start, fields: Vec::new(), without: Vec::new(), pieces: Vec::new() };
    for (line, text) in &block.below {
        let fault = |fault| (*line, fault);
        if let Some((name, value)) = field(text) {
            message.fields.push((name.to_owned(), Text::plain(value).map_err(fault)?));
        } else if let Some(name) = text.strip_prefix("no ") {
            message.without.push(name.trim().to_owned());
        } else {
            message.pieces.push(piece(text).map_err(fault)?);
        }
    }
    message.pieces = in_order(message.pieces);
    Ok(Act::Send(message))
}

/// Trailers are written below the last chunk, and sent within it.
fn in_order(mut pieces: Vec<Piece>) -> Vec<Piece> {
    pieces.sort_by_key(|piece| match piece {
        Piece::Plain(_) | Piece::Chunk(_) => 0,
        Piece::LastChunk => 1,
        Piece::Trailer(..) => 2,
    });
    pieces
}

fn piece(text: &str) -> Result<Piece, String> {
    match split(text) {
        ("body", text) => Text::quoted(text).map(Piece::Plain),
        ("chunk", text) => Text::quoted(text).map(Piece::Chunk),
        ("last-chunk", "") => Ok(Piece::LastChunk),
        ("trailer", rest) => {
            let (name, value) = field(rest).ok_or("a trailer is written `trailer Name: value`")?;
            Ok(Piece::Trailer(name.to_owned(), Text::plain(value)?))
        }
        _ => Err(format!(
            "`{text}` cannot be sent; lines here are `Name: value`, `no Name`, `body \"…\"`, `chunk \"…\"`, \
             `last-chunk` and `trailer Name: value`"
        )),
    }
}

fn gets(side: Side, rest: &str, block: &Block<'_>) -> Result<Act, Fault> {
    let here = |fault: String| (block.line, fault);
    match split(rest) {
        ("raw", text) => texts(text, block).map(Act::GetRaw),
        ("body", text) => texts(text, block).map(Act::GetBody),
        ("end", "") => Ok(Act::GetEnd(all_wanted(block)?)),
        ("cut", "") => no_lines_below(block).map(|()| Act::GetCut),
        ("close", "") => no_lines_below(block).map(|()| Act::GetClose),
        ("head", rest) => {
            let start = start(side == Side::Origin, true, rest).map_err(here)?;
            Ok(Act::GetHead(Expected { start, wanted: all_wanted(block)? }))
        }
        _ => {
            let start = start(side == Side::Origin, true, rest).map_err(here)?;
            Ok(Act::Get(Expected { start, wanted: all_wanted(block)? }))
        }
    }
}

fn all_wanted(block: &Block<'_>) -> Result<Vec<Wanted>, Fault> {
    block.below.iter().map(|(line, text)| wanted(text).map_err(|fault| (*line, fault))).collect()
}

fn wanted(text: &str) -> Result<Wanted, String> {
    if let Some((name, value)) = field(text) {
        return Ok(Wanted::Equals(name.to_owned(), Text::plain(value)?));
    }
    let (word, rest) = split(text);
    match (word, split(rest)) {
        ("cut", ("", "")) => Ok(Wanted::Cut),
        ("no", ("body", "")) => Ok(Wanted::BodySize(0)),
        ("no", ("trailer", name)) if is_token(name) => Ok(Wanted::NoTrailer(name.to_owned())),
        ("no", (name, "")) if is_token(name) => Ok(Wanted::Absent(name.to_owned())),
        ("trailer", _) => match field(rest) {
            Some((name, value)) => Ok(Wanted::Trailer(name.to_owned(), Text::plain(value)?)),
            None => Err("a trailer is written `trailer Name: value`".to_owned()),
        },
        ("body", ("~", part)) => Text::quoted(part).map(Wanted::BodyContains),
        ("body", ("size", number)) => {
            let size =
                number.parse().map_err(|_| format!("`{number}` is not a number of bytes"))?;
            Ok(Wanted::BodySize(size))
        }
        ("body", _) => Text::quoted(rest).map(Wanted::Body),
        (name, ("~", part)) if is_token(name) && !part.is_empty() => {
            Ok(Wanted::Contains(name.to_owned(), Text::plain(part)?))
        }
        (name, ("!~", part)) if is_token(name) && !part.is_empty() => {
            Ok(Wanted::Lacks(name.to_owned(), Text::plain(part)?))
        }
        (name, ("in", range)) if is_token(name) => {
            let bounds = range
                .split_once("..")
                .and_then(|(low, high)| Some((low.parse().ok()?, high.parse().ok()?)));
            let (low, high) =
                bounds.ok_or_else(|| format!("`{range}` is not a range such as `0..5`"))?;
            Ok(Wanted::Between(name.to_owned(), low, high))
        }
        _ => Err(format!(
            "`{text}` is no expectation; those are `Name: value`, `Name ~ part`, `Name !~ part`, `Name in 0..5`, \
             `no Name`, `body \"…\"`, `body ~ \"…\"`, `body size N`, `no body`, `cut`, `trailer Name: value` and \
             `no trailer Name`"
        )),
    }
}

/// The strings behind a word and below its line.
fn texts(first: &str, block: &Block<'_>) -> Result<Vec<Text>, Fault> {
    let own = (!first.is_empty()).then_some((block.line, first));
    let texts: Vec<Text> = own
        .into_iter()
        .chain(block.below.iter().copied())
        .map(|(line, text)| Text::quoted(text).map_err(|fault| (line, fault)))
        .collect::<Result<_, _>>()?;
    if texts.is_empty() {
        return Err((
            block.line,
            "text in double quotes is missing here, or in indented lines below".to_owned(),
        ));
    }
    Ok(texts)
}

fn start(is_request: bool, is_expected: bool, text: &str) -> Result<Start, String> {
    if is_request {
        let (method, rest) = split(text);
        let (target, version) = split(rest);
        if !is_token(method) || target.is_empty() {
            return Err(format!(
                "`{text}` is no request; it is written `GET /a`, or `GET /a HTTP/1.0`"
            ));
        }
        let version = (!version.is_empty()).then(|| version.to_owned());
        return Ok(Start::Request {
            method: method.to_owned(),
            target: Text::plain(target)?,
            version,
        });
    }
    let (first, after) = split(text);
    let (version, rest) =
        if first.starts_with("HTTP/") { (Some(first.to_owned()), after) } else { (None, text) };
    let (code, reason) = split(rest);
    let is_code = matches!(code.as_bytes(), [b'1'..=b'5', b'0'..=b'9', b'0'..=b'9'])
        || (is_expected && matches!(code.as_bytes(), [b'1'..=b'5', b'x', b'x']));
    if !is_code {
        return Err(format!(
            "`{text}` is no answer; it is written `200`, `200 Fine`, or `HTTP/1.0 200 OK`"
        ));
    }
    let reason = (!reason.is_empty()).then(|| reason.to_owned());
    Ok(Start::Status { version, code: code.to_owned(), reason })
}

/// `Name: value`.
fn field(text: &str) -> Option<(&str, &str)> {
    let (name, value) = text.split_once(':')?;
    is_token(name).then(|| (name, value.trim()))
}

fn is_token(text: &str) -> bool {
    let is_token_byte =
        |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.bytes().all(is_token_byte)
}

/// The first word and the rest.
fn split(text: &str) -> (&str, &str) {
    let text = text.trim();
    text.split_once(char::is_whitespace).map_or((text, ""), |(word, rest)| (word, rest.trim()))
}

#[cfg(test)]
#[path = "parse_tests.rs"]
mod tests;
