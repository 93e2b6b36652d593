//! Peaks that the laboratory found: the lines of an experiment's `index.csv`, repeats taken
//! together.

use super::csv::{Csv, Row};
use super::figures::{NOTHING, at_least, over, over_base, per_s, ratio, signed_pct};
use crate::Outcome;

/// The outcome of runs with a throughput; others failed or were interrupted.
const FILLED: &str = "filled";
const TIME_UP: &str = "time up";

/// Runs of one subject under the same conditions.
pub(super) struct Group {
    pub(super) subject: String,
    /// The conditions, separated by a comma and a blank: file system, mount options, limits.
    pub(super) variant: String,
    /// Think times and sample periods as a part of the workload's own; `None` if it is not known.
    pub(super) time_scale: Option<f64>,
    rates_per_s: Vec<f64>,
    hit_ratios: Vec<f64>,
    /// Whether a run ended before its stores had been filled as planned.
    is_time_up: bool,
    /// Whether the laboratory was the limit of a run for a while.
    is_lab_limited: bool,
    /// Whether a run ended without having found a limit: mostly at the highest load that it was
    /// allowed.
    is_capped: bool,
    last_quarters: Vec<LastQuarter>,
    /// Slopes of the answers per second from fill ratio 0.5 to 2, as a part of their mean for each
    /// unit of the fill ratio; of the repeats that have one.
    slopes: Vec<f64>,
}

/// The end of a run, which is its own result: it may be older than those beside it.
struct LastQuarter {
    per_s: Option<f64>,
    from_fill_ratio: Option<f64>,
    to_fill_ratio: Option<f64>,
    response_ms: Option<f64>,
}

impl LastQuarter {
    fn of(row: &Row<'_>) -> Self {
        // Not every experiment has all columns.
        let number = |column| row.number(column).ok().flatten();
        Self {
            per_s: number("throughput_per_s"),
            from_fill_ratio: number("from_fill_ratio"),
            to_fill_ratio: number("to_fill_ratio"),
            response_ms: number("response_mean_ms"),
        }
    }
}

impl Group {
    fn new(subject: &str, variant: &str, time_scale: Option<f64>) -> Self {
        Self {
            subject: subject.to_owned(),
            variant: variant.to_owned(),
            time_scale,
            rates_per_s: Vec::new(),
            hit_ratios: Vec::new(),
            is_time_up: false,
            is_lab_limited: false,
            is_capped: false,
            last_quarters: Vec::new(),
            slopes: Vec::new(),
        }
    }

    pub(super) fn runs(&self) -> usize {
        self.rates_per_s.len()
    }

    pub(super) fn mean_per_s(&self) -> f64 {
        self.rates_per_s.iter().sum::<f64>() / self.rates_per_s.len() as f64
    }

    /// The mean share of hits; `None` if it was not measured.
    pub(super) fn hit_ratio(&self) -> Option<f64> {
        mean(self.hit_ratios.iter().copied().map(Some))
    }

    /// The slowest to the fastest repeat as a share of the mean; `None` of a single run.
    pub(super) fn spread(&self) -> Option<f64> {
        let max_per_s = self.rates_per_s.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let min_per_s = self.rates_per_s.iter().copied().fold(f64::INFINITY, f64::min);
        (self.runs() > 1).then(|| (max_per_s - min_per_s) / self.mean_per_s())
    }

    /// Whether a run found no limit.
    pub(super) fn is_capped(&self) -> bool {
        self.is_capped
    }

    /// A figure in proportion to the rate, marked where no limit was found.
    pub(super) fn marked(&self, figure: &str) -> String {
        at_least(self.is_capped, figure)
    }

    /// The mean ÷ that of another, which it is compared with; marked where one of the two found no
    /// limit, and nothing where none of them did.
    pub(super) fn over(&self, base: Option<&Self>) -> String {
        if base.is_some_and(|base| std::ptr::eq(base, self)) {
            return ratio(Some(1.0));
        }
        let bounded = |group: &Self| (group.mean_per_s(), group.is_capped);
        over_base(bounded(self), base.map(bounded))
    }

    /// The same of a group that there may not be.
    pub(super) fn any_over(group: Option<&Self>, base: Option<&Self>) -> String {
        group.map_or_else(|| NOTHING.to_owned(), |group| group.over(base))
    }

