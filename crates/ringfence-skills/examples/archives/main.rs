//! Fuzzes the archive reader.
//!
//! `archives fuzz SECONDS [SEED]` changes valid archives, and fails if one makes the reader panic,
//! leaves files behind, takes too long, or is read differently by other programs.

mod chance;
mod check;
mod made;
#[path = "../../tests/store/pack.rs"]
mod pack;

use std::error::Error;
use std::time::{Duration, Instant, SystemTime};

use chance::ArchiveRng;
use check::FuzzStore;

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["fuzz", seconds] => {
            let seed = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_nanos() as u64;
            run(Duration::from_secs(seconds.parse()?), seed)
        }
        ["fuzz", seconds, seed] => run(Duration::from_secs(seconds.parse()?), seed.parse()?),
        _ => Err("archives fuzz SECONDS [SEED]".into()),
    }
}

/// The time limit per archive.
const TIME_LIMIT: Duration = Duration::from_secs(5);

fn run(long: Duration, seed: u64) -> Result<(), Box<dyn Error>> {
    println!("fuzz: seed {seed}, {} s", long.as_secs());
    let mut store = FuzzStore::new()?;
    let mut chance = ArchiveRng::new(seed);
    let (began, mut tried, mut taken) = (Instant::now(), 0u64, 0u64);
    while began.elapsed() < long {
        let bytes = made::archive(&mut chance);
        let start = Instant::now();
        let checked =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| store.check(&bytes)));
        let why = match checked.unwrap_or_else(|_| Err("the reader panicked".into())) {
            Ok(is_taken) => {
                taken += u64::from(is_taken);
                (start.elapsed() > TIME_LIMIT).then(|| format!("it took {:?}", start.elapsed()))
            }
            Err(why) => Some(why.to_string()),
        };
        if let Some(why) = why {
            let kept = std::env::temp_dir().join(format!("archive-{seed}-{tried}.zip"));
            std::fs::write(&kept, &bytes)?;
            return Err(format!("{why}: {} (seed {seed}, archive {tried})", kept.display()).into());
        }
        tried += 1;
    }
    store.check_memory()?;
    if taken == 0 || taken == tried {
        return Err(
            format!("{taken} of {tried} archives were accepted: the test shows nothing").into()
        );
    }
    println!("fuzz: {tried} archives, {taken} accepted, no failure");
    Ok(())
}
