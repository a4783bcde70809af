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

// abortNoticedMax is the most time until an upstream notices that the client has gone.
const abortNoticedMax = 5 * time.Second

// errBroken ends a handler whose response is incomplete, on purpose or not.
var errBroken = errors.New("broken")

// ServeHTTP handles the upstream's side of the exchange that the request identifies.
func (u *upstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id := r.Header.Get("X-Load-Id")
	e := u.tracker.find(id)
	if e == nil {
		// The client may have aborted a known exchange long before its request arrives.
		if !u.tracker.wasClosed(id) {
			u.tracker.fail(nil, "an upstream received an unknown request: %s %s, id %q", r.Method, r.URL, id)
		}
		panic(http.ErrAbortHandler)
	}
	e.handlers.Add(1)
	e.upstreamAddress.Store(&r.RemoteAddr)
	a := &response{exchange: e, upstream: u, w: w, r: r, arrival: e.arrivals.Add(1)}
	defer func() {
		e.upstreamAt("returned")
		if e.handlers.Add(-1) == 0 && e.clientDone.Load() != 0 {
			u.tracker.forget(e)
		}
	}()
	if !a.matchesPlan() {
		panic(http.ErrAbortHandler)
	}
	if err := a.serve(); err != nil {
		panic(http.ErrAbortHandler)
	}
}

// response is one attempt of an upstream to respond to an exchange.
type response struct {
	*exchange
	upstream *upstream
	w        http.ResponseWriter
	r        *http.Request
	arrival  int32
	// Runs before the last byte of the response is sent, because the gateway may abort a request whose
	// response is complete.
	beforeEnd func() error
}

// matchesPlan compares the request head with the plan.
func (a *response) matchesPlan() bool {
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
			a.upstream.tracker.fail(a.exchange, "an upstream received a wrong request: %s %v instead of %v", row.what, row.got, row.wanted)
			return false
		}
	}
	if p.requestSized && p.requestSize > 0 && a.r.ContentLength != p.requestSize {
		a.upstream.tracker.fail(a.exchange, "an upstream received Content-Length %d", a.r.ContentLength)
		return false
	}
	return true
}

func (a *response) serve() error {
	p := a.plan
	a.touch()
	control := http.NewResponseController(a.w)
	if p.order == orderDuplex || p.order == orderEarly {
		control.EnableFullDuplex()
	}
	a.upstreamAt("waits before reading")
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
			return a.injectFault()
		}
		return a.write(p.responseSize)
	case orderEarly:
		if err := a.write(p.responseSize); err != nil {
			return err
		}
		control.Flush()
		// The client may stop now, so this may fail; received bytes have to be correct in any case.
		a.read()
		return nil
	case orderDuplex:
		failed := make(chan error, 1)
		go func() { failed <- a.read() }()
		a.beforeEnd = func() error { return <-failed }
	}
	return a.write(p.responseSize)
}

