//! Descriptors that only the next command has, and those it starts.

use std::fs;
use std::os::fd::OwnedFd;
use std::thread;
use std::time::{Duration, Instant};

use ringfence_provider::ProviderError;
use ringfence_shell::refitting;
use rustix::pipe::{PipeFlags, pipe_with};

use super::command_run::{GRACE, ShellRun};
use super::fd_carrier::FdOffer;
use super::{PIPE, PersistentShell, process_tree};

/// For each of the two streams, the pipe that others may have as well.
pub(super) type SharedStreams = [Option<u64>; 2];

/// What the shell opens a stream for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum StreamOpen {
    ToRead,
    ToWrite,
}

/// A pipe that is read by us; other ends of it are told by its number.
pub(super) fn stream() -> Result<(OwnedFd, OwnedFd), ProviderError> {
    let system = |error: rustix::io::Errno| ProviderError::System {
        what: "make the pipes of a shell",
        source: error.into(),
    };
    let (ours, theirs) = pipe_with(PipeFlags::CLOEXEC).map_err(system)?;
    rustix::io::ioctl_fionbio(&ours, true).map_err(system)?;
    // Only a matter of speed.
    let _ = rustix::pipe::fcntl_setpipe_size(&ours, PIPE);
    Ok((ours, theirs))
}

pub(super) fn inode(pipe: &OwnedFd) -> Option<u64> {
    rustix::fs::fstat(pipe).ok().map(|status| status.st_ino)
}

impl PersistentShell {
    /// A command has ended: whatever it left running keeps the streams it has.
    pub(super) fn part(&mut self) {
        if !self.left.has_grown() {
            return;
        }
        for (shared, stream) in self.ends.shared.iter_mut().zip(&self.ends.streams) {
            *shared = stream.as_ref().and_then(inode).or(*shared);
        }
        // Else before the next command.
        let _ = self.late.hear(&mut self.ends.streams);
    }

    /// Gives the shell streams that nobody else has, and something to read if there is any.
    pub(super) fn refresh(&mut self, input: Option<OwnedFd>) -> Result<(), ProviderError> {
        let is_shared = self.ends.shared.iter().any(Option::is_some);
        if !is_shared && input.is_none() {
            return Ok(());
        }
        if is_shared {
            let failed =
                |source| ProviderError::System { what: "hear what was left running", source };
            self.late.hear(&mut self.ends.streams).map_err(failed)?;
        }
        let has = self.has()?;
        let mut given = Vec::new();
        let mut places = Vec::new();
        let mut streams = [None, None];
        for (stream, shared) in streams.iter_mut().zip(self.ends.shared) {
            let numbers: Vec<i32> = has
                .iter()
                .filter(|(_, pipe)| Some(*pipe) == shared)
                .map(|(number, _)| *number)
                .collect();
            // It may have sent it elsewhere, to stay.
            if shared.is_some() && !numbers.is_empty() {
                let (ours, theirs) = self::stream()?;
                *stream = Some((ours, numbers[0]));
                places.extend(
                    numbers.into_iter().map(|number| (number, StreamOpen::ToWrite, given.len())),
                );
                given.push(theirs);
            }
        }
        if let Some(input) = input {
            places.push((self.kind.input(), StreamOpen::ToRead, given.len()));
            given.push(input);
        }
        let offer = FdOffer::make(&self.place, self.pid, (&self.program, &self.path), &given)?;
        let how = |opens| if opens == StreamOpen::ToRead { offer.reading() } else { ">>" };
        let places: Vec<_> = places
            .into_iter()
            .map(|(number, opens, index)| (number, how(opens), offer.path(index)))
            .collect();
        let told = ShellRun::aside(self, &refitting(self.kind, &places))?.run(&mut |_, _| {});
        if let Err(error) = told {
            self.give_up();
            return Err(error);
        }
        drop((offer, given));
        let has = self.has()?;
        for ((end, shared), stream) in
            self.ends.streams.iter_mut().zip(&mut self.ends.shared).zip(streams)
        {
            *shared = None;
            let Some((ours, number)) = stream else { continue };
            if !has.iter().any(|(has, pipe)| *has == number && Some(*pipe) == inode(&ours)) {
                self.give_up();
                return Err(ProviderError::Mute);
            }
            *end = Some(ours);
        }
        Ok(())
    }

    /// The pipes that the shell has, by their numbers in it, when it waits for the next
    /// command: while it tells of an end they are elsewhere.
    fn has(&mut self) -> Result<Vec<(i32, u64)>, ProviderError> {
        const LOOK: Duration = Duration::from_micros(100);
        let end = Instant::now() + GRACE;
        while !self.waits_for_more() {
            if Instant::now() > end {
                self.give_up();
                return Err(ProviderError::Mute);
            }
            thread::sleep(LOOK);
        }
        let all = fs::read_dir(format!("/proc/{}/fd", self.pid)).into_iter().flatten().flatten();
        let number = |entry: fs::DirEntry| entry.file_name().to_str()?.parse().ok();
        Ok(all
            .filter_map(number)
            .filter_map(|number| Some((number, pipe_at(self.pid, number)?)))
            .collect())
    }

    /// Whether the shell has read all that it was told, and waits for what comes next.
    pub(super) fn waits_for_more(&self) -> bool {
        let is_drained = rustix::io::ioctl_fionread(&self.ends.script).is_ok_and(|left| left == 0);
        let reads = || process_tree::reads(self.pid).and_then(|number| pipe_at(self.pid, number));
        is_drained && inode(&self.ends.script).is_some_and(|script| reads() == Some(script))
    }
}

/// The pipe that a process has under a number.
fn pipe_at(pid: i32, number: i32) -> Option<u64> {
    let target = fs::read_link(format!("/proc/{pid}/fd/{number}")).ok()?;
    target.to_str()?.strip_prefix("pipe:[")?.strip_suffix(']')?.parse().ok()
}
