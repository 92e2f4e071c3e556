//! Streams that only the next command and its children have.

use std::fs;
use std::os::fd::OwnedFd;
use std::thread;
use std::time::{Duration, Instant};

use crate::launcher::system_step::SystemStep;

use ringfence_provider::ProviderError;
use ringfence_shell::redirection_line;
use rustix::pipe::{PipeFlags, pipe_with};

use super::command_run::{GRACE, ShellRun};
use super::fd_carrier::FdOffer;
use super::{PIPE_SIZE, PersistentShell, process_tree};

/// For each of the two streams, the inode of a pipe that other processes may have as well.
pub(super) type SharedStreams = [Option<u64>; 2];

/// Mode in which the shell opens a stream.
#[derive(Clone, Copy, PartialEq, Eq)]
enum StreamOpen {
    ToRead,
    ToWrite,
}

/// A pipe that we read; its other ends are recognized by the inode.
pub(super) fn stream() -> Result<(OwnedFd, OwnedFd), ProviderError> {
    let what = "create the pipes of a shell";
    let (our_end, their_end) = pipe_with(PipeFlags::CLOEXEC).during(what)?;
    rustix::io::ioctl_fionbio(&our_end, true).during(what)?;
    // Only for speed.
    let _ = rustix::pipe::fcntl_setpipe_size(&our_end, PIPE_SIZE);
    Ok((our_end, their_end))
}

pub(super) fn inode(pipe: &OwnedFd) -> Option<u64> {
    rustix::fs::fstat(pipe).ok().map(|status| status.st_ino)
}

impl PersistentShell {
    /// Hands the streams of a finished command to the background reader, if it left processes
    /// running.
    pub(super) fn detach_background(&mut self) {
        if !self.background.has_grown() {
            return;
        }
        for (shared, stream) in self.pipes.shared.iter_mut().zip(&self.pipes.streams) {
            *shared = stream.as_ref().and_then(inode).or(*shared);
        }
        // On failure, retried before the next command.
        let _ = self.background_output.read_streams(&mut self.pipes.streams);
    }

    /// Gives the shell new streams, and input if there is any.
    pub(super) fn refresh(&mut self, input: Option<OwnedFd>) -> Result<(), ProviderError> {
        let is_shared = self.pipes.shared.iter().any(Option::is_some);
        if !is_shared && input.is_none() {
            return Ok(());
        }
        if is_shared {
            self.background_output
                .read_streams(&mut self.pipes.streams)
                .during("read the output of background processes")?;
        }
        let pipes_now = self.shell_pipes()?;
        let mut given = Vec::new();
        let mut redirections = Vec::new();
        let mut streams = [None, None];
        for (stream, shared) in streams.iter_mut().zip(self.pipes.shared) {
            let numbers: Vec<i32> = pipes_now
                .iter()
                .filter(|(_, pipe)| Some(*pipe) == shared)
                .map(|(number, _)| *number)
                .collect();
            // The shell may have redirected it for good.
            if shared.is_some() && !numbers.is_empty() {
                let (our_end, their_end) = self::stream()?;
                *stream = Some((our_end, numbers[0]));
                redirections.extend(
                    numbers.into_iter().map(|number| (number, StreamOpen::ToWrite, given.len())),
                );
                given.push(their_end);
            }
        }
        if let Some(input) = input {
            redirections.push((self.kind.input(), StreamOpen::ToRead, given.len()));
            given.push(input);
        }
        let offer = FdOffer::new(&self.host, self.pid, (&self.program, &self.path), &given)?;
        let operator =
            |opens| if opens == StreamOpen::ToRead { offer.read_redirection() } else { ">>" };
        let redirections: Vec<_> = redirections
            .into_iter()
            .map(|(number, opens, index)| (number, operator(opens), offer.path(index)))
            .collect();
        let refitted = ShellRun::internal(self, &redirection_line(self.kind, &redirections))?
            .run(&mut |_, _| {});
        if let Err(error) = refitted {
            self.give_up();
            return Err(error);
        }
        drop((offer, given));
        let pipes_now = self.shell_pipes()?;
        for ((end, shared), stream) in
            self.pipes.streams.iter_mut().zip(&mut self.pipes.shared).zip(streams)
        {
            *shared = None;
            let Some((our_end, number)) = stream else { continue };
            if !pipes_now
                .iter()
                .any(|(pipes_now, pipe)| *pipes_now == number && Some(*pipe) == inode(&our_end))
            {
                self.give_up();
                return Err(ProviderError::ReportFdsClosed);
            }
            *end = Some(our_end);
        }
        Ok(())
    }

    /// Pipes of the shell by fd number, read while it waits for the next command: during a report
    /// they are elsewhere.
    fn shell_pipes(&mut self) -> Result<Vec<(i32, u64)>, ProviderError> {
        const POLL_INTERVAL: Duration = Duration::from_micros(100);
        let end = Instant::now() + GRACE;
        while !self.waits_for_more() {
            if Instant::now() > end {
                self.give_up();
                return Err(ProviderError::ReportFdsClosed);
            }
            thread::sleep(POLL_INTERVAL);
        }
        let all = fs::read_dir(format!("/proc/{}/fd", self.pid)).into_iter().flatten().flatten();
        let number = |entry: fs::DirEntry| entry.file_name().to_str()?.parse().ok();
        Ok(all
            .filter_map(number)
            .filter_map(|number| Some((number, pipe_at(self.pid, number)?)))
            .collect())
    }

    /// True if the shell has read its whole script and waits for more.
    pub(super) fn waits_for_more(&self) -> bool {
        let is_drained = rustix::io::ioctl_fionread(&self.pipes.script).is_ok_and(|left| left == 0);
        let reads =
            || process_tree::blocked_read_fd(self.pid).and_then(|number| pipe_at(self.pid, number));
        is_drained && inode(&self.pipes.script).is_some_and(|script| reads() == Some(script))
    }
}

/// The pipe inode behind an fd of a process.
fn pipe_at(pid: i32, number: i32) -> Option<u64> {
    let target = fs::read_link(format!("/proc/{pid}/fd/{number}")).ok()?;
    target.to_str()?.strip_prefix("pipe:[")?.strip_suffix(']')?.parse().ok()
}
