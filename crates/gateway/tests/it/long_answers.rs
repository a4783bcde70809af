//! Names with so many addresses that the answer needs more than the 512 bytes of a datagram without EDNS.

use std::time::{Duration, Instant};

use crate::name_server::{Kind, NameServer};
use crate::names::target;
use crate::support::{Proxy, Upstream};

scenarios! {
    fn answers_of_any_length_are_understood(io) {
        let upstream = Upstream::with_text("found");
        // 28 take 0.5 KB, 90 1.5 KB, 200 3.2 KB, and 300 4.8 KB.
        for (kind, counts) in [
            (Kind::CutsOff, [28, 90, 300].as_slice()),
            (Kind::SendsLong, &[28, 90, 300]),
            (Kind::HasNoEdns, &[1, 28, 90, 300]),
            (Kind::IgnoresEdns, &[1, 90]),
            (Kind::HasNoTcp, &[28, 90, 200]),
        ] {
            for &records in counts {
                let names = NameServer::of_kind(1, 200, records, kind);
                let proxy = Proxy::with(io, &[&target(&upstream)], names.options());
                let start = Instant::now();
                let answer = proxy.client().get("/");
                let took = start.elapsed();
                assert_eq!((answer.status, answer.text()), (200, "found"), "{kind:?}, {records}");
                assert!(took < Duration::from_secs(3), "{kind:?}, {records}: {took:?}");
            }
        }
    }
}
