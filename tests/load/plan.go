package main

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// Versions of HTTP, with and without TLS.
const (
	h1 = iota
	h1TLS
	h2
	h2TLS
	versions
	// HTTP/1.1 clients on plain sockets, which choose their packets.
	rawH1    = versions
	rawH1TLS = versions + 1
	clients  = versions + 2
)

var versionNames = [clients]string{"h1", "h1s", "h2c", "h2s", "raw-h1", "raw-h1s"}

// The points at which a client aborts an exchange.
const (
	abortNever = iota
	abortBeforeHead
	abortAfterHead
	abortInResponse
	abortInRequest
	aborts
)

var abortNames = [aborts]string{"", "before the head", "after the head", "in the response", "in the request"}

// The faults of an upstream.
const (
	faultNone = iota
	faultCloseBeforeHead
	faultTruncateResponse
	faultResetInResponse
	faultKillConnection
	faultCloseAfterResponse
	faultGarbage
	faults
)

var faultNames = [faults]string{"", "closes before the head", "truncates the response", "resets in the response",
	"resets the connection", "closes after the response without announcing it", "sends garbage instead of a head"}

// The order in which an upstream reads and responds.
const (
	orderReadFirst = iota
	// Content flows in both directions at once.
	orderDuplex
	// The whole response comes before the request's content is read.
	orderEarly
	// A final response to Expect: 100-continue without reading.
	orderRefuse
)

var orderNames = [...]string{"", "duplex", "early response", "refused expectation"}

// Kinds of upstream addresses.
const (
	// Never fails.
	reliable = iota
	// Has the planned faults, and is restarted from time to time.
	risky
	// Delays each handshake and serves one request per connection.
	lateHandshake
	addresses
)

var addressNames = [addresses]string{"", "/risky", "/late-handshake"}

const (
	sizeMax = 3 << 20
	// Requests of a pipeline up to this size fit into the receive buffer of a socket, even in small packets. A
	// gateway reads ahead as little as possible. Once a receive buffer has overflowed, Linux (6.18) drops
	// acknowledgements with the packets, and both directions may stall for minutes.
	pipelinedSizeMax = 6 << 10
)

// plan holds all random choices for an exchange. It depends only on the seed and the number of the exchange.
type plan struct {
	number, part uint64
	// The number of earlier repetitions; only the id depends on it.
	round        uint64
	seed         uint64
	client       int
	upstream     int
	address      int
	method       string
	status       int
	order        int
	requestSize  int64
	responseSize int64
	// Whether the length is announced; otherwise the content is chunked.
	requestSized, responseSized       bool
	requestTrailers, responseTrailers bool
	expect                            bool
	interim                           int
	abort                             int
	abortAt                           int64
	abortAfter                        time.Duration
	fault                             int
	faultAt                           int64
	// Whether only the first attempt has the fault, so that a retry succeeds.
	faultOnce bool
	// Pauses before the upstream reads and before it responds.
	readDelay, responseDelay time.Duration
	// Whether chunks are small and followed by pauses.
	slowRequest, slowResponse, slowReader bool
	// The size of a field that both messages carry.
	fieldSize int
}

// drawAll makes the plans of exchange number: a single exchange, or a pipeline on one connection.
func drawAll(seed, number uint64, among []int) []*plan {
	rng := rand.New(rand.NewPCG(seed, number))
	client := among[rng.IntN(len(among))]
	if client < versions {
		return []*plan{draw(rng, seed, number, 0, client)}
	}
	count := 1
	if rng.IntN(3) > 0 {
		count += rng.IntN(6)
	}
	plans := make([]*plan, count)
	for part := range plans {
		plans[part] = draw(rng, seed, number, uint64(part), client)
		plans[part].adaptToPipeline(rng, part, count)
	}
	return plans
}

func draw(rng *rand.Rand, seed, number, part uint64, client int) *plan {
	p := &plan{number: number, part: part, seed: seed, client: client, upstream: rng.IntN(versions), status: 200}
	switch {
	case rng.IntN(4) == 0:
		p.address = risky
	case rng.IntN(25) == 0:
		p.address, p.upstream = lateHandshake, h1TLS
	}
	p.drawMessages(rng)
	p.drawPauses(rng)
	switch {
	case p.address == risky && rng.IntN(3) == 0:
		p.drawFault(rng)
	case p.address != lateHandshake && rng.IntN(12) == 0:
		p.drawAbort(rng)
	}
	return p
}

