use super::*;
use crate::synthetic;
use crate::testing::{CACHE_BYTES, assert_page, hostile};
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
    let mut runs = runs();
    for run in &mut runs {
        run.outcome = Outcome::Filled;
        (run.summary.from_fill_ratio, run.summary.to_fill_ratio) = (1.5, 2.0);
    }
    let document = document("Comparison", &runs);
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
    let document = document("Comparison", &runs());
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
    let document = document(&hostile(), &runs);
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
    let folders = ["a-1".to_owned()];
    matrix_page(dir.path(), "Experiment", &runs, Some(&folders), &Pairs::default()).unwrap();
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

#[test]
fn a_page_for_a_repository_has_no_html() {
    let dir = tempfile::tempdir().unwrap();
    matrix_page(dir.path(), "Experiment", &runs(), None, &Pairs::default()).unwrap();
    let exists = |name: &str| dir.path().join(name).exists();
    assert!(exists("index.md") && exists("index-1.svg") && exists("index.csv"));
    assert!(!exists("index.html"));
}
