package main

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
)

// drain URL CA PID: sends TERM to the server while requests run. They complete, and a request that is sent
// meanwhile completes or has certainly not been processed.
func drain(arguments []string) error {
	base := arguments[0]
	pid, err := strconv.Atoi(arguments[2])
	if err != nil {
		return err
	}
	var group sync.WaitGroup
	failures := make(chan error, 1000)
	start := func(name string, run func() error) {
		group.Go(func() {
			if err := run(); err != nil {
				failures <- fmt.Errorf("%s: %w", name, err)
			}
		})
	}
	clients := make([]*http.Client, 6)
	for at := range clients {
		peer, transport, err := connect(arguments[1])
		if err != nil {
			return err
		}
		defer transport.Close()
		clients[at] = peer
		if _, err := get(peer, base+"/hello"); err != nil {
			return err
		}
	}
	late, transport, err := connect(arguments[1])
	if err != nil {
		return err
	}
	defer transport.Close()
	start("late reader", func() error { return lateReader(late, base) })
	var sent, refused atomic.Int32
	var isTermSent atomic.Bool
	for at, peer := range clients {
		for range 10 {
			start("delay", func() error {
				_, err := get(peer, base+"/delay?ms=1500")
				return err
			})
		}
		for range 3 {
			start("download", func() error { return slowDownload(peer, base) })
			start("upload", func() error { return slowUpload(peer, base) })
		}
		if at%2 == 0 {
			for range 4 {
				start("repeated", func() error { return repeat(peer, base, &sent, &refused, &isTermSent) })
			}
		}
	}
	time.Sleep(500 * time.Millisecond)
	isTermSent.Store(true)
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
		return err
	}
	group.Wait()
	close(failures)
	var all []error
	for err := range failures {
		all = append(all, err)
	}
	if len(all) > 0 {
		return fmt.Errorf("%d requests failed: %w", len(all), errors.Join(all[:min(len(all), 10)]...))
	}
	fmt.Printf("quic-go: 97 long requests completed, and %d short ones; %d were refused\n", sent.Load(), refused.Load())
	return nil
}

// lateReader reads a response long after QUIC has acknowledged all of it. The server may not close the connection
// before: "A CONNECTION_CLOSE frame causes all streams to immediately become closed" (RFC 9000, section 10.2).
func lateReader(peer *http.Client, base string) error {
	const size = 300_000
	response, err := peer.Get(base + "/data?size=" + strconv.Itoa(size))
	if err != nil {
		return err
	}
	defer response.Body.Close()
	time.Sleep(2 * time.Second)
	if count, err := io.Copy(io.Discard, response.Body); err != nil || count != size {
		return fmt.Errorf("%d of %d bytes: %w", count, size, err)
	}
	return nil
}

func slowDownload(peer *http.Client, base string) error {
	const size = 3_000_000
	response, err := peer.Get(base + "/data?size=" + strconv.Itoa(size))
	if err != nil {
		return err
	}
	defer response.Body.Close()
	for count := int64(0); ; {
		read, err := io.CopyN(io.Discard, response.Body, size/30)
		if count += read; errors.Is(err, io.EOF) && count == size {
			return nil
		} else if err != nil {
			return fmt.Errorf("after %d bytes: %w", count, err)
		}
		time.Sleep(40 * time.Millisecond)
	}
}

func slowUpload(peer *http.Client, base string) error {
	reader, writer := io.Pipe()
	piece := bytes.Repeat([]byte("0123456789abcdef"), 2000)
	sum := sha256.New()
	go func() {
		for range 30 {
			sum.Write(piece)
			if _, err := writer.Write(piece); err != nil {
				return
			}
			time.Sleep(40 * time.Millisecond)
		}
		writer.Close()
	}()
	response, err := peer.Post(base+"/echo/", "text/plain", reader)
	if err != nil {
		return err
	}
	received, err := content(response)
	if err == nil && sha256.Sum256(received) != [32]byte(sum.Sum(nil)) {
		err = fmt.Errorf("received %d bytes", len(received))
	}
	return err
}

// repeat sends short requests until one is refused.
func repeat(peer *http.Client, base string, sent, refused *atomic.Int32, isTermSent *atomic.Bool) error {
	for {
		_, err := get(peer, base+"/hello")
		if err == nil {
			sent.Add(1)
			time.Sleep(time.Millisecond)
			continue
		}
		if isTermSent.Load() && isUnprocessed(err) {
			refused.Add(1)
			return nil
		}
		return err
	}
}

// isUnprocessed: whether the server has not processed the request, so that it may be sent again.
func isUnprocessed(err error) bool {
	var http3Error *http3.Error
	if errors.As(err, &http3Error) {
		return http3Error.ErrorCode == http3.ErrCodeRequestRejected
	}
	// A new connection, because GOAWAY has ended the old one; and nothing listens any more.
	var transportError *quic.TransportError
	if errors.As(err, &transportError) {
		return transportError.ErrorCode == quic.ConnectionRefused
	}
	return errors.Is(err, syscall.ECONNREFUSED) || strings.Contains(err.Error(), "connection in graceful shutdown")
}
