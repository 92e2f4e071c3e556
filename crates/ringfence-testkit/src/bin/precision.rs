//! `cargo xtask precision`: runs the whole corpus and prints the precision of reported denials.

use std::path::Path;
use std::process::ExitCode;

use ringfence_testkit::{CorpusScore, TestUser, corpus, fuse_for_all};

fn main() -> ExitCode {
    let Some(binary) = std::env::args_os().nth(1) else {
        eprintln!("usage: precision RINGFENCE");
        return ExitCode::FAILURE;
    };
    match precision(Path::new(&binary)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn precision(binary: &Path) -> Result<(), String> {
    let entries = corpus();
    let lacking: Vec<&str> = entries.iter().filter_map(|entry| entry.missing_program()).collect();
    if !lacking.is_empty() {
        return Err(format!(
            "cannot run the whole corpus: these programs are not installed: {}",
            lacking.join(", ")
        ));
    }
    if !fuse_for_all() {
        return Err("denied reads are not reported without /dev/fuse".into());
    }
    if !TestUser::runner_is_root() {
        println!("run as an ordinary user only: this process is not root\n");
    }
    let mut score = CorpusScore::default();
    for user in TestUser::all() {
        for entry in &entries {
            let result = entry.run(*user, binary);
            for difference in entry.differences(&result) {
                println!("{user}: {}\n  {difference}", entry.line);
            }
            score.add(entry, &result);
        }
    }
    println!("{score}");
    if score.is_perfect() { Ok(()) } else { Err("not every denial was reported exactly".into()) }
}
