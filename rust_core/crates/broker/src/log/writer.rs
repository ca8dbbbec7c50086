//! The thread that writes lines.

use std::io::{self, ErrorKind, Write};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use super::event::{Event, Topic};
use super::format::encode;
use super::{Log, LogFormat, Record};

/// Between two accounts of what was beyond its rate.
const SUM_UP_EVERY: Duration = Duration::from_secs(5);

/// How long the end waits for an output that takes nothing.
const END_PATIENCE: Duration = Duration::from_secs(1);

/// How soon an output is asked again that neither takes a line nor waits (`O_NONBLOCK`).
const RETRY: Duration = Duration::from_millis(10);

/// The writer's thread. Dropping it closes the log and waits until everything is written, unless the
/// output takes nothing: then the thread is left behind.
pub(crate) struct Writer {
    log: Arc<Log>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    /// Starts it with standard error as its output. That is duplicated, so that nobody who writes to
    /// standard error waits for a lock that a slow reader makes last.
    pub(crate) fn start(log: &Arc<Log>, format: LogFormat) -> io::Result<Self> {
        use std::os::fd::AsFd;
        let out: Box<dyn Write + Send> = match io::stderr().as_fd().try_clone_to_owned() {
            Ok(stderr) => Box::new(std::fs::File::from(stderr)),
            // It has been closed: nobody wants to know.
            Err(_) => Box::new(io::sink()),
        };
        Self::start_on(log, format, out)
    }

    fn start_on(log: &Arc<Log>, format: LogFormat, out: Box<dyn Write + Send>) -> io::Result<Self> {
        let output = Output {
            log: Arc::clone(log),
            format,
            out,
            line: String::new(),
            told: [0; Topic::COUNT],
        };
        let thread = thread::Builder::new().name("log".into());
        Ok(Self {
            log: Arc::clone(log),
            thread: Some(thread.spawn(move || output.run())?),
        })
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.log.queue.close();
        let Some(thread) = self.thread.take() else {
            return;
        };
        let deadline = Instant::now() + END_PATIENCE;
        while !thread.is_finished() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(1));
        }
        if thread.is_finished() {
            // A writer that panicked has said so.
            let _ = thread.join();
        }
    }
}

/// The output, and what the writer knows of it.
struct Output {
    log: Arc<Log>,
    format: LogFormat,
    out: Box<dyn Write + Send>,
    /// Kept between lines for its memory.
    line: String,
    /// Suppressed events that a line has told of, by topic.
    told: [u64; Topic::COUNT],
}

impl Output {
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
                self.write_own(Event::LinesLost { lost: work.lost });
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

    /// Says what was beyond its rate since the last time.
    fn sum_up(&mut self) {
        for topic in Topic::all() {
            let suppressed = self.log.suppressed_of(topic);
            let told = std::mem::replace(&mut self.told[topic.index()], suppressed);
            if suppressed > told {
                self.write_own(Event::LinesSuppressed {
                    of: topic,
                    suppressed: suppressed - told,
                });
            }
        }
    }

    fn write_own(&mut self, event: Event) {
        if !self.log.is_on(event.level()) {
            return;
        }
        let record = Record {
            time: SystemTime::now(),
            shard: None,
            event,
        };
        // An output that does not take this would take nothing about it either.
        let _ = self.write(&record);
    }

    /// Writes one line, in one piece where the output takes that, so that lines of others are not mixed
    /// with it.
    fn write(&mut self, record: &Record) -> io::Result<()> {
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

    use super::super::queue::CAPACITY;
    use super::super::{LogLevel, ShardLog};
    use super::*;

    fn started(level: LogLevel, shards: usize) -> (Arc<Log>, Writer, BufReader<PipeReader>) {
        let (reader, writer) = pipe().unwrap();
        let log = Arc::new(Log::new(level, shards));
        let writer = Writer::start_on(&log, LogFormat::Text, Box::new(writer)).unwrap();
        (log, writer, BufReader::new(reader))
    }

    /// An output that waits for ever, as a full pipe does.
    struct Stuck(mpsc::Receiver<()>);

    impl Write for Stuck {
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
        let (log, writer, reader) = started(LogLevel::Info, 1);
        // Far more than pipe and queue hold.
        let said = CAPACITY as u64 * 4;
        for _ in 0..said {
            log.write(Event::Stopped);
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
    fn an_output_that_takes_nothing_does_not_keep_the_end() {
        let log = Arc::new(Log::new(LogLevel::Info, 1));
        let (_never, taken) = mpsc::sync_channel(1);
        let writer = Writer::start_on(&log, LogFormat::Text, Box::new(Stuck(taken))).unwrap();
        log.write(Event::Stopped);
        let begun = Instant::now();
        drop(writer);
        let taken = begun.elapsed();
        assert!(
            taken >= END_PATIENCE && taken < END_PATIENCE * 5,
            "{taken:?}"
        );
    }

    #[test]
    fn an_output_that_fails_loses_lines_and_goes_on() {
        let (log, writer, reader) = started(LogLevel::Info, 1);
        drop(reader);
        for _ in 0..10 {
            log.write(Event::Stopped);
        }
        log.flush(Duration::from_secs(10));
        assert_eq!(log.lost(), 10);
        drop(writer);
    }

    #[test]
    fn what_is_beyond_its_rate_is_summed_up() {
        let (log, writer, reader) = started(LogLevel::Debug, 2);
        let now = Instant::now();
        let mut shards = [0, 1].map(|index| ShardLog::new(Arc::clone(&log), index, now));
        for shard in &mut shards {
            for failures in 1..=200 {
                shard.accept_failures(now, failures);
            }
        }
        let suppressed = 2 * (200 - 50);
        let counted = log.suppressed();
        assert!(
            counted.contains(&("accept_failed", suppressed)),
            "{counted:?}"
        );
        assert_eq!(
            counted.iter().map(|(_, count)| count).sum::<u64>(),
            suppressed
        );
        assert_eq!(counted.len(), 6, "one for each kind");
        drop(writer);
        let lines: Vec<_> = reader.lines().map(Result::unwrap).collect();
        assert_eq!(lines.len(), 101);
        let last = lines.last().unwrap();
        assert!(last.contains(" level=warning kind=lines_suppressed of=accept_failed "));
        assert_eq!(number(last, " suppressed="), suppressed);
    }

    #[test]
    fn a_level_that_is_not_asked_for_is_neither_written_nor_counted() {
        let (log, writer, reader) = started(LogLevel::Error, 1);
        let now = Instant::now();
        let mut shard = ShardLog::new(Arc::clone(&log), 0, now);
        for failures in 1..=200 {
            shard.accept_failures(now, failures);
        }
        log.write(Event::Stopped);
        drop(writer);
        assert_eq!(reader.lines().count(), 0);
        assert!(log.suppressed().iter().all(|(_, count)| *count == 0));
    }
}
