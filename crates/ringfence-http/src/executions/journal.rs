//! The journal of running commands: one line when a command starts and one when it ends. The start
//! after a kill finds the commands without an end.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::Mutex;

use ringfence_policy::AbsPath;
use serde::{Deserialize, Serialize};

use super::ExecutionStatus;
use crate::state::write_unsynced;
use crate::tenants::lock;

/// Above this size, and above four times its live content, the journal is rewritten.
const LONGEST: u64 = 1 << 20;

pub(crate) struct RunJournal {
    open: Mutex<JournalFile>,
    /// Unfinished commands of the previous service.
    unfinished: Mutex<Vec<ExecutionStatus>>,
}

struct JournalFile {
    path: AbsPath,
    file: File,
    length: u64,
    /// The lines of started and unfinished commands.
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
        let unfinished = match fs::read(path.as_path()) {
            Ok(bytes) => find_unfinished(&bytes),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(error),
        };
        let file = open_for_append(path)?;
        let length = file.metadata()?.len();
        let mut open = JournalFile { path: path.clone(), file, length, running: BTreeMap::new() };
        for status in &unfinished {
            open.running
                .insert(status.id.clone(), line(&JournalLine::Begun(Box::new(status.clone())))?);
        }
        // This also removes a half-written line.
        open.rewrite()?;
        Ok(Self { open: Mutex::new(open), unfinished: Mutex::new(unfinished) })
    }

    /// Takes the unfinished commands; the caller ends each of them.
    pub(super) fn take_unfinished(&self) -> Vec<ExecutionStatus> {
        std::mem::take(&mut lock(&self.unfinished))
    }

    /// Records a start. Called before the command runs: after a crash nothing else shows it.
    pub(super) fn record_start(&self, status: &ExecutionStatus) -> io::Result<()> {
        let text = line(&JournalLine::Begun(Box::new(status.clone())))?;
        let mut open = lock(&self.open);
        open.append(&text)?;
        // Without fsync an accepted command would run twice after a power failure.
        if status.is_kept {
            open.file.sync_data()?;
        }
        open.running.insert(status.id.clone(), text);
        Ok(())
    }

    /// Records an end. Called after everything that must outlast the command is written.
    pub(super) fn record_end(&self, id: &str) -> io::Result<()> {
        let text = line(&JournalLine::Ended(id.to_owned()))?;
        let mut open = lock(&self.open);
        if open.running.remove(id).is_none() {
            return Ok(());
        }
        open.append(&text)?;
        let live_bytes: usize = open.running.values().map(Vec::len).sum();
        if open.length > LONGEST.max(4 * live_bytes as u64) { open.rewrite() } else { Ok(()) }
    }
}

impl JournalFile {
    /// Appends in one write, so that lines do not interleave. If it fails, the partial line is cut
    /// off: the next line would be glued to it.
    fn append(&mut self, text: &[u8]) -> io::Result<()> {
        self.file.write_all(text).inspect_err(|_| drop(self.file.set_len(self.length)))?;
        self.length += text.len() as u64;
        Ok(())
    }

    /// Rewrites the journal with the running commands only.
    fn rewrite(&mut self) -> io::Result<()> {
        let text: Vec<u8> = self.running.values().flatten().copied().collect();
        write_unsynced(self.path.as_path(), &text)?;
        self.file = open_for_append(&self.path)?;
        self.length = text.len() as u64;
        Ok(())
    }
}

fn open_for_append(path: &AbsPath) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).mode(0o600).open(path.as_path())
}

fn line(line: &JournalLine) -> io::Result<Vec<u8>> {
    let mut text = serde_json::to_vec(line).map_err(io::Error::other)?;
    text.push(b'\n');
    Ok(text)
}

/// The commands that started and did not end. A partial last line counts as not started.
fn find_unfinished(bytes: &[u8]) -> Vec<ExecutionStatus> {
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
