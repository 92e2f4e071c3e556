//! Archives that nobody would make, taken in or refused.
//!
//! `archives fuzz SECONDS [SEED]` makes them of good ones, and fails if one breaks the reader,
//! leaves something behind, keeps somebody waiting, or is read differently by other programs.

mod chance;
mod check;
mod made;
#[path = "../../tests/store/pack.rs"]
mod pack;

use std::error::Error;
use std::time::{Duration, Instant, SystemTime};

use chance::Chance;
use check::Ground;

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

/// One that takes longer is a way to keep somebody waiting.
const PATIENCE: Duration = Duration::from_secs(5);

fn run(long: Duration, seed: u64) -> Result<(), Box<dyn Error>> {
    println!("fuzz: seed {seed}, {} s", long.as_secs());
    let mut ground = Ground::new()?;
    let mut chance = Chance::new(seed);
    let (began, mut tried, mut taken) = (Instant::now(), 0u64, 0u64);
    while began.elapsed() < long {
        let bytes = made::archive(&mut chance);
        let start = Instant::now();
        let checked =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| ground.check(&bytes)));
        let why = match checked.unwrap_or_else(|_| Err("it breaks the reader".into())) {
            Ok(is_taken) => {
                taken += u64::from(is_taken);
                (start.elapsed() > PATIENCE).then(|| format!("it takes {:?}", start.elapsed()))
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
    ground.check_memory()?;
    if taken == 0 || taken == tried {
        return Err(
            format!("of {tried} archives {taken} were taken: nothing is tried by that").into()
        );
    }
    println!("fuzz: {tried} archives, {taken} of them taken, none broke anything");
    Ok(())
}