// drawMessages chooses the messages and their framing.
func (p *plan) drawMessages(rng *rand.Rand) {
	p.method = []string{"GET", "GET", "POST", "POST", "POST", "PUT", "HEAD", "DELETE"}[rng.IntN(8)]
	p.responseSize, p.responseSized = size(rng), rng.IntN(2) == 0
	if p.method == "POST" || p.method == "PUT" {
		p.requestSize, p.requestSized = size(rng), rng.IntN(2) == 0
	}
	if p.method != "HEAD" && rng.IntN(12) == 0 {
		p.status = []int{204, 304}[rng.IntN(2)]
	}
	if p.isBodyless() {
		p.responseSized = true
	}
	// HTTP/1.1 carries trailers only after chunked content.
	p.requestTrailers = p.requestSize > 0 && !p.requestSized && rng.IntN(3) == 0
	p.responseTrailers = !p.responseSized && rng.IntN(3) == 0
	p.expect = p.requestSize > 0 && rng.IntN(6) == 0
	if p.expect {
		// Otherwise the upstream reads first: Go's clients wait for 100 even after the head of a final response.
		if rng.IntN(3) == 0 {
			p.order, p.status = orderRefuse, 403
			p.responseSized, p.responseTrailers = true, false
		}
	} else if p.requestSize > 0 && p.status == 200 {
		p.order = []int{orderReadFirst, orderReadFirst, orderReadFirst, orderDuplex, orderEarly}[rng.IntN(5)]
		if p.responseSize == 0 && p.order == orderDuplex {
			p.order = orderReadFirst
		}
	}
	if rng.IntN(8) == 0 {
		p.interim = 1 + rng.IntN(3)
	}
	// Go's HTTP/2 servers send no 100 after another interim response.
	if p.expect && p.upstream >= h2 {
		p.interim = 0
	}
	if p.fieldSize = rng.IntN(60); rng.IntN(10) == 0 {
		p.fieldSize = rng.IntN(6000)
	}
}

// drawPauses chooses the pauses.
func (p *plan) drawPauses(rng *rand.Rand) {
	p.slowRequest = rng.IntN(5) == 0
	p.slowResponse = rng.IntN(5) == 0
	p.slowReader = rng.IntN(8) == 0
	if rng.IntN(8) == 0 {
		p.readDelay = time.Duration(rng.IntN(400)) * time.Millisecond
	}
	if rng.IntN(8) == 0 {
		p.responseDelay = time.Duration(rng.IntN(400)) * time.Millisecond
	}
}

func (p *plan) drawFault(rng *rand.Rand) {
	p.fault = 1 + rng.IntN(faults-1)
	// These faults need an HTTP/1.1 connection.
	if p.upstream >= h2 && p.fault >= faultCloseAfterResponse {
		p.fault = faultKillConnection
	}
	if p.fault == faultGarbage {
		p.status = 200
		if p.method == "HEAD" {
			p.method = "GET"
		}
	}
	p.faultAt = rng.Int64N(p.responseSize + 1)
	p.faultOnce = rng.IntN(2) == 0
	p.expect, p.order = false, orderReadFirst
	if p.status == 403 {
		p.status = 200
	}
}

func (p *plan) drawAbort(rng *rand.Rand) {
	p.abort = 1 + rng.IntN(aborts-1)
	p.abortAfter = time.Duration(5+rng.IntN(100)) * time.Millisecond
	p.expect, p.order, p.status = false, orderReadFirst, 200
	switch p.abort {
	case abortInRequest:
		p.method = "POST"
		p.requestSize = max(p.requestSize, 2)
		p.abortAt = 1 + rng.Int64N(p.requestSize-1)
	case abortInResponse, abortAfterHead:
		p.method, p.requestSize, p.requestTrailers = "GET", 0, false
		p.responseSize = max(p.responseSize, 2)
		p.abortAt = 1 + rng.Int64N(p.responseSize-1)
	}
}

