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
	// Clients of HTTP/1.1 on bare sockets, which choose their packets.
	rawH1    = versions
	rawH1TLS = versions + 1
	clients  = versions + 2
)

var versionNames = [clients]string{"h1", "h1s", "h2c", "h2s", "raw-h1", "raw-h1s"}

// When the client gives an exchange up.
const (
	abortNever = iota
	abortBeforeHead
	abortAfterHead
	abortInAnswer
	abortInRequest
	aborts
)

var abortNames = [aborts]string{"", "before the head", "after the head", "in the answer", "in the request"}

// What an upstream does wrong.
const (
	faultNone = iota
	faultCutBeforeHead
	faultCutInAnswer
	faultResetInAnswer
	faultKillConnection
	faultCloseAfterAnswer
	faultGarbage
	faults
)

var faultNames = [faults]string{"", "cut before the head", "cut in the answer", "reset in the answer",
	"connection killed", "closes after the answer without notice", "garbage instead of a head"}

// In which order an upstream reads and answers.
const (
	orderReadFirst = iota
	// Content flows in both directions at once.
	orderDuplex
	// The whole answer comes before the request's content is read.
	orderEarly
	// A final answer to Expect: 100-continue without reading.
	orderRefuse
)

var orderNames = [...]string{"", "duplex", "early answer", "refused expectation"}

// Kinds of upstream addresses.
const (
	// Never fails.
	reliable = iota
	// Misbehaves as the plan says, and is restarted from time to time.
	risky
	// Takes its time with each handshake and serves one request per connection.
	tardy
	addresses
)

var addressNames = [addresses]string{"", "/risky", "/tardy"}

const (
	sizeMax = 3 << 20
	// So many bytes of each request of a pipeline fit into the receive buffer of a socket, small packets and
	// all. A gateway reads no further ahead than it must, and once a receive buffer has overflowed Linux
	// (6.18) drops acknowledgements with the packets: both directions stand still, for minutes if need be.
	pipelinedSizeMax = 6 << 10
)

// plan is all that is decided about an exchange before it begins. It depends on the seed and the number
// of the exchange, and on nothing that happens during the run.
type plan struct {
	number, part uint64
	// How often the exchange was played before; only the id depends on it.
	round       uint64
	seed        uint64
	client      int
	upstream    int
	address     int
	method      string
	status      int
	order       int
	requestSize int64
	answerSize  int64
	// Whether the length is announced; otherwise the content is chunked.
	requestSized, answerSized       bool
	requestTrailers, answerTrailers bool
	expect                          bool
	interim                         int
	abort                           int
	abortAt                         int64
	abortAfter                      time.Duration
	fault                           int
	faultAt                         int64
	// Whether only the first attempt is disturbed, so that a retry succeeds.
	faultOnce bool
	// Pauses before the upstream reads and before it answers.
	readDelay, answerDelay time.Duration
	// Whether pieces are small and followed by pauses.
	requestDrips, answerDrips, readerDawdles bool
	// The number of bytes in a field that travels in both directions.
	fieldSize int
}

// drawAll decides about exchange number: a single one, or a pipeline of several on one connection.
func drawAll(seed, number uint64, among []int) []*plan {
	dice := rand.New(rand.NewPCG(seed, number))
	client := among[dice.IntN(len(among))]
	if client < versions {
		return []*plan{draw(dice, seed, number, 0, client)}
	}
	count := 1
	if dice.IntN(3) > 0 {
		count += dice.IntN(6)
	}
	plans := make([]*plan, count)
	for part := range plans {
		plans[part] = draw(dice, seed, number, uint64(part), client)
		plans[part].suitRaw(dice, part, count)
	}
	return plans
}

func draw(dice *rand.Rand, seed, number, part uint64, client int) *plan {
	p := &plan{number: number, part: part, seed: seed, client: client, upstream: dice.IntN(versions), status: 200}
	switch {
	case dice.IntN(4) == 0:
		p.address = risky
	case dice.IntN(25) == 0:
		p.address, p.upstream = tardy, h1TLS
	}
	p.drawMessages(dice)
	p.drawManners(dice)
	switch {
	case p.address == risky && dice.IntN(3) == 0:
		p.drawFault(dice)
	case p.address != tardy && dice.IntN(12) == 0:
		p.drawAbort(dice)
	}
	return p
}

