//! Writes the pages of synthetic runs, to look at:
//! `cargo run -p humboldt-lab-report --example sample_report -- DIR`. Nothing in them was measured.

use humboldt_lab_record::{BangRun, BangSecond, Run};
use humboldt_lab_report::{Experiment, Kind, Pairs, Results, compare, write_bang, write_run};
use std::path::PathBuf;
use std::process::ExitCode;

mod synthetic;

fn main() -> ExitCode {
    let Some(dir) = std::env::args_os().nth(1).map(PathBuf::from) else {
        return failed("give the folder to write to");
    };
    let aufs = synthetic::run("synthetic:aufs", "ext4 noatime", 1200.0, 1 << 30, 500, 1);
    let mut spoilt = aufs.clone();
    let url = "http://127.0.0.1:9/l/0/1/2a.html?<script>alert(1)</script>";
    synthetic::spoil(&mut spoilt, url, "00 00 00 00 <b>00</b>");
    let schemes =
        [("ufs", 400.0), ("diskd", 900.0), ("rock", 1500.0), ("coss", 2100.0), ("null", 2500.0)];
    let mut runs: Vec<Run> = schemes
        .iter()
        .map(|(scheme, rate)| {
            synthetic::run(&format!("synthetic:{scheme}"), "ext4 noatime", *rate, 1 << 30, 500, 7)
        })
        .collect();
    runs.extend(
        [1210.0, 1180.0, 1290.0]
            .map(|rate| synthetic::run("synthetic:aufs", "ext4 noatime", rate, 1 << 30, 500, 3)),
    );
    let written = write_run(&dir.join("run"), &aufs)
        .and_then(|()| write_run(&dir.join("spoilt"), &spoilt))
        .and_then(|()| write_run(&dir.join("empty"), &Run::default()))
        .and_then(|()| compare(&dir.join("compare"), &runs))
        .and_then(|()| {
            let title = "A synthetic experiment";
            let experiment = Experiment::new(title, Kind::Peak, true, Pairs::default());
            experiment.write_page(&dir.join("matrix"), &Results::Peaks(runs))
        })
        .and_then(|()| write_bang(&dir.join("bang"), &bang(&aufs)));
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(&error.to_string()),
    }
}

fn bang(run: &Run) -> BangRun {
    let mut bang = BangRun {
        format: 1,
        started_s: run.started_s,
        subject: "synthetic:null".to_owned(),
        urls: "synthetic".to_owned(),
        connections_max: 63,
        elapsed_us: 60_000_000,
        answers: 60_000,
        body_bytes: 640_000_000,
        service: run.last_quarter.misses.response.clone(),
        ..BangRun::default()
    };
    bang.statuses.insert(200, 60_000);
    bang.seconds = (1..=60u32)
        .map(|second| BangSecond {
            at_s: f64::from(second),
            answers: 1000 + u64::from(second * 37 % 101),
            open: 63,
            ..BangSecond::default()
        })
        .collect();
    bang
}

#[allow(clippy::print_stderr)] // The example's only way to say what went wrong.
fn failed(why: &str) -> ExitCode {
    eprintln!("sample_report: {why}");
    ExitCode::FAILURE
}
