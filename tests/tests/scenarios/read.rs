//! The steps that wait for something.

use crate::expect;
use crate::message::{self, Body};
use crate::play::{Player, key};
use crate::script::{Expected, Party, Side, Start, Wanted};
use crate::stage::Stage;
use crate::text::Text;
use crate::wires::{End, Wire, Wires};
use humboldt_tests::message::Head;
use std::collections::BTreeSet;

impl Player<'_> {
    /// A message that comes, as a whole or as far as its head goes.
    pub(crate) fn get(
        &mut self,
        party: &Party,
        expected: &Expected,
        is_whole: bool,
    ) -> Result<(), String> {
        let (index, head, body) = match party.side {
            Side::Client => self.answer(party)?,
            Side::Origin => self.request(party, &expected.start)?,
        };
        self.wires.all[index].body = Some(body);
        let result = if is_whole { self.body_end(index, "the end of the body") } else { Ok(()) };
        let empty = Vec::new();
        let came = self.wires.all[index].body.as_ref().map_or(&empty, |body| &body.bytes);
        let mut bytes = format!("{}\r\n", head.start).into_bytes();
        for (name, value) in &head.fields {
            bytes.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
        }
        bytes.extend_from_slice(b"\r\n");
        bytes.extend_from_slice(came);
        self.wires.transcript.note(party, if is_whole { "gets" } else { "gets the head" }, &bytes);
        result?;
        let mut wrong = expect::start(&expected.start, &head, &self.context);
        wrong.extend(expect::fields(&expected.wanted, &head, &self.context));
        if is_whole && let Some(body) = self.wires.all[index].body.take() {
            wrong.extend(expect::body(&expected.wanted, &body, &self.context));
        }
        verdict(wrong)
    }

    /// The head of an answer on a client's connection.
    fn answer(&mut self, party: &Party) -> Result<(usize, Head, Body), String> {
        let index = self.wire(party)?;
        let head = self.wires.until("an answer", |wires| {
            let wire = &mut wires.all[index];
            match message::head(&wire.input)? {
                Some((head, len)) => {
                    wire.input.drain(..len);
                    Ok(Some(head))
                }
                None => ended(wire, "an answer").map_or(Ok(None), Err),
            }
        })?;
        let wire = &mut self.wires.all[index];
        let method = wire.methods.front().cloned().unwrap_or_default();
        let status = head.word(1);
        if !status.starts_with('1') || status == "101" {
            wire.methods.pop_front();
        }
        let says_close =
            head.all("Connection").any(|value| value.to_ascii_lowercase().contains("close"));
        let body = Body::of_answer(&head, &method)?;
        wire.is_last = says_close || body.is_until_close();
        Ok((index, head, body))
    }

    /// The head of a request at the origin, on whichever connection it came.
    fn request(&mut self, party: &Party, start: &Start) -> Result<(usize, Head, Body), String> {
        let wanted = expect::described(start, &self.context);
        let (index, head) = {
            let context = &self.context;
            self.wires.until(&format!("{wanted} at the origin"), |wires| {
                for (index, wire) in wires.all.iter_mut().enumerate() {
                    if wire.side != Side::Origin || wire.body.is_some() || wire.is_given_up() {
                        continue;
                    }
                    let Some((head, len)) = message::head(&wire.input)? else { continue };
                    if expect::start(start, &head, context).is_empty() {
                        wire.input.drain(..len);
                        return Ok(Some((index, head)));
                    }
                }
                Ok(None)
            })?
        };
        self.connections.insert(key(party), index);
        let body = Body::of_request(&head)?;
        Ok((index, head, body))
    }

    /// Waits until the body that was begun is complete, or its connection has ended.
    fn body_end(&mut self, index: usize, what: &str) -> Result<(), String> {
        self.wires.until(what, |wires| {
            let wire = &mut wires.all[index];
            let Some(body) = wire.body.as_mut() else { return Ok(Some(())) };
            body.feed(&mut wire.input, wire.end == Some(End::Closed))?;
            Ok((body.is_complete || wire.end.is_some()).then_some(()))
        })
    }

    /// This many bytes of the body that was begun.
    pub(crate) fn get_body(&mut self, party: &Party, texts: &[Text]) -> Result<(), String> {
        let wanted = expect::expand_all(texts, &self.context);
        let index = self.begun(party)?;
        let what = format!("{} bytes of a body", wanted.len());
        self.wires.until(&what, |wires| {
            let wire = &mut wires.all[index];
            let Some(body) = wire.body.as_mut() else { return Ok(Some(())) };
            body.feed(&mut wire.input, wire.end == Some(End::Closed))?;
            let is_over = body.is_complete || wire.end.is_some();
            Ok((body.bytes.len() >= wanted.len() || is_over).then_some(()))
        })?;
        let Some(body) = self.wires.all[index].body.as_mut() else { return Ok(()) };
        let len = wanted.len().min(body.bytes.len());
        let came: Vec<u8> = body.bytes.drain(..len).collect();
        self.wires.transcript.note(party, "gets more of the body", &came);
        verdict(expect::bytes(&wanted, &came).into_iter().collect())
    }

    fn begun(&self, party: &Party) -> Result<usize, String> {
        let index = self.wire(party)?;
        if self.wires.all[index].body.is_none() {
            return Err("no body was begun here: `gets head` comes before this".to_owned());
        }
        Ok(index)
    }

    /// This many bytes of the connection.
    pub(crate) fn get_raw(&mut self, party: &Party, texts: &[Text]) -> Result<(), String> {
        let wanted = expect::expand_all(texts, &self.context);
        let index = self.wire(party)?;
        self.wires.all[index].body = None;
        let what = format!("{} bytes", wanted.len());
        self.wires.until(&what, |wires| {
            let wire = &wires.all[index];
            Ok((wire.input.len() >= wanted.len() || wire.end.is_some()).then_some(()))
        })?;
        let input = &mut self.wires.all[index].input;
        let len = wanted.len().min(input.len());
        let came: Vec<u8> = input.drain(..len).collect();
        self.wires.transcript.note(party, "gets bytes", &came);
        verdict(expect::bytes(&wanted, &came).into_iter().collect())
    }

    /// The end of the body that was begun, of which nothing more may come.
    pub(crate) fn get_end(&mut self, party: &Party, wanted: &[Wanted]) -> Result<(), String> {
        let index = self.begun(party)?;
        self.body_end(index, "the end of the body")?;
        let Some(body) = self.wires.all[index].body.take() else { return Ok(()) };
        self.wires.transcript.note(party, "gets the end of the body, and before it", &body.bytes);
        let mut wrong = expect::body(wanted, &body, &self.context);
        if !body.bytes.is_empty() && !wanted.iter().any(|wanted| matches!(wanted, Wanted::Cut)) {
            wrong.push(format!("the body has {} more bytes", body.bytes.len()));
        }
        verdict(wrong)
    }

    /// The end of the connection, and no byte before it.
    pub(crate) fn get_close(&mut self, party: &Party) -> Result<(), String> {
        let index = self.wire(party)?;
        self.wires.until("the connection to be closed", |wires| {
            let wire = &wires.all[index];
            Ok((wire.end.is_some() || !wire.input.is_empty()).then_some(()))
        })?;
        self.wires.transcript.note(party, "gets the end of the connection", b"");
        if self.wires.all[index].input.is_empty() {
            return Ok(());
        }
        Err("expected the end of the connection, got more bytes".to_owned())
    }

    pub(crate) fn origin_not_asked(&mut self) -> Result<(), String> {
        self.wires.pump()?;
        let asked = |wire: &&Wire| {
            wire.side == Side::Origin && wire.body.is_none() && !wire.input.is_empty()
        };
        match self.wires.all.iter().find(asked) {
            None => Ok(()),
            Some(_) => Err("expected that the origin is not asked, but it was".to_owned()),
        }
    }

    /// At the end, everything that came must have been asked for.
    pub(crate) fn nothing_left(&mut self) -> Result<(), String> {
        self.wires.pump()?;
        self.wires.left_over().map_or(Ok(()), Err)
    }

    /// Waits for a line of access.log that no other step has claimed.
    pub(crate) fn logged(&mut self, words: &[String]) -> Result<(), String> {
        // A shared proxy has lines of others, too.
        let mark = if self.scenario.is_accelerator { "" } else { &self.context.origin };
        let all: Vec<&str> = words.iter().map(String::as_str).chain([mark]).collect();
        claim(&mut self.wires, &self.stage, "access.log", &mut self.logged, &all)
    }

    /// Waits for another line of store.log that the answer for a path is on disk.
    pub(crate) fn stored(&mut self, path: &str) -> Result<(), String> {
        let end = format!("{path}\n");
        claim(&mut self.wires, &self.stage, "store.log", &mut self.stored, &[" SWAPOUT ", &end])
    }
}

