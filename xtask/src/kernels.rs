//! `cargo xtask kernels`: runs ringfence on another kernel.
//!
//! Boots a kernel in qemu, with only busybox and the release binary. A script (`kernels/init.sh`)
//! tests them as root and as an ordinary user, with and without `/dev/fuse`. Not a part of `ci`:
//! kernels are large and are not in the repository. Those of a distribution are unpacked, not
//! installed:
//!
//! ```console
//! $ apt-get download linux-image-6.1.0-50-cloud-amd64
//! $ dpkg-deb -x linux-image-6.1.0-50-cloud-amd64_*.deb k
//! $ cargo xtask kernels --image k/boot/vmlinuz-* --modules k/lib/modules/*
//! ```
//!
//! Always emulated, so it needs no privileges and supports another architecture. A boot with all
//! checks takes about half a minute.

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::{TaskResult, workspace};

const INIT: &[u8] = include_bytes!("kernels/init.sh");
/// Modules that a sandbox can use, if they are not built in.
const MODULES: &[&str] = &["fuse", "overlay"];
/// The time limit in seconds.
const TIME_LIMIT: &str = "300";

/// The options of the boot.
#[derive(Debug)]
pub(crate) struct KernelOptions<'a> {
    image: &'a Path,
    modules: Option<&'a Path>,
    busybox: &'a Path,
    target: Option<&'a str>,
}

