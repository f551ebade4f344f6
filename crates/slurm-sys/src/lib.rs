//! libslurm's C interface, as bindgen reads it from the installed headers; the only bindgen of the
//! workspace.
//!
//! Everything here is generated and has the layout of one release, that of `SLURM_VERSION_NUMBER`:
//! a library of another release gives silently shifted numbers. Who may call what, and who frees
//! what, is slurm-reader's knowledge.

#[allow(
    dead_code,
    missing_docs,
    non_camel_case_types,
    unreachable_pub,
    clippy::allow_attributes_without_reason,
    clippy::indexing_slicing,
    clippy::multiple_unsafe_ops_per_block,
    clippy::undocumented_unsafe_blocks,
    reason = "generated: the names are C's, slurm.h documents them, and which lints they hit is \
        the header's affair"
)]
mod bindings {
    include!(concat!(env!("OUT_DIR"), "/bindings.rs"));
}

pub use bindings::*;
