//! `cargo xtask first-run`: runs the commands of `docs/first-run.md`, and writes that page with
//! their output.
//!
//! Everything is on loopback: the servers are nginx with files made on the spot. A page that would
//! name another machine is not written.

mod page;
mod stage;
mod wares;

use crate::{Outcome, packages, workspace};
use page::{BENCH_BEGIN, BENCH_END, Page};
use stage::Stage;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The page, relative to the root of the checkout.
const PAGE: &str = "docs/first-run.md";

/// Chromium's picture, relative to the root of the checkout, and its largest size.
const SCREENSHOT: &str = "docs/img/chromium.png";
const SCREENSHOT_BYTES_MAX: u64 = 200 * 1024;

/// The command that starts the proxy with the page's configuration.
const WITH_CONFIGURATION: &str = "humboldt -N -f squid.conf";

/// Clients that ask for one new object at the same time.
const PARALLEL_CLIENTS: usize = 100;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Run the benchmarks as well, which takes many minutes; without this, their last figures stay
    /// in the page
    #[arg(long)]
    with_bench: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    packages::install_for_tests()?;
    let root = workspace::root();
    let before = fs::read_to_string(root.join(PAGE)).unwrap_or_default();
    let mut stage = Stage::set(&program(&root)?)?;
    let mut page = Page::default();
    without_configuration(&mut stage, &mut page)?;
    start(&mut stage, &mut page)?;
    curl(&mut stage, &mut page)?;
    apt(&mut stage, &mut page)?;
    pip(&mut stage, &mut page)?;
    chromium(&mut stage, &mut page, &root)?;
    parallel(&mut stage, &mut page)?;
    stop(&mut stage, &mut page)?;
    drop(stage);
    page.prose("## The benchmarks");
    let figures = if arguments.with_bench { bench(&root)? } else { page::bench_section(&before) };
    page.prose(&format!("{BENCH_BEGIN}\n\n{}\n\n{BENCH_END}", figures.trim()));
    fs::write(root.join(PAGE), page.checked()?)?;
    println!("first-run: {PAGE} and {SCREENSHOT} are written");
    Ok(())
}

/// The program to show: that of `HUMBOLDT_BIN`, or one that cargo builds now for release.
pub(crate) fn program(root: &Path) -> Outcome<PathBuf> {
    if let Some(path) = std::env::var_os("HUMBOLDT_BIN") {
        return Ok(std::path::absolute(path)?);
    }
    let mut build = Command::new(workspace::cargo());
    build.args(["build", "--quiet", "--release", "--package", "humboldt"]).current_dir(root);
    if !build.status()?.success() {
        return Err("humboldt does not build".into());
    }
    Ok(workspace::target_dir(root)?.join("release/humboldt"))
}

/// The first command of the README, and its end.
fn without_configuration(stage: &mut Stage, page: &mut Page) -> Outcome {
    page.prose(
        "# First run\n\n\
         <!-- Made by `cargo xtask first-run`, which runs every command and writes down what it prints; do not edit. -->\n\n\
         Every command on this page was run, and is shown with its output. The servers are nginx on this machine, with files made \
         for this page; so every address is 127.0.0.1. `/tmp/first-run` stands for a temporary directory. `cargo xtask first-run` \
         makes this page again.\n\n\
         Objects fetched over https pass through a tunnel and are not cached. The examples with apt and pip \
         use http for that reason.",
    );
    page.prose(
        "## Without a configuration\n\n\
         `humboldt` without options, which is what `cargo run --release` builds and starts, is a proxy for this machine alone. It \
         stays in the foreground, and says how to use it.",
    );
    let command = stage.start_without_configuration()?;
    page.show_started(stage, &command)?;
    page.prose("In another terminal: the first request goes to the server, the second is answered by the cache.");
    let get =
        "curl -s -i -x {proxy} http://{origin}/hello.txt | grep -o -e 'X-Cache: [A-Z]*' -e Hello.*";
    page.show(stage, &[get, get])?;
    let log = ".cache/humboldt/access.log";
    stage.expect_codes_in(log, "/hello.txt", &["TCP_MISS", "TCP_MEM_HIT"])?;
    page.prose("Ctrl-C ends it. The exit code is 0, and the next start finds the objects on disk.");
    let last_words = stage.interrupt_proxy()?;
    page.console(&format!("^C\n{last_words}$ echo $?\n0"));
    stage.forget_fetches()
}

