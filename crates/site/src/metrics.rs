//! The metrics of requests of a core: durations and bytes by route, method, scheme, class of the status, version,
//! upstream and outcome. They are derived from the [record](crate::Record), and outlive configurations.
//!
//! All labels come from the configuration and from closed sets. A request adds to one series, which it finds by a packed
//! number; in steady state it allocates nothing. Each series takes [`SERIES_BYTES`] at most, and a core has at most as
//! many as [`set_series_max`] says, and a few more for the requests beyond.

mod ended_request;
mod exemplar;
mod histogram;
mod key;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

use blitz_http::core_local;

use crate::trace::TraceContext;

pub(crate) use ended_request::{Contact, ContactError, EndedRequest};

pub use exemplar::Exemplar;
pub use histogram::{CLASSIC_BOUNDS_NS, Histogram, NativeBuckets, SCHEMA, zero_threshold};
pub use key::{RouteLabel, SeriesKey};

/// The lines of a histogram in text: its buckets, the one without a bound, sum and count.
pub const HISTOGRAM_LINES: usize = CLASSIC_BOUNDS_NS.len() + 3;

/// By default as many lines may be exposed for requests.
pub const SERIES_MAX_DEFAULT: usize = 10_000;

/// The most bytes of memory of a series on a core: two histograms, their bytes, its example, and its share of the table
/// when that was just enlarged.
pub const SERIES_BYTES: usize = 2 * size_of::<Histogram>() + size_of::<Exemplar>() + 160;

/// Once half of the series are in use, a route with more than this share of the free ones gets no more of its own...
pub const ROUTE_SHARE: usize = 8;

/// ...unless it has fewer than these.
pub const ROUTE_SERIES_MIN: usize = 4;

/// Durations and bytes of requests with the same labels.
#[derive(Debug, Clone)]
pub struct Series {
    /// From the start of a request to its end.
    pub server: Histogram,
    /// From the connection of the last attempt to the head of the response; `None` if no upstream was contacted.
    pub client: Option<Box<Histogram>>,
    /// Content received from clients.
    pub request_bytes: u64,
    /// Content sent to clients.
    pub response_bytes: u64,
    /// The last request that is recorded in a trace; `None` without traces.
    pub exemplar: Option<Box<Exemplar>>,
}

/// Some series of a core, in the order in which they were made.
#[derive(Debug)]
pub struct SeriesPart {
    /// With their labels.
    pub series: Vec<(SeriesKey, Series)>,
    /// How many the core has.
    pub total: usize,
}

/// An unused slot of the table.
const UNUSED: u64 = u64::MAX;

/// Slots of the first table.
const SLOTS_FIRST: usize = 64;

#[derive(Clone, Copy)]
struct Slot {
    key: u64,
    series: u32,
}

/// The series of a core in an open hash table, of which at most half is used.
struct Store {
    slots: Vec<Slot>,
    series: Vec<(SeriesKey, Box<Series>)>,
    /// How many of them each route has.
    by_label: BTreeMap<usize, u32>,
    own_max: usize,
}

impl Store {
    const NEW: Store = Store {
        slots: Vec::new(),
        series: Vec::new(),
        by_label: BTreeMap::new(),
        own_max: SERIES_MAX_DEFAULT / HISTOGRAM_LINES,
    };

    #[inline]
    fn find(&mut self, key: SeriesKey) -> &mut Series {
        let found = self.position(key);
        &mut self.series[found].1
    }

    #[inline]
    fn position(&mut self, key: SeriesKey) -> usize {
        match self.slot(key) {
            Some(slot) if slot.key == key.number() => slot.series as usize,
            _ => self.add(key),
        }
    }

