//! Values of the words in a subject's templates.

use crate::file::{Content, INDEX_WORD};
use crate::template::{Words, expand};
use crate::{Mode, StartPlan};
use std::net::SocketAddr;
use std::path::PathBuf;

/// Descriptors that a subject is configured to use, if it can be. Enough for thousands of clients
/// and servers and files; more makes some subjects reserve memory for them.
const DESCRIPTORS_MAX: u64 = 16_384;

/// Words that the laboratory gives to every file, apart from those of the program and the run
/// folder.
pub(crate) fn given_words(plan: &StartPlan, stores: &[PathBuf], address: SocketAddr) -> Words {
    let mb = |bytes: u64| (bytes >> 20).max(1).to_string();
    let store_bytes = plan.cache_bytes / u64::try_from(stores.len()).unwrap_or(1).max(1);
    let cores = match plan.cores.len() {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        some => some,
    };
    let allowed = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum;
    let descriptors = allowed.unwrap_or(u64::MAX).min(DESCRIPTORS_MAX);
    let mut words = Words::new();
    for (name, value) in [
        ("address", address.to_string()),
        ("host", host_of(address)),
        ("port", address.port().to_string()),
        ("cache_bytes", plan.cache_bytes.to_string()),
        ("cache_mb", mb(plan.cache_bytes)),
        ("store_bytes", store_bytes.to_string()),
        ("store_mb", mb(store_bytes)),
        ("memory_bytes", plan.memory_bytes.to_string()),
        ("memory_mb", mb(plan.memory_bytes)),
        ("cores", cores.to_string()),
        ("descriptors", descriptors.to_string()),
        ("store", stores.first().map(|store| store.display().to_string()).unwrap_or_default()),
    ] {
        words.insert(name.to_owned(), value);
    }
    if let Some(&origin) = plan.origins.first() {
        words.extend(origin_words(origin));
    }
    words
}

/// IPv6 addresses in brackets, as configuration files need them beside a port.
fn host_of(address: SocketAddr) -> String {
    match address {
        SocketAddr::V4(address) => address.ip().to_string(),
        SocketAddr::V6(address) => format!("[{}]", address.ip()),
    }
}

