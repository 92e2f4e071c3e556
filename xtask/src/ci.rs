//! `cargo xtask ci`: everything a change must pass, in one command.
//!
//! One build serves lints, generated documents, fuzzing and tests.

mod ordinary_user;
mod portable_crates;
mod report;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use crate::generate::{self, GenerateMode};
use crate::workspace::{self, BuiltPrograms};
use crate::{TaskResult, fuzz, tidy};

/// Finished steps with their times; prints each as it ends.
#[derive(Default)]
struct Steps {
    passed: Vec<(&'static str, f64)>,
    failed: Vec<(&'static str, f64)>,
}

impl Steps {
    /// Runs one step; a failure is printed and counted, and later steps still run.
    fn run<T>(
        &mut self,
        name: &'static str,
        step: impl FnOnce() -> Result<T, Box<dyn std::error::Error>>,
    ) -> Option<T> {
        println!("=== {name}");
        let begun = Instant::now();
        let done = step();
        let took = begun.elapsed().as_secs_f64();
        if let Err(error) = &done {
            println!("error: {error}");
        }
        println!("=== {name}: {} in {took:.1} s\n", if done.is_ok() { "passed" } else { "FAILED" });
        if done.is_ok() { &mut self.passed } else { &mut self.failed }.push((name, took));
        done.ok()
    }

    fn result(&self) -> TaskResult {
        let total: f64 = self.passed.iter().chain(&self.failed).map(|(_, took)| took).sum();
        println!("=== steps");
        self.passed.iter().for_each(|(name, took)| println!("{took:8.1} s  {name}"));
        self.failed.iter().for_each(|(name, took)| println!("{took:8.1} s  {name}: FAILED"));
        if self.failed.is_empty() {
            println!("=== ci: {} steps passed in {total:.1} s", self.passed.len());
            return Ok(());
        }
        let failed: Vec<&str> = self.failed.iter().map(|(name, _)| *name).collect();
        Err(format!("ci failed after {total:.1} s: {}", failed.join(", ")).into())
    }
}

/// Runs every step, even after a failure, so that one run shows all failures.
pub(crate) fn run() -> TaskResult {
    let mut steps = Steps::default();
    let clients = ClientSetup::start();
    steps.run("tidy", tidy::run);
    steps.run("fmt --check", || cargo(&["fmt", "--check"]));
    steps.run("portable crates", portable_crates::run);
    if let Some(programs) = steps.run("lint and build", lint_and_build) {
        steps.run("gen --check", || {
            generate::run_with(programs.find("ringfence")?, GenerateMode::Check)
        });
        steps.run("fuzz", || fuzz::run_briefly(&programs));
        steps.run("wait for .ci/clients", || clients?.finish());
        steps.run("tests", tests);
        if rustix::process::geteuid().is_root() {
            steps.run("tests as an ordinary user", ordinary_user::run);
        }
    }
    steps.result()
}

/// `.ci/clients` in the background: it installs third-party programs that some tests use, while
/// cargo builds.
struct ClientSetup {
    child: Child,
    log: PathBuf,
}

impl ClientSetup {
    fn start() -> Result<ClientSetup, Box<dyn std::error::Error>> {
        let log = workspace::root().join("target/clients.log");
        fs::create_dir_all(log.parent().expect("it is in target"))?;
        let output = File::create(&log)?;
        let mut command = Command::new(workspace::root().join(".ci/clients"));
        let child =
            command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output).spawn()?;
        Ok(ClientSetup { child, log })
    }

    /// Waits for its end. Outside of CI a failure is only printed: tests without their program skip
    /// themselves and say so.
    fn finish(mut self) -> TaskResult {
        let status = self.child.wait()?;
        if status.success() {
            return Ok(());
        }
        println!("{}", fs::read_to_string(&self.log)?);
        if is_ci() { Err(format!(".ci/clients: {status}").into()) } else { Ok(()) }
    }
}

/// True if a CI service started this task: nothing may be skipped there.
fn is_ci() -> bool {
    std::env::var_os("CI").is_some()
}

/// Builds every target with clippy as the compiler of our crates, so that lints and programs come
/// from one pass.
fn lint_and_build() -> Result<BuiltPrograms, Box<dyn std::error::Error>> {
    let arguments = ["build", "--workspace", "--all-targets", "--keep-going"];
    println!("$ cargo {} (clippy as the compiler)", arguments.join(" "));
    BuiltPrograms::build(linted(workspace::cargo(&arguments))?)
}

/// Makes cargo compile our crates with clippy. Every cargo command of CI needs the same setting,
/// else the crates are built again.
fn linted(mut command: Command) -> Result<Command, Box<dyn std::error::Error>> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let sysroot =
        Command::new(rustc).args(["--print", "sysroot"]).current_dir(workspace::root()).output()?;
    let clippy = PathBuf::from(String::from_utf8(sysroot.stdout)?.trim()).join("bin/clippy-driver");
    if !clippy.exists() {
        return Err(format!(
            "{} is missing; `rustup component add clippy` installs it",
            clippy.display()
        )
        .into());
    }
    // The separator that `cargo clippy` puts between arguments.
    command
        .env("RUSTC_WORKSPACE_WRAPPER", clippy)
        .env("CLIPPY_ARGS", "-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__");
    Ok(command)
}

fn tests() -> TaskResult {
    let nextest = workspace::cargo(&["nextest", "--version"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    if !nextest.is_ok_and(|status| status.success()) {
        println!(
            "cargo-nextest is not installed; `cargo test` runs the same tests without retries"
        );
        return finish("test", linted(workspace::cargo(&["test", "--workspace"]))?);
    }
    let report = workspace::root().join("target/nextest/default/junit.xml");
    let _ = fs::remove_file(&report);
    let done = finish("nextest run", linted(workspace::cargo(&["nextest", "run", "--workspace"]))?);
    print_report(&report)?;
    done
}

/// Prints the slowest tests, and those that passed only in a retry; the latter are also appended to
/// a file, to compare several runs.
fn print_report(report: &Path) -> TaskResult {
    let cases = report::cases(&fs::read_to_string(report)?);
    println!("=== slowest tests");
    report::slowest(&cases, 10)
        .iter()
        .for_each(|case| println!("{:8.1} s  {}", case.seconds, case.name));
    let flaky: Vec<&str> =
        cases.iter().filter(|case| case.is_flaky).map(|case| case.name.as_str()).collect();
    println!(
        "=== flaky tests: {}",
        if flaky.is_empty() { "none" } else { "passed only in a retry" }
    );
    flaky.iter().for_each(|name| println!("{name}"));
    let summary = report.with_file_name("flaky.txt");
    let earlier = fs::read_to_string(&summary).unwrap_or_default();
    fs::write(summary, flaky.iter().fold(earlier, |text, name| text + name + "\n"))?;
    Ok(())
}

fn cargo(arguments: &[&str]) -> TaskResult {
    println!("$ cargo {}", arguments.join(" "));
    finish(arguments[0], workspace::cargo(arguments))
}

fn finish(name: &str, mut command: Command) -> TaskResult {
    let status = command.stdin(Stdio::null()).status()?;
    if status.success() { Ok(()) } else { Err(format!("cargo {name}: {status}").into()) }
}