// adaptToPipeline removes what a pipeline does not support, so that it runs to its end. Its first response is
// often late, so that the other requests arrive before they are read.
func (p *plan) adaptToPipeline(rng *rand.Rand, part, count int) {
	p.expect = false
	if p.order == orderEarly || p.order == orderRefuse {
		p.order = orderReadFirst
	}
	if p.status == 403 {
		p.status = 200
	}
	if count > 1 {
		p.abort, p.fault = abortNever, faultNone
		if p.address == risky {
			p.address = reliable
		}
		p.requestSize = min(p.requestSize, pipelinedSizeMax)
		p.responseSize = min(p.responseSize, 256<<10)
	}
	if part == 0 && rng.IntN(2) == 0 {
		p.responseDelay = time.Duration(100+rng.IntN(500)) * time.Millisecond
	}
}

// size chooses a size from 0 to sizeMax; small sizes and sizes near buffer limits are more likely.
func size(rng *rand.Rand) int64 {
	switch rng.IntN(20) {
	case 0, 1, 2:
		return 0
	case 3, 4, 5, 6, 7:
		return 1 + rng.Int64N(200)
	case 8, 9, 10, 11:
		return 200 + rng.Int64N(16<<10)
	case 12, 13, 14:
		edges := []int64{4 << 10, 16 << 10, 32 << 10, 64 << 10, 128 << 10, 1 << 20}
		return edges[rng.IntN(len(edges))] - 2 + rng.Int64N(5)
	case 15, 16, 17:
		return rng.Int64N(256 << 10)
	default:
		return rng.Int64N(sizeMax + 1)
	}
}

func (p *plan) id() string               { return fmt.Sprintf("%x.%x.%x.%x", p.seed, p.number, p.part, p.round) }
func (p *plan) requestContent() content  { return content(mix(p.seed ^ p.number<<16 ^ p.part<<8 ^ 1)) }
func (p *plan) responseContent() content { return content(mix(p.seed ^ p.number<<16 ^ p.part<<8 ^ 2)) }
func (p *plan) rng(side uint64) *rand.Rand {
	return rand.New(rand.NewPCG(p.seed^side<<56, p.number<<8|p.part))
}

// field is a field value with the planned length, different for each exchange.
func (p *plan) field() string {
	letters := make([]byte, p.fieldSize)
	content(mix(uint64(p.requestContent()))).fill(letters, 0)
	for i, letter := range letters {
		letters[i] = "abcdefghijklmnopqrstuvwxyz012345"[letter&31]
	}
	return p.id() + "-" + string(letters)
}

// path is the request path of the exchange.
func (p *plan) path() string {
	return addressNames[p.address] + "/" + versionNames[p.upstream] + "/" + p.id()
}

func (p *plan) isBodyless() bool {
	return p.method == "HEAD" || p.status == 204 || p.status == 304
}

// isSafeToRepeat is whether a gateway may send the request twice.
func (p *plan) isSafeToRepeat() bool { return p.method != "POST" }

// mayFail is whether the gateway may respond with an error or end the response early.
func (p *plan) mayFail() bool { return p.address == risky }

// String describes the plan.
func (p *plan) String() string {
	text := fmt.Sprintf("%s [%s -> %s%s] %s %d, request %d%s, response %d%s", p.id(), versionNames[p.client],
		versionNames[p.upstream], addressNames[p.address], p.method, p.status,
		p.requestSize, framing(p.requestSized), p.responseSize, framing(p.responseSized))
	for _, trait := range []struct {
		holds bool
		text  string
	}{
		{p.requestTrailers, "request trailers"}, {p.responseTrailers, "response trailers"},
		{p.expect, "expects 100"}, {p.interim > 0, fmt.Sprintf("%d interim", p.interim)},
		{p.order != orderReadFirst, orderNames[p.order]},
		{p.abort != abortNever, "aborted " + abortNames[p.abort]},
		{p.fault != faultNone, "upstream: " + faultNames[p.fault]}, {p.faultOnce, "once"},
		{p.readDelay > 0, fmt.Sprintf("reads after %v", p.readDelay)},
		{p.responseDelay > 0, fmt.Sprintf("responds after %v", p.responseDelay)},
		{p.slowRequest, "slow request"}, {p.slowResponse, "slow response"}, {p.slowReader, "slow reader"},
		{p.fieldSize > 60, fmt.Sprintf("a field of %d bytes", p.fieldSize)},
	} {
		if trait.holds {
			text += ", " + trait.text
		}
	}
	return text
}

func framing(sized bool) string {
	if sized {
		return " sized"
	}
	return " chunked"
}
