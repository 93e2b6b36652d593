//! The sequence of requests.

use std::sync::Arc;

use crate::ask::{Ask, AskKind, POST_BODY_BYTES_MAX};
use crate::mix::{Chance, Luck, below, luck, mix};
use crate::name::ObjectName;
use crate::pages::Pages;
use crate::plan::{Names, Order, Pick};
use crate::replay::{Line, LogMethod, Replayed};
use crate::workload::Workload;

/// Numbers of objects that are only posted to, or only reached through a tunnel: far above those of
/// pages.
const POST_NUMBERS: u64 = 1 << 62;
const CONNECT_NUMBERS: u64 = 1 << 63;

/// Bits of a request id that count within a world; the rest is the world.
const ID_COUNT_BITS: u32 = 40;

const PURPOSE_STREAM: u64 = 51;
const PURPOSE_IDS: u64 = 52;

/// The requests of one world: the same for the same workload, seed, world, worlds, working set and
/// recurrence factor, whatever the clock and the answers say. It never ends. Worlds never share
/// names, and request ids are unique among the worlds of a run (of up to 2^24 worlds with 2^40
/// requests each).
///
/// It has the contents of a visit, and not the times of its requests.
pub struct Stream {
    asker: Asker,
    names: Source,
}

/// Where names come from.
enum Source {
    Window(Window),
    Fixed(Fixed),
    Replay(Replayed),
}

impl Stream {
    /// The stream of world `world` (below `worlds`). The working set is that of all worlds
    /// together, see [`Workload::working_set_objects`]; every world has its part.
    #[must_use]
    pub fn new(
        workload: Arc<Workload>,
        seed: u64,
        world: u32,
        worlds: u32,
        working_set_objects: u64,
    ) -> Self {
        let worlds = worlds.max(1);
        let plan = Arc::clone(&workload.plan);
        let names = match (&workload.replay, plan.names) {
            (Some(replay), _) => Source::Replay(Replayed::new(Arc::clone(replay), world, worlds)),
            (None, Names::Window { recurrence, pick, .. }) => {
                let own = working_set_objects / u64::from(worlds);
                let window = (own as f64 / plan.names_per_page) as u64;
                let pages = Pages::new(plan, seed, world, window, pick);
                Source::Window(Window {
                    pages,
                    newest: 0,
                    recurrence,
                    repeats: Chance::new(recurrence),
                })
            }
            (None, Names::Fixed { objects, order }) => {
                let rest = u64::from(u64::from(world) < objects % u64::from(worlds));
                let count = (objects / u64::from(worlds) + rest).max(1);
                let pick = Pick { ranks: None, hot: None, small: None };
                let pages = Pages::new(plan, seed, world, u64::MAX, pick);
                Source::Fixed(Fixed::new(pages, count, order))
            }
        };
        Self { asker: Asker::new(workload, seed, world), names }
    }

    /// Appends one user action: a page with its embedded objects, or one object. At least one
    /// request.
    pub fn next_visit(&mut self, asks: &mut Vec<Ask>) {
        let Self { asker, names } = self;
        asker.begin_visit();
        if let Source::Replay(replayed) = names {
            replayed.next_line(|line| asker.ask_line(line, asks));
            return;
        }
        if asker.ask_special(names, asks) {
            return;
        }
        let (pages, number, repeat) = match names {
            Source::Window(window) => window.next_page(&mut asker.luck),
            Source::Fixed(fixed) => fixed.next_page(&mut asker.luck),
            Source::Replay(_) => return,
        };
        asker.ask_page(pages, number, repeat, asks);
    }

    /// Requests per visit, on average over a long time.
    #[must_use]
    pub fn mean_asks_per_visit(&self) -> f64 {
        match self.names {
            Source::Replay(_) => 1.0,
            Source::Window(_) | Source::Fixed(_) => self.asker.workload.plan.mix.asks_per_visit,
        }
    }