    /// The slot with this key, or the unused one where it belongs; `None` without a table.
    #[inline]
    fn slot(&mut self, key: SeriesKey) -> Option<&mut Slot> {
        let mask = self.slots.len().checked_sub(1)?;
        let hash = key.number().wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut at = (hash >> 32) as usize & mask;
        while self.slots[at].key != key.number() && self.slots[at].key != UNUSED {
            at = (at + 1) & mask;
        }
        Some(&mut self.slots[at])
    }

    /// The position of a new series, or that of a merged one if the route has enough, or all routes together have.
    #[cold]
    #[inline(never)]
    fn add(&mut self, key: SeriesKey) -> usize {
        let is_full = self.series.len() >= self.own_max;
        match (key.is_merged(), key.is_merged_in_route()) {
            (true, _) => {}
            (false, true) if is_full => return self.position(key.merged()),
            (false, false) if is_full || self.has_many(key) => {
                return self.position(key.merged_in_route());
            }
            (false, _) => {}
        }
        if (self.series.len() + 1) * 2 > self.slots.len() {
            self.enlarge();
        }
        let position = self.series.len();
        let slot = self.slot(key).expect("there is a table");
        *slot = Slot {
            key: key.number(),
            series: position as u32,
        };
        let series = Series {
            server: Histogram::NEW,
            client: None,
            request_bytes: 0,
            response_bytes: 0,
            exemplar: None,
        };
        self.series.push((key, Box::new(series)));
        *self.by_label.entry(key.label().number()).or_default() += 1;
        position
    }

    /// Whether a route has so many series that the free ones are for others.
    fn has_many(&self, key: SeriesKey) -> bool {
        let free = self.own_max.saturating_sub(self.series.len());
        let own = self.by_label.get(&key.label().number());
        let own = own.map_or(0, |own| *own as usize);
        free <= self.own_max / 2 && own >= (free / ROUTE_SHARE).max(ROUTE_SERIES_MIN)
    }

    fn enlarge(&mut self) {
        let unused = Slot {
            key: UNUSED,
            series: 0,
        };
        let slots = (self.slots.len() * 2).max(SLOTS_FIRST);
        self.slots = vec![unused; slots];
        for position in 0..self.series.len() {
            let key = self.series[position].0;
            let slot = self.slot(key).expect("there is a table");
            *slot = Slot {
                key: key.number(),
                series: position as u32,
            };
        }
    }
}

core_local! {
    static CORE: RefCell<Store> = const { RefCell::new(Store::NEW) };
}

/// Counts a request.
#[inline(always)]
pub(crate) fn measure(request: &EndedRequest<'_>) {
    let key = SeriesKey::of(request);
    CORE.with_borrow_mut(|store| {
        let series = store.find(key);
        series.server.observe(nanoseconds(request.duration));
        series.request_bytes += request.request_bytes;
        series.response_bytes += request.response_bytes;
        if let Some(contact) = &request.contact {
            let client = &mut series.client;
            let client = client.get_or_insert_with(|| Box::new(Histogram::NEW));
            client.observe(nanoseconds(contact.duration));
        }
        if let Some(trace) = request.trace {
            note_exemplar(series, trace, request.duration);
        }
    });
}

/// The memory of a series' example is used again.
#[cold]
#[inline(never)]
fn note_exemplar(series: &mut Series, trace: &TraceContext, duration: Duration) {
    let exemplar = Exemplar {
        trace_id: trace.trace_id,
        span_id: trace.span_id,
        duration_ns: nanoseconds(duration),
        time: blitz_http::wall_clock(),
    };
    match &mut series.exemplar {
        Some(known) => **known = exemplar,
        none => *none = Some(Box::new(exemplar)),
    }
}

#[inline]
fn nanoseconds(duration: Duration) -> u64 {
    const PER_SECOND: u64 = 1_000_000_000;
    let seconds = duration.as_secs().saturating_mul(PER_SECOND);
    seconds.saturating_add(u64::from(duration.subsec_nanos()))
}