// drawMessages decides what is sent and in which framing.
func (p *plan) drawMessages(dice *rand.Rand) {
	p.method = []string{"GET", "GET", "POST", "POST", "POST", "PUT", "HEAD", "DELETE"}[dice.IntN(8)]
	p.answerSize, p.answerSized = size(dice), dice.IntN(2) == 0
	if p.method == "POST" || p.method == "PUT" {
		p.requestSize, p.requestSized = size(dice), dice.IntN(2) == 0
	}
	if p.method != "HEAD" && dice.IntN(12) == 0 {
		p.status = []int{204, 304}[dice.IntN(2)]
	}
	if p.isBodyless() {
		p.answerSized = true
	}
	// Only chunked content of HTTP/1.1 has a place for them.
	p.requestTrailers = p.requestSize > 0 && !p.requestSized && dice.IntN(3) == 0
	p.answerTrailers = !p.answerSized && dice.IntN(3) == 0
	p.expect = p.requestSize > 0 && dice.IntN(6) == 0
	if p.expect {
		// Otherwise it reads first: Go's clients wait for 100 even behind the head of a final answer.
		if dice.IntN(3) == 0 {
			p.order, p.status = orderRefuse, 403
			p.answerSized, p.answerTrailers = true, false
		}
	} else if p.requestSize > 0 && p.status == 200 {
		p.order = []int{orderReadFirst, orderReadFirst, orderReadFirst, orderDuplex, orderEarly}[dice.IntN(5)]
		if p.answerSize == 0 && p.order == orderDuplex {
			p.order = orderReadFirst
		}
	}
	if dice.IntN(8) == 0 {
		p.interim = 1 + dice.IntN(3)
	}
	// Go's servers of HTTP/2 say no 100 behind another interim response.
	if p.expect && p.upstream >= h2 {
		p.interim = 0
	}
	if p.fieldSize = dice.IntN(60); dice.IntN(10) == 0 {
		p.fieldSize = dice.IntN(6000)
	}
}

// drawManners decides about pauses.
func (p *plan) drawManners(dice *rand.Rand) {
	p.requestDrips = dice.IntN(5) == 0
	p.answerDrips = dice.IntN(5) == 0
	p.readerDawdles = dice.IntN(8) == 0
	if dice.IntN(8) == 0 {
		p.readDelay = time.Duration(dice.IntN(400)) * time.Millisecond
	}
	if dice.IntN(8) == 0 {
		p.answerDelay = time.Duration(dice.IntN(400)) * time.Millisecond
	}
}

func (p *plan) drawFault(dice *rand.Rand) {
	p.fault = 1 + dice.IntN(faults-1)
	// These need the connection of HTTP/1.1 itself.
	if p.upstream >= h2 && p.fault >= faultCloseAfterAnswer {
		p.fault = faultKillConnection
	}
	if p.fault == faultGarbage {
		p.status = 200
		if p.method == "HEAD" {
			p.method = "GET"
		}
	}
	p.faultAt = dice.Int64N(p.answerSize + 1)
	p.faultOnce = dice.IntN(2) == 0
	p.expect, p.order = false, orderReadFirst
	if p.status == 403 {
		p.status = 200
	}
}

func (p *plan) drawAbort(dice *rand.Rand) {
	p.abort = 1 + dice.IntN(aborts-1)
	p.abortAfter = time.Duration(5+dice.IntN(100)) * time.Millisecond
	p.expect, p.order, p.status = false, orderReadFirst, 200
	switch p.abort {
	case abortInRequest:
		p.method = "POST"
		p.requestSize = max(p.requestSize, 2)
		p.abortAt = 1 + dice.Int64N(p.requestSize-1)
	case abortInAnswer, abortAfterHead:
		p.method, p.requestSize, p.requestTrailers = "GET", 0, false
		p.answerSize = max(p.answerSize, 2)
		p.abortAt = 1 + dice.Int64N(p.answerSize-1)
	}
}

