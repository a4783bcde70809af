package main

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// activity is the time at which a byte of an exchange last moved between client and upstream. The exchanges
// of a pipeline share one.
type activity struct{ last atomic.Int64 }

func newActivity() *activity {
	p := &activity{}
	p.touch()
	return p
}

func (p *activity) touch() { p.extend(time.Now()) }

// allowPause permits a silence of this length, which may overlap with others.
func (p *activity) allowPause(pause time.Duration) { p.extend(time.Now().Add(pause)) }

// sleep is a planned pause.
func (p *activity) sleep(pause time.Duration) {
	if pause > 0 {
		p.allowPause(pause)
		time.Sleep(pause)
	}
}

// postpone compensates for a time in which the whole machine stood still.
func (p *activity) postpone(stop time.Duration) { p.last.Add(int64(stop)) }

func (p *activity) silence(now time.Time) time.Duration {
	return time.Duration(now.UnixNano() - p.last.Load())
}

func (p *activity) extend(until time.Time) {
	for {
		last := p.last.Load()
		if until.UnixNano() <= last || p.last.CompareAndSwap(last, until.UnixNano()) {
			return
		}
	}
}

// exchange is one request and its response, observed at both ends: client and upstream are in one process.
type exchange struct {
	*plan
	*activity
	// Aborts the client's side.
	cancel    func()
	isStalled atomic.Bool
	attempts  atomic.Int32
	arrivals  atomic.Int32
	handlers  atomic.Int32
	// An upstream has sent garbage instead of a head.
	garbageSent atomic.Bool

	clientStage, upstreamStage     atomic.Pointer[string]
	clientAddress, upstreamAddress atomic.Pointer[string]
	requestSent, requestReceived   atomic.Int64
	responseSent, responseReceived atomic.Int64
	interimReceived                atomic.Int32
	clientDone                     atomic.Int64
	previous                       atomic.Pointer[exchange]
	clientTook                     time.Duration
}

// setConnection records the client's connection.
func (l *tracker) setConnection(e *exchange, address string) {
	e.clientAddress.Store(&address)
	if before, isReused := l.lastOnConnection.Swap(address, e); isReused {
		e.previous.Store(before.(*exchange))
		// A chain of all earlier exchanges would never be freed.
		before.(*exchange).previous.Store(nil)
	}
}

func (e *exchange) clientAt(stage string)   { e.clientStage.Store(&stage) }
func (e *exchange) upstreamAt(stage string) { e.upstreamStage.Store(&stage) }

// state describes the progress of the exchange.
func (e *exchange) state() string {
	return fmt.Sprintf("client: %s, %d request bytes sent, %d response bytes received, from %s; upstream: %s, "+
		"%d arrivals, %d request bytes received, %d response bytes sent, to %s",
		text(&e.clientStage), e.requestSent.Load(), e.responseReceived.Load(), text(&e.clientAddress),
		text(&e.upstreamStage), e.arrivals.Load(), e.requestReceived.Load(), e.responseSent.Load(),
		text(&e.upstreamAddress))
}

func text(pointer *atomic.Pointer[string]) string {
	if value := pointer.Load(); value != nil {
		return *value
	}
	return "-"
}

// tracker holds the open exchanges and the failures.
type tracker struct {
	lock           sync.Mutex
	open           map[string]*exchange
	closed         map[string]bool
	failures       []string
	cancelRun      func()
	counts         map[string]int
	sent           atomic.Int64
	received       atomic.Int64
	completed      atomic.Int64
	longestSilence atomic.Int64
	longestSilent  atomic.Pointer[exchange]
	// The last exchange of each connection of a client.
	lastOnConnection sync.Map
	// Whether the run was cancelled; later failures do not count.
	isOver atomic.Bool
}

// failuresMax is the number of failures after which a run is cancelled.
const failuresMax = 10

func newTracker(cancelRun func()) *tracker {
	return &tracker{open: map[string]*exchange{}, closed: map[string]bool{}, counts: map[string]int{}, cancelRun: cancelRun}
}

// register adds an exchange, so that the upstream recognizes its request.
func (l *tracker) register(p *plan, activity *activity, cancel func()) *exchange {
	e := &exchange{plan: p, activity: activity, cancel: cancel}
	l.lock.Lock()
	l.open[p.id()] = e
	l.lock.Unlock()
	return e
}

// find returns the open exchange with this id, or nil.
func (l *tracker) find(id string) *exchange {
	l.lock.Lock()
	defer l.lock.Unlock()
	return l.open[id]
}

// isGarbageAverted is whether the upstream was restarted before it sent garbage, so that the second attempt
// could succeed.
func (e *exchange) isGarbageAverted() bool {
	return e.faultOnce && e.arrivals.Load() > 1 && !e.garbageSent.Load()
}

// finish removes an exchange once both ends have finished it.
func (l *tracker) finish(e *exchange, outcome string) {
	l.completed.Add(1)
	l.lock.Lock()
	l.counts[outcome]++
	l.lock.Unlock()
	e.clientDone.Store(time.Now().UnixNano())
	if e.handlers.Load() == 0 {
		l.forget(e)
	}
}

func (l *tracker) forget(e *exchange) {
	l.lock.Lock()
	delete(l.open, e.id())
	l.closed[e.id()] = true
	l.lock.Unlock()
}

// wasClosed is whether the id belongs to an ended exchange, whose request may still arrive after its client
// has aborted it.
func (l *tracker) wasClosed(id string) bool {
	l.lock.Lock()
	defer l.lock.Unlock()
	return l.closed[id]
}

func (l *tracker) all() []*exchange {
	l.lock.Lock()
	defer l.lock.Unlock()
	list := make([]*exchange, 0, len(l.open))
	for _, e := range l.open {
		list = append(list, e)
	}
	return list
}

// fail reports a failure with the data to repeat it.
func (l *tracker) fail(e *exchange, format string, arguments ...any) {
	if l.isOver.Load() {
		return
	}
	what := fmt.Sprintf(format, arguments...)
	if e != nil {
		what += fmt.Sprintf("\n    plan: %s\n    state: %s\n", e.plan, e.state())
		if before := e.previous.Load(); before != nil && e.client <= h1TLS {
			what += fmt.Sprintf("    previous exchange of the connection: %s\n    state: %s\n", before.plan, before.state())
		}
		what += fmt.Sprintf("    repeat with: --seed %d --only %d", e.seed, e.number)
	}
	l.lock.Lock()
	l.failures = append(l.failures, what)
	count := len(l.failures)
	l.lock.Unlock()
	fmt.Printf("FAILED (%d) %s\n", count, what)
	if count >= failuresMax {
		l.isOver.Store(true)
		l.cancelRun()
	}
}

func (l *tracker) failureCount() int {
	l.lock.Lock()
	defer l.lock.Unlock()
	return len(l.failures)
}
