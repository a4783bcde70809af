package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// client URL CA: the built-in endpoints.
func client(arguments []string) error {
	base := arguments[0]
	peer, transport, err := connect(arguments[1])
	if err != nil {
		return err
	}
	defer transport.Close()
	for _, check := range []struct {
		name string
		run  func(*http.Client, string) error
	}{
		{"in parallel", inParallel}, {"uploads", uploads}, {"full duplex", fullDuplex},
		{"cancellation", cancellation}, {"statuses", statuses},
	} {
		start := time.Now()
		if err := check.run(peer, base); err != nil {
			return fmt.Errorf("%s: %w", check.name, err)
		}
		fmt.Printf("quic-go: %s in %.2f s\n", check.name, time.Since(start).Seconds())
	}
	return nil
}

func get(peer *http.Client, url string) ([]byte, error) {
	response, err := peer.Get(url)
	if err != nil {
		return nil, err
	}
	return content(response)
}

// content reads a response and requires 200 over HTTP/3.
func content(response *http.Response) ([]byte, error) {
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && (response.StatusCode != http.StatusOK || response.ProtoMajor != 3) {
		err = fmt.Errorf("%s: %s over %s", response.Request.URL, response.Status, response.Proto)
	}
	return body, err
}

// inParallel: 400 requests, 80 concurrently, half of them with content of some size.
func inParallel(peer *http.Client, base string) error {
	failures := make(chan error, 400)
	var group sync.WaitGroup
	for worker := range 80 {
		group.Go(func() {
			for turn := range 5 {
				if turn%2 == 0 {
					body, err := get(peer, base+"/hello")
					if err == nil && string(body) != "Hello, World!" {
						err = fmt.Errorf("answered %q", body)
					}
					failures <- err
					continue
				}
				size := worker * 1777
				body, err := get(peer, base+"/data?size="+strconv.Itoa(size))
				if err == nil && len(body) != size {
					err = fmt.Errorf("%d bytes instead of %d", len(body), size)
				}
				failures <- err
			}
		})
	}
	group.Wait()
	close(failures)
	for err := range failures {
		if err != nil {
			return err
		}
	}
	return nil
}

// uploads: different sizes at once, with a length and without.
func uploads(peer *http.Client, base string) error {
	failures := make(chan error, 20)
	var group sync.WaitGroup
	for _, size := range []int{0, 1, 4095, 65_536, 100_000, 1 << 20, 5 << 20} {
		for _, isSized := range []bool{true, false} {
			group.Go(func() { failures <- upload(peer, base, size, isSized) })
		}
	}
	group.Wait()
	close(failures)
	for err := range failures {
		if err != nil {
			return err
		}
	}
	return nil
}

func upload(peer *http.Client, base string, size int, isSized bool) error {
	sent := make([]byte, size)
	rand.Read(sent)
	var body io.Reader = bytes.NewReader(sent)
	if !isSized {
		body = struct{ io.Reader }{body}
	}
	response, err := peer.Post(base+"/echo/", "application/octet-stream", body)
	if err != nil {
		return fmt.Errorf("%d bytes: %w", size, err)
	}
	received, err := content(response)
	// A request without content gets its path.
	isPath := size == 0 && string(received) == "/echo/\n"
	if err != nil || (sha256.Sum256(sent) != sha256.Sum256(received) && !isPath) {
		return fmt.Errorf("received %d of %d bytes, %w", len(received), size, err)
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
		return err
	}
	defer response.Body.Close()
	piece := make([]byte, 8)
	for number := range 20 {
		if _, err := io.ReadFull(response.Body, piece); err != nil {
			return fmt.Errorf("piece %d: %w", number, err)
		}
		if wanted := fmt.Sprintf("piece %02d", number); string(piece) != wanted {
			return fmt.Errorf("%q instead of %q", piece, wanted)
		}
		if _, err := fmt.Fprintf(writer, "piece %02d", number+1); err != nil {
			return err
		}
	}
	return <-first
}

// cancellation: cancelled requests, before and within the response; others on the connection continue.
func cancellation(peer *http.Client, base string) error {
	for number := range 20 {
		short, stop := context.WithTimeout(context.Background(), 20*time.Millisecond)
		request, _ := http.NewRequestWithContext(short, "GET", base+"/delay?ms=2000", nil)
		response, err := peer.Do(request)
		stop()
		if !errors.Is(err, context.DeadlineExceeded) {
			return fmt.Errorf("%v, %v", response, err)
		}
		within, stop := context.WithCancel(context.Background())
		request, _ = http.NewRequestWithContext(within, "GET", base+"/data?size=50000000", nil)
		response, err = peer.Do(request)
		if err != nil {
			stop()
			return fmt.Errorf("download %d: %w", number, err)
		}
		_, err = io.CopyN(io.Discard, response.Body, 200_000)
		stop()
		response.Body.Close()
		if err != nil {
			return fmt.Errorf("download %d: %w", number, err)
		}
		if _, err := get(peer, base+"/hello"); err != nil {
			return fmt.Errorf("after cancellation %d: %w", number, err)
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
		if response.StatusCode != row.wanted || response.ProtoMajor != 3 {
			return fmt.Errorf("%s %s: %s over %s", row.method, row.path, response.Status, response.Proto)
		}
	}
	return nil
}

// trailers URL CA: the pages of `smoke serve`.
func trailers(arguments []string) error {
	peer, transport, err := connect(arguments[1])
	if err != nil {
		return err
	}
	defer transport.Close()
	response, err := peer.Get(arguments[0] + "/bytes?size=3000000")
	if err != nil {
		return err
	}
	received, err := content(response)
	wanted := fmt.Sprintf("%x", sha256.Sum256(received))
	if sum := response.Trailer.Get("X-Sum"); err != nil || len(received) != 3_000_000 || sum != wanted {
		return fmt.Errorf("/bytes: %d bytes, trailer %q instead of %q, %w", len(received), sum, wanted, err)
	}
	sent := make([]byte, 300_000)
	rand.Read(sent)
	request, _ := http.NewRequest("POST", arguments[0]+"/digest", struct{ io.Reader }{bytes.NewReader(sent)})
	request.Trailer = http.Header{"X-Sent": {"all"}}
	response, err = peer.Do(request)
	if err != nil {
		return err
	}
	received, err = content(response)
	if wanted := fmt.Sprintf("%d %x all", len(sent), sha256.Sum256(sent)); err != nil || string(received) != wanted {
		return fmt.Errorf("/digest: %q instead of %q, %w", received, wanted, err)
	}
	return nil
}
