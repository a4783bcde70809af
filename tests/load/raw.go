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

// rawClient speaks HTTP/1.1 on a socket of its own: it cuts messages into packets as it likes, and sends
// requests before the ones in front are answered.
type rawClient struct {
	gateway gatewayAddresses
	ledger  *ledger
	trust   *tls.Config
}

// play sends a pipeline on one connection and judges every answer.
func (c *rawClient) play(ctx context.Context, plans []*plan) {
	beats := newPulse()
	connection, err := c.dial(plans[0])
	if err != nil {
		c.ledger.fail(nil, "raw client %s: %v", plans[0].id(), err)
		return
	}
	defer connection.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// However the run ends, nobody waits on the socket.
	context.AfterFunc(ctx, func() { connection.SetDeadline(time.Now()) })
	line := &pipeline{ctx: ctx, connection: connection, beats: beats}
	address := connection.LocalAddr().String()
	for _, p := range plans {
		e := c.ledger.begin(p, beats, cancel)
		e.attempts.Store(1)
		c.ledger.isOn(e, address)
		line.exchanges = append(line.exchanges, e)
	}
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		line.send(plans[0].dice(6))
	}()
	line.receive(c.ledger)
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
	if dice := p.dice(7); dice.IntN(2) == 0 {
		below = &cutConnection{Conn: connection, dice: dice}
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

// pipeline is the exchanges of one connection, in their order.
type pipeline struct {
	ctx        context.Context
	connection net.Conn
	beats      *pulse
	exchanges  []*exchange
}

// send writes all requests in pieces that respect no border between messages, until the one that is
// given up.
func (l *pipeline) send(dice *rand.Rand) {
	var waiting []byte
	cutter := newCutter(dice)
	for _, e := range l.exchanges {
		e.at("sends")
		if e.address == tardy {
			e.allow(handshakePauseMax)
		}
		end := l.serialize(e, dice, func(part []byte) bool {
			waiting = append(waiting, part...)
			for len(waiting) >= 128<<10 {
				size := cutter.size(len(waiting))
				if !l.write(waiting[:size], cutter) {
					return false
				}
				waiting = waiting[size:]
			}
			return true
		})
		if !end || e.abort != abortNever {
			break
		}
		e.at("has queued the request")
	}
	for len(waiting) > 0 {
		size := cutter.size(len(waiting))
		if !l.write(waiting[:size], cutter) {
			return
		}
		waiting = waiting[size:]
	}
	l.giveUp()
}

// giveUp closes the connection if the plan says so before the head of the answer.
func (l *pipeline) giveUp() {
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
	if socket, is := tcp(l.connection); is && last.dice(8).IntN(2) == 0 {
		socket.SetLinger(0)
	}
	l.connection.Close()
}

func (l *pipeline) write(piece []byte, cutter *cutter) bool {
	count, err := l.connection.Write(piece)
	if err != nil {
		return false
	}
	l.beats.beat()
	// Roughly: heads and framing count as content of the first exchange that is not answered.
	l.exchanges[0].requestSent.Add(int64(count))
	l.beats.sleep(cutter.pause())
	return true
}

// serialize gives the bytes of a request to the function, as long as that returns true.
func (l *pipeline) serialize(e *exchange, dice *rand.Rand, emit func([]byte) bool) bool {
	p := e.plan
	var head bytes.Buffer
	// Empty lines before a request are allowed (RFC 9112, section 2.2).
	if p.part > 0 && dice.IntN(10) == 0 {
		head.WriteString("\r\n")
	}
	fields := []string{"Host: localhost", "X-Load-Id: " + p.id(), "X-Load-Field:" + strings.Repeat(" ", dice.IntN(3)) + p.field(),
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
	dice.Shuffle(len(fields), func(i, j int) { fields[i], fields[j] = fields[j], fields[i] })
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
	chunks := newChunker(p.dice(1), p.requestDrips)
	part := make([]byte, 64<<10)
	for at := int64(0); at < end; {
		chunk := part[:min(int64(chunks.size()), end-at)]
		p.requestContent().fill(chunk, at)
		at += int64(len(chunk))
		if !p.requestSized {
			extension := strings.Repeat(";ext=\"a b\"", dice.IntN(8)/7)
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

// receive reads the answers in order. After one that ends the connection no more come.
func (l *pipeline) receive(ledger *ledger) {
	reader := bufio.NewReaderSize(&beating{l}, 16<<10)
	var ended error
	for _, e := range l.exchanges {
		var seen outcome
		if ended != nil {
			seen.cut = ended
		} else {
			seen = l.receiveOne(ledger, e, reader)
			ended = seen.cut
			if seen.wrong != nil || e.isHung.Load() {
				ended = errors.New("the answer before was wrong")
			}
		}
		seen.isAborted = seen.isAborted || e.abort != abortNever && (seen.cut != nil || seen.wrong == nil)
		judge(ledger, e, seen)
		if seen.isAborted {
			l.connection.Close()
		}
	}
}

func (l *pipeline) receiveOne(ledger *ledger, e *exchange, reader *bufio.Reader) outcome {
	for {
		answer, err := http.ReadResponse(reader, &http.Request{Method: e.method})
		if err != nil {
			return outcome{cut: err}
		}
		e.beat()
		if answer.StatusCode < 200 {
			e.countInterim(ledger, answer.StatusCode, answer.Header.Get("Link"))
			continue
		}
		seen := outcome{status: answer.StatusCode, fields: answer.Header}
		if e.abort == abortAfterHead {
			return seen
		}
		seen.readBody(e, answer.Body)
		seen.trailers = answer.Trailer
		if answer.Close && seen.cut == nil && seen.wrong == nil && !e.mayFail() && e != l.exchanges[len(l.exchanges)-1] {
			seen.wrong = errors.New("the connection closes behind it, with requests left")
		}
		return seen
	}
}

// beating counts every byte that arrives as a sign of life.
type beating struct{ *pipeline }

func (b *beating) Read(part []byte) (int, error) {
	count, err := b.connection.Read(part)
	if count > 0 {
		b.beats.beat()
	}
	return count, err
}

// cutter draws the packets of a connection: whole, in thousands of bytes, or one by one near the start.
type cutter struct {
	dice       *rand.Rand
	mean       int
	pausesLeft time.Duration
}

func newCutter(dice *rand.Rand) *cutter {
	means := []int{7, 100, 1400, 5000, 16 << 10, 1 << 20}
	return &cutter{dice, means[dice.IntN(len(means))], 600 * time.Millisecond}
}

func (c *cutter) size(have int) int {
	mean := c.mean
	// Many tiny packets for megabytes would take all of the time.
	if have > 4<<10 && mean < 1000 && c.dice.IntN(4) > 0 {
		mean = 8 << 10
	}
	return min(have, 1+c.dice.IntN(2*mean))
}

func (c *cutter) pause() time.Duration {
	if c.pausesLeft <= 0 || c.dice.IntN(3) > 0 {
		return 0
	}
	pause := time.Duration(c.dice.IntN(4000)) * time.Microsecond
	if c.dice.IntN(20) == 0 {
		pause *= 20
	}
	c.pausesLeft -= pause
	return pause
}

var _ io.Reader = (*beating)(nil)
