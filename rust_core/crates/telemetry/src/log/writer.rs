//! The thread that writes lines. Only it reads the clock in this crate.

use std::io::{self, ErrorKind, Write};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use super::event::Event;
use super::format::{Format, encode};
use super::record::{Content, Record};
use super::shared::Log;
use crate::key::{Key, KeyMap};

/// Time between two reports of events beyond their rate.
const SUM_UP_EVERY: Duration = Duration::from_secs(5);

/// Longest time that the end waits for a blocked output.
const END_TIMEOUT: Duration = Duration::from_secs(1);

/// Time after which a non-blocking output (`O_NONBLOCK`) that was full is tried again.
const RETRY: Duration = Duration::from_millis(10);

/// The writer's thread. Dropping it closes the log and waits until all lines are written. If the
/// output is blocked, the thread is left behind.
pub struct Writer<E: Event> {
    log: Arc<Log<E>>,
    thread: Option<JoinHandle<()>>,
}

impl<E: Event> Writer<E> {
    /// Start the thread with standard error as its output. The descriptor is duplicated, because a
    /// slow reader would keep the lock of the process's own handle held.
    ///
    /// # Errors
    /// The system refuses the thread.
    pub fn start(log: &Arc<Log<E>>, format: Format) -> io::Result<Self> {
        use std::os::fd::AsFd;
        let out: Box<dyn Write + Send> = match io::stderr().as_fd().try_clone_to_owned() {
            Ok(stderr) => Box::new(std::fs::File::from(stderr)),
            // Standard error is closed: there is no reader.
            Err(_) => Box::new(io::sink()),
        };
        Self::start_on(log, format, out)
    }

    /// Start the thread with the caller's output.
    ///
    /// # Errors
    /// The system refuses the thread.
    pub fn start_on(
        log: &Arc<Log<E>>,
        format: Format,
        out: Box<dyn Write + Send>,
    ) -> io::Result<Self> {
        let output = Output {
            log: Arc::clone(log),
            format,
            out,
            line: String::new(),
            reported: KeyMap::new(|_| 0),
        };
        let thread = thread::Builder::new().name("log".into());
        Ok(Self {
            log: Arc::clone(log),
            thread: Some(thread.spawn(move || output.run())?),
        })
    }
}

impl<E: Event> Drop for Writer<E> {
    fn drop(&mut self) {
        self.log.queue.close();
        let Some(thread) = self.thread.take() else {
            return;
        };
        let deadline = Instant::now() + END_TIMEOUT;
        while !thread.is_finished() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(1));
        }
        if thread.is_finished() {
            // A writer that panicked has printed the panic.
            let _ = thread.join();
        }
    }
}

/// Output and state of the writer.
struct Output<E: Event> {
    log: Arc<Log<E>>,
    format: Format,
    out: Box<dyn Write + Send>,
    /// Buffer, kept between lines for its memory.
    line: String,
    /// Suppressed events that a line has reported.
    reported: KeyMap<E::Topic, u64>,
}

impl<E: Event> Output<E> {
    fn run(mut self) {
        let mut sum_up_at = Instant::now() + SUM_UP_EVERY;
        loop {
            let work = self.log.queue.take(sum_up_at);
            if let Some(record) = &work.record
                && self.write(record).is_err()
            {
                self.log.queue.count_lost();
            }
            if work.lost > 0 {
                self.write_own(Content::LinesLost(work.lost));
            }
            if work.is_end || Instant::now() >= sum_up_at {
                self.sum_up();
                sum_up_at = Instant::now() + SUM_UP_EVERY;
            }
            if work.is_end {
                return;
            }
        }
    }

    /// Write the number of events beyond their rate since the last report.
    fn sum_up(&mut self) {
        for topic in E::Topic::ALL {
            let suppressed = self.log.suppressed_of(*topic);
            let reported = std::mem::replace(&mut self.reported[*topic], suppressed);
            if suppressed > reported {
                self.write_own(Content::LinesSuppressed(*topic, suppressed - reported));
            }
        }
    }

    fn write_own(&mut self, content: Content<E>) {
        if !self.log.is_on(content.level()) {
            return;
        }
        let record = Record {
            time: SystemTime::now(),
            shard: None,
            content,
        };
        // An output that refuses this line would also refuse a line about it.
        let _ = self.write(&record);
    }

