package main

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"sync/atomic"
	"time"
)

// gatewayAddresses are where the gateway listens.
type gatewayAddresses struct{ clear, tls string }

// clientSets is how many clients of each version there are: each has connections of its own.
const clientSets = 3

// client sends exchanges with Go's net/http in one version.
type client struct {
	version   int
	gateway   gatewayAddresses
	ledger    *ledger
	transport *http.Transport
}

func newClient(version, set int, gateway gatewayAddresses, ledger *ledger, trust *tls.Config, seed uint64) *client {
	transport := &http.Transport{
		Protocols: new(http.Protocols), TLSClientConfig: trust.Clone(), DisableCompression: true,
		MaxIdleConnsPerHost: 8, ExpectContinueTimeout: time.Minute,
	}
	transport.Protocols.SetHTTP1(version <= h1TLS)
	transport.Protocols.SetUnencryptedHTTP2(version == h2)
	transport.Protocols.SetHTTP2(version == h2TLS)
	var dialled atomic.Uint64
	transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		connection, err := new(net.Dialer).DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		dice := rand.New(rand.NewPCG(seed^uint64(version)<<32^uint64(set)<<40, dialled.Add(1)))
		if dice.IntN(4) == 0 {
			return &cutConnection{Conn: connection, dice: dice}, nil
		}
		return connection, nil
	}
	return &client{version, gateway, ledger, transport}
}

func (c *client) url(p *plan) string {
	if c.version == h1TLS || c.version == h2TLS {
		return "https://" + c.gateway.tls + p.path()
	}
	return "http://" + c.gateway.clear + p.path()
}

// play sends one exchange and judges its answer.
func (c *client) play(ctx context.Context, p *plan) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	e := c.ledger.begin(p, newPulse(), cancel)
	if p.address == tardy {
		e.allow(handshakePauseMax)
	}
	began := time.Now()
	outcome := c.exchange(ctx, e)
	e.clientTook = time.Since(began)
	judge(c.ledger, e, outcome)
}

// outcome is what a client has seen of an answer.
type outcome struct {
	status   int
	fields   http.Header
	trailers http.Header
	// What is wrong with what came, whatever else happened.
	wrong error
	// Why the answer broke off, or did not come.
	cut error
	// Whether the client gave up as the plan says.
	isAborted bool
}

func (c *client) exchange(ctx context.Context, e *exchange) outcome {
	p := e.plan
	e.at("sends")
	request, body := c.request(ctx, e)
	if p.abort == abortBeforeHead {
		e.allow(p.abortAfter)
		timer := time.AfterFunc(p.abortAfter, e.cancel)
		defer timer.Stop()
	}
	answer, err := c.transport.RoundTrip(request)
	if err != nil {
		return outcome{cut: err, isAborted: p.abort == abortBeforeHead && ctx.Err() != nil || body.isAborted.Load()}
	}
	defer answer.Body.Close()
	e.at("has the head")
	e.beat()
	seen := outcome{status: answer.StatusCode, fields: answer.Header}
	if p.abort == abortAfterHead && isOurs(&seen) {
		e.cancel()
		seen.isAborted = true
		return seen
	}
	seen.readBody(e, answer.Body)
	seen.isAborted = seen.isAborted || body.isAborted.Load()
	seen.trailers = answer.Trailer
	if e.readerDawdles && !seen.isAborted {
		e.sleep(5 * time.Millisecond)
	}
	return seen
}

func (c *client) request(ctx context.Context, e *exchange) (*http.Request, *sentBody) {
	p := e.plan
	trace := &httptrace.ClientTrace{
		GotConn: func(got httptrace.GotConnInfo) {
			e.attempts.Add(1)
			c.ledger.isOn(e, got.Conn.LocalAddr().String())
		},
		Got1xxResponse: func(status int, fields textproto.MIMEHeader) error {
			e.beat()
			e.countInterim(c.ledger, status, fields.Get("Link"))
			return nil
		},
	}
	body := &sentBody{exchange: e, ctx: ctx, chunks: newChunker(p.dice(1), p.requestDrips)}
	var content io.ReadCloser = http.NoBody
	if p.requestSize > 0 {
		content = body
	}
	request, _ := http.NewRequestWithContext(httptrace.WithClientTrace(ctx, trace), p.method, c.url(p), content)
	request.ContentLength = -1
	if p.requestSized || p.requestSize == 0 {
		request.ContentLength = p.requestSize
	}
	request.Header.Set("X-Load-Id", p.id())
	request.Header.Set("X-Load-Field", p.field())
	request.Header.Set("Te", "trailers")
	if p.expect {
		request.Header.Set("Expect", "100-continue")
	}
	if p.requestTrailers {
		request.Trailer = http.Header{"X-Load-Sum": nil}
		body.trailers = request.Trailer
	}
	return request, body
}

// sentBody is the content of a request, which comes in chunks and with pauses.
type sentBody struct {
	*exchange
	ctx       context.Context
	chunks    *chunker
	offset    int64
	trailers  http.Header
	isAborted atomic.Bool
}

func (b *sentBody) Read(part []byte) (int, error) {
	p := b.plan
	if b.offset == p.requestSize {
		if b.trailers != nil {
			b.trailers.Set("X-Load-Sum", trailer(p, true))
		}
		b.at("has sent the request")
		return 0, io.EOF
	}
	end := p.requestSize
	if p.abort == abortInRequest {
		end = p.abortAt
		if b.offset == end {
			b.isAborted.Store(true)
			b.cancel()
			return 0, context.Canceled
		}
	}
	b.sleep(b.chunks.pause())
	size := min(int64(b.chunks.size()), int64(len(part)), end-b.offset)
	p.requestContent().fill(part[:size], b.offset)
	b.offset += size
	b.requestSent.Store(b.offset)
	b.beat()
	return int(size), nil
}

func (b *sentBody) Close() error { return nil }

// readBody takes the content of an answer and compares every byte.
func (o *outcome) readBody(e *exchange, body io.Reader) {
	p := e.plan
	e.at("reads the answer")
	// What the gateway or a broken upstream says is only looked at for its end.
	isCompared := isOurs(o) && (p.fault != faultGarbage || e.isGarbageAverted())
	check := verifier{content: p.answerContent(), size: p.answerSize}
	if p.isBodyless() {
		check.size = 0
	}
	chunks := newChunker(p.dice(2), p.readerDawdles)
	part := make([]byte, 64<<10)
	for {
		count, err := body.Read(part[:chunks.size()])
		e.answerReceived.Add(int64(count))
		if count > 0 {
			e.beat()
			if isCompared {
				if o.wrong = check.take(part[:count]); o.wrong != nil {
					return
				}
			}
		}
		if p.abort == abortInAnswer && isCompared && check.offset > 0 {
			e.cancel()
			o.isAborted = true
			return
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			o.cut = err
			return
		}
		e.sleep(chunks.pause())
	}
	e.at("has the answer")
	if isCompared {
		o.wrong = check.end()
	} else if isOurs(o) {
		o.wrong = errors.New("garbage of an upstream became a complete answer")
	}
}

// isOurs is whether the answer is the upstream's and not the gateway's own.
func isOurs(o *outcome) bool { return o.fields.Get("X-Load-Id") != "" }