    /// Multiplies the recurrence from now on, 0 to 1: a cache is filled faster with few repeats.
    /// The later requests then depend on the visit before which this was called. Fixed sets and
    /// logs have no recurrence to change.
    pub fn set_recurrence_factor(&mut self, factor: f64) {
        if let Source::Window(window) = &mut self.names {
            window.repeats = Chance::new(window.recurrence * factor.clamp(0.0, 1.0));
        }
    }

    /// How many times all names of this world have been asked for, where that is the order
    /// (`choice = "in turn"`), or all lines of a log; `None` if there is no such order.
    #[must_use]
    pub fn passes(&self) -> Option<u64> {
        match &self.names {
            Source::Window(_) => None,
            Source::Fixed(fixed) => fixed.passes(),
            Source::Replay(replayed) => Some(replayed.passes()),
        }
    }

    pub(crate) fn workload(&self) -> &Arc<Workload> {
        &self.asker.workload
    }

    pub(crate) fn seed(&self) -> u64 {
        self.asker.seed
    }
}

/// New names for ever, and repeats among the newest.
struct Window {
    pages: Pages,
    newest: u64,
    recurrence: f64,
    repeats: Chance,
}

impl Window {
    fn next_page(&mut self, luck: &mut Luck) -> (&Pages, u64, bool) {
        let repeats = self.repeats.happens(luck.draw());
        let pick_luck = luck.draw();
        let picked = self.pages.pick(self.newest, pick_luck).filter(|_| repeats);
        match picked {
            Some(number) => {
                (&self.pages, self.pages.prefer_small(number, self.newest, pick_luck), true)
            }
            None => {
                self.newest += 1;
                (&self.pages, self.newest - 1, false)
            }
        }
    }
}

/// Always the same names.
struct Fixed {
    pages: Pages,
    count: u64,
    order: Order,
    visits: u64,
    /// One bit for each page that was asked for.
    asked: Vec<u64>,
}

impl Fixed {
    fn new(pages: Pages, count: u64, order: Order) -> Self {
        // `FIXED_SET_MAX` bounds the length.
        let asked = vec![0; usize::try_from(count.div_ceil(64)).unwrap_or(0)];
        Self { pages, count, order, visits: 0, asked }
    }

    fn next_page(&mut self, luck: &mut Luck) -> (&Pages, u64, bool) {
        let number = match self.order {
            Order::InTurn => self.visits % self.count,
            Order::Uniform => below(luck.draw(), self.count),
            Order::Zipf(ranks) => ranks.rank(self.count, luck.draw_unit()),
        };
        self.visits += 1;
        let (place, bit) = ((number / 64) as usize, 1 << (number % 64));
        let repeat = self.asked.get(place).is_some_and(|bits| bits & bit != 0);
        if let Some(bits) = self.asked.get_mut(place) {
            *bits |= bit;
        }
        (&self.pages, number, repeat)
    }

    fn passes(&self) -> Option<u64> {
        matches!(self.order, Order::InTurn).then_some(self.visits / self.count)
    }
}

/// Makes requests from names.
struct Asker {
    workload: Arc<Workload>,
    seed: u64,
    world: u32,
    luck: Luck,
    id_key: u64,
    asked: u64,
    posted: u64,
    tunnels: u64,
    robot_luck: u32,
}

impl Asker {
    fn new(workload: Arc<Workload>, seed: u64, world: u32) -> Self {
        let source = Luck::new(mix(luck(seed, PURPOSE_STREAM) ^ mix(u64::from(world) + 1)));
        let id_key = luck(seed, PURPOSE_IDS);
        Self {
            workload,
            seed,
            world,
            luck: source,
            id_key,
            asked: 0,
            posted: 0,
            tunnels: 0,
            robot_luck: 0,
        }
    }

    fn begin_visit(&mut self) {
        self.robot_luck = (self.luck.draw() >> 32) as u32;
    }

    fn next_id(&mut self) -> u64 {
        loop {
            self.asked += 1;
            let place = u64::from(self.world) << ID_COUNT_BITS;
            // One to one, so that no id comes twice; 0 is left out.
            let id = mix(place.wrapping_add(self.asked) ^ self.id_key);
            if id != 0 {
                return id;
            }
        }
    }

