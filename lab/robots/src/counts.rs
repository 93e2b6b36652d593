//! The counts of one world between two samples. Arrays instead of maps: the maps of the [`Tally`]
//! are made when it is taken.

use crate::answer::Answer;
use crate::world::Shared;
use humboldt_lab_record::{KindTally, Tally};
use humboldt_lab_workload::{Ask, AskKind, Facts, Link, Workload};

const KINDS: [&str; 8] =
    ["plain", "ims_200", "ims_304", "reload", "post", "head", "range", "connect"];

/// A tally with its maps still arrays.
#[derive(Debug)]
pub(crate) struct Counts {
    /// Everything but `by_type` and `by_kind`.
    pub(crate) tally: Tally,
    by_type: Vec<KindTally>,
    by_kind: [KindTally; KINDS.len()],
    /// When the period began, in µs of the world's clock.
    pub(crate) since_us: u64,
    /// CPU time of the thread at that moment, in µs.
    pub(crate) cpu_at_us: u64,
}

impl Counts {
    pub(crate) fn new(types: usize, since_us: u64, cpu_at_us: u64) -> Self {
        Self {
            tally: Tally::default(),
            by_type: vec![KindTally::default(); types],
            by_kind: [KindTally::default(); KINDS.len()],
            since_us,
            cpu_at_us,
        }
    }

    /// Counts one right answer.
    pub(crate) fn add_answer(&mut self, ask: &Ask, facts: &Facts, answer: &Answer, took: Took) {
        let hit = !answer.from_origin && !matches!(ask.kind, AskKind::Connect { .. });
        let (tally, bytes, plain) =
            (&mut self.tally, answer.body_bytes, ask.kind == AskKind::Plain);
        let class = match (plain, hit) {
            (true, true) => &mut tally.hits,
            (true, false) => &mut tally.misses,
            (false, _) => &mut tally.others,
        };
        class.add(bytes, took.response_us, took.added_us);
        tally.excused += u64::from(answer.excused);
        if plain && facts.cachable {
            if ask.repeat {
                tally.offered_hits += 1;
                tally.offered_hit_bytes += bytes;
            }
            if !hit {
                tally.fill_bytes += bytes;
            }
        }
        let refills = matches!(ask.kind, AskKind::Ims200 | AskKind::Ims304 | AskKind::Reload);
        if refills && facts.cachable && !hit {
            tally.refill_bytes += bytes;
        }
        self.add_kinds(ask.name.kind, &ask.kind, hit, bytes);
    }

    /// Counts one right answer under its content type and its kind of request.
    fn add_kinds(&mut self, content_type: u8, kind: &AskKind, hit: bool, body_bytes: u64) {
        let by_type = self.by_type.get_mut(usize::from(content_type));
        for tally in by_type.into_iter().chain([&mut self.by_kind[kind_index(kind)]]) {
            tally.answers += 1;
            tally.hits += u64::from(hit);
            tally.body_bytes += body_bytes;
        }
    }

    /// The tally with its maps.
    pub(crate) fn into_tally(mut self, workload: &Workload) -> Tally {
        let used = |tally: &KindTally| tally.answers > 0;
        for (content_type, tally) in
            workload.types().iter().zip(self.by_type).filter(|(_, t)| used(t))
        {
            self.tally.by_type.insert(content_type.name.to_string(), tally);
        }
        for (kind, tally) in KINDS.iter().zip(self.by_kind).filter(|(_, t)| used(t)) {
            self.tally.by_kind.insert((*kind).to_string(), tally);
        }
        self.tally
    }
}

/// The times of an answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Took {
    response_us: u64,
    added_us: u64,
}

impl Took {
    /// `since_due_us`: until its last byte was here. The way back over the client's link comes on
    /// top of it; the way there was waited for before the request was sent.
    pub(crate) fn new(shared: &Shared, id: u64, answer: &Answer, since_due_us: u64) -> Self {
        let workload = &shared.plan.workload;
        let client = workload.client_link();
        let client_us = shared.scaled_us(link_us(client, answer.body_bytes, id));
        let way_back_us = client_us.saturating_sub(shared.scaled_us(client.one_way_us));
        let response_us = since_due_us + way_back_us;
        let mut world_us = client_us;
        if answer.from_origin {
            let think_us =
                if shared.plan.think { workload.think_us(shared.plan.seed, id) } else { 0 };
            let server_us = link_us(workload.server_link(), answer.body_bytes, id);
            world_us += shared.scaled_us(think_us + server_us);
        }
        Self { response_us, added_us: response_us.saturating_sub(world_us) }
    }
}

/// How long this many bytes take over a link, in µs, not scaled.
fn link_us(link: Link, bytes: u64, luck: u64) -> u64 {
    if link.one_way_us == 0 && link.loss == 0.0 { 0 } else { link.delivery(bytes, luck).total_us() }
}

fn kind_index(kind: &AskKind) -> usize {
    match kind {
        AskKind::Plain => 0,
        AskKind::Ims200 => 1,
        AskKind::Ims304 => 2,
        AskKind::Reload => 3,
        AskKind::Post { .. } => 4,
        AskKind::Head => 5,
        AskKind::Range { .. } => 6,
        AskKind::Connect { .. } => 7,
    }
}
