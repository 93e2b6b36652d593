use super::warnings::NAMED_MAX;
use super::*;
use crate::testing::{CACHE_BYTES, assert_page, hostile};
use crate::{Experiment, Kind, Results, synthetic};
use humboldt_lab_record::Outcome;

fn runs() -> Vec<Run> {
    let mut runs = vec![synthetic::run("squid:ufs", "ext2", 50.0, CACHE_BYTES, 20, 1)];
    runs.extend(
        [100.0, 104.0, 108.0]
            .map(|rate| synthetic::run("squid:aufs", "ext2", rate, CACHE_BYTES, 20, 2)),
    );
    runs
}

#[test]
fn runs_are_sorted_and_repeats_are_one_row() {
    let runs = in_turn(&[250.0], &[500.0, 520.0, 540.0]);
    let document = document("Comparison", &runs, false);
    let table = &document.sections[0].tables[0];
    assert_eq!(table.rows.len(), 2);
    assert_eq!((table.rows[0][0].as_str(), table.rows[0][1].as_str()), ("squid:aufs", "3"));
    assert!(table.rows[0][5].ends_with("(!)"), "{:?}", table.rows[0]);
    assert_eq!(table.rows[1][3], NOTHING, "one run has no interval");
    assert!(document.warnings.iter().any(|warning| warning.heading.contains("repeats differ")));
    assert!(document.lead.starts_with("squid:aufs answers"), "{}", document.lead);
    assert_page(&document.html());
}

#[test]
fn caches_of_different_ages_are_not_compared() {
    let document = document("Comparison", &runs(), false);
    let heading = "Not comparable: the caches have different ages";
    assert!(document.warnings.iter().any(|w| w.grave && w.heading == heading));
    assert!(document.lead.starts_with("No comparison in a sentence"), "{}", document.lead);
    let table = &document.sections[0].tables[0];
    assert!(table.rows.iter().any(|row| row.iter().any(|cell| cell.ends_with("never full"))));
}

#[test]
fn what_is_not_comparable_is_said() {
    let mut runs = runs();
    runs[1].plan.time_scale = 1.0;
    runs[2].plan.workload = hostile();
    let document = document(&hostile(), &runs, false);
    for what in ["time scale", "workload"] {
        let heading = format!("Not comparable: the {what} differs");
        assert!(
            document.warnings.iter().any(|warning| warning.grave && warning.heading == heading),
            "{what}"
        );
    }
    assert_page(&document.html());
}

#[test]
fn files_are_written_into_a_used_folder_and_csv_has_its_columns() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("a-run")).unwrap();
    let mut runs = runs();
    runs[0].plan.variant = "a,\"b\"".to_owned();
    runs[0].summary.throughput_per_s = f64::NAN;
    compare(dir.path(), &runs).unwrap();
    let mut experiment = Experiment::new("Experiment", Kind::Peak, true, Pairs::default());
    experiment.folders.push("a-1".to_owned());
    experiment.write_page(dir.path(), &Results::Peaks(runs)).unwrap();
    for name in ["compare", "index"] {
        assert_page(&fs::read_to_string(dir.path().join(format!("{name}.html"))).unwrap());
        let rows = crate::csv::tests::parsed(
            &fs::read_to_string(dir.path().join(format!("{name}.csv"))).unwrap(),
        );
        assert_eq!(rows.len(), 5);
        assert!(rows.iter().all(|row| row.len() == rows[0].len()), "{rows:?}");
        let page = fs::read_to_string(dir.path().join(format!("{name}.md"))).unwrap();
        let drawings: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix("![")).collect();
        assert!(drawings.len() > 3, "{page}");
        for drawing in drawings {
            let file = drawing.split_once("](").unwrap().1.trim_end_matches(')');
            let drawing = fs::read_to_string(dir.path().join(file)).unwrap();
            assert!(drawing.starts_with("<svg ") && drawing.ends_with("</svg>\n"), "{file}");
            assert_eq!(drawing.matches("xmlns=").count(), 1, "{file}");
        }
    }
    assert!(matches!(compare(dir.path(), &[]), Err(ReportError::NoRuns)));
}

/// Repeats of two settings that are measured in turn, full and without a warning.
fn in_turn(ufs: &[f64], aufs: &[f64]) -> Vec<Run> {
    let of = |subject: &str, rates: &[f64]| -> Vec<Run> {
        let run = |(rate, seed): (&f64, u64)| {
            synthetic::run(subject, "ext2", *rate, CACHE_BYTES / 2, 900, seed)
        };
        rates.iter().zip(1..).map(run).collect()
    };
    let mut runs = of("squid:ufs", ufs);
    runs.extend(of("squid:aufs", aufs));
    for run in &mut runs {
        assert_eq!(run.outcome, Outcome::Filled, "{:?}", run.summary);
        (run.summary.from_fill_ratio, run.summary.to_fill_ratio) = (1.5, 2.0);
        run.manifest.skipped.clear();
        run.plan.time_scale = 1.0;
    }
    runs
}

