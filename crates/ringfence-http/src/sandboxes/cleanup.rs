//! Removes the directories of ended sandboxes.

use std::fs;
use std::io;

use ringfence_policy::AbsPath;
use ringfence_skills::{SkillName, delete_tree};
use rustix::fs::{Mode, OFlags};

use super::keeper::note;
use crate::SharedState;

/// Removes the directory of a sandbox, whatever its commands left in it.
pub(super) fn remove(workspace: &AbsPath) -> io::Result<()> {
    let (Some(above), Some(name)) = (workspace.parent(), workspace.name()) else { return Ok(()) };
    let bin = rustix::fs::open(
        above.as_path(),
        OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    delete_tree(std::os::fd::AsFd::as_fd(&bin), &name.to_string_lossy())
}

/// Removes the sandboxes that a previous service left, records their end, and returns their number.
pub(crate) fn recover(app: &SharedState) -> io::Result<usize> {
    let all = app.data.join("sandboxes");
    let mut lost = 0;
    for tenant in entries(&all)? {
        let Ok(user) = SkillName::try_from(tenant.as_str()) else { continue };
        let tenant_directory = all.join(&tenant);
        for id in entries(&tenant_directory)? {
            // A name with a dot was already being removed.
            if !id.starts_with('.') {
                lost += 1;
                note(app, &user, &id, "a sandbox was ended: the service ended while it stood");
            }
            remove(&tenant_directory.join(&id))?;
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
