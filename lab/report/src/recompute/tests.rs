use super::*;
use crate::compare::{Claim, Pairs, Side};
use crate::testing::CACHE_BYTES;
use crate::{Kind, synthetic, write_bang, write_run};
use humboldt_lab_record::{BangRun, BangSecond};
use std::path::PathBuf;
use tempfile::TempDir;

/// An experiment of two runs, published.
fn published() -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (dir.path().join("made"), dir.path().join("published"));
    let side = |place| Side { text: "a setting".to_owned(), runs: vec![place] };
    let claim = Claim {
        name: "the scheme".to_owned(),
        before: side(0),
        after: side(1),
        ..Claim::default()
    };
    let pairs = Pairs { claims: vec![claim], ..Pairs::default() };
    let mut experiment = Experiment::new("An experiment", Kind::Peak, true, pairs);
    for (folder, rate) in [("squid-ufs", 50.0), ("squid-aufs", 100.0)] {
        let run = synthetic::run(&folder.replace('-', ":"), "ext2", rate, CACHE_BYTES, 60, 3);
        write_run(&from.join(folder), &run).unwrap();
        experiment.folders.push(folder.to_owned());
    }
    experiment.publish(&from, &to).unwrap();
    (dir, to)
}

fn texts(dir: &Path) -> Vec<String> {
    recompute(dir).unwrap().differences.iter().map(ToString::to_string).collect()
}

/// Replaces the first occurrence in a file.
fn touch(dir: &Path, name: &str, from: &str, to: &str) {
    let path = dir.join(name);
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.contains(from), "{name} has no `{from}`");
    fs::write(&path, text.replacen(from, to, 1)).unwrap();
}

#[test]
fn a_published_page_is_what_its_runs_say() {
    let (_dir, folder) = published();
    assert_eq!(texts(&folder), [""; 0]);
    assert!(recompute(&folder).unwrap().files > 8);
    for name in ["samples.csv", "summary.json", "summary.md"] {
        assert!(folder.join("runs/squid-aufs").join(name).exists(), "{name}");
    }
    let page = fs::read_to_string(folder.join("index.md")).unwrap();
    assert!(page.contains("(runs/squid-aufs/summary.md)"), "{page}");
    assert!(!folder.join("index.html").exists());
}

#[test]
fn a_figure_that_was_touched_is_named_with_its_file_row_and_column() {
    let (_dir, folder) = published();
    let csv = fs::read_to_string(folder.join("index.csv")).unwrap();
    let rows = rows(&csv);
    let column = rows[0].iter().position(|name| name == "throughput_per_s").unwrap();
    touch(&folder, "index.csv", &rows[2][column], "12345");
    let text = texts(&folder).join("\n");
    assert!(text.starts_with("index.csv, row 3, column throughput_per_s: published is `12345`"));
    fs::write(folder.join("index.csv"), csv).unwrap();

    touch(&folder, "index.md", "| squid:ufs | 1 | ", "| squid:ufs | 2 | ");
    let text = texts(&folder).join("\n");
    assert!(text.starts_with("index.md, row "), "{text}");
    assert!(text.contains("column 2: published is `2`, the figures say `1`"), "{text}");
    touch(&folder, "index.md", "| squid:ufs | 2 | ", "| squid:ufs | 1 | ");

    let name = "runs/squid-ufs/samples.csv";
    touch(&folder, name, "\n0,6,", "\n0,7,");
    assert!(texts(&folder).join("\n").starts_with(&format!("{name}, row 2, column at_s: ")));
    touch(&folder, name, "\n0,7,", "\n0,6,");
    assert_eq!(texts(&folder), [""; 0]);
}

