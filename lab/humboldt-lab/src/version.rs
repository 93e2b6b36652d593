//! The version of this laboratory, with the commit where it is known.

use humboldt_lab_record::Build;
use std::sync::LazyLock;

/// The version in Cargo.toml, and behind it the commit in parentheses.
pub(crate) static VERSION: LazyLock<String> = LazyLock::new(|| {
    let number = env!("CARGO_PKG_VERSION");
    match option_env!("HUMBOLDT_BUILT_FROM") {
        Some(commit) => format!("{number} (commit {commit})"),
        None => number.to_owned(),
    }
});

/// This program, as it runs.
pub(crate) fn build() -> Build {
    let line = format!("humboldt-lab {}", *VERSION);
    match std::env::current_exe() {
        Ok(program) => humboldt_lab_subjects::build_of(&program, &line),
        Err(_) => Build::of_version(&line),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_program_knows_its_file_and_its_commit() {
        let build = build();
        assert_eq!(build.sha256.len(), 64, "{build:?}");
        assert!(build.version.starts_with("humboldt-lab 0."), "{build:?}");
        assert_eq!(build.commit.as_deref(), option_env!("HUMBOLDT_BUILT_FROM"));
    }
}
