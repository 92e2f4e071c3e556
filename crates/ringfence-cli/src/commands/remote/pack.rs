//! Packs a directory as a ZIP archive for upload.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use flate2::{Compression, Crc, write::DeflateEncoder};

use crate::error::CliError;

/// Returns the archive at `path`, or packs a directory: a skill, or a directory of skills.
pub(super) fn pack_archive(path: &Path) -> Result<Vec<u8>, CliError> {
    let fail = |what: &'static str, source| CliError::File {
        what,
        path: path.display().to_string(),
        source,
    };
    if !path.is_dir() {
        return fs::read(path).map_err(|source| fail("read", source));
    }
    let whole = path.canonicalize().map_err(|source| fail("read", source))?;
    let is_skill = whole.join("SKILL.md").exists();
    // The top level of an archive holds skills, named after their directories.
    let root = if is_skill { whole.parent().unwrap_or(Path::new("/")) } else { &whole };
    let mut zip = ZipWriter::default();
    zip.add(root, &whole, is_skill).map_err(|(path, source)| CliError::File {
        what: "pack",
        path: path.display().to_string(),
        source,
    })?;
    Ok(zip.finish())
}

/// A ZIP file under construction.
#[derive(Default)]
struct ZipWriter {
    bytes: Vec<u8>,
    central: Vec<u8>,
    count: u16,
}

type PackError = (PathBuf, io::Error);

impl ZipWriter {
    /// Adds the entries of a directory, with names relative to `root`.
    fn add(&mut self, root: &Path, directory: &Path, is_skill: bool) -> Result<(), PackError> {
        let at = |path: &Path| {
            let path = path.to_owned();
            move |source| (path, source)
        };
        let entries: io::Result<Vec<PathBuf>> = fs::read_dir(directory)
            .and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect());
        let mut entries = entries.map_err(at(directory))?;
        entries.sort();
        for path in entries {
            let metadata = fs::symlink_metadata(&path).map_err(at(&path))?;
            let is_hidden_top = directory == root
                && !is_skill
                && path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
            if metadata.is_dir() && !is_hidden_top {
                self.add(root, &path, true)?;
            } else if metadata.is_file() && (is_skill || directory != root) {
                let name = path
                    .strip_prefix(root)
                    .unwrap_or(&path)
                    .to_str()
                    .ok_or_else(|| at(&path)(io::ErrorKind::InvalidFilename.into()))?;
                let bytes = fs::read(&path).map_err(at(&path))?;
                self.file(name, &bytes, metadata.permissions().mode()).map_err(at(&path))?;
            } else if metadata.is_symlink() {
                return Err(at(&path)(io::Error::other("symbolic links are not supported")));
            }
        }
        Ok(())
    }

    /// Adds a file. APPNOTE 4.3: a local header before the data, and a central header at the end.
    fn file(&mut self, name: &str, bytes: &[u8], mode: u32) -> io::Result<()> {
        let mut crc = Crc::new();
        crc.update(bytes);
        let mut encoder = DeflateEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(bytes)?;
        let packed = encoder.finish()?;
        let too_much =
            |_| io::Error::new(io::ErrorKind::FileTooLarge, "an archive must be below 4 GiB");
        let size = |length: usize| u32::try_from(length).map_err(too_much);
        let offset = size(self.bytes.len())?;
        let mut head = Vec::new();
        // Version 2.0, names in UTF-8, deflated, 1 January 1980.
        for field in [20u16, 0x0800, 8, 0, 0x21] {
            head.extend(field.to_le_bytes());
        }
        for field in [crc.sum(), size(packed.len())?, size(bytes.len())?] {
            head.extend(field.to_le_bytes());
        }
        let length = u16::try_from(name.len())
            .map_err(|_| io::Error::from(io::ErrorKind::InvalidFilename))?;
        head.extend(length.to_le_bytes());
        head.extend(0u16.to_le_bytes());
        self.bytes.extend(b"PK\x03\x04");
        self.bytes.extend(&head);
        self.bytes.extend(name.as_bytes());
        self.bytes.extend(packed);
        // Made by Unix: the upper half of the attributes holds the mode.
        self.central.extend(b"PK\x01\x02");
        self.central.extend((3u16 << 8 | 20).to_le_bytes());
        self.central.extend(&head);
        self.central.extend([0; 6]);
        self.central.extend(((mode & 0o777 | 0o100_000) << 16).to_le_bytes());
        self.central.extend(offset.to_le_bytes());
        self.central.extend(name.as_bytes());
        self.count = self
            .count
            .checked_add(1)
            .ok_or_else(|| io::Error::other("an archive must have at most 65535 files"))?;
        Ok(())
    }

    fn finish(mut self) -> Vec<u8> {
        let (offset, length) = (self.bytes.len() as u32, self.central.len() as u32);
        self.bytes.append(&mut self.central);
        self.bytes.extend(b"PK\x05\x06\0\0\0\0");
        self.bytes.extend(self.count.to_le_bytes());
        self.bytes.extend(self.count.to_le_bytes());
        self.bytes.extend(length.to_le_bytes());
        self.bytes.extend(offset.to_le_bytes());
        self.bytes.extend([0; 2]);
        self.bytes
    }
}
