use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use ringfence_api::{Denial, DenialEvidence, StreamOutput};
use ringfence_plan::Plan;
use ringfence_policy::{AbsPath, Facts, Flags, Grants, resolve};

use super::{DenialGuesser, MAX_PATHS};

/// A home with a project in it, removed when dropped.
struct Home(PathBuf);

const FILES: &[&str] = &[
    "app/.env",
    "app/README",
    "app/a b.pem",
    "app/.mcp.json",
    "app/sub/.env",
    "other/notes.txt",
    ".ssh/id_rsa",
    "app/odd'name.pem",
];

impl Home {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name =
            format!("guess-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let home = Home(std::env::temp_dir().canonicalize().unwrap().join(name));
        for file in FILES {
            let file = home.0.join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, "x").unwrap();
        }
        std::os::unix::fs::symlink("../.ssh/id_rsa", home.0.join("app/link")).unwrap();
        home
    }

    fn at(&self, name: &str) -> AbsPath {
        AbsPath::new(self.0.join(name)).unwrap()
    }

    fn grants(&self) -> Grants {
        let facts = Facts::minimal(self.at("app"), self.at(""), self.at(".cache/store"));
        resolve(&[], &Flags::none(self.at("app")), &facts).unwrap()
    }

    fn guessed(&self, stderr: &StreamOutput, shown: &[Denial]) -> Vec<Denial> {
        let plan = Plan { steps: Vec::new(), gaps: Vec::new() };
        DenialGuesser::new(&plan, &self.grants(), &self.at("app")).guess(stderr, shown)
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn output(bytes: impl Into<Vec<u8>>) -> StreamOutput {
    StreamOutput { head: bytes.into(), ..StreamOutput::default() }
}

/// Checks guesses, as `operation path` with the path from the home; `HOME` in the text is the home.
#[track_caller]
fn check(text: &str, expect: &[&str]) {
    let home = Home::new();
    let base = home.0.to_string_lossy().into_owned();
    let guessed = home.guessed(&output(text.replace("HOME", &base)), &[]);
    assert!(
        guessed
            .iter()
            .all(|denial| denial.evidence == DenialEvidence::Guessed && !denial.rule.is_empty()),
        "{guessed:?}"
    );
    let shown: Vec<String> = guessed
        .iter()
        .map(|denial| {
            format!(
                "{} {}",
                denial.operation.word(),
                denial.target.replace(&format!("{base}/"), "")
            )
        })
        .collect();
    assert_eq!(shown, expect, "{text}");
}

#[test]
fn error_about_a_denied_path_is_a_guessed_denial() {
    check("cat: .env: Permission denied", &["read app/.env"]);
    check("cat: HOME/app/sub/../.env: Permission denied\n", &["read app/.env"]);
    check("sh: 1: cannot open .env: Permission denied", &["read app/.env"]);
    check("bash: line 1: ./.env: Permission denied", &["read app/.env"]);
    check("cat: 'a b.pem': Permission denied", &["read app/a b.pem"]);
    check(
        "tail: cannot open \u{2018}sub/.env\u{2019} for reading: Permission denied",
        &["read app/sub/.env"],
    );
    check(
        "mv: cannot move 'README' to 'sub/.env': Operation not permitted",
        &["read app/sub/.env"],
    );
    check("PermissionError: [Errno 13] Permission denied: '.env'", &["read app/.env"]);
    check("Error: EACCES: permission denied, open 'HOME/.ssh/id_rsa'", &["read .ssh/id_rsa"]);
    check("open HOME/.ssh/id_rsa: permission denied", &["read .ssh/id_rsa"]);
    check("error: couldn't read `.env`: Permission denied (os error 13)", &["read app/.env"]);
    check("sh: 1: cannot create .mcp.json: Read-only file system", &["write app/.mcp.json"]);
    check(
        "ls: cannot access 'HOME/other/notes.txt': No such file or directory",
        &["read other/notes.txt"],
    );
    check("ls: cannot access '../other': No such file or directory", &["read other"]);
    check("\x1b[1mcat: .env: \x1b[31mPermission denied\x1b[0m\r\n", &["read app/.env"]);
    check("cat: link: Permission denied", &["read .ssh/id_rsa"]);
}

#[test]
fn other_error_text_is_no_denial() {
    for text in [
        "cat: README: Permission denied",
        "cat: .env: some other error",
        ".env",
        "Permission denied",
        "Permission denied: EACCES Operation not permitted",
        "cat: no-such.pem: Permission denied",
        // The policy gives another error for this path.
        "cat: .env: No such file or directory",
        "cat: HOME/other/notes.txt: Permission denied",
        "cat: .mcp.json: Permission denied",
        "cat: README: Read-only file system",
        // On the line of another error.
        ".env\nPermission denied",
        // The sandbox has private mounts at these paths.
        "cat: /proc/1/environ: No such file or directory",
        "ls: cannot access '/dev/kvm': No such file or directory",
        "cat: .env\0: Permission denied",
    ] {
        check(text, &[]);
    }
}

#[test]
fn known_denial_is_not_guessed_again() {
    let home = Home::new();
    let text = output("cat: .env: Permission denied\n".repeat(1000));
    let once = home.guessed(&text, &[]);
    assert_eq!(once.len(), 1);
    assert_eq!(home.guessed(&text, &once), []);
}

#[test]
fn hostile_text_takes_bounded_work() {
    let home = Home::new();
    for number in 0..MAX_PATHS + 500 {
        fs::write(home.0.join(format!("app/{number}.pem")), "x").unwrap();
    }
    let many: String =
        (0..100_000).map(|number| format!("cat: {number}.pem: Permission denied\n")).collect();
    let guessed = home.guessed(&output(many), &[]).len();
    assert!(guessed > 0 && guessed <= MAX_PATHS, "{guessed}");
    // One line without an end, and one of quotes and colons alone.
    assert_eq!(home.guessed(&output(vec![b':'; 16 << 20]), &[]), []);
    assert_eq!(
        home.guessed(&output(format!("{}.env: Permission denied", "x:'".repeat(1 << 20))), &[]),
        []
    );
    assert_eq!(
        home.guessed(&output(format!("{} .env: Permission denied", "':".repeat(1000))), &[]),
        []
    );
    // Not text at all.
    let odd = [
        b"\xff\xfe\x80\x98\x99 \x1b]0;".as_slice(),
        b"\xe2\x80: .env: Permission denied\n\xe2\x80\x98",
    ]
    .concat();
    assert_eq!(home.guessed(&output(odd), &[]).len(), 1);
}

#[test]
fn both_ends_of_long_output_are_read_without_cut_lines() {
    let home = Home::new();
    let filling = "x\n".repeat(1 << 20);
    let first = output(format!("cat: .env: Permission denied\n{filling}"));
    assert_eq!(home.guessed(&first, &[]).len(), 1);
    let last = output(format!("{filling}cat: .env: Permission denied\n"));
    assert_eq!(home.guessed(&last, &[]).len(), 1);
    let middle = output(format!("{filling}cat: .env: Permission denied\n{filling}"));
    assert_eq!(home.guessed(&middle, &[]), []);
    // The tail began in the middle of `other.env`.
    let cut = StreamOutput {
        head: b"x\n".to_vec(),
        tail: b".env: Permission denied\ny\n".to_vec(),
        dropped: 9,
    };
    assert_eq!(home.guessed(&cut, &[]), []);
    let whole = StreamOutput {
        head: b"x\n".to_vec(),
        tail: b"y\ncat: .env: Permission denied\n".to_vec(),
        dropped: 9,
    };
    assert_eq!(home.guessed(&whole, &[]).len(), 1);
}