    /// The mean, with marks of doubt, which the page explains.
    pub(super) fn shown(&self) -> String {
        let time_up = if self.is_time_up { "†" } else { "" };
        let lab_limited = if self.is_lab_limited { "\\*" } else { "" };
        self.marked(&format!("{}{time_up}{lab_limited}", per_s(Some(self.mean_per_s()))))
    }

    /// The mean of the last quarters: answers per second, with the fill ratios that they have
    /// between them.
    pub(super) fn last_quarter_per_s(&self) -> String {
        let of = |figure: fn(&LastQuarter) -> Option<f64>| self.last_quarters.iter().map(figure);
        let from = of(|last| last.from_fill_ratio).flatten().reduce(f64::min);
        let to = of(|last| last.to_fill_ratio).flatten().reduce(f64::max);
        let rate = per_s(mean(of(|last| last.per_s)));
        match (from, to) {
            (Some(from), Some(to)) => format!("{rate} at {from:.1}–{to:.1}"),
            _ => rate,
        }
    }

    /// The mean of the slopes, with the lowest and the highest: "−5.1 % (−9.0 to 1.2)".
    pub(super) fn slope(&self) -> String {
        let Some(mean) = mean(self.slopes.iter().copied().map(Some)) else {
            return NOTHING.to_owned();
        };
        let low = self.slopes.iter().copied().fold(f64::INFINITY, f64::min);
        let high = self.slopes.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        format!("{} % ({} to {})", signed_pct(mean), signed_pct(low), signed_pct(high))
    }

    /// The mean of the mean response times in the last quarters, in milliseconds.
    pub(super) fn last_response_ms(&self) -> Option<f64> {
        mean(self.last_quarters.iter().map(|last| last.response_ms))
    }

    /// The same in the workload's own time, which is that of the book.
    pub(super) fn last_response_at_scale_1_ms(&self) -> Option<f64> {
        over(self.last_response_ms(), self.time_scale)
    }

    /// Whether a word is among the conditions.
    fn says(&self, word: &str) -> bool {
        self.variant.split(", ").any(|other| other == word)
    }

    /// The number before a noun in the conditions; one if it is not there.
    fn counted(&self, noun: &str) -> u32 {
        let number = self.variant.split(", ").find_map(|words| {
            let (number, what) = words.split_once(' ')?;
            number.parse::<u32>().ok().filter(|_| what == noun)
        });
        number.unwrap_or(1)
    }
}

/// `None` unless all are known.
fn mean(figures: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    let all: Vec<f64> = figures.collect::<Option<_>>()?;
    (!all.is_empty()).then(|| all.iter().sum::<f64>() / all.len() as f64)
}

/// The results of one experiment.
pub(super) struct Matrix {
    groups: Vec<Group>,
}

impl Matrix {
    pub(super) fn of(csv: &Csv) -> Outcome<Self> {
        let mut groups: Vec<Group> = Vec::new();
        // The figures of an experiment are compared at the same age, where its laboratory has
        // computed that; then a run without them has another age, and is left out.
        let (rate, hits) = match csv.has("common_per_s") {
            true => ("common_per_s", "common_hit_ratio"),
            false => ("throughput_per_s", "hit_ratio"),
        };
        let limit_reached = match csv.has("common_limit_reached") {
            true => "common_limit_reached",
            false => "limit_reached",
        };
        for row in csv.rows() {
            let outcome = row.text("outcome")?;
            let Some(rate_per_s) = row.number(rate)? else { continue };
            if outcome != FILLED && outcome != TIME_UP {
                continue;
            }
            let (subject, variant) = (row.text("subject")?, row.text("variant")?);
            let time_scale = row.number("time_scale").ok().flatten();
            let known = groups.iter().position(|group| {
                group.subject == subject
                    && group.variant == variant
                    && group.time_scale == time_scale
            });
            let place = known.unwrap_or_else(|| {
                groups.push(Group::new(subject, variant, time_scale));
                groups.len() - 1
            });
            let group = &mut groups[place];
            group.rates_per_s.push(rate_per_s);
            // Not every experiment is about hits.
            group.hit_ratios.extend(row.number(hits).ok().flatten());
            group.is_time_up |= outcome == TIME_UP;
            group.is_lab_limited |=
                row.number("lab_limited_share")?.is_some_and(|share| share > 0.0);
            group.is_capped |= row.number(limit_reached).ok().flatten() == Some(0.0);
            group.last_quarters.push(LastQuarter::of(&row));
            group.slopes.extend(row.number("flatness").ok().flatten());
        }
        Ok(Self { groups })
    }