fn start(stage: &mut Stage, page: &mut Page) -> Outcome {
    page.prose(
        "## Starting with a squid.conf\n\n\
         The configuration has access rules, memory, a store on disk, and logs. `-k parse` checks it: no output means no \
         complaint. `-z` creates the store.",
    );
    page.show(
        stage,
        &[
            "humboldt -v",
            "cat squid.conf",
            "humboldt -k parse -f squid.conf",
            "humboldt -z -f squid.conf",
        ],
    )?;
    stage.start_proxy()?;
    page.show_started(stage, WITH_CONFIGURATION)
}

fn curl(stage: &mut Stage, page: &mut Page) -> Outcome {
    let get = "curl -s -i -x {proxy} http://{origin}/hello.txt";
    page.prose("## curl: from the server, from memory, from disk\n\nThe first request goes to the server: `X-Cache: MISS`.");
    page.show(stage, &[get])?;
    page.prose("Two seconds later the answer comes from memory. `Age` is its age in seconds, `ttl` the time that it stays fresh.");
    page.show(stage, &["sleep 2", get])?;
    page.prose("After a restart memory is empty. The answer comes from the store on disk.");
    page.show(stage, &["humboldt -k shutdown -f squid.conf"])?;
    stage.wait_proxy_end()?;
    stage.start_proxy()?;
    page.show_started(stage, WITH_CONFIGURATION)?;
    page.show(stage, &[get])?;
    page.prose(
        "The log in Squid's format shows the difference: `TCP_MISS`, `TCP_MEM_HIT` and `TCP_HIT`. nginx got one request.",
    );
    stage.expect_codes("/hello.txt", &["TCP_MISS", "TCP_MEM_HIT", "TCP_HIT"])?;
    stage.expect_one_fetch("/hello.txt")?;
    page.show(stage, &["cat access.log", "grep -c /hello.txt origin/access.log"])
}

fn apt(stage: &mut Stage, page: &mut Page) -> Outcome {
    wares::debian_repository(stage)?;
    page.prose(
        "## apt\n\nA repository with one small package. `apt.conf` names the proxy; its other lines keep this apt apart from the \
         machine's own configuration.",
    );
    page.show(stage, &["cat apt.conf sources.list"])?;
    page.prose("The first machine downloads a package.");
    let download = [
        "APT_CONFIG=apt.conf apt-get update",
        "APT_CONFIG=apt.conf apt-get download humboldt-hello",
    ];
    page.show(stage, &download)?;
    page.prose("The second machine gets it from the cache.");
    let fresh =
        "rm -r apt/state/lists humboldt-hello_1.0_all.deb && mkdir -p apt/state/lists/partial";
    page.show(stage, &[fresh, download[0], download[1]])?;
    stage.expect_codes("/debian/./hello.deb", &["TCP_MISS", "TCP_MEM_HIT"])?;
    stage.expect_one_fetch("hello.deb")?;
    page.prose("apt asks for lists with `Cache-Control: max-age=0`, so they are validated: `TCP_REFRESH_UNMODIFIED`. The package \
         itself is a hit.");
    page.show(stage, &["grep /debian/ access.log | sort", "grep -c hello.deb origin/access.log"])
}

fn pip(stage: &mut Stage, page: &mut Page) -> Outcome {
    wares::python_index(stage)?;
    page.prose(
        "## pip\n\nAn index with one small wheel, downloaded twice into different directories.",
    );
    let download = |target: &str| {
        format!(
            "python3 -m pip --isolated download --no-cache-dir --disable-pip-version-check --progress-bar off \\\n    \
             --proxy http://{{proxy}} --index-url http://{{origin}}/simple/ --trusted-host 127.0.0.1 \\\n    \
             --dest {target} humboldt-hello"
        )
    };
    page.show(stage, &[&download("first"), &download("second")])?;
    stage.expect_codes("py3-none-any.whl", &["TCP_MISS", "TCP_MEM_HIT"])?;
    stage.expect_one_fetch("py3-none-any.whl")?;
    page.prose("pip asks for validation of its index, as apt does. The wheel is a hit.");
    page.show(
        stage,
        &[
            "grep -e /simple/ -e /wheels/ access.log | sort",
            "grep -c py3-none-any.whl origin/access.log",
        ],
    )
}

