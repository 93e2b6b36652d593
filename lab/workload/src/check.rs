//! From the file as written to the workload as used: every contradiction is an error here.

use std::sync::Arc;

use toml::Spanned;

use crate::ask::POST_BODY_BYTES_MAX;
use crate::check_types;
use crate::distribution::{Distribution, Ranks};
use crate::error::WorkloadError;
use crate::file::{self, Client, File, Hot, Popularity, Requests, Source};
use crate::link::Link;
use crate::mix::Chance;
use crate::plan::{FIXED_SET_MAX, HotSet, Mix, Names, Order, Party, Pick, Plan, PreferSmall};
use crate::units::{Amount, Choice, Micros, Share};
use crate::workload::Workload;

/// Longest delay, think or idle time in a file, in µs: one hour.
const PAUSE_US_MAX: f64 = 3_600e6;

/// Most connections of one user.
const CONNECTIONS_MAX: u32 = 1_000;

/// Most requests per second of one user.
const USER_RATE_MAX: f64 = 1_000_000.0;

/// Most neighbours on either side among which a small object is looked for: each costs time in the
/// middle of a measurement.
const REACH_MAX: u32 = 16;

/// Shares are added up from decimal fractions: this much is rounding.
pub(crate) const ROUNDING: f64 = 1e-6;

/// Reads, checks and builds a workload.
pub(crate) fn build(text: &str, source_name: &str) -> Result<Workload, WorkloadError> {
    let source = Source { file: source_name, text };
    let file = source.read()?;
    check_name(&source, &file.name)?;
    let names = names(&source, &file)?;
    let types = check_types::build(&source, &file.types, &names)?;
    let plan = Plan {
        client: Party::new(
            file.client.requests_per_connection.distribution,
            link(&source, file.client.delay.as_ref(), file.client.loss.as_ref())?,
        ),
        server: Party::new(
            file.server.requests_per_connection.distribution,
            link(&source, file.server.delay.as_ref(), file.server.loss.as_ref())?,
        ),
        think: think(&source, &file)?,
        idle_s: pause_us(&source, "idle", &file.server.idle)? as f64 / 1e6,
        connections: connections(&source, &file.client)?,
        requests_per_s: requests_per_s(&source, &file.client)?,
        mix: mix(&source, file.requests.as_ref(), types.asks_per_page)?,
        names,
        kinds: types.kinds,
        direct: types.direct,
        asks_per_page: types.asks_per_page,
        names_per_page: types.names_per_page,
    };
    let name = file.name.into_inner();
    Ok(Workload::assemble(
        name,
        file.description,
        text.to_owned(),
        file.mode,
        types.public,
        Arc::new(plan),
    ))
}

fn check_name(source: &Source<'_>, name: &Spanned<String>) -> Result<(), WorkloadError> {
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if name.as_ref().is_empty() || !name.as_ref().chars().all(allowed) {
        return Err(source.error_at(name, "name: may only have small letters, digits and hyphens"));
    }
    Ok(())
}

fn link(
    source: &Source<'_>,
    delay: Option<&Spanned<Amount<Micros>>>,
    loss: Option<&Spanned<Amount<Share>>>,
) -> Result<Link, WorkloadError> {
    let one_way_us = delay.map_or(Ok(0), |delay| pause_us(source, "delay", delay))?;
    let loss_share = loss.map_or(0.0, |loss| loss.as_ref().value);
    match loss {
        Some(loss) if loss_share > 0.5 => {
            Err(source
                .error_at(loss, "loss: must be between 0 % and 50 %, beyond it nothing arrives"))
        }
        _ => Ok(Link { one_way_us, loss: loss_share }),
    }
}

/// A waiting time, in µs, at most an hour.
pub(crate) fn pause_us(
    source: &Source<'_>,
    key: &str,
    pause: &Spanned<Amount<Micros>>,
) -> Result<u64, WorkloadError> {
    let us = pause.as_ref().value;
    if us > PAUSE_US_MAX {
        return Err(source.error_at(pause, format!("{key}: must be one hour at most")));
    }
    Ok(us.round() as u64)
}

fn think(source: &Source<'_>, file: &File) -> Result<Distribution, WorkloadError> {
    let think = file.server.think.as_ref().distribution;
    if think.at(0.5) > PAUSE_US_MAX {
        return Err(source.error_at(&file.server.think, "think: must be one hour at most"));
    }
    Ok(think)
}

