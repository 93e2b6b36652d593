//! `docs/metrics.md` is made from the tables of pages and metrics, and must agree with them.

use std::fmt::Write;

use humboldt_base::counters::Counter;
use humboldt_proxy::cut::Cut;

use crate::counters::{LINES, Source};
use crate::memory;
use crate::metrics::{FAMILIES, Kind, PREFIX};
use crate::pages::PAGES;

const INTRODUCTION: &str = "\
# Manager pages and metrics

<!-- Made from the tables of crates/admin by `HUMBOLDT_BLESS=1 cargo test -p humboldt-admin docs`; do not edit. -->

Humboldt answers `http://PROXY:PORT/squid-internal-mgr/PAGE` and, for Prometheus, `http://PROXY:PORT/metrics`. \
`http_access` decides who may ask. The ACL `manager` stands for both, and for nobody else's `/metrics`; the built-in \
configuration allows them to the machine itself only.

`PROXY` is a name of the proxy (`visible_hostname`, `unique_hostname`, `hostname_aliases`), `localhost`, or an address. Other \
names get no page, also where they lead to the proxy: a page on the net could make its name do so, and read the answer.

A port with `accel` plays somebody else's site: there the pages exist under a name that \
the configuration gives the proxy (one of those three directives, and not the `defaultsite` of the port), with the port's number; \
`localhost` and addresses are the site's. Better is a port of its own, `http_port 127.0.0.1:3128`.

```
curl http://127.0.0.1:3128/squid-internal-mgr/info
```

```yaml
scrape_configs:
  - job_name: humboldt
    static_configs:
      - targets: ['127.0.0.1:3128']
```

## Pages

";

const NOTES: &str = "
`info`, `counters`, `service_times`, `5min` and `60min` have the lines of Squid 5.7, in its order and with its formats, so \
that programs which parse Squid's pages read Humboldt's. What differs in meaning:

- `Version` on the first line of `info` is `Humboldt/` and the version.
- Figures are those of the moment, where Squid shows those of its last sample: `sample_time` is now, `wall_time` in \
`counters` the time since the start. Averages end now and begin 5 or 60 minutes ago, up to 30 seconds more.
- `Number of clients accessing cache` is the number of connections open to clients.
- `Hits as % of bytes sent` is what was sent as part of hits, and never negative.
- `Request failure ratio` is that of the last 5 minutes.
- An object that is in memory and on disk counts twice among `StoreEntries`.
- Bytes of tunnels are in `client_http.kbytes_out` (towards the client) and in the metric for tunnels, not in `server.*`.
- Service times are in steps of powers of two of a millisecond; within a step they are taken to be spread evenly. What \
took less than a millisecond counts as 0. DNS look-ups and ICP are not measured.
- In `info`, the lines about ICP, HTCP, select loops, unlinkd, memory pools, queued opens and reserved descriptors are \
always 0. In `5min` and `60min`, so are those about select and about system calls, but for `accepts` and `connects`.

";

const CUTS: &str = "
A connection to a client is cut off where it ends before the answer is complete, or without any: once for each, with the \
reason that `humboldt_client_connections_cut_total` and the page `cuts` count it by, and that access.log has as `%err_detail` where there is an `%err_code`. \
Connections that end between requests are not cut off.

reason | `%err_code` | meaning
--- | --- | ---
";

/// The page.
fn markdown() -> String {
    let mut out = INTRODUCTION.to_owned();
    out.push_str("page | what it shows\n--- | ---\n");
    for page in PAGES {
        _ = writeln!(out, "`{}` | {}", page.name, page.description);
    }
    out.push_str(NOTES);
    write_absent(&mut out);
    write_metrics(&mut out);
    out.push_str(
        "\nThe values of the label `use` of `humboldt_memory_bytes`:\n\nuse | meaning\n--- | ---\n",
    );
    for memory in memory::USES {
        _ = writeln!(out, "`{}` | {}", memory.name, memory.help);
    }
    out.push_str(CUTS);
    for cut in Cut::ALL {
        let error = cut.error().unwrap_or("-");
        _ = writeln!(out, "`{}` | `{error}` | {}", cut.name(), cut.help());
    }
    out
}

fn write_absent(out: &mut String) {
    let absent = LINES.iter().filter(|(_, source)| matches!(source, Source::Absent));
    let labels: Vec<_> = absent.map(|(label, _)| format!("`{label}`")).collect();
    out.push_str("These lines of `counters` are always 0, because Humboldt does not do, or does not count, what they are ");
    _ = writeln!(out, "about: {}.", labels.join(", "));
}

fn write_metrics(out: &mut String) {
    out.push_str("\n## Metrics\n\nmetric | type | labels | meaning\n--- | --- | --- | ---\n");
    let mut row = |name: &str, kind: Kind, labels: &[&str], help: &str| {
        let labels: Vec<_> = labels.iter().map(|label| format!("`{label}`")).collect();
        _ = writeln!(out, "`{PREFIX}{name}` | {} | {} | {help}", kind.name(), labels.join(", "));
    };
    for counter in Counter::ALL {
        row(counter.name(), Kind::Counter, &[], counter.help());
    }
    for family in FAMILIES {
        row(family.name, family.kind, family.labels, family.help);
    }
}

#[test]
fn the_page_in_docs_is_up_to_date() {
    let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs");
    let path = format!("{docs}/metrics.md");
    let page = markdown();
    if std::env::var_os("HUMBOLDT_BLESS").is_some() {
        std::fs::create_dir_all(docs).expect("directory");
        std::fs::write(&path, &page).expect("written");
    }
    let on_disk = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(on_disk == page, "docs/metrics.md is out of date: run with HUMBOLDT_BLESS=1");
}