    /// A visit that is one POST or one CONNECT; whether it is.
    fn ask_special(&mut self, names: &Source, asks: &mut Vec<Ask>) -> bool {
        let visit_luck = self.luck.draw();
        let mix = &self.workload.plan.mix;
        let (number, kind) = if mix.post_visit.happens(visit_luck) {
            let body_luck = self.luck.draw_unit();
            let body_bytes = mix.post_body.whole_at(body_luck, 0, POST_BODY_BYTES_MAX);
            self.posted += 1;
            (POST_NUMBERS + self.posted, AskKind::Post { body_bytes })
        } else if mix.connect_visit.happens(visit_luck) {
            let allowed = mix.connect_allowed.happens(self.luck.draw());
            self.tunnels += 1;
            (CONNECT_NUMBERS + self.tunnels, AskKind::Connect { allowed })
        } else {
            return false;
        };
        let name = match names {
            Source::Window(Window { pages, .. }) | Source::Fixed(Fixed { pages, .. }) => {
                pages.name(&pages.page(number))
            }
            Source::Replay(_) => return false,
        };
        let ask = self.ask(name, kind, 0, false);
        asks.push(ask);
        true
    }

    fn ask_page(&mut self, pages: &Pages, number: u64, repeat: bool, asks: &mut Vec<Ask>) {
        let page = pages.page(number);
        let ask = self.ask_object(pages.name(&page), 0, repeat);
        asks.push(ask);
        let Some((embedding, count)) = pages.embedding(&page) else { return };
        for slot in 0..count {
            let (name, shared) = pages.embedded(&page, &embedding, slot);
            let after_us = embedding.first_after_us + slot * embedding.spacing_us;
            let ask = self.ask_object(name, after_us, repeat || shared);
            asks.push(ask);
        }
    }

    fn ask_line(&mut self, line: Line, asks: &mut Vec<Ask>) {
        let name = ObjectName {
            world: self.world,
            kind: line.kind,
            number: line.number,
            size: Some(line.bytes),
        };
        let kind = match line.method {
            LogMethod::Get => AskKind::Plain,
            LogMethod::Ims304 => AskKind::Ims304,
            LogMethod::Head => AskKind::Head,
            LogMethod::Connect => AskKind::Connect { allowed: true },
            LogMethod::Post => {
                // A log has the size of the answer only.
                let body_luck = self.luck.draw_unit();
                let body = self.workload.plan.mix.post_body;
                AskKind::Post { body_bytes: body.whole_at(body_luck, 0, POST_BODY_BYTES_MAX) }
            }
        };
        let ask = self.ask(name, kind, 0, line.repeat);
        asks.push(ask);
    }

    /// A request for an object, of the kind that luck says.
    fn ask_object(&mut self, name: ObjectName, after_us: u64, repeat: bool) -> Ask {
        let kind_luck = self.luck.draw();
        let kinds = &self.workload.plan.mix.kinds;
        let kind = match kinds.iter().position(|chance| chance.happens(kind_luck)) {
            Some(0) => AskKind::Ims200,
            Some(1) => AskKind::Ims304,
            Some(2) => AskKind::Reload,
            Some(3) => AskKind::Head,
            Some(_) => self.range(&name),
            None => AskKind::Plain,
        };
        let mut ask = self.ask(name, kind, after_us, repeat);
        let abort_luck = self.luck.draw();
        ask.abort = kind == AskKind::Plain && self.workload.plan.mix.abort.happens(abort_luck);
        ask
    }

    /// The rest of the object from somewhere on, or a piece of it.
    fn range(&mut self, name: &ObjectName) -> AskKind {
        let size_bytes = self.workload.facts(self.seed, name).size_bytes.max(1);
        let first = below(self.luck.draw(), size_bytes);
        let piece = self.luck.draw();
        let left = size_bytes - first;
        let last =
            if piece & 1 == 0 { size_bytes - 1 } else { first + below(luck(piece, 1), left) };
        AskKind::Range { first, last }
    }

