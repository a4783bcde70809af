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
	// silenceMax is the longest time without a byte of an exchange, except for planned pauses.
	silenceMax = 2 * time.Second
	checkEvery = 100 * time.Millisecond
	// A check that is later than this shows that the machine stood still, not the gateway.
	lateMax       = 300 * time.Millisecond
	progressEvery = 5 * time.Second
)

// watcher ends stalled exchanges and prints the progress of the run.
type watcher struct {
	tracker *tracker
	gateway *gateway
	ending  chan struct{}
	ended   chan struct{}
}

func watch(tracker *tracker, gateway *gateway) *watcher {
	w := &watcher{tracker, gateway, make(chan struct{}), make(chan struct{})}
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
		case <-time.After(checkEvery):
		}
		now := time.Now()
		late := now.Sub(last) - checkEvery
		last = now
		w.check(now, late)
		if now.Sub(progress) >= progressEvery {
			progress = now
			fmt.Printf("%4.0f s  %s, %d sockets, %d MiB resident\n", now.Sub(began).Seconds(), w.tracker.summary(),
				w.gateway.openSockets(), w.gateway.residentBytes()>>20)
		}
	}
}

// check finds stalled exchanges.
func (w *watcher) check(now time.Time, late time.Duration) {
	postponed := map[*activity]bool{}
	for _, e := range w.tracker.all() {
		if late > lateMax && !postponed[e.activity] {
			postponed[e.activity] = true
			e.postpone(late)
		}
		silence := e.silence(now)
		if e.clientDone.Load() != 0 || e.isStalled.Load() {
			continue
		}
		if silence > time.Duration(w.tracker.longestSilence.Load()) {
			w.tracker.longestSilence.Store(int64(silence))
			w.tracker.longestSilent.Store(e)
		}
		if silence > silenceMax {
			// The exchanges of the same connection end with it.
			for _, other := range w.tracker.all() {
				if other.activity == e.activity {
					other.isStalled.Store(true)
				}
			}
			w.tracker.fail(e, "no byte has moved for %.1f s; its sockets (state, received and unread, sent and unacknowledged):\n%s",
				silence.Seconds(), w.gateway.socketsOf(e))
			e.cancel()
		}
	}
}

// socketsOf lists the sockets of an exchange at both ends, if `ss` is installed.
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

// waitUntilEmpty waits until every exchange has ended at both ends, and returns those that have not.
func (l *tracker) waitUntilEmpty(timeout time.Duration) []*exchange {
	deadline := time.Now().Add(timeout)
	for len(l.all()) > 0 && time.Now().Before(deadline) {
		time.Sleep(20 * time.Millisecond)
	}
	return l.all()
}

// summary counts the outcomes so far.
func (l *tracker) summary() string {
	l.lock.Lock()
	defer l.lock.Unlock()
	var parts []string
	for _, outcome := range slices.Sorted(maps.Keys(l.counts)) {
		parts = append(parts, fmt.Sprintf("%d %s", l.counts[outcome], outcome))
	}
	return fmt.Sprintf("%d exchanges (%s), %d in progress, %d MB up, %d MB down, longest silence %.2f s, %d failures",
		l.completed.Load(), strings.Join(parts, ", "), len(l.open), l.sent.Load()/1e6, l.received.Load()/1e6,
		time.Duration(l.longestSilence.Load()).Seconds(), len(l.failures))
}