    /// All groups, in the order in which they were first run.
    pub(super) fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// One process on a file system with a mount option, with as many stores as the experiment has.
    pub(super) fn mounted(&self, subject: &str, file_system: &str, option: &str) -> Option<&Group> {
        let is_it = |group: &&Group| {
            group.subject == subject
                && group.counted("instances") == 1
                && group.says(file_system)
                && group.says(option)
        };
        self.groups.iter().find(is_it)
    }

    /// One process with this many stores.
    pub(super) fn with_stores(&self, subject: &str, stores: u32) -> Option<&Group> {
        self.of_subject(subject, stores, 1).next()
    }

    /// This many processes, whatever they store on.
    pub(super) fn with_instances(&self, subject: &str, instances: u32) -> Option<&Group> {
        self.groups
            .iter()
            .find(|group| group.subject == subject && group.counted("instances") == instances)
    }

    /// A program that stores nothing on disk; the devices of its stores do not matter.
    pub(super) fn without_disk(&self, program: &str) -> Option<&Group> {
        let subject = format!("{program}:null");
        self.groups.iter().find(|group| group.subject == subject)
    }

    fn of_subject(
        &self,
        subject: &str,
        stores: u32,
        instances: u32,
    ) -> impl Iterator<Item = &Group> {
        self.groups.iter().filter(move |group| {
            group.subject == subject
                && group.counted("stores") == stores
                && group.counted("instances") == instances
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matrix(text: &str) -> Matrix {
        Matrix::of(&Csv::parse(text).unwrap()).unwrap()
    }

    #[test]
    fn repeats_are_taken_together_and_failures_left_out() {
        let matrix = matrix(
            "throughput_per_s,lab_limited_share,outcome,variant,subject\n\
             90,0,filled,\"ext4, noatime\",squid:ufs\n\
             1000,0,filled,,squid:null\n\
             110,0,filled,\"ext4, noatime\",squid:ufs\n\
             0,0,failed: no disk,\"ext4, noatime\",squid:ufs\n",
        );
        let ufs = matrix.mounted("squid:ufs", "ext4", "noatime").unwrap();
        assert_eq!((ufs.runs(), ufs.mean_per_s(), ufs.spread()), (2, 100.0, Some(0.2)));
        assert_eq!(ufs.shown(), "100");
        let null = matrix.without_disk("squid").unwrap();
        assert_eq!((null.runs(), null.spread()), (1, None));
        assert_eq!(matrix.groups().len(), 2);
    }

    #[test]
    fn rates_are_those_at_the_same_age_where_they_are_known() {
        let matrix = matrix(
            "subject,variant,outcome,throughput_per_s,lab_limited_share,hit_ratio,common_per_s,\
             common_hit_ratio\n\
             a,,filled,1000,0,0.5,1500,0.4\n\
             b,,filled,2000,0,0.5,,\n",
        );
        let rates: Vec<_> =
            matrix.groups().iter().map(|group| (group.mean_per_s(), group.hit_ratio())).collect();
        assert_eq!(rates, [(1500.0, Some(0.4))], "no age is mixed with another");
    }

    #[test]
    fn doubtful_means_are_marked() {
        let matrix = matrix(
            "subject,variant,outcome,throughput_per_s,lab_limited_share,limit_reached\n\
             a,,time up,1000,0,1\n\
             b,,filled,2000,0.5,\n\
             c,,filled,3000,0,0\n",
        );
        let shown: Vec<String> = matrix.groups().iter().map(Group::shown).collect();
        assert_eq!(shown, ["1,000†", "2,000\\*", "≥ 3,000"]);
    }

    #[test]
    fn stores_and_instances_are_counted() {
        let matrix = matrix(
            "subject,variant,outcome,throughput_per_s,lab_limited_share\n\
             a,\"ext4, noatime, 600 reads/s\",filled,1,0\n\
             a,\"ext4, noatime, 2 stores, 600 reads/s\",filled,2,0\n\
             a,\"ext4, noatime, 3 stores, 3 instances\",filled,3,0\n",
        );
        let rate = |group: Option<&Group>| group.map(Group::mean_per_s);
        assert_eq!(rate(matrix.with_stores("a", 1)), Some(1.0));
        assert_eq!(rate(matrix.with_stores("a", 2)), Some(2.0));
        assert_eq!(rate(matrix.with_stores("a", 3)), None);
        assert_eq!(rate(matrix.with_instances("a", 3)), Some(3.0));
        assert_eq!(rate(matrix.mounted("a", "ext4", "strictatime")), None);
    }
}
