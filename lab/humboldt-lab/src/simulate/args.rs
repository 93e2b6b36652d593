//! The arguments of `humboldt-lab simulate`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use humboldt_policy::Policy;

use super::generate::Recipe;
use super::size::Size;

/// The command line of `simulate`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Counting:
  A hit is a request for an object that is in the cache, whatever its size in that request. An object has the size of
  the request that brought it into the cache. An object larger than the cache is never stored. The cache is empty at the
  beginning, and every request counts. ns/request is processor time.

Formats:
  squid    Squid's native access.log. It counts GET requests that were not denied and were answered with 200, 203, 300,
           301, 308, 404 or 410. The size is that of the log, with the head. The number of other requests is shown.
  csv      time,key,size and further fields that are ignored; a first line of names is skipped. The time may be any number.
           Fields have no quotes and no commas.
  oracle   libCacheSim's oracleGeneral, not compressed: records of 24 bytes, little-endian: time u32, id u64, size u32,
           next access i64 (which is not used). For a compressed one: zstd -dc TRACE | humboldt-lab simulate - …

Generated traces:
  zipf:objects=1e6,requests=1e7,alpha=0.9,sizes=lognormal
           popularity by Zipf's law with exponent alpha; sizes=lognormal (mean=13KB,sigma=1.5), exponential (mean=), or
           a size such as sizes=4KB for all
  … once=0.4                        share of the requests for objects that are requested once
  … scan=0.3,scan-length=1e4,scan-objects=1e6
                                    share of the requests that scan another set of objects in sequence, repeatedly
  … drift=1000                      every 1,000 requests a new object becomes the most popular, and others fall by a rank
  once:…   zipf with once=0.4
  scan:…   zipf with scan=0.3

The optimum:
  MIN is Belady's: it evicts the object whose next request is furthest in the future; that may be the new one. No policy
  can have more hits if all objects have the same size. If sizes differ, the same rule is shown as `furthest first`: a
  policy that knows the future, and not a bound. It needs the trace twice, so the requests are kept in a temporary file
  (12 bytes each in TMPDIR).

Examples:
  humboldt-lab simulate /var/log/squid/access.log --size 1GB,10GB
  humboldt-lab simulate --generate once:objects=1e5,requests=1e6 --size 1%,5% --policy lru,s3fifo,'heap GDSF'
  zstd -dc trace.oracleGeneral.zst | humboldt-lab simulate - --format oracle --size 5% --csv result.csv")]
pub(crate) struct SimulateArgs {
    /// Traces, read in sequence; `-` is standard input
    #[arg(value_name = "TRACE", required_unless_present = "generate")]
    pub(super) traces: Vec<PathBuf>,
    /// Make a trace instead (see below)
    #[arg(long, value_name = "RECIPE", conflicts_with = "traces")]
    pub(super) generate: Option<Recipe>,
    /// Policies, separated by commas [default: all]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = policy)]
    pub(super) policy: Vec<Policy>,
    /// Cache sizes, separated by commas: bytes, or a share of the bytes of all different objects
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1%,5%,20%")]
    pub(super) size: Vec<Size>,
    /// Format of the traces
    #[arg(long, value_enum, default_value_t = Format::Auto)]
    pub(super) format: Format,
    /// Skip and count lines that are not understood, instead of ending
    #[arg(long)]
    pub(super) skip_bad: bool,
    /// Read no more than this many requests
    #[arg(long, value_name = "REQUESTS")]
    pub(super) requests_max: Option<u64>,
    /// All choices of a generated trace follow from it
    #[arg(long, default_value_t = 1)]
    pub(super) seed: u64,
    /// Leave the optimum out. With sizes in bytes, the trace is then read once, and not kept
    #[arg(long)]
    pub(super) no_optimum: bool,
    /// Write the results as JSON to this file too; `-` is standard output, without the table
    #[arg(long, value_name = "FILE")]
    pub(super) json: Option<PathBuf>,
    /// Write the results as CSV to this file too; `-` is standard output, without the table
    #[arg(long, value_name = "FILE")]
    pub(super) csv: Option<PathBuf>,
}

/// `--format`
#[derive(Copy, Clone, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// From the first bytes
    Auto,
    /// Squid's access.log
    Squid,
    /// time,key,size
    Csv,
    /// libCacheSim's oracleGeneral
    Oracle,
}

fn policy(text: &str) -> Result<Policy, String> {
    let text = text.trim();
    let heap = format!("heap {text}");
    Policy::from_name(text)
        .or_else(|| Policy::from_name(&heap).filter(|policy| *policy != Policy::HeapLru))
        .ok_or_else(|| format!("it is none of {}", Policy::ALL.map(Policy::name).join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_have_squids_names() {
        for known in Policy::ALL {
            assert_eq!(policy(known.name()), Ok(known));
        }
        assert_eq!(policy(" GDSF"), Ok(Policy::HeapGdsf));
        assert_eq!(policy("lru"), Ok(Policy::Lru));
        assert!(policy("arc").is_err_and(|said| said.contains("s3fifo")));
    }
}