fn origin_words(origin: SocketAddr) -> [(String, String); 3] {
    [
        ("origin", origin.to_string()),
        ("origin_host", host_of(origin)),
        ("origin_port", origin.port().to_string()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
}

/// The file's own words in this mode and with these rights, and one line for each store and server
/// if the file has such.
pub(crate) fn own_words(
    content: &Content,
    mode: Mode,
    is_root: bool,
    stores: &[PathBuf],
    plan: &StartPlan,
    words: &mut Words,
) -> Result<(), String> {
    let mut plain = content.words.clone();
    let mut per_store = content.per_store.clone();
    let mut per_origin = content.per_origin.clone();
    let by_mode = match mode {
        Mode::Forward => content.when.forward.as_ref(),
        Mode::Accelerator => content.when.accelerator.as_ref(),
    };
    let by_rights = if is_root { &content.when.root } else { &content.when.not_root };
    let by_tls = plan.tls.as_ref().and_then(|tls| content.when.tls_layer(tls.way));
    for layer in by_mode.into_iter().chain(by_tls).chain([by_rights]) {
        plain.extend(layer.words.clone());
        per_store.extend(layer.per_store.clone());
        per_origin.extend(layer.per_origin.clone());
    }
    for (name, value) in &plan.words {
        if !plain.contains_key(name) {
            let known: Vec<&str> = plain.keys().map(String::as_str).collect();
            return Err(format!(
                "there is no word `{name}` to set; there are: {}",
                known.join(", ")
            ));
        }
        plain.insert(name.clone(), value.clone());
    }
    words.extend(plain);
    let each_store =
        stores.iter().map(|store| vec![("store".to_owned(), store.display().to_string())]);
    words.extend(lines(&per_store, each_store.collect(), words)?);
    let each_origin = plan.origins.iter().map(|&origin| origin_words(origin).to_vec());
    words.extend(lines(&per_origin, each_origin.collect(), words)?);
    Ok(())
}

/// For each template one line for each of `items`.
fn lines(
    templates: &Words,
    items: Vec<Vec<(String, String)>>,
    words: &Words,
) -> Result<Words, String> {
    let mut expanded = Words::new();
    for (name, template) in templates {
        let mut lines = Vec::new();
        for (index, item) in items.iter().enumerate() {
            let mut words = words.clone();
            words.extend(item.clone());
            words.insert(INDEX_WORD.to_owned(), index.to_string());
            lines.push(expand(template, &words)?);
        }
        expanded.insert(name.clone(), lines.join("\n"));
    }
    Ok(expanded)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SubjectFile;
    use std::collections::BTreeMap;

    fn plan(origins: &[&str]) -> StartPlan {
        StartPlan {
            address: SocketAddr::from(([127, 0, 0, 1], 3128)),
            origins: origins.iter().map(|origin| origin.parse().expect("an address")).collect(),
            mode: None,
            cache_bytes: 300 << 20,
            memory_bytes: StartPlan::MEMORY_BYTES,
            cores: vec![1],
            cpu_quota: None,
            cpu_speed: None,
            memory_limit_bytes: None,
            words: BTreeMap::new(),
            tls: None,
        }
    }

    /// The text of a configuration file as the subject gets it.
    fn text(
        subject: &str,
        file: &str,
        mode: Mode,
        plan: &StartPlan,
        stores: &[&str],
    ) -> Result<String, String> {
        let subject = SubjectFile::builtin(subject).expect("a family").expect("a right file");
        let stores: Vec<PathBuf> = stores.iter().map(PathBuf::from).collect();
        let mut words = given_words(plan, &stores, plan.address);
        for name in ["program", "instance", "user", "dir"] {
            words.insert(name.to_owned(), format!("the-{name}"));
        }
        own_words(&subject.content, mode, true, &stores, plan, &mut words)?;
        expand(&subject.content.files[file], &words)
    }

    #[test]
    fn every_store_has_its_line_and_its_share() {
        let plan = plan(&["127.0.0.1:80"]);
        let text = text("squid:aufs", "squid.conf", Mode::Forward, &plan, &["/a", "/b", "/c"])
            .expect("a right file");
        let lines: Vec<&str> = text.lines().filter(|line| line.starts_with("cache_dir")).collect();
        let expected =
            ["/a", "/b", "/c"].map(|store| format!("cache_dir aufs {store} 100 16 256 "));
        assert_eq!(lines, expected);
        assert!(
            text.starts_with("http_port 127.0.0.1:3128\n") && !text.contains("cache_peer"),
            "{text}"
        );
        assert!(text.contains("cache_mem 64 MB\n"));
    }

    #[test]
    fn without_a_disk_there_is_no_line_for_one() {
        let text = text("squid:null", "squid.conf", Mode::Forward, &plan(&["127.0.0.1:80"]), &[]);
        assert!(!text.expect("a right file").contains("cache_dir"));
    }

    #[test]
    fn every_server_has_its_line_in_an_accelerator() {
        let plan = plan(&["127.0.0.1:81", "[::1]:82"]);
        let text = text("squid:ufs", "squid.conf", Mode::Accelerator, &plan, &["/a"])
            .expect("a right file");
        assert!(text.contains("http_port 127.0.0.1:3128 accel"), "{text}");
        assert!(
            text.contains("cache_peer 127.0.0.1 parent 81 0") && text.contains("name=origin0"),
            "{text}"
        );
        assert!(
            text.contains("cache_peer [::1] parent 82 0") && text.contains("name=origin1"),
            "{text}"
        );
    }

    #[test]
    fn words_that_a_file_defines_can_be_set_and_no_others() {
        let mut plan = plan(&["127.0.0.1:80"]);
        plan.words.insert("options".to_owned(), "max-size=5".to_owned());
        let text =
            |plan: &StartPlan| text("squid:aufs", "squid.conf", Mode::Forward, plan, &["/a"]);
        assert!(
            text(&plan)
                .expect("a right file")
                .contains("cache_dir aufs /a 300 16 256 max-size=5\n")
        );
        plan.words.insert("optoins".to_owned(), "x".to_owned());
        let error = text(&plan).expect_err("no such word");
        assert!(error.contains("`optoins`") && error.contains("options"), "{error}");
    }
}
