//! The machine and software of a run, so that others can judge or repeat it.

use super::ground::Ground;
use super::plan::Prepared;
use humboldt_lab_record::Manifest;

/// Fills the manifest.
pub(super) fn describe(manifest: &mut Manifest, prepared: &Prepared, ground: &Ground) {
    let list =
        |cores: &[usize]| cores.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let link = |link: humboldt_lab_workload::Link| {
        format!("{} ms each way, {} % loss", link.one_way_us as f64 / 1e3, link.loss * 100.0)
    };
    manifest.facts.extend([
        ("Laboratory".to_owned(), format!("humboldt-lab {}", arguments.join(" "))),
        ("Working set".to_owned(), working_set(prepared.working_set_objects)),
        ("Link between cache and servers".to_owned(), link(prepared.workload.server_link())),
        ("Link between users and cache".to_owned(), link(prepared.workload.client_link())),
        ("Processors of the laboratory".to_owned(), list(&prepared.shares.lab)),
        ("Processors of the subject".to_owned(), list(&prepared.shares.subject)),
    ]);
    manifest.facts.extend(prepared.tls.as_ref().map(crate::tls::RunTls::fact));
    ground.describe(manifest);
}

fn working_set(objects: u64) -> String {
    if objects == u64::MAX { "unlimited".to_owned() } else { format!("{objects} objects") }
}
