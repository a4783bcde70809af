package main

import (
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"strconv"
	"time"
)

var quiet = log.New(io.Discard, "", 0)

// abortNoticedMax is how long an upstream may have to wait until it is told that the client has gone.
const abortNoticedMax = 5 * time.Second

// errBroken ends a handler that has broken its answer on purpose or found it broken.
var errBroken = errors.New("broken")

// ServeHTTP plays the upstream's part of the exchange that the request says it is.
func (u *upstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id := r.Header.Get("X-Load-Id")
	e := u.ledger.find(id)
	if e == nil {
		// The client of a known one may have given it up long before its request arrives.
		if !u.ledger.wasClosed(id) {
			u.ledger.fail(nil, "an upstream got a request that nobody sent: %s %s, id %q", r.Method, r.URL, id)
		}
		panic(http.ErrAbortHandler)
	}
	e.handlers.Add(1)
	e.upstreamAddress.Store(&r.RemoteAddr)
	a := &answer{exchange: e, upstream: u, w: w, r: r, arrival: e.arrivals.Add(1)}
	defer func() {
		e.upstreamAt("returned")
		if e.handlers.Add(-1) == 0 && e.clientDone.Load() != 0 {
			u.ledger.forget(e)
		}
	}()
	if !a.isWhatWasAsked() {
		panic(http.ErrAbortHandler)
	}
	if err := a.play(); err != nil {
		panic(http.ErrAbortHandler)
	}
}

// answer is one attempt to answer an exchange.
type answer struct {
	*exchange
	upstream *upstream
	w        http.ResponseWriter
	r        *http.Request
	arrival  int32
	// What has to be done before the last byte of the answer is sent; the gateway may give up a request
	// whose answer is complete.
	beforeEnd func() error
}

// isWhatWasAsked compares the head with the plan.
func (a *answer) isWhatWasAsked() bool {
	p := a.plan
	allowed := 2 * max(a.attempts.Load(), 1)
	if !p.isSafeToRepeat() {
		allowed = 1
	}
	version := map[int]int{h1: 1, h1TLS: 1, h2: 2, h2TLS: 2}[a.upstream.version]
	for _, row := range []struct {
		what        string
		got, wanted any
	}{
		{"method", a.r.Method, p.method},
		{"path", a.r.URL.Path, p.path()},
		{"field", a.r.Header.Get("X-Load-Field"), p.field()},
		{"upstream", [2]int{a.upstream.version, a.upstream.address}, [2]int{p.upstream, p.address}},
		{"version", a.r.ProtoMajor, version},
		{"arrivals beyond those allowed", max(0, a.arrival-allowed), int32(0)},
	} {
		if row.got != row.wanted {
			a.upstream.ledger.fail(a.exchange, "an upstream got another request: %s %v instead of %v", row.what, row.got, row.wanted)
			return false
		}
	}
	if p.requestSized && p.requestSize > 0 && a.r.ContentLength != p.requestSize {
		a.upstream.ledger.fail(a.exchange, "an upstream got Content-Length %d", a.r.ContentLength)
		return false
	}
	return true
}

func (a *answer) play() error {
	p := a.plan
	a.beat()
	control := http.NewResponseController(a.w)
	if p.order == orderDuplex || p.order == orderEarly {
		control.EnableFullDuplex()
	}
	a.upstreamAt("waits before it reads")
	a.sleep(p.readDelay)
	for range p.interim {
		a.w.Header().Set("Link", "</"+p.id()+">; rel=preload")
		a.w.WriteHeader(http.StatusEarlyHints)
		a.w.Header().Del("Link")
	}
	isFaulty := p.fault != faultNone && (a.arrival == 1 || !p.faultOnce)
	switch p.order {
	case orderReadFirst:
		if err := a.read(); err != nil {
			return err
		}
		if isFaulty {
			return a.breakOff()
		}
		return a.write(p.answerSize)
	case orderEarly:
		if err := a.write(p.answerSize); err != nil {
			return err
		}
		control.Flush()
		// The client may stop now, so that this may fail; what comes has to be right all the same.
		a.read()
		return nil
	case orderDuplex:
		failed := make(chan error, 1)
		go func() { failed <- a.read() }()
		a.beforeEnd = func() error { return <-failed }
	}
	return a.write(p.answerSize)
}

