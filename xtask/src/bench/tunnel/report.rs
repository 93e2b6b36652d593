//! The tables of `bench tunnel`.

use super::super::table;
use super::{Memory, Runner, Turn};

/// CPU per GB over that of the bare relay, at most.
const BULK_RATIO_MAX: f64 = 1.1;

/// CPU of making a tunnel over HAProxy's, at most.
const SET_UP_RATIO_MAX: f64 = 1.1;

/// Memory of a tunnel, at most, in KB.
const TUNNEL_KB_MAX: f64 = 16.0;

/// The parts, in the order of `Part::ALL`: what is done, the unit of its CPU and of its rate, the
/// subject that Humboldt is compared with, and the ratio that is asked for.
const PARTS: [(&str, &str, &str, &str, Option<f64>); 3] = [
    ("Bulk", "CPU µs/GB", "GB/s", "floor", Some(BULK_RATIO_MAX)),
    ("Set-ups", "CPU µs/tunnel", "tunnels/s", "haproxy", Some(SET_UP_RATIO_MAX)),
    ("Messages of a byte, there and back", "CPU µs/message", "messages/s", "haproxy", None),
];

/// Prints the turns of all subjects.
pub(super) fn print(runners: &[Runner], turns: &[[Vec<Turn>; 3]]) {
    for (part, (title, cpu, rate, beside, asked)) in PARTS.into_iter().enumerate() {
        println!("\n{title}\n");
        let of = |name: &str| {
            let index = runners.iter().position(|runner| runner.subject.name == name)?;
            Some(cpu_us(&turns[index][part]))
        };
        let other = of(beside);
        let rows = runners.iter().zip(turns).map(|(runner, turns)| {
            let own = cpu_us(&turns[part]);
            let ratios = other.as_ref().map(|other| ratios(&own, other));
            let median =
                table::median(&turns[part].iter().map(|turn| turn.rate).collect::<Vec<_>>());
            vec![
                runner.subject.name.to_owned(),
                format!("{median:.1}"),
                table::with_range(&own, 1),
                ratios.as_ref().map(|ratios| table::with_range(ratios, 2)).unwrap_or_default(),
                verdict(runner.subject.name, ratios.as_deref(), asked),
            ]
        });
        let over = format!("over {beside}'s");
        table::print(&["tunnel", rate, cpu, &over, "asked"], &rows.collect::<Vec<_>>());
        if let (Some(new), Some(old)) = (of("humboldt"), of("old")) {
            println!("\nhumboldt ÷ old: {}", table::with_range(&ratios(&new, &old), 3));
        }
    }
}

/// Prints the memory of all subjects.
pub(super) fn print_memory(runners: &[Runner], memory: &[Memory]) {
    println!("\nMemory of a tunnel\n");
    let rows = runners.iter().zip(memory).map(|(runner, memory)| {
        let most = memory.idle_kb.max(memory.active_kb);
        let verdict = if most <= TUNNEL_KB_MAX { "reached" } else { "missed" };
        let is_ours = runner.subject.name == "humboldt";
        vec![
            runner.subject.name.to_owned(),
            format!("{:.1} KB", memory.idle_kb),
            format!("{:.1} KB", memory.active_kb),
            if is_ours { format!("≤ {TUNNEL_KB_MAX} KB: {verdict}") } else { String::new() },
        ]
    });
    let heading = ["tunnel", "idle", "with bytes that nobody takes", "asked"];
    table::print(&heading, &rows.collect::<Vec<_>>());
}

fn cpu_us(turns: &[Turn]) -> Vec<f64> {
    turns.iter().map(|turn| turn.cpu_us).collect()
}

/// Round by round.
fn ratios(ours: &[f64], theirs: &[f64]) -> Vec<f64> {
    ours.iter().zip(theirs).map(|(ours, theirs)| ours / theirs).collect()
}

fn verdict(name: &str, ratios: Option<&[f64]>, asked: Option<f64>) -> String {
    let (Some(ratios), Some(asked), "humboldt") = (ratios, asked, name) else {
        return String::new();
    };
    let verdict = if table::median(ratios) <= asked { "reached" } else { "missed" };
    format!("≤ {asked}: {verdict}")
}
