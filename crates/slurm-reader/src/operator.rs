//! Whether this user is an operator according to slurmdbd's records: `slurm_load_assoc_mgr_info`,
//! for this user only.
//!
//! Operators see what PrivateData hides. slurmctld shows every user their own record.

use std::ffi::{CStr, CString};

use nix::unistd::{Uid, User};
use slurm_sys::{SLURMDB_ADMIN_OPERATOR, SLURMDB_ADMIN_SUPER_USER, assoc_mgr_info_msg_t};

use crate::calls::Libslurm;
use crate::unpacked::Unpacked;

/// Returns the name of this process's user; `None` if this host does not know one.
pub(crate) fn own_name() -> Option<CString> {
    let user = User::from_uid(Uid::effective()).ok().flatten()?;
    CString::new(user.name).ok()
}

/// Whether this process's user is an operator or an administrator. A user whom slurmdbd does not
/// know is neither. `None` if slurmctld does not say.
pub(crate) fn is_operator(libslurm: &mut Libslurm) -> Option<bool> {
    let name = own_name()?;
    let reply = libslurm.user(&name).ok()?;
    Some(has_operator(reply.get(), &name))
}

/// Whether the reply has a user of this name who is an operator.
fn has_operator(reply: Unpacked<'_, assoc_mgr_info_msg_t>, name: &CStr) -> bool {
    let levels = [SLURMDB_ADMIN_OPERATOR, SLURMDB_ADMIN_SUPER_USER];
    let users = reply.user_list();
    users
        .iter()
        .any(|user| user.name() == name.to_bytes() && levels.contains(&user.admin_level.into()))
}

#[cfg(test)]
mod tests {
    use slurm_sys::slurmdb_user_rec_t;

    use super::*;
    use crate::calls::tests::list_of;
    use crate::unpacked::made;

    #[test]
    fn a_reply_without_users_has_no_operator() {
        assert!(!has_operator(made(&assoc_mgr_info_msg_t::default()), c"root"));
    }

    #[test]
    fn only_the_record_of_the_own_name_counts() {
        let user = |name: &CStr, level: u32| slurmdb_user_rec_t {
            name: name.as_ptr().cast_mut(),
            admin_level: u16::try_from(level).unwrap(),
            ..Default::default()
        };
        let users = [
            user(c"ann", SLURMDB_ADMIN_OPERATOR),
            user(c"bob", 1),
            user(c"eve", SLURMDB_ADMIN_SUPER_USER),
        ];
        let users = list_of(users);
        let reply = assoc_mgr_info_msg_t { user_list: users.pointer(), ..Default::default() };
        for (name, expected) in [(c"ann", true), (c"bob", false), (c"eve", true), (c"dan", false)] {
            assert_eq!(has_operator(made(&reply), name), expected, "{name:?}");
        }
    }
}
