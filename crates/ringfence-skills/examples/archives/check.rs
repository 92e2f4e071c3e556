//! Invariants for every archive.

use std::collections::BTreeMap;
use std::error::Error;
use std::io::{Cursor, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use ringfence_skills::{SkillName, SkillStore, UploadBounds};

/// One of so many accepted archives is also unpacked by Python.
const PYTHON_INTERVAL: u64 = 50;
/// Well above the unpacked size.
const MEMORY_KIB: u64 = 256 << 10;

pub(crate) struct FuzzStore {
    /// Contains only the store.
    place: PathBuf,
    store: SkillStore,
    user: SkillName,
    taken: u64,
    has_python: bool,
}

type Files = BTreeMap<Vec<u8>, Vec<u8>>;

impl FuzzStore {
    pub(crate) fn new() -> Result<FuzzStore, Box<dyn Error>> {
        // In memory if possible: the disk is not under test.
        let memory = Path::new("/dev/shm");
        let base = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        let place = base.join(format!("ringfence-archives-{}", std::process::id()));
        std::fs::create_dir(&place)?;
        let bounds = UploadBounds {
            archive: 2 << 20,
            entries: 50,
            total: 4 << 20,
            file: 1 << 20,
            depth: 8,
            ..UploadBounds::default()
        };
        let store = SkillStore::open(&place.join("store"), bounds)?;
        let has_python = Command::new("python3")
            .arg("-V")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_ok();
        Ok(FuzzStore { place, store, user: "fuzz".parse()?, taken: 0, has_python })
    }

    /// True if it was accepted; an error if an invariant is violated.
    pub(crate) fn check(&mut self, bytes: &[u8]) -> Result<bool, Box<dyn Error>> {
        let agent: SkillName = "agent".parse()?;
        let result = self.store.upload(&self.user, &agent, Cursor::new(bytes), None);
        let root = self.place.join("store");
        for (directory, expect) in [
            (self.place.as_path(), 1),
            (root.as_path(), 5),
            (&root.join("staging"), 0),
            (&root.join("trash"), 0),
        ] {
            if std::fs::read_dir(directory)?.count() != expect {
                return Err(format!("something is left in {}", directory.display()).into());
            }
        }
        let uploaded = match result {
            Err(error) if error.code() == "system" => {
                return Err(format!("the upload failed: {error:?}").into());
            }
            Err(error) => {
                if !self.store.users()?.is_empty() {
                    return Err(format!("refused ({error}), but stored").into());
                }
                return Ok(false);
            }
            Ok(uploaded) => uploaded,
        };
        let mut found = Files::new();
        collect(&root.join("skills/fuzz/agent"), &mut Vec::new(), &mut found)?;
        // The `zip` crate refuses some invalid times; then Python is used.
        let other = by_zip(bytes);
        if other.as_ref().is_ok_and(|other| *other != found) {
            return Err("the zip crate unpacks different files".into());
        }
        self.taken += 1;
        if self.has_python
            && (other.is_err() || self.taken.is_multiple_of(PYTHON_INTERVAL))
            && by_python(bytes)? != listing(&found)
        {
            return Err("Python unpacks different files".into());
        }
        for taken in &uploaded.skills {
            self.store.remove(&ringfence_skills::SkillId {
                user: self.user.clone(),
                agent: agent.clone(),
                skill: taken.info.skill_id.clone(),
            })?;
        }
        Ok(true)
    }

    pub(crate) fn check_memory(&self) -> Result<(), Box<dyn Error>> {
        let status = std::fs::read_to_string("/proc/self/status")?;
        let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap_or_default();
        let peak: u64 = line.split_whitespace().nth(1).unwrap_or_default().parse()?;
        if peak > MEMORY_KIB { Err(format!("used {peak} KiB of memory").into()) } else { Ok(()) }
    }
}

impl Drop for FuzzStore {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.place);
    }
}

/// Collects regular files with normal modes; anything else is an error.
fn collect(
    directory: &Path,
    prefix: &mut Vec<u8>,
    found: &mut Files,
) -> Result<(), Box<dyn Error>> {
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        let mode = entry.metadata()?.permissions().mode() & 0o7777;
        let length = prefix.len();
        prefix.extend(entry.file_name().as_encoded_bytes());
        match (kind.is_dir(), kind.is_file(), mode) {
            (true, _, 0o755) => {
                prefix.push(b'/');
                collect(&entry.path(), prefix, found)?;
            }
            (_, true, 0o644 | 0o755) => {
                found.insert(prefix.clone(), std::fs::read(entry.path())?);
            }
            _ => {
                return Err(
                    format!("{} is {kind:?} of mode {mode:o}", entry.path().display()).into()
                );
            }
        }
        prefix.truncate(length);
    }
    Ok(())
}

fn is_litter(name: &[u8]) -> bool {
    name.split(|byte| *byte == b'/').any(|part| part == b"__MACOSX" || part == b".DS_Store")
}

fn by_zip(bytes: &[u8]) -> Result<Files, Box<dyn Error>> {
    let mut archive = zip::ZipArchive::new(Cursor::new(bytes))?;
    let mut files = Files::new();
    for i in 0..archive.len() {
        let mut file = archive.by_index(i)?;
        let name = file.name_raw().to_vec();
        if file.is_dir() || is_litter(&name) {
            continue;
        }
        let mut content = Vec::new();
        file.read_to_end(&mut content)?;
        files.insert(name, content);
    }
    Ok(files)
}

/// A line for each file: its name in hexadecimal, its length, and the sum of its bytes.
fn listing(files: &Files) -> String {
    let line = |(name, bytes): (&Vec<u8>, &Vec<u8>)| {
        let name: String = name.iter().map(|byte| format!("{byte:02x}")).collect();
        format!(
            "{name} {} {}\n",
            bytes.len(),
            bytes.iter().map(|byte| u64::from(*byte)).sum::<u64>()
        )
    };
    files.iter().map(line).collect()
}

const PYTHON: &str = r#"
import io, sys, zipfile
z = zipfile.ZipFile(io.BytesIO(sys.stdin.buffer.read()))
lines = []
for i in z.infolist():
    name = i.orig_filename.encode('utf-8' if i.flag_bits & 0x800 else 'cp437')
    if i.is_dir() or {b'__MACOSX', b'.DS_Store'} & set(name.split(b'/')):
        continue
    data = z.read(i)
    lines.append((name, f'{name.hex()} {len(data)} {sum(data)}\n'))
sys.stdout.write(''.join(line for _, line in sorted(lines)))
"#;

fn by_python(bytes: &[u8]) -> Result<String, Box<dyn Error>> {
    let mut child = Command::new("python3")
        .args(["-c", PYTHON])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    child.stdin.take().ok_or("no input")?.write_all(bytes)?;
    Ok(String::from_utf8(child.wait_with_output()?.stdout)?)
}