#[test]
fn files_of_an_earlier_page_and_missing_ones_are_named() {
    let (_dir, folder) = published();
    fs::write(folder.join("index-99.svg"), "<svg></svg>").unwrap();
    fs::write(folder.join("steps.csv"), "subject\n").unwrap();
    fs::remove_file(folder.join("index-1.svg")).unwrap();
    let text = texts(&folder).join("\n");
    for part in
        ["index-99.svg: is of an earlier page", "steps.csv: is of", "index-1.svg: is not there"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    Experiment::read(&folder).unwrap().write_again(&folder).unwrap();
    assert!(!texts(&folder).join("\n").contains("index-1.svg"));
}

#[test]
fn a_page_without_samples_and_a_folder_elsewhere_are_refused() {
    let (_dir, folder) = published();
    touch(&folder, EXPERIMENT_JSON, "runs/squid-ufs", "../squid-ufs");
    let error = recompute(&folder).unwrap_err().to_string();
    assert!(error.contains("`../squid-ufs` is not below it"), "{error}");
    touch(&folder, EXPERIMENT_JSON, "\"format\": 1", "\"format\": 9");
    assert!(recompute(&folder).unwrap_err().to_string().contains("format 9 is newer"));
    fs::remove_file(folder.join(EXPERIMENT_JSON)).unwrap();
    let error = recompute(&folder).unwrap_err().to_string();
    assert!(error.contains("published without samples"), "{error}");
}

#[test]
fn bangs_are_published_in_the_same_way() {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (dir.path().join("made"), dir.path().join("published"));
    let mut bang = BangRun { format: 1, answers: 100, elapsed_us: 1_500_000, ..BangRun::default() };
    (0..100).for_each(|_| bang.service.record_us(1500));
    bang.seconds = vec![BangSecond { at_s: 1.0, answers: 70, ..BangSecond::default() }];
    write_bang(&from.join("ring"), &bang).unwrap();
    let mut experiment = Experiment::new("Bangs", Kind::Bang, false, Pairs::default());
    experiment.folders.push("ring".to_owned());
    experiment.publish(&from, &to).unwrap();
    assert_eq!(texts(&to), [""; 0]);
    assert!(to.join("runs/ring/seconds.csv").exists());
    let csv = fs::read_to_string(to.join("index.csv")).unwrap();
    fs::write(to.join("index.csv"), csv.replacen(",100,", ",101,", 1)).unwrap();
    assert!(texts(&to)[0].starts_with("index.csv, row 2, column answers: "));
    fs::write(to.join("index.csv"), csv).unwrap();
    touch(&to, "runs/ring/seconds.csv", "1,70,", "1,80,");
    assert!(texts(&to)[0].starts_with("runs/ring/seconds.csv, row 2, column answers: "));
    assert_eq!(sums("", &bang), []);
    let columns = |bang: &BangRun| -> Vec<String> {
        sums("", bang).into_iter().map(|difference| difference.column).collect()
    };
    bang.elapsed_us = 2_000_000;
    assert_eq!(columns(&bang), ["elapsed_us, in s"], "an invented rate");
    let second = |at_s, answers| BangSecond { at_s, answers, ..BangSecond::default() };
    bang.seconds = vec![second(1.0, 40), second(2.0, 30), second(3.0, 30)];
    bang.elapsed_us = 1_000_000;
    assert_eq!(columns(&bang), ["elapsed_us, in s"], "another");
    (bang.elapsed_us, bang.answers) = (3_500_000, 200);
    assert_eq!(columns(&bang), ["answers"]);
    (bang.answers, bang.seconds[0].body_bytes) = (100, 1);
    assert_eq!(columns(&bang), ["body_bytes"]);
}

#[test]
fn samples_of_a_laboratory_that_knew_fewer_columns_are_compared_by_those() {
    let table = |text: &str| rows(text);
    let made = table("a,new,b\n1,9,2\n");
    assert_eq!(with_columns(&table("a,b\n1,2\n"), &made), table("a,b\n1,2\n"));
    assert_eq!(with_columns(&table("a,old,b\n1,5,3\n"), &made), table("a,,b\n1,,2\n"));
    assert_eq!(with_columns(&[], &made), made);
}
