use super::*;
use crate::read_run;
use crate::testing::{assert_page, hostile, synthetic};
use humboldt_lab_record::{FaultKind, Outcome, RUN_FORMAT, Sample, Steadiness};

fn read(dir: &Path, name: &str) -> String {
    fs::read_to_string(dir.join(name)).unwrap()
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// Equal but for the last digit, which JSON may change.
fn is_same(one: f64, other: f64) -> bool {
    (one - other).abs() <= 1e-12 * one.abs()
}

#[test]
fn a_run_is_read_again_as_it_was_written() {
    let dir = tempfile::tempdir().unwrap();
    let run = synthetic("squid:aufs", 100.0, 30);
    write_run(dir.path(), &run).unwrap();
    assert_eq!(names(dir.path()), [CDF_CSV, REPORT_HTML, SAMPLES_CSV, SUMMARY_JSON, SUMMARY_MD]);
    let again = read_run(dir.path()).unwrap();
    assert_eq!(again.format, RUN_FORMAT);
    assert_eq!(again.outcome, run.outcome);
    assert!(is_same(again.summary.throughput_per_s, run.summary.throughput_per_s));
    assert_eq!(again.total.answers(), run.total.answers());
    let header = csv::samples_header();
    for (one, other) in run.samples.iter().zip(&again.samples) {
        let (one, other) = (csv::sample_line(one), csv::sample_line(other));
        for (name, (one, other)) in header.split(',').zip(one.split(',').zip(other.split(','))) {
            let numbers = one.parse::<f64>().ok().zip(other.parse::<f64>().ok());
            let same = numbers.map_or(one == other, |(one, other)| is_same(one, other));
            assert!(same || name.starts_with("response_p"), "{name}: {one} became {other}");
        }
    }
    let whole: Vec<_> = run.last_quarter.hits.response.buckets().collect();
    assert_eq!(again.last_quarter.hits.response.buckets().collect::<Vec<_>>(), whole);
    // A run that was read is written with the same pages.
    let page = read(dir.path(), REPORT_HTML);
    let other = tempfile::tempdir().unwrap();
    write_run(other.path(), &read_run(&dir.path().join(SUMMARY_JSON)).unwrap()).unwrap();
    assert!(read(other.path(), REPORT_HTML) == page, "the page of the run that was read differs");
}

#[test]
fn a_page_is_one_harmless_file() {
    let dir = tempfile::tempdir().unwrap();
    let mut run = synthetic("squid:aufs", 100.0, 30);
    crate::synthetic::spoil(&mut run, &hostile(), &hostile());
    run.plan.variant = hostile();
    run.plan.workload_text = hostile();
    run.plan.settings.push((format!("added {}", hostile()), "5 ms".to_owned()));
    run.manifest.files.insert(hostile(), hostile());
    run.manifest.facts.push((hostile(), hostile()));
    run.manifest.skipped.push(hostile());
    run.outcome = Outcome::Failed(hostile());
    run.total.by_type.insert(hostile(), Default::default());
    run.samples[3].verdict.reason = hostile();
    run.samples[3].lab_limited = Some(hostile());
    write_run(dir.path(), &run).unwrap();
    assert_page(&read(dir.path(), REPORT_HTML));
    let markdown = read(dir.path(), SUMMARY_MD);
    assert!(!markdown.contains("<script") && !markdown.contains("<img"), "{markdown}");
    let rows = csv::tests::parsed(&read(dir.path(), SAMPLES_CSV));
    assert!(rows.len() == 31 && rows.iter().all(|row| row.len() == rows[0].len()));
}

#[test]
fn runs_of_no_sample_of_one_and_of_odd_values_have_pages() {
    let mut odd = synthetic("odd", 100.0, 3);
    odd.samples[1] = Sample { at_s: f64::NAN, load_per_s: f64::INFINITY, ..Sample::default() };
    odd.summary.throughput_per_s = f64::NAN;
    odd.plan.time_scale = 0.0;
    let one = synthetic("one", 100.0, 1);
    for (run, name) in [(Run::default(), "empty"), (one, "one"), (odd, "odd")] {
        let page = run_page::document(&run);
        assert_page(&page.html());
        assert!(!page.markdown().contains("NaN"), "{name}");
    }
    assert!(run_page::document(&Run::default()).html().contains("No sample was completed"));
}

#[test]
fn what_must_be_known_is_said_in_red() {
    let mut run = synthetic("squid:aufs", 100.0, 30);
    crate::synthetic::spoil(&mut run, "u", "g");
    run.outcome = Outcome::TimeUp;
    run.plan.goal.fill_ratio = 9.0;
    run.calibration = Some(1.0);
    let html = run_page::document(&run).html();
    for warning in [
        "<li class=\"grave\"><strong>Warning: Wrong content.",
        "<li class=\"mild\"><strong>Note: Spoiled samples.",
        "<li class=\"mild\"><strong>Note: Errors.",
        "<li class=\"grave\"><strong>Warning: The time was up before",
        "<li class=\"mild\"><strong>Note: Time scale 0.1.",
        "<li class=\"mild\"><strong>Note: Options that were skipped.",
    ] {
        assert!(html.contains(warning), "{warning}");
    }
    assert!(html.contains("No result: wrong content. It answered "), "no headline");
    run.summary.lab_limited_share = 0.8;
    assert!(run_page::document(&run).html().contains("Warning: Not measured: the laboratory"));
    run.summary.lab_limited_share = 0.0;
    assert!(run_page::document(&run).html().contains("Near the limit of the laboratory"));
    let some = run.last_quarter.answers() / 500 + 2;
    run.total.faults.insert(FaultKind::TimedOut, some);
    run.last_quarter.faults.insert(FaultKind::TimedOut, some);
    assert!(run_page::document(&run).html().contains("Note: Errors."));
    run.summary.sustained_per_s = None;
    assert!(run_page::document(&run).html().contains("Warning: Errors."));
    assert!(!html.contains("Not calibrated"));
    run.calibration = None;
    assert!(run_page::document(&run).html().contains("Note: Not calibrated."));
}

#[test]
fn a_result_has_its_interval_and_a_wide_one_is_explained() {
    let mut run = synthetic("squid:aufs", 100.0, 30);
    run.outcome = Outcome::Filled;
    assert!(!run_page::document(&run).markdown().contains(" ± "));
    let steady = Steadiness {
        throughput_half_interval: 0.02,
        throughput_low_per_s: 990.0,
        throughput_high_per_s: 1_010.0,
        lab_cpu_low_us: 70.0,
        lab_cpu_high_us: 75.0,
    };
    let page = |known| {
        run.summary.steadiness = Some(known);
        run_page::document(&run).markdown()
    };
    let [calm, waves, slow] = [
        steady,
        Steadiness { throughput_half_interval: 0.31, ..steady },
        Steadiness { throughput_half_interval: 0.31, lab_cpu_high_us: 120.0, ..steady },
    ]
    .map(page);
    assert!(calm.contains(" ± 2.0 %") && calm.contains("| 990 to 1,010 |"), "{calm}");
    assert!(!calm.contains("Not steady"));
    assert!(waves.contains("Not steady") && !waves.contains("the machine itself"), "{waves}");
    assert!(slow.contains("from 70.0 to 120 µs: the machine itself"), "{slow}");
}

#[test]
fn hits_stand_beside_answers_with_the_bytes_that_they_saved() {
    let run = synthetic("squid:aufs", 100.0, 30);
    let seconds = run.last_quarter.period_us as f64 / 1e6;
    let hits = run.last_quarter.hits.answers as f64 / seconds;
    let saved = crate::format::bytes(run.last_quarter.hits.body_bytes as f64 / seconds);
    let row = format!("| Hits/s | {} | {saved}/s saved", crate::format::rough(hits));
    let page = run_page::document(&run).markdown();
    assert!(hits > 1.0 && page.contains(&row), "{row} is not in {page}");
}

#[test]
fn a_folder_fills_while_the_run_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("new/run");
    let whole = synthetic("squid:aufs", 100.0, 20);
    let mut folder = RunFolder::create(&path).unwrap();
    assert_eq!(folder.path(), path);
    let mut run = Run { outcome: Outcome::Running, samples: Vec::new(), ..whole.clone() };
    for sample in &whole.samples {
        run.samples.push(sample.clone());
        folder.sample(&run).unwrap();
        assert_eq!(read(&path, SAMPLES_CSV).lines().count(), run.samples.len() + 1);
    }
    // The rest was written with the first sample, and would be again after a while.
    assert_eq!(read_run(&path).unwrap().samples.len(), 1);
    folder.refresh = Duration::ZERO;
    folder.sample(&run).unwrap();
    assert_eq!(read_run(&path).unwrap().samples.len(), 20);
    let before = read(&path, SAMPLES_CSV);
    folder.finish(&whole).unwrap();
    assert_eq!(read(&path, SAMPLES_CSV), before);
    // Another run does not take its place.
    assert!(matches!(RunFolder::create(&path), Err(ReportError::HasRun(_))));
    assert_eq!(read(&path, SAMPLES_CSV), before);
    assert_eq!(read_run(&path).unwrap().samples.len(), 20);
}

