package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// client URL [CA]: Go's net/http against the built-in endpoints, over HTTP/2 with both schemes.
func client(arguments []string) error {
	base := arguments[0]
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetHTTP2(true)
	transport.Protocols.SetUnencryptedHTTP2(true)
	if strings.HasPrefix(base, "https:") {
		// Offers both versions; ALPN has to negotiate HTTP/2.
		transport.Protocols.SetHTTP1(true)
		transport.Protocols.SetUnencryptedHTTP2(false)
		config, err := clientConfig(arguments[1])
		if err != nil {
			return err
		}
		transport.TLSClientConfig = config
	}
	peer := &http.Client{Transport: transport, Timeout: 20 * time.Second}
	for _, check := range []func(*http.Client, string) error{
		inParallel, bodies, fullDuplex, cancellation, statuses,
	} {
		if err := check(peer, base); err != nil {
			return err
		}
	}
	return nil
}

// get sends a request and requires 200 over HTTP/2.
func get(peer *http.Client, url string) ([]byte, error) {
	response, err := peer.Get(url)
	if err != nil {
		return nil, err
	}
	return content(response)
}

func content(response *http.Response) ([]byte, error) {
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && (response.StatusCode != http.StatusOK || response.ProtoMajor != 2) {
		err = fmt.Errorf("%s: %s over %s", response.Request.URL, response.Status, response.Proto)
	}
	return body, err
}

// inParallel: 400 requests, 80 concurrently, on the connection of the first.
func inParallel(peer *http.Client, base string) error {
	var connections atomic.Int32
	trace := &httptrace.ClientTrace{GotConn: func(got httptrace.GotConnInfo) {
		if !got.Reused {
			connections.Add(1)
		}
	}}
	context := httptrace.WithClientTrace(context.Background(), trace)
	if _, err := get(peer, base+"/hello"); err != nil {
		return err
	}
	failures := make(chan error, 400)
	var group sync.WaitGroup
	for range 80 {
		group.Go(func() {
			for range 5 {
				request, _ := http.NewRequestWithContext(context, "GET", base+"/hello", nil)
				response, err := peer.Do(request)
				var body []byte
				if err == nil {
					body, err = content(response)
				}
				if err == nil && string(body) != "Hello, World!" {
					err = fmt.Errorf("answered %q", body)
				}
				failures <- err
			}
		})
	}
	group.Wait()
	close(failures)
	for err := range failures {
		if err != nil {
			return fmt.Errorf("in parallel: %w", err)
		}
	}
	if made := connections.Load(); made != 0 {
		return fmt.Errorf("in parallel: %d connections in addition to the first", made)
	}
	return nil
}

// bodies: 8 MiB up and back, with a length and without, and 8 MiB down.
func bodies(peer *http.Client, base string) error {
	sent := make([]byte, 8<<20)
	rand.Read(sent)
	for _, body := range []io.Reader{bytes.NewReader(sent), struct{ io.Reader }{bytes.NewReader(sent)}} {
		response, err := peer.Post(base+"/echo/", "application/octet-stream", body)
		if err != nil {
			return fmt.Errorf("upload: %w", err)
		}
		received, err := content(response)
		if err != nil || !bytes.Equal(sent, received) {
			return fmt.Errorf("upload: received %d of %d bytes, %w", len(received), len(sent), err)
		}
	}
	down, err := get(peer, base+"/data?size="+strconv.Itoa(len(sent)))
	if err != nil || len(down) != len(sent) {
		return fmt.Errorf("download: %d bytes, %w", len(down), err)
	}
	return nil
}

// fullDuplex writes each piece after the previous one has been returned.
func fullDuplex(peer *http.Client, base string) error {
	reader, writer := io.Pipe()
	defer writer.Close()
	first := make(chan error, 1)
	go func() {
		_, err := writer.Write([]byte("piece 00"))
		first <- err
	}()
	response, err := peer.Post(base+"/echo/", "text/plain", reader)
	if err != nil {
		return fmt.Errorf("full duplex: %w", err)
	}
	defer response.Body.Close()
	piece := make([]byte, 8)
	for number := range 20 {
		if _, err := io.ReadFull(response.Body, piece); err != nil {
			return fmt.Errorf("full duplex: piece %d: %w", number, err)
		}
		if wanted := fmt.Sprintf("piece %02d", number); string(piece) != wanted {
			return fmt.Errorf("full duplex: %q instead of %q", piece, wanted)
		}
		if _, err := fmt.Fprintf(writer, "piece %02d", number+1); err != nil {
			return fmt.Errorf("full duplex: %w", err)
		}
	}
	return <-first
}

// cancellation: cancelled requests reset their streams, and others on the connection continue.
func cancellation(peer *http.Client, base string) error {
	for range 20 {
		short, stop := context.WithTimeout(context.Background(), 20*time.Millisecond)
		request, _ := http.NewRequestWithContext(short, "GET", base+"/delay?ms=2000", nil)
		response, err := peer.Do(request)
		stop()
		if !errors.Is(err, context.DeadlineExceeded) {
			return fmt.Errorf("cancellation: %v, %v", response, err)
		}
		if _, err := get(peer, base+"/hello"); err != nil {
			return fmt.Errorf("after a cancellation: %w", err)
		}
	}
	return nil
}

// statuses: HEAD, an unknown path, an unsupported method.
func statuses(peer *http.Client, base string) error {
	for _, row := range []struct {
		method, path string
		wanted       int
	}{{"HEAD", "/hello", 200}, {"GET", "/nothing", 404}, {"DELETE", "/hello", 405}} {
		request, _ := http.NewRequest(row.method, base+row.path, nil)
		response, err := peer.Do(request)
		if err != nil {
			return err
		}
		response.Body.Close()
		if response.StatusCode != row.wanted || response.ProtoMajor != 2 {
			return fmt.Errorf("%s %s: %s over %s", row.method, row.path, response.Status, response.Proto)
		}
	}
	return nil
}
