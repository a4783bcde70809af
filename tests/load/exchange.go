package main

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// pulse is when bytes of an exchange last moved anywhere between client and upstream. The exchanges of
// a pipeline share one.
type pulse struct{ last atomic.Int64 }

func newPulse() *pulse {
	p := &pulse{}
	p.beat()
	return p
}

func (p *pulse) beat() { p.extend(time.Now()) }

// allow says that a silence of this length is on purpose; it may overlap with others.
func (p *pulse) allow(pause time.Duration) { p.extend(time.Now().Add(pause)) }

// sleep is a pause on purpose.
func (p *pulse) sleep(pause time.Duration) {
	if pause > 0 {
		p.allow(pause)
		time.Sleep(pause)
	}
}

// postpone forgives a time in which the whole machine stood still.
func (p *pulse) postpone(stop time.Duration) { p.last.Add(int64(stop)) }

func (p *pulse) silence(now time.Time) time.Duration {
	return time.Duration(now.UnixNano() - p.last.Load())
}

func (p *pulse) extend(until time.Time) {
	for {
		last := p.last.Load()
		if until.UnixNano() <= last || p.last.CompareAndSwap(last, until.UnixNano()) {
			return
		}
	}
}

// exchange is one request and its answer, seen from both ends: client and upstream are in one process.
type exchange struct {
	*plan
	*pulse
	// Ends the client's part.
	cancel   func()
	isHung   atomic.Bool
	attempts atomic.Int32
	arrivals atomic.Int32
	handlers atomic.Int32
	// An upstream has sent what is no head.
	garbageSent atomic.Bool

	clientStage, upstreamStage     atomic.Pointer[string]
	clientAddress, upstreamAddress atomic.Pointer[string]
	requestSent, requestReceived   atomic.Int64
	answerSent, answerReceived     atomic.Int64
	interimReceived                atomic.Int32
	clientDone                     atomic.Int64
	previous                       atomic.Pointer[exchange]
	clientTook                     time.Duration
}

// isOn notes which connection the client has chosen.
func (l *ledger) isOn(e *exchange, address string) {
	e.clientAddress.Store(&address)
	if before, isReused := l.lastOn.Swap(address, e); isReused {
		e.previous.Store(before.(*exchange))
		// A chain of all that came before would never be freed.
		before.(*exchange).previous.Store(nil)
	}
}

func (e *exchange) at(stage string)         { e.clientStage.Store(&stage) }
func (e *exchange) upstreamAt(stage string) { e.upstreamStage.Store(&stage) }

// state says how far the exchange has come.
func (e *exchange) state() string {
	return fmt.Sprintf("client: %s, %d request bytes sent, %d answer bytes received, from %s; upstream: %s, "+
		"%d arrivals, %d request bytes received, %d answer bytes sent, to %s",
		text(&e.clientStage), e.requestSent.Load(), e.answerReceived.Load(), text(&e.clientAddress),
		text(&e.upstreamStage), e.arrivals.Load(), e.requestReceived.Load(), e.answerSent.Load(),
		text(&e.upstreamAddress))
}

func text(pointer *atomic.Pointer[string]) string {
	if value := pointer.Load(); value != nil {
		return *value
	}
	return "-"
}

// ledger knows the exchanges that are under way, and what went wrong.
type ledger struct {
	lock      sync.Mutex
	open      map[string]*exchange
	closed    map[string]bool
	failures  []string
	enough    func()
	counts    map[string]int
	sent      atomic.Int64
	received  atomic.Int64
	completed atomic.Int64
	worst     atomic.Int64
	quietest  atomic.Pointer[exchange]
	// The last exchange of each connection of a client.
	lastOn sync.Map
	// Whether the run was given up, so that nothing counts any more.
	isOver atomic.Bool
}

// failuresMax is after how many failures a run is given up.
const failuresMax = 10

func newLedger(enough func()) *ledger {
	return &ledger{open: map[string]*exchange{}, closed: map[string]bool{}, counts: map[string]int{}, enough: enough}
}

// begin registers an exchange, so that the upstream knows it when it arrives.
func (l *ledger) begin(p *plan, beats *pulse, cancel func()) *exchange {
	e := &exchange{plan: p, pulse: beats, cancel: cancel}
	l.lock.Lock()
	l.open[p.id()] = e
	l.lock.Unlock()
	return e
}

// find gives the exchange that a request claims to be; nil if there is none.
func (l *ledger) find(id string) *exchange {
	l.lock.Lock()
	defer l.lock.Unlock()
	return l.open[id]
}

// isGarbageAverted tells whether the upstream was restarted before it could break off, so that a second
// attempt was right to succeed.
func (e *exchange) isGarbageAverted() bool {
	return e.faultOnce && e.arrivals.Load() > 1 && !e.garbageSent.Load()
}

// end forgets an exchange once both ends are done with it.
func (l *ledger) end(e *exchange, outcome string) {
	l.completed.Add(1)
	l.lock.Lock()
	l.counts[outcome]++
	l.lock.Unlock()
	e.clientDone.Store(time.Now().UnixNano())
	if e.handlers.Load() == 0 {
		l.forget(e)
	}
}

func (l *ledger) forget(e *exchange) {
	l.lock.Lock()
	delete(l.open, e.id())
	l.closed[e.id()] = true
	l.lock.Unlock()
}

// wasClosed is whether the id is of an exchange that has ended: a request of it may still arrive when its
// client has given it up.
func (l *ledger) wasClosed(id string) bool {
	l.lock.Lock()
	defer l.lock.Unlock()
	return l.closed[id]
}

func (l *ledger) all() []*exchange {
	l.lock.Lock()
	defer l.lock.Unlock()
	list := make([]*exchange, 0, len(l.open))
	for _, e := range l.open {
		list = append(list, e)
	}
	return list
}

// fail reports what must not happen, with all that is needed to repeat it.
func (l *ledger) fail(e *exchange, format string, arguments ...any) {
	if l.isOver.Load() {
		return
	}
	what := fmt.Sprintf(format, arguments...)
	if e != nil {
		what += fmt.Sprintf("\n    plan: %s\n    state: %s\n", e.plan, e.state())
		if before := e.previous.Load(); before != nil && e.client <= h1TLS {
			what += fmt.Sprintf("    before it on the connection: %s\n    state: %s\n", before.plan, before.state())
		}
		what += fmt.Sprintf("    again: --seed %d --only %d", e.seed, e.number)
	}
	l.lock.Lock()
	l.failures = append(l.failures, what)
	count := len(l.failures)
	l.lock.Unlock()
	fmt.Printf("FAILED (%d) %s\n", count, what)
	if count >= failuresMax {
		l.isOver.Store(true)
		l.enough()
	}
}

func (l *ledger) failureCount() int {
	l.lock.Lock()
	defer l.lock.Unlock()
	return len(l.failures)
}