// read receives the request's content and compares every byte.
func (a *response) read() error {
	p := a.plan
	a.upstreamAt("reads")
	check := verifier{content: p.requestContent(), size: p.requestSize}
	chunks := newChunker(p.rng(3), false)
	part := make([]byte, 64<<10)
	for {
		count, err := a.r.Body.Read(part[:chunks.size()])
		if count > 0 {
			a.touch()
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
		return a.wrong("request %v, but seems complete", wrong)
	}
	if p.abort == abortInRequest {
		return a.wrong("request seems complete although its client aborted it after %d bytes", p.abortAt)
	}
	if wanted := trailer(p, p.requestTrailers); a.r.Trailer.Get("X-Load-Sum") != wanted {
		return a.wrong("request trailer %q instead of %q", a.r.Trailer.Get("X-Load-Sum"), wanted)
	}
	return nil
}

// interrupted checks whether the request's content was allowed to end early.
func (a *response) interrupted(err error) error {
	p := a.plan
	a.upstreamAt("was interrupted: " + err.Error())
	// A client that has its response, or has aborted, stops sending.
	if p.abort == abortNever && !p.mayFail() && p.order != orderEarly && !a.isStalled.Load() && a.clientDone.Load() == 0 {
		return a.wrong("request ended early: %v", err)
	}
	return errBroken
}

func (a *response) wrong(format string, arguments ...any) error {
	a.upstream.tracker.fail(a.exchange, "upstream: "+format, arguments...)
	return errBroken
}

// write sends the head and the first size bytes of the content. With fewer than all, the caller ends the
// response incompletely.
func (a *response) write(size int64) error {
	p := a.plan
	a.upstreamAt("waits before responding")
	if p.abort == abortBeforeHead {
		return a.waitForAbort()
	}
	a.sleep(p.responseDelay)
	a.writeHead()
	if p.isBodyless() {
		return nil
	}
	if p.abort == abortAfterHead || p.abort == abortInResponse {
		size = p.abortAt
	}
	control := http.NewResponseController(a.w)
	chunks := newChunker(p.rng(4), p.slowResponse)
	a.upstreamAt("writes")
	if p.responseTrailers {
		// Go adds Content-Length to a response that is complete with its head, and HTTP/1.1 then has no trailers.
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
		p.responseContent().fill(chunk, at)
		if _, err := a.w.Write(chunk); err != nil {
			if at+int64(len(chunk)) == size && a.isResetAllowedAtEnd() {
				a.upstreamAt("has written")
				return errBroken
			}
			return a.refused(err)
		}
		if chunks.rng.IntN(3) == 0 {
			if err := control.Flush(); err != nil {
				return a.refused(err)
			}
		}
		at += int64(len(chunk))
		a.touch()
		a.responseSent.Add(int64(len(chunk)))
		a.sleep(chunks.pause())
	}
	if p.abort != abortNever && p.abort != abortInRequest {
		control.Flush()
		return a.waitForAbort()
	}
	if p.responseTrailers && size == p.responseSize {
		a.w.Header().Set("X-Load-Sum", trailer(p, true))
	}
	a.upstreamAt("has written")
	return nil
}

func (a *response) writeHead() {
	p := a.plan
	fields := a.w.Header()
	fields.Set("X-Load-Id", p.id())
	fields.Set("X-Load-Field", p.field())
	fields["Date"] = nil
	if p.responseSized && p.status != 204 && p.status != 304 {
		fields.Set("Content-Length", strconv.FormatInt(p.responseSize, 10))
	}
	if p.responseTrailers {
		fields.Set("Trailer", "X-Load-Sum")
	}
	a.w.WriteHeader(p.status)
	a.touch()
}

// isResetAllowedAtEnd is whether the gateway may reset the stream once it has the last byte: the response is
// complete by its length and the request's content is not wanted. Go may report the reset to the write of that
// byte. The client still checks that it received all of them.
func (a *response) isResetAllowedAtEnd() bool {
	p := a.plan
	return a.r.ProtoMajor == 2 && p.responseSized && a.requestReceived.Load() < p.requestSize
}

// refused checks whether the response was allowed to end early.
func (a *response) refused(err error) error {
	a.upstreamAt("could not write: " + err.Error())
	if a.plan.abort == abortNever && !a.mayFail() && !a.isStalled.Load() {
		return a.wrong("response could not be sent: %v", err)
	}
	return errBroken
}

// waitForAbort returns once the gateway has forwarded the client's abort.
func (a *response) waitForAbort() error {
	a.upstreamAt("waits for the abort")
	a.allowPause(abortNoticedMax)
	select {
	case <-a.r.Context().Done():
		a.upstreamAt("has noticed the abort")
	case <-time.After(abortNoticedMax):
		return a.wrong("the client's abort did not arrive within %v (%s)", abortNoticedMax, abortNames[a.abort])
	}
	return errBroken
}

// trailer is the value of the trailer field, or empty.
func trailer(p *plan, isSent bool) string {
	if !isSent {
		return ""
	}
	return fmt.Sprintf("%x", mix(uint64(p.responseContent())))
}
