package main

import (
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"time"
)

const (
	// silenceMax is how long no byte of an exchange may move if nobody pauses on purpose.
	silenceMax = 2 * time.Second
	lookEvery  = 100 * time.Millisecond
	// A look that comes later than this says that the machine stood still, not the gateway.
	lateMax       = 300 * time.Millisecond
	progressEvery = 5 * time.Second
)

// watcher ends exchanges in which nothing moves, and prints how far the run is.
type watcher struct {
	ledger  *ledger
	gateway *gateway
	ending  chan struct{}
	ended   chan struct{}
}

func watch(ledger *ledger, gateway *gateway) *watcher {
	w := &watcher{ledger, gateway, make(chan struct{}), make(chan struct{})}
	go w.run()
	return w
}

func (w *watcher) stop() {
	close(w.ending)
	<-w.ended
}

func (w *watcher) run() {
	defer close(w.ended)
	began := time.Now()
	last, progress := began, began
	for {
		select {
		case <-w.ending:
			return
		case <-time.After(lookEvery):
		}
		now := time.Now()
		late := now.Sub(last) - lookEvery
		last = now
		w.look(now, late)
		if now.Sub(progress) >= progressEvery {
			progress = now
			fmt.Printf("%4.0f s  %s, %d sockets, %d MiB resident\n", now.Sub(began).Seconds(), w.ledger.summary(),
				w.gateway.openSockets(), w.gateway.residentBytes()>>20)
		}
	}
}

// look finds exchanges that hang.
func (w *watcher) look(now time.Time, late time.Duration) {
	postponed := map[*pulse]bool{}
	for _, e := range w.ledger.all() {
		if late > lateMax && !postponed[e.pulse] {
			postponed[e.pulse] = true
			e.postpone(late)
		}
		silence := e.silence(now)
		if e.clientDone.Load() != 0 || e.isHung.Load() {
			continue
		}
		if silence > time.Duration(w.ledger.worst.Load()) {
			w.ledger.worst.Store(int64(silence))
			w.ledger.quietest.Store(e)
		}
		if silence > silenceMax {
			// Those that share the connection are ended with it.
			for _, other := range w.ledger.all() {
				if other.pulse == e.pulse {
					other.isHung.Store(true)
				}
			}
			w.ledger.fail(e, "nothing has moved for %.1f s; its sockets (state, received and not read, sent and not taken):\n%s",
				silence.Seconds(), w.gateway.socketsOf(e))
			e.cancel()
		}
	}
}

// socketsOf are the sockets of an exchange, each with both ends, if `ss` is there to say so.
func (g *gateway) socketsOf(e *exchange) string {
	ends := []string{text(&e.clientAddress), text(&e.upstreamAddress)}
	output, _ := exec.Command("ss", "-tnHOoi").Output()
	var lines []string
	for line := range strings.Lines(string(output)) {
		if fields := strings.Fields(line); slices.Contains(ends, fields[3]) || slices.Contains(ends, fields[4]) {
			lines = append(lines, "        "+strings.Join(fields, " "))
		}
	}
	return strings.Join(lines, "\n")
}

// awaitEmpty waits until every exchange has ended at both ends; what is left are those that have not.
func (l *ledger) awaitEmpty(patience time.Duration) []*exchange {
	deadline := time.Now().Add(patience)
	for len(l.all()) > 0 && time.Now().Before(deadline) {
		time.Sleep(20 * time.Millisecond)
	}
	return l.all()
}

// summary says what became of the exchanges until now.
func (l *ledger) summary() string {
	l.lock.Lock()
	defer l.lock.Unlock()
	var parts []string
	for _, outcome := range slices.Sorted(maps.Keys(l.counts)) {
		parts = append(parts, fmt.Sprintf("%d %s", l.counts[outcome], outcome))
	}
	return fmt.Sprintf("%d exchanges (%s), %d under way, %d MB up, %d MB down, longest silence %.2f s, %d failures",
		l.completed.Load(), strings.Join(parts, ", "), len(l.open), l.sent.Load()/1e6, l.received.Load()/1e6,
		time.Duration(l.worst.Load()).Seconds(), len(l.failures))
}