fn chromium(stage: &mut Stage, page: &mut Page, root: &Path) -> Outcome {
    wares::web_page(stage, root)?;
    page.prose(
        "## Chromium\n\nA page with a style sheet and a picture, loaded twice by a browser without a window, each time with \
         an empty profile. `<-loopback>` makes it use the proxy for addresses of this machine too.",
    );
    let load = |profile: &str, picture: &str| {
        format!(
            "chromium --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run \\\n    \
             --disable-background-networking --disable-component-update --disable-sync \\\n    \
             --user-data-dir=/tmp/first-run/{profile} --window-size=960,640 --virtual-time-budget=5000 \\\n    \
             --proxy-server=http://{{proxy}} '--proxy-bypass-list=<-loopback>' \\\n    \
             --screenshot=/tmp/first-run/{picture}.png http://{{origin}}/page/index.html 2>&1 | grep written"
        )
    };
    page.show(stage, &[&load("profile1", "first"), &load("profile2", "second")])?;
    for part in ["/page/index.html", "/page/style.css", "/page/request.svg"] {
        stage.expect_codes(part, &["TCP_MISS", "TCP_MEM_HIT"])?;
        stage.expect_one_fetch(part)?;
    }
    page.show(stage, &["grep /page/ access.log | sort"])?;
    let picture = stage.path("second.png");
    let picture_bytes = fs::metadata(&picture)?.len();
    if picture_bytes > SCREENSHOT_BYTES_MAX {
        return Err(format!(
            "the screenshot has {picture_bytes} bytes, more than {SCREENSHOT_BYTES_MAX}"
        )
        .into());
    }
    fs::copy(picture, root.join(SCREENSHOT))?;
    page.prose("![The page in Chromium, loaded through Humboldt](img/chromium.png)");
    Ok(())
}

fn parallel(stage: &mut Stage, page: &mut Page) -> Outcome {
    wares::slow_object(stage)?;
    page.prose(&format!(
        "## {PARALLEL_CLIENTS} clients, one fetch\n\n\
         {PARALLEL_CLIENTS} clients ask at the same time for an object of 256 KiB that the cache does not have, from a server that \
         sends 128 KiB a second. All get the same bytes, and the server gets one request."
    ));
    let get = format!(
        "seq {PARALLEL_CLIENTS} | xargs -P {PARALLEL_CLIENTS} -I N curl -s -x {{proxy}} -o got/N http://{{origin}}/slow/object"
    );
    let sums =
        ["mkdir got", &get, "sha256sum got/* site/slow/object | cut -c 1-64 | sort | uniq -c"];
    page.show(stage, &sums)?;
    let mut codes = vec!["TCP_MISS"];
    codes.resize(PARALLEL_CLIENTS, "TCP_CF_MISS");
    stage.expect_codes("/slow/object", &codes)?;
    stage.expect_one_fetch("/slow/object")?;
    page.prose(
        "In the log, `TCP_CF_MISS` marks a request that joined another request's fetch (collapsed forwarding). The last number is the count in nginx's log:",
    );
    let counts = "grep /slow/object access.log | awk '{print $4}' | sort | uniq -c";
    page.show(stage, &[counts, "grep -c /slow/object origin/access.log"])
}

fn stop(stage: &mut Stage, page: &mut Page) -> Outcome {
    page.prose("## Stopping\n\nOpen requests may end first. Then the store is closed cleanly, so that the next start finds its objects.");
    page.show(stage, &["humboldt -k shutdown -f squid.conf"])?;
    stage.wait_proxy_end()?;
    page.show(stage, &["tail -n 2 cache.log"])
}

/// Runs all benchmarks and returns their output, as Markdown.
fn bench(root: &Path) -> Outcome<String> {
    let mut text = page::machine()?;
    for what in ["hit", "miss", "memory", "idle"] {
        println!("first-run: cargo xtask bench {what}");
        let output = Command::new(std::env::current_exe()?)
            .args(["bench", what])
            .current_dir(root)
            .output()?;
        let printed = String::from_utf8(output.stdout)?;
        println!("{printed}");
        if !output.status.success() {
            return Err(format!("bench {what}: {}", String::from_utf8_lossy(&output.stderr)).into());
        }
        text +=
            &format!("\n\n### `cargo xtask bench {what}`\n\n{}", page::benchmark_tables(&printed));
    }
    Ok(text)
}
