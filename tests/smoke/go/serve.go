package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"
)

// serve ADDRESS EVERY_MS [CERT KEY]: an HTTP/2-only upstream, with TLS if it has a certificate. If EVERY_MS is
// not 0, the server shuts down at this interval as in a deployment: it sends GOAWAY to its connections, prints
// their number, completes open requests, and a new server takes over the listener.
func serve(arguments []string) error {
	listener, err := net.Listen("tcp", arguments[0])
	if err != nil {
		return err
	}
	every, err := strconv.Atoi(arguments[1])
	if err != nil {
		return err
	}
	accepted := make(chan net.Conn)
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				close(accepted)
				return
			}
			accepted <- connection
		}
	}()
	for {
		shared := &sharedListener{accepted, make(chan struct{}), listener.Addr()}
		server := &http.Server{Handler: pages(), Protocols: new(http.Protocols)}
		open := connectionStates{states: make(map[net.Conn]http.ConnState)}
		server.ConnState = open.note
		server.Protocols.SetHTTP2(true)
		server.Protocols.SetUnencryptedHTTP2(true)
		ended := make(chan error, 1)
		go func() {
			if len(arguments) == 4 {
				ended <- server.ServeTLS(shared, arguments[2], arguments[3])
			} else {
				ended <- server.Serve(shared)
			}
		}()
		if every == 0 {
			return <-ended
		}
		select {
		case err := <-ended:
			return err
		case <-time.After(time.Duration(every) * time.Millisecond):
			// The next server accepts at once, while this one shuts down.
			shared.Close()
			<-ended
			go func() {
				timeout, stop := context.WithTimeout(context.Background(), 10*time.Second)
				defer stop()
				open.waitForHandshakes(timeout)
				fmt.Printf("GOAWAY to %d connections\n", open.count())
				if err := server.Shutdown(timeout); err != nil {
					fmt.Println("shutdown:", err)
				}
			}()
		}
	}
}

// connectionStates holds the connections of one server with their states.
type connectionStates struct {
	lock   sync.Mutex
	states map[net.Conn]http.ConnState
}

func (c *connectionStates) note(connection net.Conn, state http.ConnState) {
	c.lock.Lock()
	defer c.lock.Unlock()
	if state == http.StateClosed {
		delete(c.states, connection)
	} else {
		c.states[connection] = state
	}
}

func (c *connectionStates) count() int {
	c.lock.Lock()
	defer c.lock.Unlock()
	return len(c.states)
}

// waitForHandshakes waits until no connection is in its handshake. Shutdown sends no GOAWAY to such
// connections, and the old server would serve them for as long as they are used.
func (c *connectionStates) waitForHandshakes(timeout context.Context) {
	for timeout.Err() == nil {
		c.lock.Lock()
		states := slices.Collect(maps.Values(c.states))
		c.lock.Unlock()
		if !slices.Contains(states, http.StateNew) {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// sharedListener is one server's view of a listener that outlives the server.
type sharedListener struct {
	accepted <-chan net.Conn
	closed   chan struct{}
	address  net.Addr
}

func (l *sharedListener) Accept() (net.Conn, error) {
	select {
	case <-l.closed:
		return nil, net.ErrClosed
	default:
	}
	select {
	case <-l.closed:
		return nil, net.ErrClosed
	case connection, open := <-l.accepted:
		if !open {
			return nil, net.ErrClosed
		}
		return connection, nil
	}
}

func (l *sharedListener) Close() error {
	select {
	case <-l.closed:
	default:
		close(l.closed)
	}
	return nil
}

func (l *sharedListener) Addr() net.Addr { return l.address }

// pages are the upstream's resources; node_upstream.mjs has the same.
func pages() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/version", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, r.Proto)
	})
	mux.HandleFunc("/digest", func(w http.ResponseWriter, r *http.Request) {
		sum := sha256.New()
		length, err := io.Copy(sum, r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		fmt.Fprintf(w, "%d %x %s", length, sum.Sum(nil), r.Trailer.Get("X-Sent"))
	})
	mux.HandleFunc("/bytes", func(w http.ResponseWriter, r *http.Request) {
		size, _ := strconv.Atoi(r.URL.Query().Get("size"))
		w.Header().Set("Trailer", "X-Sum")
		sum := sha256.New()
		block := make([]byte, 32<<10)
		for left := size; left > 0; left -= len(block) {
			block = block[:min(left, len(block))]
			for i := range block {
				block[i] = byte(left + i)
			}
			sum.Write(block)
			if _, err := w.Write(block); err != nil {
				return
			}
		}
		w.Header().Set("X-Sum", fmt.Sprintf("%x", sum.Sum(nil)))
	})
	// Go sets Content-Length on a response without content, whatever trailers it has.
	mux.HandleFunc("/empty", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Trailer", "X-Sum")
		w.Header().Set("Content-Length", "0")
		w.WriteHeader(http.StatusOK)
		w.Header().Set("X-Sum", "0")
	})
	mux.HandleFunc("/slow", func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(50 * time.Millisecond)
		fmt.Fprint(w, "slow")
	})
	mux.HandleFunc("/hints", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Link", "</style.css>; rel=preload")
		w.WriteHeader(http.StatusEarlyHints)
		fmt.Fprint(w, "hinted")
	})
	mux.HandleFunc("/cut", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "begun")
		w.(http.Flusher).Flush()
		// Resets the stream.
		panic(http.ErrAbortHandler)
	})
	return mux
}