impl<'a> KernelOptions<'a> {
    pub(crate) fn parse(flags: &[&'a str]) -> Result<KernelOptions<'a>, String> {
        let (mut image, mut modules, mut busybox, mut target) =
            (None, None, Path::new("/bin/busybox"), None);
        for pair in flags.chunks(2) {
            match pair {
                ["--image", path] => image = Some(Path::new(*path)),
                ["--modules", path] => modules = Some(Path::new(*path)),
                ["--busybox", path] => busybox = Path::new(*path),
                ["--target", triple] => target = Some(*triple),
                _ => {
                    return Err(format!(
                        "`{}`: kernels takes --image FILE, --modules DIRECTORY, --busybox FILE, --target TRIPLE",
                        pair[0]
                    ));
                }
            }
        }
        Ok(KernelOptions {
            image: image.ok_or("kernels needs --image FILE, a kernel to boot")?,
            modules,
            busybox,
            target,
        })
    }
}

/// Boots, prints a table, and fails if a check failed.
pub(crate) fn run(options: &KernelOptions<'_>) -> TaskResult {
    let mut flags = vec!["--release"];
    flags.extend(options.target.iter().flat_map(|triple| ["--target", *triple]));
    let binary = workspace::build("ringfence-cli", &flags)?;
    let directory = binary.parent().ok_or("a program has a parent directory")?;
    let archive = directory.join("kernels.cpio");
    fs::write(&archive, self::archive(options, &binary)?)?;
    let console = boot(options, &archive)?;
    fs::remove_file(&archive)?;
    let checks: Vec<[&str; 3]> = console.lines().filter_map(check).collect();
    let kernel = console
        .lines()
        .find_map(|line| line.split_once("KERNEL "))
        .map(|(_, version)| version.trim());
    let Some(kernel) = kernel.filter(|_| !checks.is_empty()) else {
        return Err(format!("no result from the virtual machine:\n{console}").into());
    };
    print!("{}", table(kernel, &checks));
    let failed = checks.iter().filter(|[_, _, found]| *found != "ok").count();
    // A machine that stopped early may have more failures.
    let ended = console.lines().any(|line| line.trim_end().ends_with("END"));
    match (failed, ended) {
        (0, true) => Ok(()),
        (0, false) => Err("the virtual machine ended before all checks ran".into()),
        (failed, _) => {
            Err(format!("{failed} of {} checks failed on {kernel}", checks.len()).into())
        }
    }
}

/// Parses `CHECK|row|column|found`.
fn check(line: &str) -> Option<[&str; 3]> {
    let (_, rest) = line.trim_end().split_once("CHECK|")?;
    rest.splitn(3, '|').collect::<Vec<_>>().try_into().ok()
}

fn table(kernel: &str, checks: &[[&str; 3]]) -> String {
    let mut rows: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    let mut faults = String::new();
    for [row, column, found] in checks {
        let is_good = *found == "ok";
        rows.entry(row)
            .or_default()
            .push(format!("{column} {}", if is_good { "ok" } else { "FAILED" }));
        if !is_good {
            faults.push_str(&format!("  {row}: {column}: {found}\n"));
        }
    }
    let rows: String =
        rows.iter().map(|(row, cells)| format!("  {row:<20} {}\n", cells.join(", "))).collect();
    format!("Linux {kernel}\n{rows}{faults}")
}

/// All files of the virtual machine: the archive that the kernel unpacks as its initial root.
fn archive(options: &KernelOptions<'_>, binary: &Path) -> Result<Vec<u8>, Box<dyn Error>> {
    const DIRECTORY: u32 = 0o040_755;
    const PROGRAM: u32 = 0o100_755;
    const FILE: u32 = 0o100_644;
    let read = |path: &Path| fs::read(path).map_err(|error| format!("{}: {error}", path.display()));
    let mut entries = vec![
        ("bin".to_owned(), DIRECTORY, Vec::new()),
        ("modules".to_owned(), DIRECTORY, Vec::new()),
        ("init".to_owned(), PROGRAM, INIT.to_vec()),
        ("bin/busybox".to_owned(), PROGRAM, read(options.busybox)?),
        ("bin/ringfence".to_owned(), PROGRAM, read(binary)?),
    ];
    for module in options.modules.map(modules).transpose()?.unwrap_or_default() {
        let name = module.file_name().unwrap_or_default().to_string_lossy();
        let plain = name.split_inclusive(".ko").next().unwrap_or(&name);
        entries.push((format!("modules/{plain}"), FILE, unpacked(&module)?));
    }
    entries.push(("TRAILER!!!".to_owned(), 0, Vec::new()));
    let mut archive = Vec::new();
    for (number, (name, mode, content)) in entries.iter().enumerate() {
        // See Documentation/driver-api/early-userspace/buffer-format.rst of the kernel.
        let fields = [
            number as u32 + 1,
            *mode,
            0,
            0,
            1,
            0,
            content.len() as u32,
            0,
            0,
            0,
            0,
            name.len() as u32 + 1,
            0,
        ];
        archive.extend_from_slice(b"070701");
        fields
            .iter()
            .for_each(|field| archive.extend_from_slice(format!("{field:08x}").as_bytes()));
        archive.extend_from_slice(name.as_bytes());
        archive.push(0);
        archive.resize(archive.len().next_multiple_of(4), 0);
        archive.extend_from_slice(content);
        archive.resize(archive.len().next_multiple_of(4), 0);
    }
    Ok(archive)
}

/// The paths of the modules that a sandbox can use, except built-in ones.
fn modules(directory: &Path) -> Result<Vec<PathBuf>, Box<dyn Error>> {
    let mut found = Vec::new();
    let mut open = vec![directory.join("kernel/fs")];
    while let Some(directory) = open.pop() {
        for entry in
            fs::read_dir(&directory).map_err(|error| format!("{}: {error}", directory.display()))?
        {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if entry.file_type()?.is_dir() {
                open.push(entry.path());
            } else if MODULES
                .iter()
                .any(|module| name.strip_prefix(module).is_some_and(|rest| rest.starts_with(".ko")))
            {
                found.push(entry.path());
            }
        }
    }
    Ok(found)
}

/// A decompressed module.
fn unpacked(module: &Path) -> Result<Vec<u8>, Box<dyn Error>> {
    let packer = match module.extension().and_then(|extension| extension.to_str()) {
        Some("xz") => "xz",
        Some("zst") => "zstd",
        Some("gz") => "gzip",
        _ => return Ok(fs::read(module)?),
    };
    let output = Command::new(packer).arg("-dc").arg(module).stderr(Stdio::inherit()).output()?;
    if output.status.success() {
        Ok(output.stdout)
    } else {
        Err(format!("{packer} -dc {}: {}", module.display(), output.status).into())
    }
}

/// Boots, and returns the console output until power off.
fn boot(options: &KernelOptions<'_>, archive: &Path) -> Result<String, Box<dyn Error>> {
    let is_arm = options
        .target
        .map_or(cfg!(target_arch = "aarch64"), |triple| triple.starts_with("aarch64"));
    let (program, machine, console) = if is_arm {
        ("qemu-system-aarch64", &["-machine", "virt", "-cpu", "cortex-a72"][..], "ttyAMA0")
    } else {
        ("qemu-system-x86_64", &["-cpu", "max"][..], "ttyS0")
    };
    let mut command = Command::new("timeout");
    command.args([TIME_LIMIT, program]).args(machine).args([
        "-accel",
        "tcg",
        "-m",
        "1G",
        "-smp",
        "2",
        "-nographic",
        "-no-reboot",
    ]);
    command.arg("-kernel").arg(options.image).arg("-initrd").arg(archive);
    command
        .arg("-append")
        .arg(format!("console={console} quiet panic=-1"))
        .stdin(Stdio::null())
        .stderr(Stdio::inherit());
    let output = command.output().map_err(|error| format!("{program}: {error}"))?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