fn connections(source: &Source<'_>, client: &Client) -> Result<u32, WorkloadError> {
    let connections = *client.connections.as_ref();
    if !(1..=CONNECTIONS_MAX).contains(&connections) {
        let message = format!("connections: must be between 1 and {CONNECTIONS_MAX}");
        return Err(source.error_at(&client.connections, message));
    }
    Ok(connections)
}

fn requests_per_s(source: &Source<'_>, client: &Client) -> Result<f64, WorkloadError> {
    let rate = client.requests_per_user.as_ref().value;
    if !(1e-6..=USER_RATE_MAX).contains(&rate) {
        let message = format!("requests_per_user: must be above 0 and at most {USER_RATE_MAX} / s");
        return Err(source.error_at(&client.requests_per_user, message));
    }
    Ok(rate)
}

fn mix(
    source: &Source<'_>,
    requests: Option<&Spanned<Requests>>,
    asks_per_page: f64,
) -> Result<Mix, WorkloadError> {
    let none = Requests::default();
    let kinds = requests.map_or(&none, |requests| requests.as_ref());
    let share = |amount: Option<Amount<Share>>| amount.map_or(0.0, |amount| amount.value);
    let post = kinds.post.as_ref().map_or(0.0, |post| post.share.value);
    let connect = kinds.connect.as_ref().map_or(0.0, |connect| connect.share.value);
    let objects = [kinds.ims_200, kinds.ims_304, kinds.reload, kinds.head, kinds.range].map(share);
    let special: f64 = post + connect + objects.iter().sum::<f64>();
    if let Some(requests) = requests.filter(|_| special > 1.0 + ROUNDING) {
        let message = format!(
            "requests: the kinds of requests sum to {:.2} %; they must be 100 % at most (the rest are plain GETs)",
            special * 100.0
        );
        return Err(source.error_at(requests, message));
    }
    // A POST and a CONNECT are visits of their own, a page is a visit with several requests: from
    // shares of requests to shares of visits.
    let object_share = (1.0 - post - connect).max(0.0);
    let asks_per_visit = 1.0 / (post + connect + object_share / asks_per_page);
    let mut end = 0.0;
    let ends = objects.map(|share| {
        end += if object_share > 0.0 { share / object_share } else { 0.0 };
        Chance::new(end)
    });
    let post_body =
        kinds.post.as_ref().map_or(Distribution::Constant(0.0), |post| post.body.distribution);
    if let Some(requests) = requests.filter(|_| post_body.at(0.5) > POST_BODY_BYTES_MAX as f64) {
        return Err(source.error_at(requests, "post: bodies must be 64 KB at most"));
    }
    Ok(Mix {
        kinds: ends,
        abort: Chance::new(share(kinds.abort)),
        post_visit: Chance::new(post * asks_per_visit),
        connect_visit: Chance::new((post + connect) * asks_per_visit),
        post_body,
        connect_allowed: Chance::new(
            kinds.connect.as_ref().map_or(0.0, |connect| connect.allowed.value),
        ),
        asks_per_visit,
    })
}

fn names(source: &Source<'_>, file: &File) -> Result<Names, WorkloadError> {
    let popularity = file.popularity.as_ref();
    match (&popularity.fixed_set, &popularity.recurrence) {
        (Some(_), Some(recurrence)) => Err(source.error_at(
            recurrence,
            "recurrence: contradicts fixed_set, where every name is asked for again; leave out one of the two",
        )),
        (Some(objects), None) => fixed_names(source, popularity, objects),
        (None, Some(recurrence)) => window_names(source, file, recurrence.as_ref().value),
        (None, None) => Err(source.error_at(
            &file.popularity,
            "popularity: needs recurrence (new names for ever) or fixed_set (always the same names)",
        )),
    }
}

fn fixed_names(
    source: &Source<'_>,
    popularity: &Popularity,
    objects: &Spanned<u64>,
) -> Result<Names, WorkloadError> {
    let unused = [
        popularity.working_set.as_ref().map(|value| (value.span(), "working_set")),
        popularity.hot.as_ref().map(|value| (value.span(), "hot")),
        popularity.prefer_small.as_ref().map(|value| (value.span(), "prefer_small")),
    ];
    if let Some((span, key)) = unused.into_iter().flatten().next() {
        let message = format!("{key}: has no meaning with fixed_set; leave it out");
        return Err(source.error(span.start, message));
    }
    if !(1..=FIXED_SET_MAX).contains(objects.as_ref()) {
        return Err(
            source.error_at(objects, format!("fixed_set: must be between 1 and {FIXED_SET_MAX}"))
        );
    }
    let order = match popularity.choice.as_ref().map_or(Choice::Uniform, |choice| *choice.as_ref())
    {
        Choice::InTurn => Order::InTurn,
        Choice::Uniform => Order::Uniform,
        Choice::Zipf(exponent) => Order::Zipf(Ranks::new(exponent)),
    };
    Ok(Names::Fixed { objects: *objects.as_ref(), order })
}