    fn ask(&mut self, name: ObjectName, kind: AskKind, after_us: u64, repeat: bool) -> Ask {
        Ask {
            name,
            kind,
            after_us,
            id: self.next_id(),
            repeat,
            abort: false,
            robot_luck: self.robot_luck,
            server_luck: name.server_luck(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::distribution::Distribution;
    use crate::facts::Facts;
    use std::collections::{HashMap, HashSet};

    fn workload(name: &str) -> Arc<Workload> {
        Arc::new(Workload::builtin(name).unwrap().unwrap())
    }

    fn asks(stream: &mut Stream, count: usize) -> Vec<Ask> {
        let mut asks = Vec::new();
        while asks.len() < count {
            stream.next_visit(&mut asks);
        }
        asks
    }

    fn polymix(seed: u64, world: u32, count: usize) -> Vec<Ask> {
        asks(&mut Stream::new(workload("polymix-4"), seed, world, 2, 20_000), count)
    }

    #[test]
    fn the_same_seed_asks_for_the_same() {
        for name in Workload::builtin_names() {
            let workload = workload(name);
            let run =
                |seed| asks(&mut Stream::new(Arc::clone(&workload), seed, 0, 2, 20_000), 100_000);
            let first = run(1);
            assert!(first == run(1), "{name}");
            assert!(first != run(2), "{name}");
        }
    }

    #[test]
    fn worlds_share_neither_names_nor_ids() {
        let (first, second) = (polymix(1, 0, 50_000), polymix(1, 1, 50_000));
        let names: HashSet<ObjectName> = first.iter().map(|ask| ask.name).collect();
        assert!(second.iter().all(|ask| !names.contains(&ask.name)));
        let ids: HashSet<u64> = first.iter().chain(&second).map(|ask| ask.id).collect();
        assert_eq!(ids.len(), first.len() + second.len());
        assert!(!ids.contains(&0));
    }

    #[test]
    fn repeats_are_what_was_asked_for_before() {
        for name in Workload::builtin_names() {
            let mut seen = HashSet::new();
            for ask in asks(&mut Stream::new(workload(name), 3, 0, 1, 5_000), 60_000) {
                assert_eq!(ask.repeat, !seen.insert(ask.name), "{name}: {ask:?}");
            }
        }
    }

    #[test]
    fn a_page_has_the_same_parts_whenever_it_is_asked_for() {
        let workload = workload("polymix-4");
        let mut stream = Stream::new(workload, 3, 0, 1, 5_000);
        let mut parts: HashMap<ObjectName, Vec<ObjectName>> = HashMap::new();
        let mut repeated = 0;
        for _ in 0..20_000 {
            let visit = asks(&mut stream, 1);
            let names: Vec<ObjectName> = visit.iter().map(|ask| ask.name).collect();
            assert!(visit.is_sorted_by_key(|ask| ask.after_us));
            assert!(visit.iter().all(|ask| ask.robot_luck == visit[0].robot_luck));
            if let Some(known) = parts.insert(names[0], names[1..].to_vec()) {
                assert_eq!(known, names[1..]);
                repeated += 1;
            }
        }
        assert!(repeated > 10_000, "{repeated}");
    }

    #[track_caller]
    fn assert_share(asks: &[Ask], share: f64, what: impl Fn(&Ask) -> bool) {
        let got = asks.iter().filter(|ask| what(ask)).count() as f64 / asks.len() as f64;
        let deviation = (share * (1.0 - share) / asks.len() as f64).sqrt();
        // Requests of a page are not independent, so allow for more than independent ones would
        // need.
        assert!((got - share).abs() < 8.0 * deviation + 1e-9, "{got} instead of {share}");
    }

    #[test]
    fn shares_are_those_of_the_file() {
        let asks = polymix(5, 0, 400_000);
        assert_share(&asks, 0.05, |ask| ask.kind == AskKind::Ims200);
        assert_share(&asks, 0.10, |ask| ask.kind == AskKind::Ims304);
        assert_share(&asks, 0.05, |ask| ask.kind == AskKind::Reload);
        assert_share(&asks, 0.001, |ask| ask.kind == AskKind::Head);
        assert_share(&asks, 0.015, |ask| matches!(ask.kind, AskKind::Post { .. }));
        assert_share(&asks, 0.001 * 0.784, |ask| ask.abort);
        let gets: Vec<Ask> =
            asks.into_iter().filter(|ask| ask.name.number < POST_NUMBERS).collect();
        // The pages that are asked for again are small, and have fewer images than others.
        assert_share(&gets, 0.623, |ask| ask.name.kind == 0);
        assert_share(&gets, 0.1616, |ask| ask.name.kind == 1);
        assert_share(&gets, 0.0054, |ask| ask.name.kind == 2);
        let pages: Vec<Ask> = gets.into_iter().filter(|ask| ask.name.kind != 0).collect();
        assert_share(&pages, 0.6875, |ask| ask.repeat);
    }

    #[test]
    fn means_are_those_of_the_stream() {
        for name in Workload::builtin_names() {
            let workload = workload(name);
            let mut stream = Stream::new(Arc::clone(&workload), 5, 0, 1, 20_000);
            let mut asks = Vec::new();
            for _ in 0..100_000 {
                stream.next_visit(&mut asks);
            }
            // Where much is repeated, the mean is that of few objects.
            let (asks_allowed, bytes_allowed) = match *name {
                "package-mirror" => (0.01, 0.5),
                "webaxe-4" => (0.05, 0.1),
                _ => (0.01, 0.06),
            };
            let per_visit = asks.len() as f64 / 100_000.0;
            assert!(
                (per_visit / stream.mean_asks_per_visit() - 1.0).abs() < asks_allowed,
                "{name}: {per_visit}"
            );
            let facts = |ask: &Ask| workload.facts(5, &ask.name);
            let cachable =
                asks.iter().filter(|ask| facts(ask).cachable).count() as f64 / asks.len() as f64;
            assert!((cachable - workload.cachable_share()).abs() < 0.02, "{name}: {cachable}");
            let bytes = asks.iter().map(|ask| facts(ask).size_bytes as f64).sum::<f64>()
                / asks.len() as f64;
            assert!(
                (bytes / workload.mean_object_bytes() - 1.0).abs() < bytes_allowed,
                "{name}: {bytes} B"
            );
        }
    }

    #[test]
    fn repeats_come_from_the_window_and_the_hot_set() {
        let workload = workload("polymix-4");
        let Names::Window { pick, .. } = workload.plan.names else { panic!("a window") };
        let pages = Pages::new(Arc::clone(&workload.plan), 1, 0, 10_000, pick);
        let mut luck = Luck::new(1);
        let mut counts: HashMap<u64, u32> = HashMap::new();
        for _ in 0..400_000 {
            *counts.entry(pages.pick(50_000, luck.draw()).unwrap()).or_default() += 1;
        }
        assert!(counts.keys().all(|number| (40_000..50_000).contains(number)));
        let mut popular: Vec<u32> = counts.values().copied().collect();
        popular.sort_unstable_by(|left, right| right.cmp(left));
        // 100 hot names with 400 requests each beside the 36 that every name has.
        let hot: u32 = popular[..100].iter().sum();
        assert!((0.10..0.12).contains(&(f64::from(hot) / 400_000.0)), "{hot}");
        assert!(popular[99] > 300 && popular[100] < 100, "{:?}", &popular[95..105]);
        assert_eq!(pages.pick(0, 1), None);
        assert!(pages.pick(1, 1) == Some(0) && pages.pick(7, 1).unwrap() < 7);
    }

    #[test]
    fn repeats_are_small_and_as_cachable_as_others() {
        let workload = workload("polymix-4");
        let asks = polymix(5, 0, 400_000);
        let facts = |repeat: bool, kind: u8| {
            let of = asks.iter().filter(move |ask| ask.repeat == repeat && ask.name.kind == kind);
            of.filter(|ask| ask.name.number < POST_NUMBERS)
                .map(|ask| workload.facts(5, &ask.name))
                .collect::<Vec<_>>()
        };
        // Nine of ten are the smallest of nine; images belong to their pages, whatever their size.
        for (kind, cachable, smaller) in
            [(1, 0.90, 0.20..0.40), (3, 0.72, 0.6..0.8), (0, 0.8, 0.97..1.03)]
        {
            let (new, repeated) = (facts(false, kind), facts(true, kind));
            let mean = |all: &[Facts]| {
                all.iter().map(|facts| facts.size_bytes as f64).sum::<f64>() / all.len() as f64
            };
            let ratio = mean(&repeated) / mean(&new);
            assert!(smaller.contains(&ratio), "type {kind}: {ratio}");
            let share = repeated.iter().filter(|facts| facts.cachable).count() as f64
                / repeated.len() as f64;
            assert!((share - cachable).abs() < 0.02, "type {kind}: {share}");
        }
    }

    #[test]
    fn the_recurrence_factor_makes_repeats_rare() {
        let mut stream = Stream::new(workload("datacomm-1"), 1, 0, 1, u64::MAX);
        asks(&mut stream, 1_000);
        stream.set_recurrence_factor(5.0 / 55.0);
        assert_share(&asks(&mut stream, 50_000), 0.6875 / 11.0, |ask| ask.repeat);
        stream.set_recurrence_factor(1.0);
        assert_share(&asks(&mut stream, 50_000), 0.6875, |ask| ask.repeat);
    }

    #[test]
    fn a_set_in_turn_is_asked_for_once_per_pass() {
        let mut stream = Stream::new(workload("uniform-unique"), 1, 0, 1, 10_000);
        let first: HashSet<ObjectName> =
            asks(&mut stream, 10_000).iter().map(|ask| ask.name).collect();
        assert_eq!((first.len(), stream.passes()), (10_000, Some(1)));
        let second = asks(&mut stream, 10_000);
        assert!(second.iter().all(|ask| ask.repeat && first.contains(&ask.name)));
        assert_eq!(stream.passes(), Some(2));
    }

    #[test]
    fn worlds_split_a_fixed_set() {
        let mut names = 0;
        for world in 0..3 {
            let mut stream = Stream::new(workload("uniform-unique"), 1, world, 3, 10_000);
            while stream.passes() == Some(0) {
                names += asks(&mut stream, 1).len();
            }
        }
        assert_eq!(names, 10_000);
    }

    #[test]
    fn ranges_lie_inside_their_objects() {
        let workload = workload("package-mirror");
        let mut stream = Stream::new(Arc::clone(&workload), 1, 0, 1, 5_000);
        let mut ranges = 0;
        let mut to_the_end = 0;
        for ask in asks(&mut stream, 50_000) {
            if let AskKind::Range { first, last } = ask.kind {
                let size_bytes = workload.facts(1, &ask.name).size_bytes;
                assert!(first <= last && last < size_bytes, "{ask:?}");
                ranges += 1;
                to_the_end += u32::from(last == size_bytes - 1);
            }
        }
        assert!(
            (2_200..2_800).contains(&ranges) && (1_000..1_500).contains(&to_the_end),
            "{ranges} {to_the_end}"
        );
    }

    #[test]
    fn tunnels_are_allowed_or_not_as_the_file_says() {
        let asks = asks(&mut Stream::new(workload("allow-list"), 1, 0, 1, 10_000), 100_000);
        assert_share(&asks, 0.54, |ask| ask.kind == AskKind::Connect { allowed: true });
        assert_share(&asks, 0.06, |ask| ask.kind == AskKind::Connect { allowed: false });
    }

    #[test]
    fn a_user_needs_four_connections_for_a_page() {
        let workload = workload("polymix-4");
        let embedding = workload.plan.kinds[1].embeds.unwrap();
        let Distribution::Normal { mean, .. } = workload.plan.think else {
            panic!("a normal distribution")
        };
        assert!(
            (mean / embedding.spacing_us as f64).ceil()
                <= f64::from(workload.connections_per_robot())
        );
    }
}
