//! The answer to a request, and its time.

use crate::OriginPlan;
use crate::answer::{Answer, Content, Envelope, Object, Shape, Text};
use crate::range::{Wanted, wanted};
use crate::request::{Method, Request};
use humboldt_lab_tls::ServerTls;
use humboldt_lab_wire::RequestHead;
use humboldt_lab_workload::{Facts, Link, ObjectName, Steps, Version, Workload};
use std::sync::Arc;

/// The plan, in the form in which threads use it.
#[derive(Debug)]
pub(crate) struct Service {
    pub(crate) workload: Arc<Workload>,
    seed: u64,
    time_scale: f64,
    think: bool,
    chunked_share: f64,
    link: Link,
    /// How long a connection that was used is kept without a request, in µs of real time.
    pub(crate) idle_us: u64,
    /// Correction of this host's time of day, in µs.
    pub(crate) clock_offset_us: i64,
    /// Every connection begins with TLS.
    pub(crate) tls: Option<ServerTls>,
}

/// The moment of an answer's making.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    /// On the thread's clock, in µs.
    pub(crate) now_us: u64,
    /// The same as Unix time, in µs.
    pub(crate) unix_us: u64,
    /// Whether the connection is new, so that its handshake is still to be waited for.
    pub(crate) is_first: bool,
    /// Decides where the request itself does not.
    pub(crate) luck: u64,
}

/// When which part of an answer may be sent.
#[derive(Debug)]
pub(crate) struct Schedule {
    /// When the request came, on the thread's clock.
    asked_us: u64,
    /// Zero of the steps' moments, in µs of the thread's clock.
    base_us: u64,
    /// When the first byte may go, on the thread's clock.
    pub(crate) due_us: u64,
    /// This many bytes of the body may go by then. `u64::MAX` = all.
    pub(crate) allowed_bytes: u64,
    steps: Option<Steps>,
}

impl Service {
    pub(crate) fn new(plan: &OriginPlan, tls: Option<ServerTls>) -> Self {
        let idle_us = plan.workload.server_idle_s() * plan.time_scale * 1e6;
        Self {
            workload: Arc::clone(&plan.workload),
            seed: plan.seed,
            time_scale: plan.time_scale,
            think: plan.think,
            chunked_share: plan.chunked_share,
            link: plan.workload.server_link(),
            idle_us: idle_us as u64,
            clock_offset_us: plan.clock_offset_us,
            tls,
        }
    }

    /// Number of requests on one connection.
    pub(crate) fn uses(&self, luck: u64) -> u32 {
        self.workload.server_uses(mix(self.seed ^ mix(luck))).max(1)
    }

    /// Decides on the answer to a request, and on its moments.
    pub(crate) fn answer(
        &self,
        head: &RequestHead<'_>,
        request: &Request<'_>,
        moment: Moment,
    ) -> (Answer, Schedule) {
        let envelope = Envelope {
            id: request.id,
            is_head: request.method == Method::Head,
            is_http_1_0: head.minor_version() == 0,
            close: !head.keep_alive(),
        };
        let name = ObjectName::parse(request.path).filter(|name| self.workload.knows(name));
        let text = match (request.method, name) {
            (Method::Other, _) => Text::MethodNotAllowed,
            (Method::Get | Method::Head, _) if request.path == b"/health" => Text::Health,
            (_, None) => Text::NotFound,
            (_, Some(name)) => return self.object_answer(&name, request, envelope, moment),
        };
        (Answer { envelope, content: Content::Text(text) }, Schedule::at_once(moment.now_us))
    }

    /// The answer is right for the moment when it is due, not for the moment when the request came:
    /// a server looks at its object after thinking.
    fn object_answer(
        &self,
        name: &ObjectName,
        request: &Request<'_>,
        envelope: Envelope,
        moment: Moment,
    ) -> (Answer, Schedule) {
        let facts = self.workload.facts(self.seed, name);
        let luck = request.id.unwrap_or_else(|| mix(moment.luck));
        let think_us =
            if self.think { self.scaled_us(self.workload.think_us(self.seed, luck)) } else { 0 };
        let round_trip_us = self.scaled_us(self.link.one_way_us.saturating_mul(2));
        let handshake_us = if moment.is_first { round_trip_us } else { 0 };
        let wait_us = think_us.saturating_add(handshake_us);
        let version =
            facts.version_at(moment.unix_us.saturating_add(wait_us).saturating_add(round_trip_us));
        let shape = self.shape(request, &facts, version, envelope.is_http_1_0);
        let answer =
            Answer { envelope, content: Content::Object(Object { facts, version, shape }) };
        let (begin, end) = answer.body_range();
        let base_us = moment.now_us.saturating_add(wait_us);
        (answer, self.schedule(moment.now_us, base_us, end - begin, luck))
    }

    fn shape(
        &self,
        request: &Request<'_>,
        facts: &Facts,
        version: Version,
        is_http_1_0: bool,
    ) -> Shape {
        if request.method == Method::Post {
            return Shape::Posted;
        }
        let Version { number, modified_s, .. } = version;
        if request.has_version(facts.key, number, modified_s) {
            return Shape::NotModified;
        }
        // RFC 9110 14.2: ranges are for GET only.
        let range = request.range_for(facts.key, number, modified_s);
        match range
            .filter(|_| request.method == Method::Get)
            .map(|range| wanted(range, facts.size_bytes))
        {
            Some(Wanted::Part { first, last }) => Shape::Part { first, last },
            Some(Wanted::Unsatisfiable) => Shape::Unsatisfiable,
            _ if !is_http_1_0 && unit(mix(facts.key)) < self.chunked_share => Shape::Chunked,
            _ => Shape::Whole,
        }
    }

    fn schedule(&self, asked_us: u64, base_us: u64, body_bytes: u64, luck: u64) -> Schedule {
        if self.link == Link::NONE {
            return Schedule { asked_us, ..Schedule::at_once(base_us) };
        }
        let mut schedule = Schedule {
            asked_us,
            base_us,
            due_us: base_us,
            allowed_bytes: 0,
            steps: Some(self.link.delivery(body_bytes, luck).steps()),
        };
        self.next_step(&mut schedule);
        schedule
    }

    /// Goes on to the next window of the link. After the last one everything is allowed.
    pub(crate) fn next_step(&self, schedule: &mut Schedule) {
        match schedule.steps.as_mut().and_then(Iterator::next) {
            Some((at_us, up_to_bytes)) => {
                schedule.due_us = schedule.base_us.saturating_add(self.scaled_us(at_us));
                schedule.allowed_bytes = up_to_bytes;
            }
            None => schedule.allowed_bytes = u64::MAX,
        }
    }

    fn scaled_us(&self, model_us: u64) -> u64 {
        (model_us as f64 * self.time_scale) as u64
    }
}

impl Schedule {
    pub(crate) fn at_once(now_us: u64) -> Self {
        Self {
            asked_us: now_us,
            base_us: now_us,
            due_us: now_us,
            allowed_bytes: u64::MAX,
            steps: None,
        }
    }

    /// Moves everything as if the request had come now, because its body has.
    pub(crate) fn begin_later(&mut self, now_us: u64) {
        let later_us = now_us.saturating_sub(self.asked_us);
        self.asked_us = now_us;
        self.base_us = self.base_us.saturating_add(later_us);
        self.due_us = self.due_us.saturating_add(later_us);
    }
}

/// Spreads a number over all 64 bits (the finaliser of splitmix64).
fn mix(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

/// From 0 up to but not 1.
fn unit(luck: u64) -> f64 {
    (luck >> 11) as f64 / (1_u64 << 53) as f64
}