fn window_names(source: &Source<'_>, file: &File, recurrence: f64) -> Result<Names, WorkloadError> {
    let popularity = file.popularity.as_ref();
    let Some(working_set) = &popularity.working_set else {
        let message = "popularity: recurrence needs working_set (\"50 % of cache\", \"20000 objects\", \"unlimited\")";
        return Err(source.error_at(&file.popularity, message));
    };
    if let Some(hot) = popularity.hot.as_ref().filter(|_| recurrence == 0.0) {
        return Err(source
            .error_at(hot, "hot: nothing is asked for again with recurrence 0 %; leave it out"));
    }
    if let Some(small) = popularity.prefer_small.as_ref().filter(|_| recurrence == 0.0) {
        let message = "prefer_small: nothing is asked for again with recurrence 0 %; leave it out";
        return Err(source.error_at(small, message));
    }
    let ranks = match popularity.choice.as_ref() {
        Some(choice) => match choice.as_ref() {
            Choice::Uniform => None,
            Choice::Zipf(exponent) => Some(Ranks::new(*exponent)),
            Choice::InTurn => {
                return Err(source.error_at(choice, "choice: \"in turn\" is for fixed_set only"));
            }
        },
        None => None,
    };
    let hot = popularity.hot.as_ref().map(|hot| hot_set(source, hot.as_ref())).transpose()?;
    let small = popularity.prefer_small.as_ref();
    let small = small.map(|small| prefer_small(source, small.as_ref())).transpose()?;
    let pick = Pick { ranks, hot, small };
    Ok(Names::Window { recurrence, working_set: *working_set.as_ref(), pick })
}

fn prefer_small(
    source: &Source<'_>,
    small: &file::PreferSmall,
) -> Result<PreferSmall, WorkloadError> {
    let reach = *small.reach.as_ref();
    if !(1..=REACH_MAX).contains(&reach) {
        let message = format!("reach: must be between 1 and {REACH_MAX}");
        return Err(source.error_at(&small.reach, message));
    }
    let share = small.repeats.value;
    Ok(PreferSmall { share, chance: Chance::new(share), reach })
}

