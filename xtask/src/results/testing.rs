//! The common parts of the tables' tests.

use super::Inputs;
use std::fs;
use tempfile::TempDir;

/// A folder of results with these files, as long as the first of both lives.
pub(super) fn inputs(files: &[(&str, &str)]) -> (TempDir, Inputs) {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let inputs = Inputs::new(folder.path().to_path_buf()).unwrap();
    (folder, inputs)
}

/// The cells behind the first one, in the first line of a table that begins with it.
pub(super) fn cells(table: &str, first: &str) -> Vec<String> {
    let mut rows = table.lines().map(|line| {
        let line = line.trim_start_matches("| ").trim_end_matches(" |");
        line.split(" | ").map(|cell| cell.trim().to_owned()).collect::<Vec<_>>()
    });
    let row = rows.find(|row| row[0] == first);
    row.map(|row| row[1..].to_vec()).unwrap_or_default()
}
