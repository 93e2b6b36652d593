//! The machine and software of a run, so that others can judge or repeat it.

use super::ground::Ground;
use super::plan::Prepared;
use crate::version;
use humboldt_lab_record::{Manifest, Provenance};

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
    manifest.provenance =
        provenance(Some(prepared.workload.text()), prepared.as_command.as_deref());
    if let Some(log) = &prepared.world.replay {
        // Its workload is the log.
        let digest = humboldt_lab_subjects::sha256_of_file(log.as_ref());
        manifest.provenance.workload_sha256 = digest.unwrap_or_default();
    }
    manifest.facts.extend(prepared.tls.as_ref().map(crate::tls::RunTls::fact));
    ground.describe(manifest);
}

/// The laboratory, its command line and the workload, if there is one. Subject and machine follow.
pub(crate) fn provenance(workload: Option<&str>, as_command: Option<&str>) -> Provenance {
    let words: Vec<String> = std::env::args().collect();
    Provenance {
        lab: version::build(),
        command: words.join(" "),
        run_command: as_command.map(ToOwned::to_owned),
        workload_sha256: workload
            .map(|text| humboldt_lab_subjects::sha256(text.as_bytes()))
            .unwrap_or_default(),
        ..Provenance::default()
    }
}

fn working_set(objects: u64) -> String {
    if objects == u64::MAX { "unlimited".to_owned() } else { format!("{objects} objects") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_workload_has_no_digest_of_one() {
        assert_eq!(provenance(None, None).workload_sha256, "");
        assert_eq!(provenance(Some("x"), None).workload_sha256.len(), 64);
        assert!(provenance(None, None).is_known());
    }
}