#[test]
fn foreign_folders_are_left_alone_and_half_written_files_cleared() {
    let dir = tempfile::tempdir().unwrap();
    let foreign = dir.path().join("foreign");
    fs::create_dir(&foreign).unwrap();
    fs::write(foreign.join("samples.csv"), "name,age\n").unwrap();
    let error = RunFolder::create(&foreign).unwrap_err();
    assert!(matches!(error, ReportError::ForeignFolder(_)), "{error}");
    assert_eq!(read(&foreign, "samples.csv"), "name,age\n");
    let own = dir.path().join("own");
    write_run(&own, &Run::default()).unwrap();
    fs::write(own.join("report.html.partial"), "half").unwrap();
    fs::write(own.join("cache.log"), "kept").unwrap();
    write_run(&own, &Run::default()).unwrap();
    assert!(!own.join("report.html.partial").exists() && own.join("cache.log").exists());
}

#[test]
fn a_failed_write_keeps_what_there_was_and_is_one_line() {
    let dir = tempfile::tempdir().unwrap();
    let run = synthetic("squid:aufs", 100.0, 3);
    write_run(dir.path(), &run).unwrap();
    // A folder in the way of the partial file fails the write, for root too.
    fs::create_dir(dir.path().join("report.html.partial")).unwrap();
    let before = read(dir.path(), REPORT_HTML);
    let error = write_figures(dir.path(), &synthetic("other", 100.0, 3)).unwrap_err().to_string();
    assert!(error.contains("report.html: cannot be written") && !error.contains('\n'), "{error}");
    assert_eq!(read(dir.path(), REPORT_HTML), before);
    let full = ReportError::write("x", io::ErrorKind::StorageFull.into()).to_string();
    assert!(full.starts_with("x: the disk is full"), "{full}");
}

#[test]
fn what_is_not_a_run_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join(SUMMARY_JSON);
    for (text, expected) in [
        ("{\"format\": 99, \"whatever\": 1}", "format 99 is newer than 1"),
        ("{\"format\": 1}", "not the summary.json of a run"),
        ("<html>", "not the summary.json of a run"),
    ] {
        fs::write(&file, text).unwrap();
        let error = read_run(dir.path()).unwrap_err().to_string();
        assert!(error.contains(expected) && !error.contains('\n'), "{error}");
    }
}

#[test]
fn a_hundred_thousand_samples_make_a_small_page() {
    let mut run = synthetic("squid:aufs", 100.0, 50);
    let some: Vec<Sample> = run.samples.iter().map(stored::kept).collect();
    run.samples = (0..100_000u32)
        .zip(some.iter().cycle())
        .map(|(index, sample)| Sample {
            index,
            at_s: f64::from(index),
            fill_ratio: f64::from(index) / 5e4,
            ..sample.clone()
        })
        .collect();
    let html = run_page::document(&run).html();
    assert!(html.len() < 5_000_000, "{}", html.len());
    assert!(html.contains("99600 samples in the middle are left out"));
}
