package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"time"
)

// rawClient is an HTTP/1.1 client on a plain socket: it splits messages into packets at any byte, and pipelines
// requests.
type rawClient struct {
	gateway gatewayAddresses
	tracker *tracker
	trust   *tls.Config
}

// run sends a pipeline on one connection and checks every response.
func (c *rawClient) run(ctx context.Context, plans []*plan) {
	activity := newActivity()
	connection, err := c.dial(plans[0])
	if err != nil {
		c.tracker.fail(nil, "raw client %s: %v", plans[0].id(), err)
		return
	}
	defer connection.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// The end of the run interrupts all waits on the socket.
	context.AfterFunc(ctx, func() { connection.SetDeadline(time.Now()) })
	line := &pipeline{ctx: ctx, connection: connection, activity: activity}
	address := connection.LocalAddr().String()
	for _, p := range plans {
		e := c.tracker.register(p, activity, cancel)
		e.attempts.Store(1)
		c.tracker.setConnection(e, address)
		line.exchanges = append(line.exchanges, e)
	}
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		line.send(plans[0].rng(6))
	}()
	line.receive(c.tracker)
	cancel()
	<-sent
}

func (c *rawClient) dial(p *plan) (net.Conn, error) {
	address := c.gateway.clear
	if p.client == rawH1TLS {
		address = c.gateway.tls
	}
	connection, err := net.DialTimeout("tcp", address, 2*time.Second)
	if err != nil || p.client == rawH1 {
		return connection, err
	}
	var below net.Conn = connection
	if rng := p.rng(7); rng.IntN(2) == 0 {
		below = &splitConnection{Conn: connection, rng: rng}
	}
	config := c.trust.Clone()
	config.ServerName = "localhost"
	secure := tls.Client(below, config)
	connection.SetDeadline(time.Now().Add(5 * time.Second))
	if err := secure.Handshake(); err != nil {
		connection.Close()
		return nil, fmt.Errorf("handshake: %w", err)
	}
	connection.SetDeadline(time.Time{})
	return secure, nil
}

// pipeline is the exchanges of one connection, in order.
type pipeline struct {
	ctx        context.Context
	connection net.Conn
	activity   *activity
	exchanges  []*exchange
}

// send writes all requests in packets without regard to message boundaries, up to the one that is aborted.
func (l *pipeline) send(rng *rand.Rand) {
	var waiting []byte
	packetSizer := newPacketSizer(rng)
	for _, e := range l.exchanges {
		e.clientAt("sends")
		if e.address == lateHandshake {
			e.allowPause(handshakePauseMax)
		}
		end := l.serialize(e, rng, func(part []byte) bool {
			waiting = append(waiting, part...)
			for len(waiting) >= 128<<10 {
				size := packetSizer.size(len(waiting))
				if !l.write(waiting[:size], packetSizer) {
					return false
				}
				waiting = waiting[size:]
			}
			return true
		})
		if !end || e.abort != abortNever {
			break
		}
		e.clientAt("has queued the request")
	}
	for len(waiting) > 0 {
		size := packetSizer.size(len(waiting))
		if !l.write(waiting[:size], packetSizer) {
			return
		}
		waiting = waiting[size:]
	}
	l.abortRequest()
}

// abortRequest closes the connection if the plan aborts before the head of the response.
func (l *pipeline) abortRequest() {
	last := l.exchanges[len(l.exchanges)-1]
	switch last.abort {
	case abortBeforeHead:
		last.sleep(last.abortAfter)
	case abortInRequest:
		last.sleep(20 * time.Millisecond)
	default:
		return
	}
	if secure, is := l.connection.(*tls.Conn); is {
		l.connection = secure.NetConn()
	}
	if socket, is := tcp(l.connection); is && last.rng(8).IntN(2) == 0 {
		socket.SetLinger(0)
	}
	l.connection.Close()
}

func (l *pipeline) write(piece []byte, packetSizer *packetSizer) bool {
	count, err := l.connection.Write(piece)
	if err != nil {
		return false
	}
	l.activity.touch()
	// An approximation: heads and framing count as content of the first exchange.
	l.exchanges[0].requestSent.Add(int64(count))
	l.activity.sleep(packetSizer.pause())
	return true
}

