//! Options in words, as a page shows them.

/// An option of an experiment: `cpu-quota` with `0.4` is `0.4 CPU`. An empty value leaves an option
/// of the others out.
pub(crate) fn option(name: &str, value: &str) -> String {
    let plain = name.replace('-', " ");
    match (name, value) {
        ("mount-options", "") => "default mount options".to_owned(),
        ("fs", "") => "in a folder".to_owned(),
        ("disk-speed", "") => "the machine's own disk".to_owned(),
        ("read-iops" | "read-rate", "") => "reads not limited".to_owned(),
        ("write-iops" | "write-rate", "") => "writes not limited".to_owned(),
        ("cpu-quota", "") => "no CPU quota".to_owned(),
        ("cpu-speed", "") => "the machine's own processors".to_owned(),
        ("time-max", "") => "no time limit".to_owned(),
        (_, "" | "false") => format!("no {plain}"),
        (_, "true") => plain,
        ("fs" | "mount-options" | "subject", _) => value.to_owned(),
        ("set", _) => variable(value),
        ("disk-speed", _) => format!("disk of 1999 × {value}"),
        ("read-iops", _) => format!("{value} reads/s"),
        ("write-iops", _) => format!("{value} writes/s"),
        ("read-rate", _) => format!("reads {value}/s"),
        ("write-rate", _) => format!("writes {value}/s"),
        ("cpu-quota", _) => format!("{value} CPU"),
        ("cpu-speed", _) => format!("CPU speed {value}"),
        ("spindles", _) => format!("{value} stores"),
        ("instances", _) => format!("{value} instances"),
        _ => format!("{plain} {value}"),
    }
}

/// A variable of a subject's templates: `threads=32` is `threads 32`. The value of `options` and
/// `extra` is a text of its own.
pub(crate) fn variable(text: &str) -> String {
    match text.split_once('=') {
        Some(("options" | "extra", value)) => value.replace('=', " "),
        Some((name, value)) => format!("{name} {value}"),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_words_not_arguments() {
        for (name, value, words) in [
            ("dirty-limit", "", "no dirty limit"),
            ("read-iops", "", "reads not limited"),
            ("write-iops", "400", "400 writes/s"),
            ("disk-speed", "6", "disk of 1999 × 6"),
            ("disk-speed", "", "the machine's own disk"),
            ("set", "options=threads=2", "threads 2"),
            ("set", "l1_l2=1 256", "l1_l2 1 256"),
            ("set", "extra=half_closed_clients off", "half_closed_clients off"),
            ("cache-size", "1GB", "cache size 1GB"),
            ("fs", "xfs", "xfs"),
            ("drop-caches", "true", "drop caches"),
        ] {
            assert_eq!(option(name, value), words, "{name}={value}");
        }
    }
}
