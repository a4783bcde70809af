package main

import (
	"fmt"
	"strconv"
)

// countInterim looks at an interim response.
func (e *exchange) countInterim(ledger *ledger, status int, link string) {
	switch {
	case status == 100:
	case status == 103 && link == "</"+e.id()+">; rel=preload":
		e.interimReceived.Add(1)
	default:
		ledger.fail(e, "client: interim response %d with Link %q", status, link)
	}
}

// judge compares what a client has seen with what it may see, and ends the exchange.
func judge(ledger *ledger, e *exchange, o outcome) {
	verdict, why := e.verdict(&o)
	if e.isHung.Load() {
		// That was reported already, and ended by us.
		verdict, why = "hung", ""
	}
	if why != "" {
		ledger.fail(e, "client: %s", why)
	}
	ledger.sent.Add(e.requestSent.Load())
	ledger.received.Add(e.answerReceived.Load())
	ledger.end(e, verdict)
}

// verdict names what became of an exchange, and says why that is not allowed if it is not.
func (e *exchange) verdict(o *outcome) (string, string) {
	p := e.plan
	if o.wrong != nil {
		return "wrong", fmt.Sprintf("answer %d is wrong: %v", o.status, o.wrong)
	}
	if o.isAborted {
		return "aborted", ""
	}
	if o.status != 0 && !isOurs(o) {
		if e.mayFail() && (o.status == 502 || o.status == 503 || o.status == 504) {
			return "refused by the gateway", ""
		}
		return "wrong", fmt.Sprintf("the gateway answered %d with %q", o.status, o.fields.Get("Proxy-Status"))
	}
	if o.status != 0 {
		if wrong := e.wrongHead(o); wrong != "" {
			return "wrong", wrong
		}
	}
	switch {
	case o.cut == nil:
		return e.complete(o)
	case e.mayFail() && (o.status != 0 || p.requestSize > 0):
		return "cut", ""
	// Who sends on while its answer is complete may be cut off before it has read that.
	case p.order == orderEarly && p.requestSize > 64<<10, p.order == orderRefuse:
		return "cut", ""
	}
	return "wrong", fmt.Sprintf("broke off with status %d: %v", o.status, o.cut)
}

// wrongHead compares the head of an upstream's answer.
func (e *exchange) wrongHead(o *outcome) string {
	p := e.plan
	if id := o.fields.Get("X-Load-Id"); id != p.id() {
		return fmt.Sprintf("got the answer of another exchange: %q", id)
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
	// An upstream's first attempt may have sent some before it broke.
	if got := int(e.interimReceived.Load()); got < p.interim || got > p.interim*int(e.arrivals.Load()) {
		return fmt.Sprintf("%d interim responses instead of %d", got, p.interim)
	}
	length := o.fields.Get("Content-Length")
	isSaid := p.answerSized && p.status != 204 && p.status != 304
	if wanted := strconv.FormatInt(p.answerSize, 10); isSaid && length != wanted {
		return fmt.Sprintf("Content-Length %q instead of %s", length, wanted)
	}
	return ""
}

func (e *exchange) complete(o *outcome) (string, string) {
	if wanted := trailer(e.plan, e.answerTrailers); o.trailers.Get("X-Load-Sum") != wanted {
		return "wrong", fmt.Sprintf("trailer %q instead of %q", o.trailers.Get("X-Load-Sum"), wanted)
	}
	return "complete", ""
}