    /// Write one line, in one piece if the output takes that, so that it is not mixed with lines of
    /// other writers.
    fn write(&mut self, record: &Record<E>) -> io::Result<()> {
        self.line.clear();
        encode(&mut self.line, self.format, record);
        let mut rest = self.line.as_bytes();
        while !rest.is_empty() {
            match self.out.write(rest) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(written) => rest = &rest[written..],
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => thread::sleep(RETRY),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::io::{BufRead, BufReader, PipeReader, pipe};
    use std::sync::mpsc;

    use super::super::event::Level;
    use super::super::queue::CAPACITY;
    use super::super::source::Source;
    use super::super::testing::{Sample, SampleTopic};
    use super::*;

    type Started = (Arc<Log<Sample>>, Writer<Sample>, BufReader<PipeReader>);

    fn started(level: Level, shards: usize) -> Started {
        let (reader, writer) = pipe().unwrap();
        let log = Arc::new(Log::new(level, shards));
        let writer = Writer::start_on(&log, Format::Text, Box::new(writer)).unwrap();
        (log, writer, BufReader::new(reader))
    }

    fn say(log: &Log<Sample>) {
        log.write(SystemTime::UNIX_EPOCH, Sample::Ended(Duration::ZERO));
    }

    /// Log `count` failures at once.
    fn fail(source: &mut Source<Sample>, topic: SampleTopic, now: Instant, times: u32) {
        for _ in 0..times {
            if source.admits(topic, now) {
                source.push(SystemTime::UNIX_EPOCH, Sample::Failed(topic));
            }
        }
    }

    /// Output that never returns, as a full pipe without a reader.
    struct Blocked(mpsc::Receiver<()>);

    impl Write for Blocked {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            self.0.recv().map(|()| 0).map_err(io::Error::other)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn number(line: &str, name: &str) -> u64 {
        let value = line.split(name).nth(1).expect(line).trim();
        value.parse().expect(line)
    }

    #[test]
    fn every_line_is_written_or_lost_and_counted_when_nobody_reads() {
        let (log, writer, reader) = started(Level::Info, 1);
        // Far more than pipe and queue hold.
        let said = CAPACITY as u64 * 4;
        for _ in 0..said {
            say(&log);
        }
        assert!(log.lost() > CAPACITY as u64);
        let end = thread::spawn(move || drop(writer));
        let lines: Vec<_> = reader.lines().map(Result::unwrap).collect();
        end.join().unwrap();
        let (lost, written): (Vec<_>, Vec<_>) = lines
            .iter()
            .partition(|line| line.contains("kind=lines_lost"));
        let lost: u64 = lost.iter().map(|line| number(line, " lost=")).sum();
        assert_eq!(lost, log.lost());
        assert_eq!(written.len() as u64 + lost, said);
    }

    #[test]
    fn an_output_that_takes_nothing_does_not_delay_the_end_for_ever() {
        let log = Arc::new(Log::new(Level::Info, 1));
        let (_never, taken) = mpsc::sync_channel(1);
        let writer = Writer::start_on(&log, Format::Text, Box::new(Blocked(taken))).unwrap();
        say(&log);
        // Returns although the output never takes the line.
        drop(writer);
    }

    #[test]
    fn an_output_that_fails_loses_lines_and_goes_on() {
        let (log, writer, reader) = started(Level::Info, 1);
        drop(reader);
        for _ in 0..10 {
            say(&log);
        }
        log.flush(Duration::from_secs(10));
        assert_eq!(log.lost(), 10);
        drop(writer);
    }

    #[test]
    fn what_is_beyond_its_rate_is_summed_up() {
        let (log, writer, reader) = started(Level::Debug, 2);
        let now = Instant::now();
        let mut shards = [0, 1].map(|index| Source::new(Arc::clone(&log), index, now));
        for shard in &mut shards {
            fail(shard, SampleTopic::Network, now, 200);
            fail(shard, SampleTopic::Disk, now, 50);
        }
        let suppressed = 2 * (200 - 50);
        assert_eq!(log.suppressed(), [("greeting", 0), ("failed", suppressed)]);
        drop(writer);
        let lines: Vec<_> = reader.lines().map(Result::unwrap).collect();
        assert_eq!(lines.len(), 2 * (50 + 50) + 1);
        let last = lines.last().unwrap();
        assert!(last.contains(" level=warning kind=lines_suppressed of=failed part=network "));
        assert_eq!(number(last, " suppressed="), suppressed);
    }

    #[test]
    fn a_level_that_is_not_asked_for_is_neither_written_nor_counted() {
        let (log, writer, reader) = started(Level::Error, 1);
        let now = Instant::now();
        let mut shard = Source::new(Arc::clone(&log), 0, now);
        fail(&mut shard, SampleTopic::Disk, now, 200);
        say(&log);
        drop(writer);
        assert_eq!(reader.lines().count(), 0);
        assert!(log.suppressed().iter().all(|(_, count)| *count == 0));
    }
}
