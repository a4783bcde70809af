package main

import (
	"context"
	"crypto/tls"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// upstream is a server of Go's net/http on its own address.
type upstream struct {
	version, address int
	tracker          *tracker
	certificate      *tls.Certificate
	bound            string
	splitSeed        uint64
	lock             sync.Mutex
	server           *http.Server
	accepted         atomic.Uint64
}

// handshakePauseMax is the longest delay of a handshake.
const handshakePauseMax = 400 * time.Millisecond

type connectionKey struct{}

func startUpstream(version, address int, tracker *tracker, certificate *tls.Certificate, seed uint64) (*upstream, error) {
	u := &upstream{version: version, address: address, tracker: tracker, certificate: certificate,
		splitSeed: seed ^ uint64(version)<<40 ^ uint64(address)<<48, bound: "127.0.0.1:0"}
	return u, u.listen()
}

// listen opens the address and starts a new server on it.
func (u *upstream) listen() error {
	listener, err := net.Listen("tcp", u.bound)
	if err != nil {
		return err
	}
	u.bound = listener.Addr().String()
	server := &http.Server{Handler: u, Protocols: new(http.Protocols), ErrorLog: quiet}
	server.Protocols.SetHTTP1(u.version <= h1TLS)
	server.Protocols.SetUnencryptedHTTP2(u.version == h2)
	server.Protocols.SetHTTP2(u.version == h2TLS)
	server.ConnContext = func(ctx context.Context, connection net.Conn) context.Context {
		return context.WithValue(ctx, connectionKey{}, connection)
	}
	server.SetKeepAlivesEnabled(u.address != lateHandshake)
	u.lock.Lock()
	u.server = server
	u.lock.Unlock()
	splitting := &splittingListener{listener, u}
	go func() {
		if u.version == h1TLS || u.version == h2TLS {
			server.TLSConfig = &tls.Config{Certificates: []tls.Certificate{*u.certificate}}
			server.ServeTLS(splitting, "", "")
		} else {
			server.Serve(splitting)
		}
	}()
	return nil
}

// splittingListener accepts connections; every fourth splits its writes.
type splittingListener struct {
	net.Listener
	upstream *upstream
}

func (l *splittingListener) Accept() (net.Conn, error) {
	connection, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	number := l.upstream.accepted.Add(1)
	rng := rand.New(rand.NewPCG(l.upstream.splitSeed, number))
	switch {
	case l.upstream.address == lateHandshake:
		return &lateHandshakeConnection{Conn: connection, pause: time.Duration(rng.Int64N(int64(handshakePauseMax)))}, nil
	case rng.IntN(4) == 0:
		return &splitConnection{Conn: connection, rng: rng}, nil
	}
	return connection, nil
}

// restart stops the server in one of three ways and starts another on the same address.
func (u *upstream) restart(rng *rand.Rand) error {
	u.lock.Lock()
	server := u.server
	u.lock.Unlock()
	switch rng.IntN(3) {
	case 0:
		server.Close()
	case 1:
		// The address is closed for a moment.
		server.Close()
		time.Sleep(time.Duration(rng.IntN(300)) * time.Millisecond)
	default:
		ctx, stop := context.WithTimeout(context.Background(), 10*time.Second)
		go func() {
			defer stop()
			// The listener closes at once; open requests have time to complete.
			server.Shutdown(ctx)
		}()
		time.Sleep(20 * time.Millisecond)
	}
	for range 100 {
		if err := u.listen(); err == nil {
			return nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	return u.listen()
}

func (u *upstream) close() {
	u.lock.Lock()
	defer u.lock.Unlock()
	u.server.Close()
}

// url is the target for the gateway.
func (u *upstream) url() string {
	_, port, _ := net.SplitHostPort(u.bound)
	return [versions]string{"http://127.0.0.1:", "https://localhost:", "h2c://127.0.0.1:", "https://localhost:"}[u.version] + port
}
