//! What a request may get.

use humboldt_exchange::memory::{Answer, End};
use humboldt_http::{FieldName, Fields};

use crate::chance::Chance;
use crate::client::{self, Seen, upload};
use crate::clock;
use crate::site::{Floor, Resource, Scope};
use crate::world::World;

/// Kinds of requests.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Get,
    Head,
    Range,
    IfNoneMatch,
    /// `no-cache`.
    Reload,
    MaxAge0,
    OnlyIfCached,
    NoStore,
    /// A POST, which changes the resource.
    Write,
    Purge,
    PurgeTag,
    PurgePrefix,
}

/// How the client of a request has read the answer.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Reader {
    /// It has left before the end.
    pub(crate) has_left: bool,
    /// It has taken no bytes for long. If others waited for it, it was cut off.
    pub(crate) may_be_held_up: bool,
}

/// Longest time in ms for which an answer may be older than it says: the rounding of ages.
const AGE_SLACK_MS: i64 = 2_000;

/// A request, and what was known when it began.
pub(crate) struct Asked<'a> {
    pub(crate) id: u64,
    pub(crate) kind: Kind,
    resource: &'a Resource,
    seen: Seen,
    lines: String,
    floor: Floor,
    began_ms: i64,
    /// The same since the beginning.
    began_at_ms: i64,
    /// Whether all directories were open when it began.
    had_all_dirs: bool,
    /// The versions from which on the purged resources are not purged.
    purged: Vec<(&'a Resource, u32)>,
}

impl<'a> Asked<'a> {
    pub(crate) fn new(
        world: &'a World,
        resource: &'a Resource,
        kind: Kind,
        chance: &mut Chance,
    ) -> Self {
        let (lines, seen) = client::fields(kind, resource, chance);
        let is_purged = |other: &&Resource| match kind {
            Kind::Purge => other.number == resource.number,
            Kind::PurgeTag => other.tag == resource.tag,
            Kind::PurgePrefix => other.url.starts_with(&prefix(resource)),
            _ => false,
        };
        let purged = world.site.resources.iter().filter(is_purged);
        if matches!(kind, Kind::PurgeTag | Kind::PurgePrefix) {
            purged.clone().for_each(Resource::purge_begins);
        }
        Self {
            id: world.site.next_id(),
            kind,
            resource,
            seen,
            lines,
            floor: resource.floor(),
            began_ms: client::now_ms(),
            began_at_ms: clock::elapsed_ms(),
            had_all_dirs: world.has_all_dirs(),
            purged: purged.map(|other| (other, other.change())).collect(),
        }
    }

    pub(crate) fn url(&self) -> String {
        match self.kind {
            Kind::PurgePrefix => prefix(self.resource),
            _ => self.resource.url.clone(),
        }
    }

    /// The request's head.
    pub(crate) fn text(&self) -> String {
        let method = match self.kind {
            Kind::Head => "HEAD",
            Kind::Write => "POST",
            Kind::Purge | Kind::PurgeTag | Kind::PurgePrefix => "PURGE",
            _ => "GET",
        };
        let length = match self.kind {
            Kind::Write => format!("Content-Length: {}\r\n", upload(self.id).bytes),
            _ => String::new(),
        };
        format!(
            "{method} {} HTTP/1.1\r\nHost: {}\r\nX-Id: {}\r\n{}{length}\r\n",
            self.url(),
            self.resource.host,
            self.id,
            self.lines
        )
    }

    /// Compares the answer with what is allowed.
    pub(crate) fn check(&self, world: &World, answer: &Answer, reader: Reader) {
        let has_left = reader.has_left;
        let wrong = |what: &str| {
            world.site.wrong(format!(
                "request {} ({:?} {}): {what}",
                self.id,
                self.kind,
                self.url()
            ));
        };
        if matches!(self.kind, Kind::PurgeTag | Kind::PurgePrefix) {
            self.purged.iter().for_each(|(resource, _)| resource.purge_ends());
        }
        if answer.end.is_none() {
            return wrong("the answer has no end");
        }
        self.count(world, answer, has_left);
        let Some(head) = &answer.head else {
            if !has_left && !self.may_fail() {
                wrong("no answer");
            }
            return;
        };
        let is_whole = answer.end == Some(End::Whole);
        let most_bytes = self.resource.lengths.iter().max().copied().unwrap_or(0);
        let may_be_cut = world.site.is_torn.get()
            || world.plan.disk_fails
            || world.disk.is_off()
            || reader.may_be_held_up
            || world.plan.has_little_for_readers(most_bytes);
        if !is_whole && !has_left && !may_be_cut && !self.may_fail() {
            wrong("the answer is cut off");
        }
        let outcome = match (self.kind, head.status) {
            (Kind::Purge | Kind::PurgeTag | Kind::PurgePrefix, status) => {
                if is_whole {
                    self.purged(world, status)
                } else {
                    Ok(())
                }
            }
            (Kind::Write, 200) => {
                let version = number(&head.fields, b"X-Version") as u32;
                if is_whole {
                    self.resource.is_gone_before(version, false);
                }
                Ok(())
            }
            (_, 200) => self.whole(world, answer, is_whole),
            (Kind::Range, 206) => self.part(answer, is_whole),
            (Kind::Range, 416) => Ok(()),
            (Kind::IfNoneMatch, 304) => self.not_modified(&head.fields),
            (Kind::OnlyIfCached, 504) => Ok(()),
            (_, 403) if world.plan.egress && self.resource.host == "h2.sim" => Ok(()),
            (_, 500 | 502 | 503 | 504) if self.may_fail() => Ok(()),
            (_, status) => Err(format!("status {status}")),
        };
        if let Err(what) = outcome {
            wrong(&what);
        }
        if world.plan.is_calm && is_whole && !self.is_found(world, &head.fields) {
            wrong("it was said to be stored, and is not there");
        }
    }

