//! The version of this build, with the commit where it is known (`build.rs`).

/// The version in Cargo.toml, and behind it the commit in parentheses.
pub(crate) fn version() -> String {
    let number = env!("CARGO_PKG_VERSION");
    match option_env!("HUMBOLDT_BUILT_FROM") {
        Some(commit) => format!("{number} (commit {commit})"),
        None => number.to_owned(),
    }
}

/// The line that `-v` shows. It begins as Squid's does, so that scripts find `Version`.
pub(crate) fn line() -> String {
    format!("Humboldt Cache: Version {}", version())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_number_is_the_version_and_a_commit_is_short_and_hexadecimal() {
        let line = line();
        let rest = line.strip_prefix("Humboldt Cache: Version ").unwrap();
        let (number, commit) = rest.split_once(' ').unwrap_or((rest, "(commit 0123456)"));
        assert_eq!(number, env!("CARGO_PKG_VERSION"));
        let commit = commit.strip_prefix("(commit ").and_then(|rest| rest.strip_suffix(')'));
        assert!(commit.is_some_and(|commit| (7..=12).contains(&commit.len())
            && commit.bytes().all(|byte| byte.is_ascii_hexdigit())));
    }
}
