//! A message as a reader of HTTP/1 understands it, in a form in which two readers can be compared.

/// The end of reading.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum End {
    /// Everything that was begun is complete.
    Complete,
    /// The bytes ended in the middle.
    CutOff,
    /// The connection does not persist: later bytes are not read.
    Closed,
    /// Malformed, and why.
    Refused(String),
}

/// One message whose head was accepted.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    /// Method and target, or status, with the version.
    pub(crate) start: String,
    /// Names in lower case with their values, sorted by name; values of one name in their order.
    pub(crate) fields: Vec<(String, Vec<u8>)>,
    /// Data of the body.
    pub(crate) data: Vec<u8>,
    /// Trailer fields, as `fields`.
    pub(crate) trailers: Vec<(String, Vec<u8>)>,
    /// The end of the body.
    pub(crate) end: End,
}

/// All messages on a connection.
#[derive(Clone, Debug)]
pub(crate) struct Reading {
    /// Those whose head was accepted.
    pub(crate) messages: Vec<Message>,
    /// The fate of the bytes behind them.
    pub(crate) end: End,
}

/// The result of a comparison. The text is a class of cases, not one case.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    /// Both read the same.
    Same,
    /// We refuse a message that the other accepts.
    Stricter(String),
    /// We accept a message that the other refuses.
    Laxer(String),
    /// We wait for more where the other refuses already.
    Later(String),
    /// Both accept, and read something else.
    Different(String),
}

/// Fields in the order in which readings are compared.
pub(crate) fn sorted(fields: impl Iterator<Item = (String, Vec<u8>)>) -> Vec<(String, Vec<u8>)> {
    let mut fields: Vec<_> = fields.collect();
    fields.sort_by(|a, b| a.0.cmp(&b.0));
    fields
}

/// Compares our reading with the other one.
pub(crate) fn compare(ours: &Reading, theirs: &Reading) -> Verdict {
    let mut others = theirs.messages.iter();
    for own in &ours.messages {
        let Some(other) = others.next() else {
            return match &theirs.end {
                End::Refused(why) => Verdict::Laxer(format!("head: {why}")),
                end => {
                    Verdict::Different(format!("a message that the other does not see ({end:?})"))
                }
            };
        };
        let verdict = compare_messages(own, other);
        if verdict != Verdict::Same || own.end != End::Complete {
            return verdict;
        }
    }
    match (&ours.end, others.next(), &theirs.end) {
        (End::Refused(why), Some(_), _) => Verdict::Stricter(format!("head: {why}")),
        (End::Refused(_), None, End::Refused(_)) | (End::Closed, ..) => Verdict::Same,
        (End::Refused(why), None, _) => Verdict::Stricter(format!("head: {why}")),
        (_, Some(_), _) => Verdict::Different("a message that only the other sees".into()),
        (_, None, End::Refused(why)) => Verdict::Later(format!("head: {why}")),
        // Nothing more was taken for a message.
        (_, None, _) => Verdict::Same,
    }
}

fn compare_messages(own: &Message, other: &Message) -> Verdict {
    if (&own.start, &own.fields) != (&other.start, &other.fields) {
        return Verdict::Different("heads".into());
    }
    match (&own.end, &other.end) {
        (End::Refused(_), End::Refused(_)) => Verdict::Same,
        (End::Refused(why), _) => Verdict::Stricter(format!("body: {why}")),
        (End::CutOff, End::Refused(why)) => Verdict::Later(format!("body: {why}")),
        (_, End::Refused(why)) => Verdict::Laxer(format!("body: {why}")),
        (a, b) if a != b => Verdict::Different("the end of a body".into()),
        _ if own.data != other.data => Verdict::Different("the data of a body".into()),
        // We keep some trailers only; those must be there.
        _ if own.trailers.iter().any(|field| !other.trailers.contains(field)) => {
            Verdict::Different("trailers".into())
        }
        _ => Verdict::Same,
    }
}