    /// Whether what was said to be stored is there. Notes what is said now.
    fn is_found(&self, world: &World, fields: &Fields) -> bool {
        let is_to_be_there = match self.kind {
            Kind::Get | Kind::Head | Kind::OnlyIfCached => self.resource.must_be_there(),
            _ => false,
        };
        if says(fields, "fwd=") {
            // A scheme that cannot write a confirmed head in place removes the object.
            let is_stored = matches!(self.kind, Kind::Get | Kind::Reload)
                && (says(fields, "stored") || says(fields, "storing"));
            self.resource.is_said_to_be_stored(is_stored);
        }
        if is_to_be_there {
            world.site.totals.add("answers to be found again", 1);
        }
        !is_to_be_there || says(fields, "hit")
    }

    fn count(&self, world: &World, answer: &Answer, has_left: bool) {
        let totals = &world.site.totals;
        totals.add("requests", 1);
        if has_left {
            totals.add("clients that left", 1);
        }
        let Some(head) = &answer.head else { return };
        match head.status {
            206 => totals.add("parts", 1),
            304 => totals.add("confirmations", 1),
            500.. => totals.add("errors", 1),
            _ => {}
        }
        if matches!(self.kind, Kind::Purge | Kind::PurgeTag | Kind::PurgePrefix) {
            totals.add("purges", 1);
        }
        for (word, name) in [("hit", "hits"), ("collapsed", "shared fetches"), ("stored", "stored")]
        {
            if says(&head.fields, word) {
                totals.add(name, 1);
            }
        }
    }

    /// Fields that a rule keeps from guests are for staff alone, on hits as on misses.
    pub(crate) fn check_rules(&self, world: &World, answer: &Answer, client: u64) {
        let Some(head) = &answer.head else { return };
        let has_secret = head.fields.get_by_name(b"X-Secret").is_some();
        let is_about_version = head.fields.get_by_name(b"X-Born").is_some();
        if has_secret != (is_about_version && client::is_staff(client)) {
            let id = self.id;
            world.site.wrong(format!("request {id} of client {client}: X-Secret {has_secret}"));
        }
    }

    /// The answer to a PURGE: 503 and 500 hold as long as the program runs.
    fn purged(&self, world: &World, status: u16) -> Result<(), String> {
        let is_lasting = match (self.kind, status) {
            (Kind::Purge, 200 | 404) => {
                world.plan.syncs_removals() && self.had_all_dirs && world.has_all_dirs()
            }
            (_, 200) => true,
            (Kind::Purge, 500 | 503) if world.disks_fail() => false,
            (_, 500 | 503) if world.disks_fail() => return Ok(()),
            _ => return Err(format!("status {status}")),
        };
        for (resource, version) in &self.purged {
            resource.is_gone_before(*version, is_lasting);
        }
        Ok(())
    }

    /// Whether a server or a name was out of order since the request began.
    fn may_fail(&self) -> bool {
        self.resource.had_trouble_since(self.began_at_ms)
    }

    /// The variant that the answer must be.
    fn variant(&self) -> usize {
        if self.resource.varies { self.seen.variant } else { 0 }
    }

    /// Version, variant and asker.
    fn head(&self, fields: &Fields) -> Result<u32, String> {
        let version = number(fields, b"X-Version") as u32;
        if version == 0 || version > self.resource.version() {
            return Err(format!("there is no version {version}"));
        }
        let floor = self.floor[self.variant()];
        if !floor.allows(version, born_s(fields)) {
            return Err(format!("version {version} after version {}", floor.version));
        }
        if self.resource.varies && number(fields, b"X-Served-Variant") as usize != self.seen.variant
        {
            return Err(format!("another variant than {}", self.seen.variant));
        }
        let asker = number(fields, b"X-For");
        if !self.resource.is_for_all() && asker != self.id {
            return Err(format!("the private answer to request {asker}"));
        }
        Ok(version)
    }

