//! Whether this user is an operator according to slurmdbd's records: `slurm_load_assoc_mgr_info`, for this user only.
//!
//! Operators see what PrivateData hides. slurmctld shows every user their own record.

use std::ffi::{CStr, CString};

use slurm_sys::{
    SLURMDB_ADMIN_OPERATOR, SLURMDB_ADMIN_SUPER_USER, assoc_mgr_info_msg_t, assoc_mgr_info_request_msg_t,
    slurmdb_user_rec_t,
};

use crate::accounting::Texts;
use crate::client::{CallError, Client, failure};
use crate::raw::{self, Freed, RawReply, bytes};

/// `ASSOC_MGR_INFO_FLAG_USERS`.
const USERS: u32 = 1 << 1;

impl Client {
    /// Whether the user with this name is an operator or an administrator. A user whom slurmdbd does not know is
    /// neither.
    pub(crate) fn is_operator(&mut self, name: &CStr) -> Result<bool, CallError> {
        let users = Texts::new([CString::from(name)]);
        let mut request =
            assoc_mgr_info_request_msg_t { flags: USERS, user_list: users.pointer(), ..Default::default() };
        let call = |out: &mut *mut assoc_mgr_info_msg_t| {
            // SAFETY: both pointers are valid during the call, and it keeps neither.
            unsafe { slurm_sys::slurm_load_assoc_mgr_info(&raw mut request, out) }
        };
        // SAFETY: slurm_load_assoc_mgr_info leaves NULL or a reply that its caller frees with its FREE.
        let reply = unsafe { RawReply::receive(call) };
        let reply = reply.map_err(|error| failure("slurm_load_assoc_mgr_info", &error))?;
        // SAFETY: libslurm unpacks a list of users, or leaves it NULL.
        Ok(unsafe { has_operator(reply.get(), name) })
    }
}

/// Whether the reply has a user of this name who is an operator.
///
/// # Safety
/// The reply's list of users is NULL or libslurm's.
unsafe fn has_operator(reply: &assoc_mgr_info_msg_t, name: &CStr) -> bool {
    let mut found = false;
    let take = |user: &slurmdb_user_rec_t| {
        // SAFETY: libslurm unpacks the name with its NUL, or leaves it NULL.
        let is_this = unsafe { bytes(user.name) } == name.to_bytes();
        found |= is_this && is_operators(user.admin_level.into());
    };
    // SAFETY: the caller promises NULL, or a list of users.
    unsafe { raw::each(reply.user_list, take) };
    found
}

fn is_operators(level: u32) -> bool {
    level == SLURMDB_ADMIN_OPERATOR || level == SLURMDB_ADMIN_SUPER_USER
}

impl Freed for assoc_mgr_info_msg_t {
    const FREE: unsafe extern "C" fn(*mut Self) = slurm_sys::slurm_free_assoc_mgr_info_msg;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_without_users_has_no_operator() {
        // SAFETY: the list is NULL.
        assert!(!unsafe { has_operator(&assoc_mgr_info_msg_t::default(), c"root") });
    }

    #[test]
    fn only_the_record_of_the_own_name_counts() {
        // SAFETY: makes an empty list.
        let list = unsafe { slurm_sys::slurm_list_create(None) };
        let user = |name: &CStr, level: u32| slurmdb_user_rec_t {
            name: name.as_ptr().cast_mut(),
            admin_level: u16::try_from(level).unwrap(),
            ..Default::default()
        };
        let mut users =
            [user(c"ann", SLURMDB_ADMIN_OPERATOR), user(c"bob", 1), user(c"eve", SLURMDB_ADMIN_SUPER_USER)];
        for user in &mut users {
            // SAFETY: the list exists, and the user outlives it.
            unsafe { slurm_sys::slurm_list_append(list, std::ptr::from_mut(user).cast()) };
        }
        let reply = assoc_mgr_info_msg_t { user_list: list, ..Default::default() };
        for (name, expected) in [(c"ann", true), (c"bob", false), (c"eve", true), (c"dan", false)] {
            // SAFETY: the list is libslurm's.
            assert_eq!(unsafe { has_operator(&reply, name) }, expected, "{name:?}");
        }
        // SAFETY: created above, and not used again.
        unsafe { slurm_sys::slurm_list_destroy(list) };
    }
}