// read takes the request's content and compares every byte.
func (a *answer) read() error {
	p := a.plan
	a.upstreamAt("reads")
	check := verifier{content: p.requestContent(), size: p.requestSize}
	chunks := newChunker(p.dice(3), false)
	part := make([]byte, 64<<10)
	for {
		count, err := a.r.Body.Read(part[:chunks.size()])
		if count > 0 {
			a.beat()
			a.requestReceived.Add(int64(count))
			if wrong := check.take(part[:count]); wrong != nil {
				return a.wrong("request %v", wrong)
			}
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return a.interrupted(err)
		}
	}
	a.upstreamAt("has read")
	if wrong := check.end(); wrong != nil {
		return a.wrong("request %v, and seems complete", wrong)
	}
	if p.abort == abortInRequest {
		return a.wrong("request seems complete although its client gave it up after %d bytes", p.abortAt)
	}
	if wanted := trailer(p, p.requestTrailers); a.r.Trailer.Get("X-Load-Sum") != wanted {
		return a.wrong("request trailer %q instead of %q", a.r.Trailer.Get("X-Load-Sum"), wanted)
	}
	return nil
}

// interrupted decides whether the request's content was allowed to break off.
func (a *answer) interrupted(err error) error {
	p := a.plan
	a.upstreamAt("was interrupted: " + err.Error())
	// A client that has its answer, or has given up, stops sending.
	if p.abort == abortNever && !p.mayFail() && p.order != orderEarly && !a.isHung.Load() && a.clientDone.Load() == 0 {
		return a.wrong("request broke off: %v", err)
	}
	return errBroken
}

func (a *answer) wrong(format string, arguments ...any) error {
	a.upstream.ledger.fail(a.exchange, "upstream: "+format, arguments...)
	return errBroken
}

// write sends the head and so much of the content as is wanted; less than all of it is an answer that
// the caller goes on to break.
func (a *answer) write(size int64) error {
	p := a.plan
	a.upstreamAt("waits before it answers")
	if p.abort == abortBeforeHead {
		return a.waitForAbort()
	}
	a.sleep(p.answerDelay)
	a.writeHead()
	if p.isBodyless() {
		return nil
	}
	if p.abort == abortAfterHead || p.abort == abortInAnswer {
		size = p.abortAt
	}
	control := http.NewResponseController(a.w)
	chunks := newChunker(p.dice(4), p.answerDrips)
	a.upstreamAt("writes")
	if p.answerTrailers {
		// Go declares the length of what is complete with its head; HTTP/1.1 has no trailers then.
		control.Flush()
	}
	part := make([]byte, 64<<10)
	for at := int64(0); at < size; {
		chunk := part[:min(int64(chunks.size()), size-at)]
		if at+int64(len(chunk)) == size && a.beforeEnd != nil {
			control.Flush()
			if err := a.beforeEnd(); err != nil {
				return err
			}
			a.upstreamAt("writes the end")
		}
		p.answerContent().fill(chunk, at)
		if _, err := a.w.Write(chunk); err != nil {
			return a.refused(err)
		}
		if chunks.dice.IntN(3) == 0 {
			if err := control.Flush(); err != nil {
				return a.refused(err)
			}
		}
		at += int64(len(chunk))
		a.beat()
		a.answerSent.Add(int64(len(chunk)))
		a.sleep(chunks.pause())
	}
	if p.abort != abortNever && p.abort != abortInRequest {
		control.Flush()
		return a.waitForAbort()
	}
	if p.answerTrailers && size == p.answerSize {
		a.w.Header().Set("X-Load-Sum", trailer(p, true))
	}
	a.upstreamAt("has written")
	return nil
}

func (a *answer) writeHead() {
	p := a.plan
	fields := a.w.Header()
	fields.Set("X-Load-Id", p.id())
	fields.Set("X-Load-Field", p.field())
	fields["Date"] = nil
	if p.answerSized && p.status != 204 && p.status != 304 {
		fields.Set("Content-Length", strconv.FormatInt(p.answerSize, 10))
	}
	if p.answerTrailers {
		fields.Set("Trailer", "X-Load-Sum")
	}
	a.w.WriteHeader(p.status)
	a.beat()
}

// refused decides whether the answer was allowed to break off.
func (a *answer) refused(err error) error {
	a.upstreamAt("could not write: " + err.Error())
	if a.plan.abort == abortNever && !a.mayFail() && !a.isHung.Load() {
		return a.wrong("answer was not taken: %v", err)
	}
	return errBroken
}

// waitForAbort returns once the gateway has passed on that the client has gone.
func (a *answer) waitForAbort() error {
	a.upstreamAt("waits for the client to go")
	a.allow(abortNoticedMax)
	select {
	case <-a.r.Context().Done():
		a.upstreamAt("knows that the client has gone")
	case <-time.After(abortNoticedMax):
		return a.wrong("nobody said within %v that the client has gone (%s)", abortNoticedMax, abortNames[a.abort])
	}
	return errBroken
}

// trailer is the field behind a body, or nothing.
func trailer(p *plan, isSent bool) string {
	if !isSent {
		return ""
	}
	return fmt.Sprintf("%x", mix(uint64(p.answerContent())))
}
