//! `humboldt-lab bang`.

use crate::Failure;
use crate::cli::BangArgs;
use crate::interrupt::Interrupt;

pub(crate) fn bang(_arguments: &BangArgs, _interrupt: &Interrupt) -> Result<(), Failure> {
    Err(Failure::usage("in the making"))
}
