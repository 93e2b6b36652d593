//! Comparing a message with a step's expectation.

use crate::message::Body;
use crate::script::{Start, Wanted};
use crate::text::{Context, Text};
use crate::transcript::shown;
use humboldt_tests::message::Head;

/// The differences in the first line.
pub(crate) fn start(wanted: &Start, head: &Head, context: &Context) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut same = |what: &str, wanted: &str, came: &str| {
        if wanted != came {
            wrong.push(format!("expected {what} {wanted}, got {came}"));
        }
    };
    match wanted {
        Start::Request { method, target, version } => {
            same("method", method, head.word(0));
            same("target", &string(target, context), head.word(1));
            same("version", version.as_deref().unwrap_or(head.word(2)), head.word(2));
        }
        Start::Status { version, code, reason } => {
            same("version", version.as_deref().unwrap_or(head.word(0)), head.word(0));
            let came = head.word(1);
            let is_of_class = code.strip_suffix("xx").is_some_and(|class| came.starts_with(class));
            same("status", if is_of_class { came } else { code }, came);
            same("reason", reason.as_deref().unwrap_or(head.word(2)), head.word(2));
        }
    }
    wrong
}

/// The differences in the fields of a head.
pub(crate) fn fields(wanted: &[Wanted], head: &Head, context: &Context) -> Vec<String> {
    wanted.iter().filter_map(|wanted| field(wanted, head, context)).collect()
}

fn field(wanted: &Wanted, head: &Head, context: &Context) -> Option<String> {
    let came = |name: &str| value_of(&head.fields, name);
    let got = |name: &str| {
        came(name).map_or("no such field".to_owned(), |value| format!("`{name}: {value}`"))
    };
    match wanted {
        Wanted::Equals(name, value) => {
            let value = string(value, context);
            (came(name).as_ref() != Some(&value))
                .then(|| format!("expected `{name}: {value}`, got {}", got(name)))
        }
        Wanted::Contains(name, part) => {
            let part = string(part, context);
            let holds = came(name).is_some_and(|value| value.contains(&part));
            (!holds).then(|| format!("expected {name} with `{part}` in it, got {}", got(name)))
        }
        Wanted::Lacks(name, part) => {
            let part = string(part, context);
            let holds = came(name).is_none_or(|value| !value.contains(&part));
            (!holds).then(|| format!("expected {name} without `{part}` in it, got {}", got(name)))
        }
        Wanted::Between(name, low, high) => {
            let number = came(name).and_then(|value| value.parse::<u64>().ok());
            let holds = number.is_some_and(|number| (*low..=*high).contains(&number));
            (!holds).then(|| format!("expected {name} in {low}..{high}, got {}", got(name)))
        }
        Wanted::Absent(name) => {
            came(name).map(|_| format!("expected no {name}, got {}", got(name)))
        }
        Wanted::Body(_)
        | Wanted::BodyContains(_)
        | Wanted::BodySize(_)
        | Wanted::Cut
        | Wanted::Trailer(..)
        | Wanted::NoTrailer(_) => None,
    }
}

/// The differences in a body and its trailers.
pub(crate) fn body(wanted: &[Wanted], body: &Body, context: &Context) -> Vec<String> {
    let mut wrong: Vec<String> =
        wanted.iter().filter_map(|wanted| part(wanted, body, context)).collect();
    let texts = wanted.iter().filter_map(|wanted| match wanted {
        Wanted::Body(text) => Some(text),
        _ => None,
    });
    let whole = expand_all(texts, context);
    let is_asked_for = wanted.iter().any(|wanted| matches!(wanted, Wanted::Body(_)));
    if is_asked_for {
        wrong.extend(bytes(&whole, &body.bytes));
    }
    let may_be_cut = wanted.iter().any(|wanted| matches!(wanted, Wanted::Cut));
    match (body.is_complete, may_be_cut) {
        (true, true) => wrong.push("expected a body that is cut off, got all of it".to_owned()),
        (false, false) => {
            wrong.push(format!(
                "the connection ended within the body, after {} bytes",
                body.bytes.len()
            ));
        }
        _ => {}
    }
    wrong
}

fn part(wanted: &Wanted, body: &Body, context: &Context) -> Option<String> {
    match wanted {
        Wanted::BodyContains(text) => {
            let part = text.expand(context);
            let holds =
                part.is_empty() || body.bytes.windows(part.len()).any(|window| window == part);
            (!holds).then(|| {
                format!(
                    "expected a body with `{}` in it, got `{}`",
                    shown(&part),
                    shown(&body.bytes)
                )
            })
        }
        Wanted::BodySize(size) => (body.bytes.len() != *size).then(|| {
            format!(
                "expected a body of {size} bytes, got {}: `{}`",
                body.bytes.len(),
                shown(&body.bytes)
            )
        }),
        Wanted::Trailer(name, value) => {
            let (value, came) = (string(value, context), value_of(&body.trailers, name));
            (came.as_ref() != Some(&value))
                .then(|| format!("expected trailer `{name}: {value}`, got {came:?}"))
        }
        Wanted::NoTrailer(name) => value_of(&body.trailers, name)
            .map(|value| format!("expected no trailer {name}, got `{value}`")),
        _ => None,
    }
}

/// The difference between two strings of bytes.
pub(crate) fn bytes(wanted: &[u8], came: &[u8]) -> Option<String> {
    if wanted == came {
        return None;
    }
    let same = wanted.iter().zip(came).take_while(|(a, b)| a == b).count();
    let place =
        if same > 20 { format!(" (they differ from byte {same} on)") } else { String::new() };
    let from = |bytes: &[u8]| shown(&bytes[if same > 20 { same } else { 0 }..]);
    Some(format!(
        "expected {} bytes `{}`, got {} bytes `{}`{place}",
        wanted.len(),
        from(wanted),
        came.len(),
        from(came)
    ))
}

/// All lines of one name as one value (RFC 9110, 5.3).
pub(crate) fn value_of(fields: &[(String, String)], name: &str) -> Option<String> {
    let own = fields.iter().filter(|(other, _)| other.eq_ignore_ascii_case(name));
    let values: Vec<&str> = own.map(|(_, value)| value.as_str()).collect();
    (!values.is_empty()).then(|| values.join(", "))
}

pub(crate) fn expand_all<'a>(
    texts: impl IntoIterator<Item = &'a Text>,
    context: &Context,
) -> Vec<u8> {
    texts.into_iter().flat_map(|text| text.expand(context)).collect()
}

fn string(text: &Text, context: &Context) -> String {
    text.expand(context).iter().map(|&byte| char::from(byte)).collect()
}

/// A first line in words.
pub(crate) fn described(start: &Start, context: &Context) -> String {
    match start {
        Start::Request { method, target, .. } => format!("{method} {}", string(target, context)),
        Start::Status { code, .. } => code.clone(),
    }
}
