//! The controllers in libslurm's own configuration, and what is remembered about this host's slurmctld between two
//! calls.

use std::ffi::c_char;

use slurm_sys::slurm_conf_t;

/// What is remembered about this host between two calls.
#[derive(Debug, Default)]
pub(crate) struct OwnHost {
    /// The index of the controller before this host that answered last.
    pub(crate) last_ahead: u32,
    /// Whether this host's own slurmctld answered its last request with figures.
    pub(crate) has_answered: bool,
    /// The whole list, while only this host's slurmctld is asked.
    pub(crate) listed: Option<ListedControllers>,
}

/// What libslurm's own configuration says about controllers.
#[derive(Debug)]
pub(crate) struct ListedControllers {
    pub(crate) count: u32,
    pub(crate) machine: *mut *mut c_char,
    pub(crate) address: *mut *mut c_char,
    /// SlurmctldAddr, which takes precedence over the other addresses.
    pub(crate) virtual_address: *mut c_char,
}

impl ListedControllers {
    pub(crate) const fn of(conf: &slurm_conf_t) -> Self {
        Self {
            count: conf.control_cnt,
            machine: conf.control_machine,
            address: conf.control_addr,
            virtual_address: conf.slurmctld_addr,
        }
    }

    pub(crate) const fn put(self, conf: &mut slurm_conf_t) {
        (conf.control_cnt, conf.control_machine) = (self.count, self.machine);
        (conf.control_addr, conf.slurmctld_addr) = (self.address, self.virtual_address);
    }
}