    fn whole(&self, world: &World, answer: &Answer, is_whole: bool) -> Result<(), String> {
        let Some(head) = &answer.head else { return Ok(()) };
        let version = self.head(&head.fields)?;
        let body = self.resource.body(version, self.variant(), self.id);
        if self.kind == Kind::Head {
            return if answer.body.is_empty() { Ok(()) } else { Err("a body after HEAD".into()) };
        }
        self.bytes(answer, body, 0)?;
        if is_whole && answer.body.len() as u64 != body.bytes {
            return Err(format!("{} of {} bytes", answer.body.len(), body.bytes));
        }
        self.age(world, &head.fields)?;
        // The cache may learn nothing from an answer that it must not store.
        if is_whole && self.kind != Kind::NoStore {
            self.is_served(version, &head.fields);
        }
        Ok(())
    }

    /// Nobody gets an older version from now on. An answer from before a purge does not count.
    fn is_served(&self, version: u32, fields: &Fields) {
        if !self.resource.was_purged_since(self.began_at_ms) {
            self.resource.is_served(version, self.seen.variant, born_s(fields));
        }
    }

    fn bytes(&self, answer: &Answer, body: crate::bodies::Body, from: u64) -> Result<(), String> {
        match body.differs(from, &answer.body) {
            None => Ok(()),
            Some(at) => Err(format!("wrong byte at {at} of {}", body.bytes)),
        }
    }

    /// Not older than its lifetime, and confirmed where that was wanted.
    fn age(&self, world: &World, fields: &Fields) -> Result<(), String> {
        if world.plan.jumps || self.may_fail() {
            return Ok(());
        }
        let born_ms = number(fields, b"X-Born") as i64;
        let age_ms = self.began_ms - born_ms;
        let resource = self.resource;
        let is_to_be_confirmed = self.kind == Kind::Reload
            || self.kind == Kind::MaxAge0
            || resource.scope == Scope::Confirmed;
        let most_s = match is_to_be_confirmed {
            true => 0,
            false => resource.lifetime_s + resource.stale_s,
        };
        let most_ms = most_s as i64 * 1000 + AGE_SLACK_MS;
        if age_ms > most_ms {
            return Err(format!("{age_ms} ms old, of {most_ms} ms"));
        }
        Ok(())
    }

    fn part(&self, answer: &Answer, is_whole: bool) -> Result<(), String> {
        let Some(head) = &answer.head else { return Ok(()) };
        let version = self.head(&head.fields)?;
        let body = self.resource.body(version, self.variant(), self.id);
        let text = head.fields.get(FieldName::ContentRange).unwrap_or_default();
        let text = String::from_utf8_lossy(text).into_owned();
        let Some((from, wanted_last)) = self.seen.range else { return Ok(()) };
        let last = wanted_last.min(body.bytes.saturating_sub(1));
        let right = format!("bytes {from}-{last}/{}", body.bytes);
        if text != right && text != format!("bytes {from}-{last}/*") {
            return Err(format!("Content-Range {text} instead of {right}"));
        }
        self.bytes(answer, body, from)?;
        if is_whole && answer.body.len() as u64 != last + 1 - from {
            return Err(format!("{} bytes of {from}-{last}", answer.body.len()));
        }
        // If the server sent the whole, that is not complete yet.
        if is_whole && !says(&head.fields, "fwd-status=200") {
            self.is_served(version, &head.fields);
        }
        Ok(())
    }

    fn not_modified(&self, fields: &Fields) -> Result<(), String> {
        let version = self.seen.tag.unwrap_or(0);
        let floor = self.floor[self.variant()];
        if !floor.allows(version, born_s(fields)) {
            let floor = floor.version;
            return Err(format!("version {version} is confirmed after version {floor}"));
        }
        // The server's answer to a client's own condition teaches the cache nothing.
        if says(fields, "hit") {
            self.is_served(version, fields);
        }
        Ok(())
    }
}

/// The second in which the server made the answer, or confirmed it.
fn born_s(fields: &Fields) -> u64 {
    number(fields, b"X-Born") / 1000
}

/// Whether Cache-Status has this word.
fn says(fields: &Fields, word: &str) -> bool {
    let status = fields.get_by_name(b"Cache-Status").unwrap_or_default();
    String::from_utf8_lossy(status).contains(word)
}

/// The beginning of the URLs that are like this one.
fn prefix(resource: &Resource) -> String {
    let end = resource.url.rfind('/').map_or(resource.url.len(), |at| at + 1);
    resource.url[..end].to_owned()
}

fn number(fields: &Fields, name: &[u8]) -> u64 {
    let text = fields.get_by_name(name).unwrap_or_default();
    std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()).unwrap_or(0)
}
