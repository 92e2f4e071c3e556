//! `cargo xtask precision`: tries the whole corpus and prints how well refusals are known.

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
    let lacking: Vec<&str> = entries.iter().filter_map(|entry| entry.lacks()).collect();
    if !lacking.is_empty() {
        return Err(format!(
            "not all of the corpus can be tried, since these are not installed: {}",
            lacking.join(", ")
        ));
    }
    if !fuse_for_all() {
        return Err("without /dev/fuse, what is read is not told of".into());
    }
    if !TestUser::runner_is_root() {
        println!("tried as an ordinary user only: whoever runs this is not root\n");
    }
    let mut score = CorpusScore::default();
    for user in TestUser::all() {
        for entry in &entries {
            let came = entry.tried(*user, binary);
            for difference in entry.differences(&came) {
                println!("{user}: {}\n  {difference}", entry.line);
            }
            score.add(entry, &came);
        }
    }
    println!("{score}");
    if score.is_perfect() { Ok(()) } else { Err("not every refusal was told of exactly".into()) }
}
