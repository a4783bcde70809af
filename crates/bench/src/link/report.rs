//! The result of a link: what it did to packets, and whether it did so in time.

use std::fmt;
use std::time::Duration;

use super::counters::LinkCounters;
use super::device::MTU_BYTES;
use super::spec::{LinkSpec, Milliseconds};

/// If one in a hundred packets is delivered later than this, the run is invalid.
const LATENESS_P99_MAX: Duration = Duration::from_micros(500);

/// The report of a link that was stopped.
#[derive(Debug)]
pub struct LinkReport {
    pub(super) spec: LinkSpec,
    pub(super) seed: u64,
    /// The counts of the packets.
    pub counters: LinkCounters,
    /// How late 99 % of the packets were delivered at most.
    pub lateness_p99: Duration,
    /// How long the link existed.
    pub elapsed: Duration,
    /// The processor time of the emulator. It includes the work of the kernel that receives the packets at
    /// both ends.
    pub cpu_time: Duration,
    /// Whether the emulator had real-time priority. Without it the thread waits for a busy processor.
    pub(super) is_real_time: bool,
    /// Packets that the kernel dropped because the emulator did not read them in time.
    pub kernel_drops: u64,
    /// Why the emulator ended early.
    pub(super) failure: Option<String>,
}

impl LinkReport {
    /// Why measurements on this link are invalid: the emulator could not keep up, or failed.
    #[must_use]
    pub fn invalid(&self) -> Option<String> {
        if let Some(failure) = &self.failure {
            return Some(format!("the emulator failed: {failure}"));
        }
        let longest =
            [self.counters.down, self.counters.up].map(|counters| counters.packet_bytes_max);
        if let Some(bytes) = longest
            .into_iter()
            .find(|bytes| *bytes > u64::from(MTU_BYTES))
        {
            return Some(format!(
                "the kernel did not cut a packet of {bytes} bytes to the MTU"
            ));
        }
        if self.kernel_drops > 0 {
            let dropped = self.kernel_drops;
            return Some(format!(
                "the emulator read too slowly: the kernel dropped {dropped} packets"
            ));
        }
        (self.lateness_p99 > LATENESS_P99_MAX).then(|| {
            let late = Milliseconds(self.lateness_p99);
            format!("the emulator delivered 1 % of the packets more than {late} late")
        })
    }
}

impl fmt::Display for LinkReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "link     {}", self.spec)?;
        writeln!(f, "seed     {}", self.seed)?;
        writeln!(f, "down     {}", self.counters.down)?;
        writeln!(f, "up       {}", self.counters.up)?;
        let late = Milliseconds(self.lateness_p99);
        let latest = Milliseconds(self.counters.lateness_max);
        writeln!(f, "late     99 % at most {late}, all at most {latest}")?;
        let (cpu, elapsed) = (self.cpu_time.as_secs_f64(), self.elapsed.as_secs_f64());
        write!(f, "emulator {cpu:.2} s of processor time in {elapsed:.2} s")?;
        if !self.is_real_time {
            f.write_str(", without real-time priority")?;
        }
        match self.invalid() {
            Some(reason) => write!(f, "\nINVALID  {reason}"),
            None => Ok(()),
        }
    }
}
