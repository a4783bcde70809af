package main

import (
	"fmt"
	"strconv"
)

// countInterim checks and counts an interim response.
func (e *exchange) countInterim(tracker *tracker, status int, link string) {
	switch {
	case status == 100:
	case status == 103 && link == "</"+e.id()+">; rel=preload":
		e.interimReceived.Add(1)
	default:
		tracker.fail(e, "client: interim response %d with Link %q", status, link)
	}
}

// checkOutcome compares the outcome with the allowed outcomes and finishes the exchange.
func checkOutcome(tracker *tracker, e *exchange, o outcome) {
	verdict, why := e.verdict(&o)
	if e.isStalled.Load() {
		// The stall was reported already, and the test ended the exchange.
		verdict, why = "stalled", ""
	}
	if why != "" {
		tracker.fail(e, "client: %s", why)
	}
	tracker.sent.Add(e.requestSent.Load())
	tracker.received.Add(e.responseReceived.Load())
	tracker.finish(e, verdict)
}

// verdict names the outcome of an exchange, and the reason if it is not allowed.
func (e *exchange) verdict(o *outcome) (string, string) {
	p := e.plan
	if o.wrong != nil {
		return "wrong", fmt.Sprintf("response %d is wrong: %v", o.status, o.wrong)
	}
	if o.isAborted {
		return "aborted", ""
	}
	if o.status != 0 && !isFromUpstream(o) {
		if e.mayFail() && (o.status == 502 || o.status == 503 || o.status == 504) {
			return "refused by the gateway", ""
		}
		return "wrong", fmt.Sprintf("the gateway responded %d with %q", o.status, o.fields.Get("Proxy-Status"))
	}
	if o.status != 0 {
		if wrong := e.wrongHead(o); wrong != "" {
			return "wrong", wrong
		}
	}
	switch {
	case o.interrupted == nil:
		return e.complete(o)
	case e.mayFail() && (o.status != 0 || p.requestSize > 0):
		return "interrupted", ""
	// A client that still sends after its response is complete may lose the response.
	case p.order == orderEarly && p.requestSize > 64<<10, p.order == orderRefuse:
		return "interrupted", ""
	}
	return "wrong", fmt.Sprintf("ended early with status %d: %v", o.status, o.interrupted)
}

// wrongHead compares the head of an upstream's response with the plan.
func (e *exchange) wrongHead(o *outcome) string {
	p := e.plan
	if id := o.fields.Get("X-Load-Id"); id != p.id() {
		return fmt.Sprintf("received the response of another exchange: %q", id)
	}
	if p.fault == faultGarbage {
		return ""
	}
	if field := o.fields.Get("X-Load-Field"); field != p.field() {
		return fmt.Sprintf("field %q instead of %q", field, p.field())
	}
	if o.status != p.status {
		return fmt.Sprintf("status %d", o.status)
	}
	// A first attempt that failed may have sent some of them.
	if got := int(e.interimReceived.Load()); got < p.interim || got > p.interim*int(e.arrivals.Load()) {
		return fmt.Sprintf("%d interim responses instead of %d", got, p.interim)
	}
	length := o.fields.Get("Content-Length")
	isDeclared := p.responseSized && p.status != 204 && p.status != 304
	if wanted := strconv.FormatInt(p.responseSize, 10); isDeclared && length != wanted {
		return fmt.Sprintf("Content-Length %q instead of %s", length, wanted)
	}
	return ""
}

func (e *exchange) complete(o *outcome) (string, string) {
	if wanted := trailer(e.plan, e.responseTrailers); o.trailers.Get("X-Load-Sum") != wanted {
		return "wrong", fmt.Sprintf("trailer %q instead of %q", o.trailers.Get("X-Load-Sum"), wanted)
	}
	return "complete", ""
}