#[test]
fn a_lead_names_a_ratio_of_five_pairs_only() {
    let lead = |ufs: &[f64], aufs: &[f64]| document("T", &in_turn(ufs, aufs), false).lead;
    let five = [500.0, 505.0, 495.0, 502.0, 498.0];
    let twice = five.map(|rate| rate * 2.0);
    let said = lead(&five, &twice);
    assert!(said.starts_with("squid:aufs answers ") && said.contains("squid:ufs "), "{said}");
    assert!(said.contains("at fill ratio 1.50–2.00") && said.contains(" times as many"), "{said}");
    let few = lead(&five[..4], &twice[..4]);
    assert!(few.contains("their ratio is not known (4 of 5 pairs)"), "{few}");
    let same = lead(&five, &[501.0, 503.0, 497.0, 499.0, 500.0]);
    assert!(same.contains("which of the two is faster is not known"), "{same}");
}

#[test]
fn a_lead_names_no_setting_with_a_grave_warning() {
    let five = [500.0, 505.0, 495.0, 502.0, 498.0];
    let mut runs = in_turn(&five, &five.map(|rate| rate * 2.0));
    runs[0].summary.lab_limited_share = 0.9;
    let lead = document("T", &runs, false).lead;
    assert_eq!(lead, "No comparison in a sentence: 1 setting with a grave warning.");
    runs[0].summary.lab_limited_share = 0.0;
    runs[0].manifest.provenance.lab.version = "humboldt-lab 1".to_owned();
    runs[1].manifest.provenance.lab.version = "humboldt-lab 2".to_owned();
    let lead = document("T", &runs, false).lead;
    assert!(lead.contains("Not comparable: the laboratory's build differs"), "{lead}");
}

#[test]
fn a_short_run_is_compared_at_its_own_age() {
    let mut runs = in_turn(&[500.0], &[1000.0]);
    // The second ended half full: then the first is looked at when it was half full, too.
    let half = runs[1].samples.iter().position(|sample| sample.fill_ratio > 0.5).unwrap();
    runs[1].samples.truncate(half);
    (runs[1].summary.from_fill_ratio, runs[1].summary.to_fill_ratio) = (0.375, 0.5);
    let document = document("T", &runs, false);
    let table = &document.sections[0].tables[0];
    assert_eq!(table.caption, "Throughput at the same age: fill ratio 0.38–0.50, never full");
    let ages = Ages { from: 0.375, to: 0.5 };
    let row = table.rows.iter().find(|row| row[0] == "squid:ufs").unwrap();
    assert_eq!(row[2], rough(ages.rates(&runs[0]).unwrap().0));
    assert_ne!(row[2], rough(runs[0].summary.throughput_per_s), "not that of its own last quarter");
    let csv = crate::csv::rows(&csv(&runs));
    let column = csv[0].iter().position(|name| name == "common_per_s").unwrap();
    assert_eq!(csv[1][column], ages.rates(&runs[0]).unwrap().0.to_string());
}

#[test]
fn a_warning_of_many_settings_names_all_of_them_somewhere() {
    let named = |number: u32| format!("squid:variant{number}");
    let runs: Vec<Run> = (0..NAMED_MAX as u32 + 3)
        .map(|number| synthetic::run(&named(number), "", 50.0, CACHE_BYTES, 20, 1))
        .collect();
    let document = document("T", &runs, false);
    let text = &document.warnings.iter().find(|w| w.text.contains("and 3 more")).unwrap().text;
    assert!(text.contains("“Settings with a grave warning”"), "{text}");
    let markdown = document.markdown();
    let table = markdown.split("**Settings with a grave warning**").nth(1).unwrap();
    (0..NAMED_MAX as u32 + 3).for_each(|number| assert!(table.contains(&named(number))));
}

#[test]
fn published_ratios_stand_only_beside_schemes_of_one_setting() {
    let of = |runs: &[Run]| published::ratios(&groups(runs)).map(|table| table.rows.len());
    let run =
        |subject: &str, variant: &str| synthetic::run(subject, variant, 50.0, CACHE_BYTES, 20, 1);
    let aufs = run("squid:aufs", "ext4");
    assert_eq!(of(&[aufs.clone(), run("squid:ufs", "ext4"), run("squid:ufs", "xfs")]), Some(2));
    assert_eq!(of(&[aufs.clone(), run("squid:ufs", "xfs")]), None);
    assert_eq!(of(&[run("humboldt:ring", ""), run("humboldt:null", "")]), None);
    let document = |is_beside| document("T", &[aufs.clone(), run("squid:ufs", "ext4")], is_beside);
    let has = |is_beside| {
        let tables = document(is_beside).sections.remove(0).tables;
        tables.iter().any(|table| table.caption.contains("published"))
    };
    assert!(has(true) && !has(false));
}