// serialize passes the bytes of a request to emit as long as it returns true.
func (l *pipeline) serialize(e *exchange, rng *rand.Rand, emit func([]byte) bool) bool {
	p := e.plan
	var head bytes.Buffer
	// Empty lines before a request are allowed (RFC 9112, section 2.2).
	if p.part > 0 && rng.IntN(10) == 0 {
		head.WriteString("\r\n")
	}
	fields := []string{"Host: localhost", "X-Load-Id: " + p.id(), "X-Load-Field:" + strings.Repeat(" ", rng.IntN(3)) + p.field(),
		"TE: trailers", "Connection: TE"}
	if p.requestSize > 0 || p.method == "POST" || p.method == "PUT" {
		if p.requestSized || p.requestSize == 0 {
			fields = append(fields, fmt.Sprintf("Content-Length: %d", p.requestSize))
		} else {
			fields = append(fields, "Transfer-Encoding: chunked")
		}
	}
	if p.requestTrailers {
		fields = append(fields, "Trailer: X-Load-Sum")
	}
	rng.Shuffle(len(fields), func(i, j int) { fields[i], fields[j] = fields[j], fields[i] })
	fmt.Fprintf(&head, "%s %s HTTP/1.1\r\n%s\r\n\r\n", p.method, p.path(), strings.Join(fields, "\r\n"))
	if !emit(head.Bytes()) {
		return false
	}
	if p.requestSize == 0 {
		return true
	}
	end := p.requestSize
	if p.abort == abortInRequest {
		end = p.abortAt
	}
	chunks := newChunker(p.rng(1), p.slowRequest)
	part := make([]byte, 64<<10)
	for at := int64(0); at < end; {
		chunk := part[:min(int64(chunks.size()), end-at)]
		p.requestContent().fill(chunk, at)
		at += int64(len(chunk))
		if !p.requestSized {
			extension := strings.Repeat(";ext=\"a b\"", rng.IntN(8)/7)
			chunk = append(fmt.Appendf(nil, "%x%s\r\n", len(chunk), extension), append(chunk, "\r\n"...)...)
		}
		if !emit(chunk) {
			return false
		}
	}
	if p.requestSized || p.abort == abortInRequest {
		return true
	}
	if p.requestTrailers {
		return emit(fmt.Appendf(nil, "0\r\nX-Load-Sum: %s\r\n\r\n", trailer(p, true)))
	}
	return emit([]byte("0\r\n\r\n"))
}

// receive reads the responses in order, up to one that ends the connection.
func (l *pipeline) receive(tracker *tracker) {
	reader := bufio.NewReaderSize(&activityReader{l}, 16<<10)
	var ended error
	for _, e := range l.exchanges {
		var seen outcome
		if ended != nil {
			seen.interrupted = ended
		} else {
			seen = l.receiveOne(tracker, e, reader)
			ended = seen.interrupted
			if seen.wrong != nil || e.isStalled.Load() {
				ended = errors.New("the previous response was wrong")
			}
		}
		seen.isAborted = seen.isAborted || e.abort != abortNever && (seen.interrupted != nil || seen.wrong == nil)
		checkOutcome(tracker, e, seen)
		if seen.isAborted {
			l.connection.Close()
		}
	}
}

func (l *pipeline) receiveOne(tracker *tracker, e *exchange, reader *bufio.Reader) outcome {
	for {
		response, err := http.ReadResponse(reader, &http.Request{Method: e.method})
		if err != nil {
			return outcome{interrupted: err}
		}
		e.touch()
		if response.StatusCode < 200 {
			e.countInterim(tracker, response.StatusCode, response.Header.Get("Link"))
			continue
		}
		seen := outcome{status: response.StatusCode, fields: response.Header}
		if e.abort == abortAfterHead {
			return seen
		}
		seen.readBody(e, response.Body)
		seen.trailers = response.Trailer
		if response.Close && seen.interrupted == nil && seen.wrong == nil && !e.mayFail() && e != l.exchanges[len(l.exchanges)-1] {
			seen.wrong = errors.New("the connection closes after it, with requests left")
		}
		return seen
	}
}

// activityReader records received bytes as activity.
type activityReader struct{ *pipeline }

func (b *activityReader) Read(part []byte) (int, error) {
	count, err := b.connection.Read(part)
	if count > 0 {
		b.activity.touch()
	}
	return count, err
}

// packetSizer chooses the sizes of a connection's packets: whole, thousands of bytes, or single bytes near the
// start.
type packetSizer struct {
	rng        *rand.Rand
	mean       int
	pausesLeft time.Duration
}

func newPacketSizer(rng *rand.Rand) *packetSizer {
	means := []int{7, 100, 1400, 5000, 16 << 10, 1 << 20}
	return &packetSizer{rng, means[rng.IntN(len(means))], 600 * time.Millisecond}
}

func (c *packetSizer) size(have int) int {
	mean := c.mean
	// Megabytes in tiny packets would take too long.
	if have > 4<<10 && mean < 1000 && c.rng.IntN(4) > 0 {
		mean = 8 << 10
	}
	return min(have, 1+c.rng.IntN(2*mean))
}

func (c *packetSizer) pause() time.Duration {
	if c.pausesLeft <= 0 || c.rng.IntN(3) > 0 {
		return 0
	}
	pause := time.Duration(c.rng.IntN(4000)) * time.Microsecond
	if c.rng.IntN(20) == 0 {
		pause *= 20
	}
	c.pausesLeft -= pause
	return pause
}

var _ io.Reader = (*activityReader)(nil)
