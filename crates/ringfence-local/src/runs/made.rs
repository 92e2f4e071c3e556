//! The list of the repositories that commands of a project made.
//!
//! A command that runs meanwhile may write to them although they were looked through, and
//! later ones may where the survey does not look: so they are looked through after each. The list
//! is only ever appended to while another run goes on, so that each run knows what came after its own survey.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;

use ringfence_enforce::apply::{Made, Planted};
use ringfence_policy::AbsPath;
use rustix::fs::{Mode, OFlags};

use super::{Mark, PLAIN, Runs};
use crate::sweep::{Identity, Spotted, led_to};

const LIST: &str = ".made";
const NEXT: &str = ".made.next";

/// What the list said when the host was looked at.
#[derive(Debug, Clone, Default)]
pub(crate) struct Listed {
    /// What was where it said.
    entries: Vec<Spotted>,
    cursor: Cursor,
}

/// How far the list was read: which file, and how many bytes of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Cursor {
    inode: u64,
    length: u64,
}

impl Runs {
    /// What commands have made so far.
    pub(crate) fn listed(&self) -> Listed {
        let _turn = self.turn();
        let (mut entries, cursor) = self.entries(Cursor::default());
        entries.retain(|entry| led_to(&entry.path, entry.identity).is_some());
        Listed { entries, cursor }
    }

    /// All that commands made until now: as if it were this one, or by identity if it was moved.
    pub(crate) fn made(&self, listed: &Listed) -> (Vec<Made>, HashSet<Identity>) {
        let _turn = self.turn();
        let (mut made, mut moved) = (Vec::new(), HashSet::new());
        for Spotted { path, identity, what } in listed.entries.iter().cloned().chain(self.entries(listed.cursor).0) {
            match led_to(&path, identity) {
                Some(directory) => made.push(Made { directory: Some(directory), path, what, birth: None }),
                None => drop(moved.insert(identity)),
            }
        }
        (made, moved)
    }

    /// Adds to the list; what is no longer there is taken off it if no other run goes on.
    pub(crate) fn note(&self, mut spotted: Vec<Spotted>, listed: &Listed, own: Option<&Mark>) {
        let known: HashSet<&Spotted> = listed.entries.iter().collect();
        spotted.retain(|spot| !known.contains(spot));
        if spotted.is_empty() {
            return;
        }
        let Ok(_turn) = self.turn() else { return };
        // A list that cannot be written is as one that there is no store for.
        let _ = if self.others_go_on(own) { self.append(LIST, spotted.iter()) } else { self.rewrite(&spotted) };
    }

    fn append<'a>(&self, name: &str, entries: impl Iterator<Item = &'a Spotted>) -> io::Result<()> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::APPEND | PLAIN;
        let mut file = fs::File::from(rustix::fs::openat(&self.directory, name, flags, Mode::RUSR | Mode::WUSR)?);
        file.write_all(&entries.flat_map(written).collect::<Vec<u8>>())
    }

    fn rewrite(&self, spotted: &[Spotted]) -> io::Result<()> {
        let (mut entries, _) = self.entries(Cursor::default());
        entries.extend(spotted.iter().cloned());
        let mut known = HashSet::new();
        // The last one counts: it may have been moved.
        let kept = entries
            .iter()
            .rev()
            .filter(|entry| led_to(&entry.path, entry.identity).is_some() && known.insert((entry.identity, entry.what)));
        let _ = rustix::fs::unlinkat(&self.directory, NEXT, rustix::fs::AtFlags::empty());
        self.append(NEXT, kept)?;
        Ok(rustix::fs::renameat(&self.directory, NEXT, &self.directory, LIST)?)
    }

    /// What the list says behind `cursor`; all of it if it is another list by now.
    fn entries(&self, cursor: Cursor) -> (Vec<Spotted>, Cursor) {
        let mut text = Vec::new();
        let read = |text: &mut Vec<u8>| -> io::Result<Cursor> {
            let file = rustix::fs::openat(&self.directory, LIST, OFlags::RDONLY | OFlags::NONBLOCK | PLAIN, Mode::empty())?;
            let mut file = fs::File::from(file);
            let inode = file.metadata()?.ino();
            if inode == cursor.inode {
                file.seek(SeekFrom::Start(cursor.length))?;
            }
            file.read_to_end(text)?;
            Ok(Cursor { inode, length: file.stream_position()? })
        };
        let cursor = read(&mut text).unwrap_or_default();
        (text.split(|byte| *byte == 0).filter_map(parsed).collect(), cursor)
    }
}

fn written(entry: &Spotted) -> Vec<u8> {
    let word = match entry.what {
        Planted::DotGit => "git",
        Planted::Head => "head",
    };
    let (device, inode) = entry.identity;
    [format!("{word} {device} {inode} ").as_bytes(), entry.path.as_bytes(), b"\0"].concat()
}

fn parsed(line: &[u8]) -> Option<Spotted> {
    let mut words = line.splitn(4, |byte| *byte == b' ');
    let what = match words.next()? {
        b"git" => Planted::DotGit,
        b"head" => Planted::Head,
        _ => return None,
    };
    let mut number = || std::str::from_utf8(words.next()?).ok()?.parse().ok();
    let identity = (number()?, number()?);
    Some(Spotted { path: AbsPath::new(OsStr::from_bytes(words.next()?))?, identity, what })
}
