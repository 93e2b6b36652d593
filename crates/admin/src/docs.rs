//! `docs/metrics.md` is made from the tables of pages and metrics, and must agree with them.

use std::fmt::Write;

use humboldt_base::counters::Counter;
use humboldt_base::prose::wrapped;
use humboldt_proxy::cut::Cut;

use crate::counters::{LINES, Source};
use crate::memory;
use crate::metrics::{FAMILIES, Kind, PREFIX};
use crate::pages::PAGES;

const INTRODUCTION: &str = "\
# Manager pages and metrics

<!-- Made from the tables of crates/admin by `HUMBOLDT_BLESS=1 cargo test -p humboldt-admin docs`; do not edit. -->

Humboldt answers `http://PROXY:PORT/squid-internal-mgr/PAGE` and, for Prometheus, \
`http://PROXY:PORT/metrics`. `http_access` decides who may ask. The ACL `manager` matches both, and no \
other server's `/metrics`. The built-in configuration allows them to the machine itself only.

`PROXY` is a name of the proxy (`visible_hostname`, `unique_hostname`, `hostname_aliases`), `localhost`, \
or an address. Under any other name there are no pages, even if that name leads to the proxy: a page on \
the net could let its own name lead here, and read the answer.

A port with `accel` belongs to a web site. There the pages exist only under a name from those three \
directives, with the port's number, and not under the `defaultsite` of the port; `localhost` and \
addresses belong to the site. A port of its own is better: `http_port 127.0.0.1:3128`.

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
`info`, `counters`, `service_times`, `5min` and `60min` have the lines of Squid 5.7, in its order and its \
formats. Programs that parse Squid's pages can read Humboldt's. These values have another meaning:

- `Version` on the first line of `info` is `Humboldt/` and the version.
- Values are current, where Squid shows its last sample: `sample_time` is now, and `wall_time` in \
`counters` is the time since the start. Averages end now and cover 5 or 60 minutes, and up to 30 seconds \
more.
- `Number of clients accessing cache` is the number of open connections from clients.
- `Hits as % of bytes sent` is the share of bytes sent in hits. It is never negative.
- `Request failure ratio` covers the last 5 minutes.
- An object in memory and on disk counts twice in `StoreEntries`.
- Bytes of tunnels are in `client_http.kbytes_out` (towards the client) and in the metric for tunnels, not \
in `server.*`.
- Service times are counted in steps of powers of two of a millisecond, and are taken to be spread evenly \
within a step. Times below a millisecond count as 0. DNS look-ups and ICP are not measured.
- In `info`, the lines about ICP, HTCP, select loops, unlinkd, memory pools, queued opens and reserved \
descriptors are always 0. In `5min` and `60min`, so are the lines about select and about system calls, \
except `accepts` and `connects`.

";

const CUTS: &str = "
A connection to a client is *cut off* when it ends before its answer is complete, or without any answer. \
Each of these counts once, by its reason, in `humboldt_client_connections_cut_total` and on the page \
`cuts`. In access.log the reason is `%err_detail` where there is an `%err_code`. A connection that ends \
between two requests is not cut off.

reason | `%err_code` | meaning
--- | --- | ---
";

/// The page.
fn markdown() -> String {
    let mut out = INTRODUCTION.to_owned();
    out.push_str("page | contents\n--- | ---\n");
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
    wrapped(&out)
}

fn write_absent(out: &mut String) {
    let absent = LINES.iter().filter(|(_, source)| matches!(source, Source::Absent));
    let labels: Vec<_> = absent.map(|(label, _)| format!("`{label}`")).collect();
    out.push_str("These lines of `counters` are always 0, because Humboldt has no such events or does not count ");
    _ = writeln!(out, "them: {}.", labels.join(", "));
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