/// Waits for a line of a log with all these parts that is not claimed yet.
fn claim(
    wires: &mut Wires,
    stage: &Stage<'_>,
    log: &str,
    claimed: &mut BTreeSet<usize>,
    parts: &[&str],
) -> Result<(), String> {
    let found = wires.until(&format!("a line of {log} with {parts:?}"), |_| {
        let text = stage.text(log);
        let mut lines = text.split_inclusive('\n').enumerate();
        let is_new = |(index, line): &(usize, &str)| {
            !claimed.contains(index) && parts.iter().all(|part| line.contains(part))
        };
        Ok(lines.find(is_new).map(|(index, _)| index))
    });
    // Of a log with lines of many scenarios, the last ones are the likely ones.
    let index = found.map_err(|error| {
        let text = stage.text(log);
        let lines: Vec<&str> = text.lines().rev().take(10).collect();
        format!(
            "{error}; the log ends with\n      {}",
            lines.into_iter().rev().collect::<Vec<_>>().join("\n      ")
        )
    })?;
    claimed.insert(index);
    Ok(())
}

fn verdict(wrong: Vec<String>) -> Result<(), String> {
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n  and ")) }
}

/// Why nothing more comes.
fn ended(wire: &Wire, what: &str) -> Option<String> {
    let how = match wire.end? {
        End::Closed => "closed",
        End::Reset => "reset",
    };
    Some(format!("expected {what}, but the connection was {how} after {} bytes", wire.input.len()))
}