// suitRaw changes what a pipeline cannot do: it goes on to its end, and its first request often has to
// wait, so that the others arrive while nobody reads them.
func (p *plan) suitRaw(dice *rand.Rand, part, count int) {
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
		p.answerSize = min(p.answerSize, 256<<10)
	}
	if part == 0 && dice.IntN(2) == 0 {
		p.answerDelay = time.Duration(100+dice.IntN(500)) * time.Millisecond
	}
}

// size draws from 0 to sizeMax, with a liking for what is small and for the edges of buffers.
func size(dice *rand.Rand) int64 {
	switch dice.IntN(20) {
	case 0, 1, 2:
		return 0
	case 3, 4, 5, 6, 7:
		return 1 + dice.Int64N(200)
	case 8, 9, 10, 11:
		return 200 + dice.Int64N(16<<10)
	case 12, 13, 14:
		edges := []int64{4 << 10, 16 << 10, 32 << 10, 64 << 10, 128 << 10, 1 << 20}
		return edges[dice.IntN(len(edges))] - 2 + dice.Int64N(5)
	case 15, 16, 17:
		return dice.Int64N(256 << 10)
	default:
		return dice.Int64N(sizeMax + 1)
	}
}

func (p *plan) id() string              { return fmt.Sprintf("%x.%x.%x.%x", p.seed, p.number, p.part, p.round) }
func (p *plan) requestContent() content { return content(mix(p.seed ^ p.number<<16 ^ p.part<<8 ^ 1)) }
func (p *plan) answerContent() content  { return content(mix(p.seed ^ p.number<<16 ^ p.part<<8 ^ 2)) }
func (p *plan) dice(side uint64) *rand.Rand {
	return rand.New(rand.NewPCG(p.seed^side<<56, p.number<<8|p.part))
}

// field is a value as long as the plan says, and different for each exchange.
func (p *plan) field() string {
	letters := make([]byte, p.fieldSize)
	content(mix(uint64(p.requestContent()))).fill(letters, 0)
	for i, letter := range letters {
		letters[i] = "abcdefghijklmnopqrstuvwxyz012345"[letter&31]
	}
	return p.id() + "-" + string(letters)
}

// path is where the exchange goes.
func (p *plan) path() string {
	return addressNames[p.address] + "/" + versionNames[p.upstream] + "/" + p.id()
}

func (p *plan) isBodyless() bool {
	return p.method == "HEAD" || p.status == 204 || p.status == 304
}

// isSafeToRepeat is whether a gateway may send the request twice.
func (p *plan) isSafeToRepeat() bool { return p.method != "POST" }

// mayFail is whether the gateway may answer with an error or break the answer off.
func (p *plan) mayFail() bool { return p.address == risky }

// String says what is special about the exchange.
func (p *plan) String() string {
	text := fmt.Sprintf("%s [%s -> %s%s] %s %d, request %d%s, answer %d%s", p.id(), versionNames[p.client],
		versionNames[p.upstream], addressNames[p.address], p.method, p.status,
		p.requestSize, framing(p.requestSized), p.answerSize, framing(p.answerSized))
	for _, trait := range []struct {
		holds bool
		text  string
	}{
		{p.requestTrailers, "request trailers"}, {p.answerTrailers, "answer trailers"},
		{p.expect, "expects 100"}, {p.interim > 0, fmt.Sprintf("%d interim", p.interim)},
		{p.order != orderReadFirst, orderNames[p.order]},
		{p.abort != abortNever, "aborted " + abortNames[p.abort]},
		{p.fault != faultNone, "upstream: " + faultNames[p.fault]}, {p.faultOnce, "once"},
		{p.readDelay > 0, fmt.Sprintf("read after %v", p.readDelay)},
		{p.answerDelay > 0, fmt.Sprintf("answered after %v", p.answerDelay)},
		{p.requestDrips, "request drips"}, {p.answerDrips, "answer drips"}, {p.readerDawdles, "slow reader"},
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