fn hot_set(source: &Source<'_>, hot: &Hot) -> Result<HotSet, WorkloadError> {
    let objects = hot.objects.as_ref().value;
    if !(1e-6..=0.5).contains(&objects) {
        return Err(
            source.error_at(&hot.objects, "objects: the hot set must be between 0.0001 % and 50 %")
        );
    }
    Ok(HotSet { stride: (1.0 / objects).round() as u64, requests: Chance::new(hot.requests.value) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_workloads_of_the_program_are_right() {
        for name in Workload::builtin_names() {
            let workload =
                Workload::builtin(name).unwrap().unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(workload.name(), *name);
            assert_eq!(Some(workload.text()), Workload::builtin_text(name));
            assert!(!workload.description().is_empty());
        }
        assert!(Workload::builtin("polymix-5").is_none());
    }

    /// The message about PolyMix-4 with one piece of text replaced.
    #[track_caller]
    fn message(old: &str, new: &str) -> String {
        let text = Workload::builtin_text("polymix-4").unwrap();
        assert!(text.contains(old), "{old} is not in the file");
        Workload::parse(&text.replace(old, new), "my.toml").map(|_| ()).unwrap_err().to_string()
    }

    #[track_caller]
    fn assert_says(old: &str, new: &str, expected: &str) {
        let message = message(old, new);
        assert!(message.contains(expected), "{message}");
        assert!(message.starts_with("my.toml:") && !message.contains('\n'), "{message}");
    }

    #[test]
    fn errors_say_where_and_what() {
        assert_eq!(
            message("recurrence = \"68.75 %\"", "recurrence = \"168 %\""),
            "my.toml:41:14: recurrence: \"168 %\" is too much; it must be between 0 % and 100 %"
        );
    }

    #[test]
    fn what_is_not_understood_is_an_error() {
        assert_says("connections = 4", "connection = 4", "unknown field `connection`");
        assert_says("connections = 4", "", "missing field `connections`");
        assert_says("connections = 4", "connections = = 4", "my.toml:20");
        assert_says("idle = \"15 s\"", "idle = 15", "idle: invalid type: integer `15`");
        assert_says(
            "exp(4.5 KB)",
            "exp(4.5)",
            "size: \"4.5\" is not understood; write it like 4.5 KB",
        );
        assert_says("asked = \"embedded\"", "asked = \"later\"", "asked: unknown variant `later`");
    }

    #[test]
    fn contradictions_are_errors() {
        assert_says(
            "share = \"65 %\"",
            "share = \"66 %\"",
            "sum to 101.00 %; they must sum to 100 %",
        );
        assert_says("ims_200 = \"5 %\"", "ims_200 = \"90 %\"", "sum to 106.60 %");
        assert_says(
            "type = \"image\"",
            "type = \"picture\"",
            "no type \"picture\" with asked = \"embedded\"",
        );
        assert_says(
            "type = \"image\"",
            "type = \"other\"",
            "no type \"other\" with asked = \"embedded\"",
        );
        assert_says("count = \"zipf(13)\"", "count = \"zipf(3)\"", "its share is");
        assert_says("count = \"zipf(13)\"", "count = \"exp(4)\"", "constant, uniform or zipf");
        assert_says("0.4 / s", "0 / s", "requests_per_user: must be above 0");
        assert_says(
            "connections = 4",
            "connections = 0",
            "connections: must be between 1 and 1000",
        );
        assert_says("working_set = \"50 % of cache\"", "", "recurrence needs working_set");
        assert_says("\"68.75 %\"", "\"0 %\"", "hot: nothing is asked for again");
        assert_says("choice = \"uniform\"", "choice = \"in turn\"", "for fixed_set only");
        assert_says("[popularity]", "[popularity]\nfixed_set = 10", "contradicts fixed_set");
        assert_says("objects = \"1 %\"", "objects = \"0 %\"", "hot set must be");
        assert_says("reach = 4", "reach = 0", "reach: must be between 1 and 16");
        assert_says("name = \"html\"", "name = \"image\"", "is empty or there twice");
        assert_says("text/html", "text html", "is not like image/gif");
        assert_says("\"html\"\nshare", "\".html\"\nshare", "without a dot");
        assert_says("lognormal(30 d, 7 d)", "constant(1 s)", "between 2 s and 25 y");
        assert_says("delay = \"40 ms\"", "delay = \"2 h\"", "one hour at most");
        assert_says("loss = \"0.05 %\"", "loss = \"60 %\"", "between 0 % and 50 %");
        assert_says("uniform(0 KB, 8 KB)", "constant(65 KB)", "64 KB at most");
        assert_says("name = \"polymix-4\"", "name = \"PolyMix 4\"", "small letters");
    }

    #[test]
    fn something_must_be_asked_for() {
        let text = Workload::builtin_text("datacomm-1").unwrap();
        let embedded = text.replace("share = \"100 %\"", "share = \"100 %\"\nasked = \"embedded\"");
        let error = Workload::parse(&embedded, "x").map(|_| ()).unwrap_err();
        assert!(error.message.contains("nothing would be asked for"), "{error}");
        let (without_types, _) = text.split_once("[[type]]").unwrap();
        let error = Workload::parse(without_types, "x").map(|_| ()).unwrap_err();
        assert!(error.message.contains("at least one content type"), "{error}");
        let set = text.replace("recurrence = \"68.75 %\"", "fixed_set = 10");
        let error = Workload::parse(&set, "x").map(|_| ()).unwrap_err();
        assert!(error.message.contains("working_set: has no meaning with fixed_set"), "{error}");
        assert!(Workload::parse("", "x").is_err());
    }

    #[test]
    fn an_orphan_is_an_error() {
        let text = Workload::builtin_text("polymix-4").unwrap();
        let (before, after) = text.split_once("[type.embeds]").unwrap();
        let (_, rest) = after.split_once("[[type]]").unwrap();
        let error =
            Workload::parse(&format!("{before}[[type]]{rest}"), "x").map(|_| ()).unwrap_err();
        assert!(error.message.contains("no type embeds it"), "{error}");
    }
}