/// Sets how many lines the calling core's requests may fill in text; further ones have no series of their own. Each
/// series fills at least those of a histogram.
pub fn set_series_max(lines: usize) {
    CORE.with_borrow_mut(|store| store.own_max = lines / HISTOGRAM_LINES);
}

/// At most `count` series of the calling core, without the first ones. They only grow, so a reader may fetch them in
/// parts, each of which costs the core little.
#[must_use]
pub fn series(first: usize, count: usize) -> SeriesPart {
    CORE.with_borrow(|store| {
        let part = store.series.iter().skip(first).take(count);
        SeriesPart {
            series: part
                .map(|(key, series)| (*key, (**series).clone()))
                .collect(),
            total: store.series.len(),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store(own_max: usize) -> Store {
        Store {
            own_max,
            ..Store::NEW
        }
    }

    #[test]
    fn each_key_has_one_series() {
        let mut store = store(usize::MAX);
        for _ in 0..2 {
            for label in 0..5_000 {
                store.find(SeriesKey::for_test(label, 2)).server.observe(1);
            }
        }
        assert_eq!(store.series.len(), 5_000);
        let mut counted = store.series.iter().enumerate();
        assert!(counted.all(|(at, (key, series))| {
            key.label().number() == at && series.server.count() == 2
        }));
    }

    #[test]
    fn requests_beyond_the_bound_are_merged_by_class() {
        let mut store = store(3);
        for label in 10..20 {
            for class in [2, 5] {
                let series = store.find(SeriesKey::for_test(label, class));
                series.server.observe(1);
            }
        }
        let own = store.series.iter().filter(|(key, _)| !key.is_merged());
        assert_eq!(own.count(), 3);
        let merged = store.series.iter().filter(|(key, _)| key.is_merged());
        let merged: Vec<_> = merged
            .map(|(key, series)| (key.status(), series.server.count()))
            .collect();
        assert_eq!(merged, [("5xx", 9), ("2xx", 8)]);
    }

    #[test]
    fn a_route_with_many_series_leaves_some_to_later_ones() {
        let mut store = store(200);
        for label in 10..17 {
            for method in 0..10 {
                for class in 0..6 {
                    let key = SeriesKey::for_test(label, class).with_method(method);
                    store.find(key).server.observe(1);
                }
            }
        }
        let known = store.series.len();
        assert!(known < 180, "{known}");
        // The counts of each route by class are whole.
        for label in 10..17 {
            for class in ["none", "2xx", "5xx"] {
                let own = store.series.iter();
                let own =
                    own.filter(|(key, _)| key.label().number() == label && key.status() == class);
                let count: u64 = own.map(|(_, series)| series.server.count()).sum();
                assert_eq!(count, 10, "{label} {class}");
            }
        }
        let later = SeriesKey::for_test(20, 2);
        store.find(later);
        assert_eq!(store.series.last().unwrap().0, later);
    }

    #[test]
    fn a_core_has_the_stated_memory_for_each_series() {
        let table = 4 * size_of::<Slot>();
        let list = 2 * size_of::<(SeriesKey, Box<Series>)>();
        // A node of the tree is at least half full, and has pointers too.
        let by_label = 2 * size_of::<(usize, u32)>();
        let own = size_of::<Series>() + size_of::<Histogram>() + size_of::<Exemplar>();
        let all = own + table + list + by_label;
        assert!(all <= SERIES_BYTES, "{own} {table} {list} {by_label}");
    }

    #[test]
    fn parts_have_all_series() {
        CORE.with_borrow_mut(|core| {
            for label in 0..5 {
                core.find(SeriesKey::for_test(label, 2));
            }
        });
        let parts: Vec<_> = [0, 2, 4].map(|first| series(first, 2)).into();
        let sizes: Vec<_> = parts.iter().map(|part| part.series.len()).collect();
        assert_eq!(sizes, [2, 2, 1]);
        assert!(parts.iter().all(|part| part.total == 5));
    }
}
