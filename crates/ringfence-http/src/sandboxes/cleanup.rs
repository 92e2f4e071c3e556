//! What is left of sandboxes that have ended.

use std::fs;
use std::io;

use ringfence_policy::AbsPath;
use ringfence_skills::{SkillName, delete_tree};
use rustix::fs::{Mode, OFlags};

use super::keeper::note;
use crate::SharedState;

/// Takes the directory of a sandbox away, whatever commands have made of it.
pub(super) fn remove(workspace: &AbsPath) -> io::Result<()> {
    let (Some(above), Some(name)) = (workspace.parent(), workspace.name()) else { return Ok(()) };
    let bin = rustix::fs::open(
        above.as_path(),
        OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    delete_tree(std::os::fd::AsFd::as_fd(&bin), &name.to_string_lossy())
}

/// Takes away what a service before this one has left, and puts on record that it has ended.
/// Answers how many there were.
pub(crate) fn recover(house: &SharedState) -> io::Result<usize> {
    let all = house.data.join("sandboxes");
    let mut lost = 0;
    for tenant in entries(&all)? {
        let Ok(user) = SkillName::try_from(tenant.as_str()) else { continue };
        let of_user = all.join(&tenant);
        for id in entries(&of_user)? {
            // What begins with a dot was being taken away.
            if !id.starts_with('.') {
                lost += 1;
                note(house, &user, &id, "a sandbox was ended: the service ended while it stood");
            }
            remove(&of_user.join(&id))?;
        }
    }
    Ok(lost)
}

fn entries(directory: &AbsPath) -> io::Result<Vec<String>> {
    let read = match fs::read_dir(directory.as_path()) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        read => read?,
    };
    read.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
}
