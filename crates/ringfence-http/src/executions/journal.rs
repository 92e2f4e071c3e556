//! What runs, in one file: a line when a command begins and one when it has ended. Whoever starts
//! after a service was killed finds those that have no end.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::Mutex;

use ringfence_policy::AbsPath;
use serde::{Deserialize, Serialize};

use super::ExecutionStatus;
use crate::state::put_lightly;
use crate::tenants::lock;

/// Longer than this, and than four times what it has to tell, it is written anew.
const LONGEST: u64 = 1 << 20;

pub(crate) struct RunJournal {
    open: Mutex<JournalFile>,
    /// What the service before this one has left without an end.
    left: Mutex<Vec<ExecutionStatus>>,
}

struct JournalFile {
    path: AbsPath,
    file: File,
    length: u64,
    /// The lines of those that have begun and not ended.
    running: BTreeMap<String, Vec<u8>>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum JournalLine {
    Begun(Box<ExecutionStatus>),
    Ended(String),
}

impl RunJournal {
    pub(crate) fn open(path: &AbsPath) -> io::Result<Self> {
        let left = match fs::read(path.as_path()) {
            Ok(bytes) => unended(&bytes),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(error),
        };
        let file = appending(path)?;
        let length = file.metadata()?.len();
        let mut open = JournalFile { path: path.clone(), file, length, running: BTreeMap::new() };
        for status in &left {
            open.running
                .insert(status.id.clone(), line(&JournalLine::Begun(Box::new(status.clone())))?);
        }
        // Also what was half written is gone by that.
        open.anew()?;
        Ok(Self { open: Mutex::new(open), left: Mutex::new(left) })
    }

    /// What was left; whoever takes it ends each of them.
    pub(super) fn left(&self) -> Vec<ExecutionStatus> {
        std::mem::take(&mut lock(&self.left))
    }

    /// Before it starts: afterwards there is nobody who could say that it did.
    pub(super) fn begins(&self, status: &ExecutionStatus) -> io::Result<()> {
        let text = line(&JournalLine::Begun(Box::new(status.clone())))?;
        let mut open = lock(&self.open);
        open.append(&text)?;
        // One that was accepted would be run again after a power failure.
        if status.is_kept {
            open.file.sync_data()?;
        }
        open.running.insert(status.id.clone(), text);
        Ok(())
    }

    /// Once all that is to outlast it is written.
    pub(super) fn ends(&self, id: &str) -> io::Result<()> {
        let text = line(&JournalLine::Ended(id.to_owned()))?;
        let mut open = lock(&self.open);
        if open.running.remove(id).is_none() {
            return Ok(());
        }
        open.append(&text)?;
        let told: usize = open.running.values().map(Vec::len).sum();
        if open.length > LONGEST.max(4 * told as u64) { open.anew() } else { Ok(()) }
    }
}

impl JournalFile {
    /// In one go, so that no line is in another. If it fails, the part that was written is cut off:
    /// the next line would be glued to it.
    fn append(&mut self, text: &[u8]) -> io::Result<()> {
        self.file.write_all(text).inspect_err(|_| drop(self.file.set_len(self.length)))?;
        self.length += text.len() as u64;
        Ok(())
    }

    /// Writes it with what runs, and nothing else.
    fn anew(&mut self) -> io::Result<()> {
        let text: Vec<u8> = self.running.values().flatten().copied().collect();
        put_lightly(self.path.as_path(), &text)?;
        self.file = appending(&self.path)?;
        self.length = text.len() as u64;
        Ok(())
    }
}

fn appending(path: &AbsPath) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).mode(0o600).open(path.as_path())
}

fn line(line: &JournalLine) -> io::Result<Vec<u8>> {
    let mut text = serde_json::to_vec(line).map_err(io::Error::other)?;
    text.push(b'\n');
    Ok(text)
}

/// Those that began and did not end. Half a line at the end is one that did not begin.
fn unended(bytes: &[u8]) -> Vec<ExecutionStatus> {
    let mut begun: Vec<ExecutionStatus> = Vec::new();
    for line in bytes.split(|byte| *byte == b'\n') {
        match serde_json::from_slice(line) {
            Ok(JournalLine::Begun(status)) => begun.push(*status),
            Ok(JournalLine::Ended(id)) => begun.retain(|status| status.id != id),
            Err(_) => {}
        }
    }
    begun
}

#[cfg(test)]
mod tests {
    use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};

    use super::*;

    #[test]
    fn failed_append_leaves_no_part_of_a_line() {
        let mut file = File::from(memfd_create("journal", MemfdFlags::ALLOW_SEALING).unwrap());
        // As if a write had failed in its middle; the seal makes all further writes fail.
        file.write_all(b"a line\nhalf a").unwrap();
        fcntl_add_seals(&file, SealFlags::GROW).unwrap();
        let seen = file.try_clone().unwrap();
        let mut open = JournalFile {
            path: AbsPath::new("/nowhere").unwrap(),
            file,
            length: 7,
            running: BTreeMap::new(),
        };
        open.append(b"another line\n").unwrap_err();
        assert_eq!((open.length, seen.metadata().unwrap().len()), (7, 7));
    }
}
