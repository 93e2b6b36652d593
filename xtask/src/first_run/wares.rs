//! The files of the page's servers, made on the spot: a Debian package, a Python wheel, a web page,
//! a large object.

use super::stage::Stage;
use crate::Outcome;
use std::fs;
use std::path::Path;

const CONTROL: &str = "Package: humboldt-hello\nVersion: 1.0\nArchitecture: all\n\
                       Maintainer: Nobody <nobody@example.org>\nDescription: says hello\n";

/// A repository with one package, and a configuration of apt that knows no other.
pub(super) fn debian_repository(stage: &Stage) -> Outcome {
    stage.put("build/DEBIAN/control", CONTROL)?;
    stage.put("build/usr/share/humboldt-hello/hello.txt", "Hello from a package.\n")?;
    fs::create_dir_all(stage.path("site/debian"))?;
    stage.shell("dpkg-deb --root-owner-group --build build site/debian/hello.deb")?;
    let (package_sum, package_bytes) = sum(stage, "site/debian/hello.deb")?;
    let entry =
        format!("{CONTROL}Filename: ./hello.deb\nSize: {package_bytes}\nSHA256: {package_sum}\n");
    stage.put("site/debian/Packages", entry)?;
    let (index_sum, index_bytes) = sum(stage, "site/debian/Packages")?;
    let date = stage.shell("date --utc --rfc-email")?.replace("+0000", "UTC");
    let release = format!(
        "Origin: first-run\nSuite: stable\nDate: {}\nArchitectures: all\nSHA256:\n {index_sum} {index_bytes} Packages\n",
        date.trim()
    );
    stage.put("site/debian/Release", release)?;
    for folder in ["none", "apt/state/lists/partial", "apt/cache/archives/partial"] {
        fs::create_dir_all(stage.path(folder))?;
    }
    stage.put("apt/status", "")?;
    stage.put("sources.list", stage.fill("deb [trusted=yes] http://{origin}/debian ./\n"))?;
    let text = stage.fill(
        "Acquire::http::Proxy \"http://{proxy}\";\n\n\
         Dir::Etc::Parts \"{here}/none\";\nDir::Etc::SourceParts \"{here}/none\";\n\
         Dir::Etc::SourceList \"{here}/sources.list\";\n\
         Dir::State \"{here}/apt/state\";\nDir::State::status \"{here}/apt/status\";\n\
         Dir::Cache \"{here}/apt/cache\";\nDir::Log \"{here}/apt\";\n\
         Acquire::Languages \"none\";\nAPT::Sandbox::User \"\";\n",
    );
    let here = stage.path("");
    stage.put("apt.conf", text.replace("{here}", here.to_string_lossy().trim_end_matches('/')))
}

/// SHA-256 and length of a file.
fn sum(stage: &Stage, name: &str) -> Outcome<(String, u64)> {
    let printed = stage.shell(&format!("sha256sum {name}"))?;
    let sum = printed.split(' ').next().unwrap_or_default().to_owned();
    Ok((sum, fs::metadata(stage.path(name))?.len()))
}

/// A wheel is a zip file; pip's own Python makes it.
const MAKE_WHEEL: &str = "\
import sys, zipfile
about = 'humboldt_hello-1.0.dist-info/'
with zipfile.ZipFile(sys.argv[1], 'w') as wheel:
    wheel.writestr('humboldt_hello.py', 'greeting = \"hello\"\\n')
    wheel.writestr(about + 'METADATA', 'Metadata-Version: 2.1\\nName: humboldt-hello\\nVersion: 1.0\\n')
    wheel.writestr(about + 'WHEEL', 'Wheel-Version: 1.0\\nGenerator: hand\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')
    wheel.writestr(about + 'RECORD', '')
";

/// A simple package index (PEP 503) with one wheel.
pub(super) fn python_index(stage: &Stage) -> Outcome {
    let wheel = "humboldt_hello-1.0-py3-none-any.whl";
    stage.put("make_wheel.py", MAKE_WHEEL)?;
    fs::create_dir_all(stage.path("site/wheels"))?;
    stage.shell(&format!("python3 make_wheel.py site/wheels/{wheel}"))?;
    let list = format!(
        "<!doctype html><title>humboldt-hello</title><a href=\"/wheels/{wheel}\">{wheel}</a>\n"
    );
    stage.put("site/simple/humboldt-hello/index.html", list)
}

const PAGE: &str = "\
<!doctype html>
<html lang=en>
<meta charset=utf-8>
<title>Through Humboldt</title>
<link rel=stylesheet href=style.css>
<link rel=icon href=data:,>
<h1>This page came through Humboldt</h1>
<p>Its text, its style sheet and this picture were fetched from nginx once, and come from memory now.</p>
<img src=request.svg alt=\"The life of a request\">
</html>
";

const STYLE: &str = "\
body { font: 17px/1.5 sans-serif; margin: 2em auto; max-width: 860px; color: #222; background: #fdfcf9 }
h1 { color: #7a1f1f; border-bottom: 3px solid #7a1f1f }
img { width: 100%; background: white; border: 1px solid #ccc }
";

/// A page with a style sheet and the README's picture.
pub(super) fn web_page(stage: &Stage, root: &Path) -> Outcome {
    stage.put("site/page/index.html", PAGE)?;
    stage.put("site/page/style.css", STYLE)?;
    stage.put("site/page/request.svg", fs::read(root.join("docs/img/request.svg"))?)
}

/// 256 KiB without a pattern that repeats.
pub(super) fn slow_object(stage: &Stage) -> Outcome {
    const OBJECT_BYTES: usize = 256 * 1024;
    let mut state = 1_u64;
    let bytes = std::iter::repeat_with(|| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    });
    stage.put("site/slow/object", bytes.take(OBJECT_BYTES).collect::<Vec<u8>>())
}
